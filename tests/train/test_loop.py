"""The training loop: resume to the bit, stops, selection, processes."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ports import held_port
from torch import Tensor, multiprocessing

from simultan import checkpoint
from simultan.config import (
    Config,
    ConfigError,
    DataConfig,
    LossConfig,
    ModelConfig,
    PolicyConfig,
    TrainConfig,
)
from simultan.data.batching import Batch, Batches
from simultan.data.corpus import prepare
from simultan.data.shards import Corpus
from simultan.data.sources import TextPair
from simultan.data.toy import write_toy
from simultan.model import build
from simultan.train import calibration, loop, step
from simultan.train.distributed import World

CONFIG = Config(
    data=DataConfig(batch_tokens=60, length_step=4),
    model=ModelConfig(width=8, ffn=8, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.2),
    loss=LossConfig(lambda_avg=0.1, lambda_var=0.1),
    train=TrainConfig(
        updates=12, warmup=3, lr=0.05, log_every=2, save_every=4, validate_every=0, average=2
    ),
)


def with_train(config: Config = CONFIG, **changes) -> Config:
    return replace(config, train=replace(config.train, **changes))


@pytest.fixture(scope="module", autouse=True)
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_toy(folder / "text", 60, seed=1)
    pair = TextPair(folder / "text" / "train.en", folder / "text" / "train.fr")
    prepare(folder / "prepared", [pair], pipeline="words", min_count=1)
    os.environ["TEST_CORPUS"] = str(folder / "prepared")  # spawned processes see it too
    return folder / "prepared"


def fit(config: Config, out: Path, **options) -> loop.Outcome:
    config = replace(config, data=replace(config.data, folder=os.environ["TEST_CORPUS"]))
    return loop.fit(config, out, tensorboard=False, device="cpu", **options)


def weights(folder: Path) -> dict[str, Tensor]:
    return checkpoint.load_weights(folder)


def assert_same(one: Path, other: Path) -> None:
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        # A softmax does not see its keys' bias: the gradient is rounding noise, and Adam makes
        # steps of full size out of it.
        if not name.endswith((".qkv.bias", ".key.bias")):
            torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=1e-5)


def metrics(out: Path, kind: str = "train") -> list[dict]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    fit(CONFIG, out)
    return out


def test_it_learns_logs_and_saves(unbroken):
    records = metrics(unbroken)
    assert [r["update"] for r in records] == [2, 4, 6, 8, 10, 12]
    assert records[-1]["nll"] < records[0]["nll"]
    first = records[0]
    latency = 0.1 * first["latency_average"] + 0.1 * first["latency_variance"]
    assert first["loss"] == pytest.approx(first["smooth"] + latency)
    assert first["latency_variance"] > 0
    assert sorted(p.name for p in (unbroken / "checkpoints").iterdir()) == [
        *("00000004", "00000008", "00000012")
    ]
    assert (unbroken / "last").resolve().name == "00000012"


def test_final_is_the_average_of_the_last(unbroken):
    wanted = checkpoint.average([unbroken / "checkpoints" / n for n in ("00000008", "00000012")])
    found = weights(unbroken / "final")
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def run_until_killed(out: str, threads: int) -> None:
    torch.set_num_threads(threads)  # sums depend on how many share the work
    fit(with_train(updates=10**6), Path(out))


def test_kill_9_and_resume_equals_unbroken(tmp_path):
    """Wherever the kill falls, each checkpoint after it is the unbroken run's."""
    context = multiprocessing.get_context("spawn")
    arguments = str(tmp_path / "killed"), torch.get_num_threads()
    process = context.Process(target=run_until_killed, args=arguments)
    process.start()
    while not (tmp_path / "killed" / "last").exists():
        time.sleep(0.01)
        assert process.is_alive()
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = max(int(p.name) for p in (tmp_path / "killed" / "checkpoints").glob("[0-9]*"))
    config = with_train(updates=done + 6)
    text = (tmp_path / "killed" / "config.toml").read_text()
    (tmp_path / "killed" / "config.toml").write_text(
        text.replace(f"updates = {10**6}", f"updates = {done + 6}")
    )
    assert fit(config, tmp_path / "killed").finished
    fit(config, tmp_path / "whole")
    assert_same(tmp_path / "killed" / "last", tmp_path / "whole" / "last")
    assert_same(tmp_path / "killed" / "final", tmp_path / "whole" / "final")
    trainer = [checkpoint.load_trainer(tmp_path / n / "last") for n in ("killed", "whole")]
    assert trainer[0]["update"] == trainer[1]["update"] == done + 6
    for key, state in trainer[0]["optimizer"]["state"].items():
        other = trainer[1]["optimizer"]["state"][key]
        assert all(torch.equal(state[name], other[name]) for name in state)
    updates = [r["update"] for r in metrics(tmp_path / "killed")]
    assert updates == sorted(set(updates))


@pytest.mark.parametrize(
    ("moment", "number"), [(3, signal.SIGTERM), (4, signal.SIGINT), (11, signal.SIGTERM)]
)
def test_a_signal_saves_and_stops(moment, number, tmp_path, unbroken, monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    call = step.Step.__call__

    def signalled(self, update, batches):
        call(self, update, batches)
        if update == moment:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(step.Step, "__call__", signalled)
    try:
        outcome = fit(CONFIG, tmp_path / "run")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (outcome.update, outcome.finished) == (moment, False)
    assert outcome.folder.resolve().name == f"{moment:08d}"
    monkeypatch.undo()
    assert fit(CONFIG, tmp_path / "run").finished
    assert_same(tmp_path / "run" / "final", unbroken / "final")
    clocks = {"tokens_per_second", "seconds"}
    seen = [{k: v for k, v in r.items() if k not in clocks} for r in metrics(unbroken)]
    for record, wanted in zip(metrics(tmp_path / "run"), seen, strict=True):
        assert {k: record[k] for k in wanted} == wanted


def test_a_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    calls = [0]
    total = loop.losses.total

    def spoiled(sums, *arguments):
        calls[0] += 1
        return total(sums, *arguments) * (float("nan") if calls[0] == 8 else 1.0)

    monkeypatch.setattr(loop.losses, "total", spoiled)
    with pytest.raises(loop.NonFiniteLossError, match=r"update 6;.*00000004 holds the last good"):
        fit(with_train(log_every=2), tmp_path / "run")  # two updates, one log, ...
    assert (tmp_path / "run" / "last").resolve().name == "00000004"
    assert all(value.isfinite().all() for value in weights(tmp_path / "run" / "last").values())


def test_a_run_is_not_overwritten_by_another(tmp_path, unbroken):
    fit(with_train(updates=4), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"train\.lr = 0\.05 \(now 0\.01\)"):
        fit(with_train(updates=4, lr=0.01), tmp_path / "run")
    fit(CONFIG, tmp_path / "run", overwrite=True)
    assert_same(tmp_path / "run" / "final", unbroken / "final")
    before = (unbroken / "metrics.jsonl").read_bytes()
    assert fit(CONFIG, unbroken).finished  # nothing left to do
    assert (unbroken / "metrics.jsonl").read_bytes() == before
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="neither empty nor a run"):
        fit(CONFIG, tmp_path / "precious")


def test_a_run_that_never_saved_is_no_obstacle(tmp_path, unbroken):
    with pytest.raises(OSError, match="nowhere"):
        fit(with_train(lr=0.01, init_from="nowhere"), tmp_path / "run")
    fit(CONFIG, tmp_path / "run")
    assert_same(tmp_path / "run" / "final", unbroken / "final")


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    fit(with_train(updates=9, save_every=1, keep=3), tmp_path / "run")
    assert [int(p.name) for p in sorted((tmp_path / "run" / "checkpoints").iterdir())] == [7, 8, 9]


class Scores:
    """A validation that returns what it is told."""

    def __init__(self, *pairs: tuple[float, float]) -> None:
        self.pairs, self.calls = list(pairs), 0

    def __call__(self, model, config, codec):
        assert not model.training
        torch.rand(3)  # must not disturb the training
        bleu, delay = self.pairs[self.calls]
        self.calls += 1
        return {"BLEU": bleu, "DAL": delay}


def test_best_by_bleu_inside_the_latency_range(tmp_path, unbroken):
    config = with_train(validate_every=2, latency_range=(2.0, 6.0))
    scores = Scores((10, 4), (30, 9), (20, 5), (15, 3), (40, 1), (19, 5))
    fit(config, tmp_path / "run", validate=scores)
    assert (tmp_path / "run" / "best").resolve().name == "00000006"
    assert (tmp_path / "run" / "best" / "weights.safetensors").exists()
    assert [r["BLEU"] for r in metrics(tmp_path / "run", "valid")] == [10, 30, 20, 15, 40, 19]
    assert_same(tmp_path / "run" / "final", unbroken / "final")


def test_patience_stops_early(tmp_path):
    config = with_train(validate_every=2, patience=2, latency_range=(0.0, 6.0))
    scores = Scores((10, 4), (30, 9), (9, 5), (8, 3), (40, 1))
    outcome = fit(config, tmp_path / "run", validate=scores)
    assert (outcome.update, outcome.finished, scores.calls) == (8, True, 4)
    assert (tmp_path / "run" / "best").resolve().name == "00000002"
    again = fit(config, tmp_path / "run", validate=scores)
    assert (again.update, again.finished, scores.calls) == (8, True, 4)


@pytest.mark.parametrize("pace", [1.0, 0.5])
def test_a_deadline_brings_the_end_forward(pace, tmp_path, monkeypatch, capfd):
    """The rate falls to 0 in time, however long an update takes; what is planned is the bound.

    The same command continues to what is planned, whatever was estimated before.
    """
    now, real = [0.0], loop.seed

    def an_update(number, update, rank):
        now[0] += pace * (update > 0)
        real(number, update, rank)

    monkeypatch.setattr(loop, "seed", an_update)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    config = with_train(cooldown=4, warmup=0, average=1, save_every=100)
    outcome = fit(config, tmp_path / "run", minutes=8 / 60)
    end = 8 if pace == 1.0 else 12
    assert (outcome.update, outcome.finished) == (end, True)
    rates = {r["update"]: r["lr"] for r in metrics(tmp_path / "run")}
    shares = [rates[u] * u**0.5 / config.train.lr for u in (end - 4, end - 2, end)]
    assert shares == pytest.approx([1.0, 0.6, 0.2])
    assert_same(tmp_path / "run" / "final", tmp_path / "run" / "last")
    told = "time is up at update 8 of 12" in capfd.readouterr().err
    assert told == (end == 8)
    before = weights(tmp_path / "run" / "final")
    assert fit(config, tmp_path / "run") == replace(outcome, update=12)
    assert ("continues at update 8 of 12" in capfd.readouterr().err) == (end == 8)
    assert_same(tmp_path / "run" / "final", tmp_path / "run" / "last")
    after = weights(tmp_path / "run" / "final")
    assert all(torch.equal(before[name], after[name]) for name in before) == (end == 12)


def test_a_deadline_is_kept_between_two_reports(tmp_path, monkeypatch, capfd):
    """Updates may take seconds each: the clock is looked at after every one of them."""
    now, real = [0.0], loop.seed

    def an_update(number, update, rank):
        now[0] += 1.0 if update < 7 else 100.0
        real(number, update, rank)

    monkeypatch.setattr(loop, "seed", an_update)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    config = with_train(updates=60, warmup=20, cooldown=40, log_every=50, save_every=100)
    outcome = fit(config, tmp_path / "run", minutes=30 / 60)
    assert (outcome.update, outcome.finished) == (7, True)
    told = capfd.readouterr().err
    assert told.count("updates fit into the time: warm-up and cooldown are shortened") == 1
    assert "time is up at update 7 of 60" in told
    rates = {r["update"]: r["lr"] for r in metrics(tmp_path / "run")}
    # at update 5 about 30 were expected, so warm-up has 10: its rate is that of update 10 of 20
    assert rates[7] > 0.3 * config.train.lr


@pytest.mark.parametrize("records", [True, False])
def test_updates_that_compile_are_no_pace(records, tmp_path, monkeypatch, capfd):
    """Where updates are recorded the first are slow; warm-up must not be shortened by them."""
    now, real = [0.0], loop.seed

    def an_update(number, update, rank):
        now[0] += (update > 0) * (1.0 if update < 5 else 0.1)
        real(number, update, rank)

    class Records(loop.Run):
        def __init__(self, *parts):
            super().__init__(*parts)
            self._settled += 6 * records

    monkeypatch.setattr(loop, "Run", Records)
    monkeypatch.setattr(loop, "seed", an_update)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    config = with_train(updates=60, warmup=20, cooldown=4, save_every=100)
    outcome = fit(config, tmp_path / "run", minutes=10 / 60)
    assert outcome.finished
    assert 55 <= outcome.update <= 60
    rates = {r["update"]: r["lr"] for r in metrics(tmp_path / "run")}
    jumps = rates[4] > rates[6]
    assert jumps != records
    told = "warm-up and cooldown are shortened" in capfd.readouterr().err
    assert told != records
    if records:
        assert rates[4] == pytest.approx(4 / 20 * config.train.lr, rel=0.05)


def test_an_estimate_of_the_end_is_not_kept(tmp_path, monkeypatch):
    """Stopped under a deadline, then continued without one: all updates are made."""
    now = [0.0]
    real = loop.seed

    def an_update(number, update, rank):
        now[0] += update > 0
        real(number, update, rank)

    monkeypatch.setattr(loop, "seed", an_update)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    outcome = fit(CONFIG, tmp_path / "run", minutes=8 / 60, stop=lambda: now[0] >= 4)
    assert (outcome.update, outcome.finished) == (4, False)
    assert fit(CONFIG, tmp_path / "run").update == 12


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path, monkeypatch):
    """`simultan train ... 2>&1 | head -1`"""
    read, write = os.pipe()
    pipe = os.fdopen(write, "w")
    monkeypatch.setattr(sys, "stderr", pipe)
    os.close(read)
    outcome = fit(with_train(updates=4), tmp_path / "run")
    pipe.close()
    assert outcome.finished
    assert len(metrics(tmp_path / "run")) == 2


def test_a_kill_before_the_validation_only_delays_it(tmp_path):
    def killed(model, config, codec):
        raise KeyboardInterrupt

    config = with_train(validate_every=4)
    with pytest.raises(KeyboardInterrupt):
        fit(config, tmp_path / "run", validate=killed)
    fit(config, tmp_path / "run", validate=Scores((1, 1), (2, 1), (3, 1)))
    assert [r["update"] for r in metrics(tmp_path / "run", "valid")] == [4, 8, 12]


def test_a_kill_before_the_end_leaves_no_older_final_model(tmp_path, monkeypatch):
    """A run that had ended by the clock goes on, and is killed between checkpoint and average."""
    config = with_train(cooldown=4, warmup=0, average=1, save_every=100)
    out, now, real = tmp_path / "run", [0.0], loop.seed

    def an_update(number: int, update: int, rank: int) -> None:
        now[0] += 1.0 * (update > 0)
        real(number, update, rank)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "seed", an_update)
        patched.setattr(loop.time, "perf_counter", lambda: now[0])
        early = fit(config, out, minutes=8 / 60).update
    assert 0 < early < config.train.updates

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop.RunFolder, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            fit(config, out)
    assert fit(config, out).finished
    assert_same(out / "final", out / "checkpoints" / f"{config.train.updates:08d}")


def test_accumulated_batches_are_one_large_batch(corpus):
    """Sums are divided by what the whole update counts, not batch by batch."""
    config = CONFIG
    # no noise, and float64: float32 rounds the sums of one batch and of three differently
    models = [build(config, 50, 50).double().eval() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    whole = next(iter(Batches(Corpus(corpus), DataConfig(batch_tokens=400), prefetch=0)))
    rows = (slice(0, 3), slice(3, 4), slice(4, None))
    parts = [Batch(*(tensor[r] for tensor in whole)) for r in rows]
    steps = [step.Step(model, config, World()) for model in models]
    for update in (1, 2, 3):
        steps[0](update, [whole])
        steps[1](update, parts)
    torch.testing.assert_close(steps[0].sums, steps[1].sums)
    assert_close(*(checkpoint.weights_of(model) for model in models))


def test_it_starts_from_an_offline_model(tmp_path):
    still = with_train(updates=1, lr=0.0, warmup_init_lr=0.0)
    fit(replace(with_train(updates=2), policy=PolicyConfig("offline")), tmp_path / "offline")
    offline = tmp_path / "offline" / "final"
    fit(with_train(still, init_from=str(offline)), tmp_path / "run")
    found = weights(tmp_path / "run" / "final")
    for name, value in weights(offline).items():
        assert torch.equal(found[name], value)
    with pytest.raises(OSError, match="nowhere is not a model folder"):
        fit(with_train(still, init_from="nowhere"), tmp_path / "other")


def test_it_goes_on_from_a_model_that_was_shipped(tmp_path):
    """Stored as int8; what selects goes on, too, or is left behind with `export --offline`."""
    still = {"updates": 1, "lr": 0.0, "warmup_init_lr": 0.0}
    fit(with_train(updates=2), tmp_path / "first")
    for policy in (CONFIG.policy, PolicyConfig("offline")):
        offline = policy.name == "offline"
        shipped, run = tmp_path / f"{policy.name}.int8", tmp_path / f"{policy.name}.again"
        checkpoint.export([tmp_path / "first" / "final"], shipped, "int8", offline=offline)
        fit(replace(with_train(**still, init_from=str(shipped)), policy=policy), run)
        found, wanted = weights(run / "final"), checkpoint.load_weights(shipped)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert torch.equal(found[name], value)


def test_a_kept_step_trains_as_a_new_one(tmp_path, unbroken):
    """Weights, moments and the latency weights are the new run's; code and memory the old one's."""
    pool = step.StepPool()
    other = replace(CONFIG, loss=replace(CONFIG.loss, lambda_avg=0.7, ramp=5))
    fit(with_train(other, seed=5, lr=0.01, updates=5), tmp_path / "before", pool=pool)
    (kept,) = pool._kept.values()
    fit(CONFIG, tmp_path / "run", pool=pool)
    assert list(pool._kept.values()) == [kept]
    assert_same(tmp_path / "run" / "final", unbroken / "final")
    fit(with_train(clip=1.0, updates=2), tmp_path / "clipped", pool=pool)
    assert len(pool._kept) == 2


def test_it_stops_when_it_is_told_to(tmp_path, unbroken):
    questions = []

    def stop() -> bool:
        questions.append(1)
        return len(questions) > 4

    outcome = fit(CONFIG, tmp_path / "run", stop=stop)
    assert not outcome.finished
    assert outcome.update < 6
    assert fit(CONFIG, tmp_path / "run").finished
    assert_same(tmp_path / "run" / "final", unbroken / "final")


def test_muon_stops_resumes_and_keeps_its_step(tmp_path):
    config, pool = with_train(optimizer="muon", clip=1.0), step.StepPool()
    fit(config, tmp_path / "whole", pool=pool)
    times = iter([False, False, True])
    assert not fit(config, tmp_path / "run", stop=lambda: next(times)).finished
    assert fit(config, tmp_path / "run").finished
    fit(config, tmp_path / "kept", pool=pool)
    for name in ("run", "kept"):
        assert_same(tmp_path / name / "final", tmp_path / "whole" / "final")
    fit(with_train(clip=1.0), tmp_path / "adam")
    name = "encoder.0.ffn.inner.weight"
    one, other = (weights(tmp_path / run / "final")[name] for run in ("whole", "adam"))
    assert not torch.equal(one, other)


def test_heads_start_as_the_offline_model_attends_with_a_bias_of_their_own(tmp_path, corpus):
    offline = replace(with_train(updates=2), policy=PolicyConfig("offline"))
    fit(offline, tmp_path / "offline")
    start = str(tmp_path / "offline" / "final")
    still = with_train(updates=1, lr=0.0, warmup_init_lr=0.0, init_from=start)
    fit(with_train(still, init_select="calibrated"), tmp_path / "run")
    found, old = weights(tmp_path / "run" / "final"), weights(tmp_path / "offline" / "final")
    assert torch.equal(
        found["decoder.0.cross.select_key.weight"], old["decoder.0.cross.key.weight"]
    )
    model, config, _ = checkpoint.load_model(tmp_path / "run" / "final")
    batches = Batches(Corpus(corpus), config.data, seed=config.train.seed, prefetch=0)
    batch = batches.assemble(batches.plan(0), 0)
    delays = model(batch).delays  # [B, L, H, T]
    index = torch.arange(1, batch.target.shape[1] + 1)
    keep = index <= batch.target_lengths[:, None]
    source = batch.source_lengths[:, None].float()
    diagonal = index * source / batch.target_lengths[:, None] + calibration.LAG
    wanted = torch.minimum(diagonal, source)[keep].mean()
    means = torch.stack([d[keep] for d in delays.flatten(1, 2).unbind(1)], -1).mean(0)
    torch.testing.assert_close(means, wanted.expand_as(means), rtol=1e-3, atol=1e-3)
    # a start that selects already keeps its selection
    again = with_train(still, init_from=str(tmp_path / "run" / "final"), init_select="calibrated")
    fit(again, tmp_path / "again")
    assert_same(tmp_path / "again" / "final", tmp_path / "run" / "final")


# ---- several processes


def run_rank(rank: int, kind: str, out: str, ports: tuple[int, int]) -> None:
    faulthandler.dump_traceback_later(900, exit=True)  # a hang must not outlive the test
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
    call = step.Step.__call__

    def broken(self, update, batches):
        if update == 5:
            raise InterruptedError
        call(self, update, batches)

    step.Step.__call__ = broken
    with contextlib.suppress(InterruptedError):
        fit(two_processes(kind), Path(out))
    step.Step.__call__ = call
    os.environ["MASTER_PORT"] = str(ports[1])
    fit(two_processes(kind), Path(out))  # goes on at update 3


def two_processes(kind: str) -> Config:
    quiet = replace(
        CONFIG, model=replace(CONFIG.model, dropout=0.0), policy=PolicyConfig(noise=0.0)
    )
    return with_train(quiet, updates=6, save_every=3, accumulate=2, parallel=kind)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_give_the_loss_and_weights_of_one(kind, tmp_path):
    config = two_processes(kind)
    fit(with_train(config, accumulate=4), tmp_path / "one")
    with held_port() as first, held_port() as second:
        given = kind, str(tmp_path / "two"), (first, second)
        multiprocessing.spawn(run_rank, args=given, nprocs=2)
    for one, two in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        for name in ("loss", "nll", "latency_average", "latency_variance", "gradient_norm"):
            assert one[name] == pytest.approx(two[name], rel=1e-5)
    assert_close(weights(tmp_path / "one" / "final"), weights(tmp_path / "two" / "final"))
