"""An experiment from its plan: on a toy, from training to figures, cut off and gone on with."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import lzma
import os
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from experiments.harness import __main__ as command
from experiments.harness import agents, corpora, experiment, plan, record
from experiments.harness.experiment import Experiment, Options, Summary
from experiments.harness.measure import head_habits
from experiments.harness.plan import CorpusPlan, Plan, PlannedRun
from simultan import checkpoint, cli
from simultan.config import ConfigError
from simultan.data.batching import Batches
from simultan.data.corpus import prepare
from simultan.data.shards import Corpus
from simultan.data.sources import TextPair
from simultan.data.toy import write_toy
from simultan.evaluation.instances import Instance
from simultan.latency import METRICS
from simultan.streaming.decoding import Decoding

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments" / "mma2020"

TOY = f"""
name = "toy"
[corpora.toy]
folder = "toy"

[groups.offline]
title = "offline"
figure = "offline"
paper = 99.0
corpus = "toy"
recipe = "{ROOT}/recipes/toy/offline.toml"
set = ["train.updates=120", "model.decoder_layers=1", "train.average=2"]
saves = 3
deviations = ["a toy"]

[groups.mma-h]
title = "MMA-H"
figure = "MMA-H"
corpus = "toy"
recipe = "{ROOT}/recipes/toy/mma-h.toml"
set = ["train.updates=30", "train.warmup=5", "train.average=2", "model.decoder_layers=1"]
init_from = "offline"
saves = 3
candidates = 2

[groups.rules]
title = "rules"
corpus = "toy"
use = "offline"

[groups.ablation-offline]
title = "shapes"
corpus = "toy"
recipe = "{ROOT}/recipes/toy/offline.toml"
set = ["train.updates=4", "train.average=1"]
predictions = false

[[runs]]
name = "offline"
group = "offline"

[[runs]]
name = "mma-h-var{{var}}"
group = "mma-h"
matrix = {{ var = ["0.1"] }}
seeds = [1, 2]
set = ["loss.lambda_var={{var}}"]

[[runs]]
name = "static"
group = "rules"
points = ["static:1,1", "wait-k:2"]

[[runs]]
name = "layers{{layers}}-heads{{heads}}-offline"
group = "ablation-offline"
matrix = {{ layers = [1, 3], heads = [1] }}
set = ["model.decoder_layers={{layers}}", "model.decoder_heads={{heads}}"]
init_from = "offline"
init_parts = ["encoder", "source_embedding", "target_embedding"]
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A folder with a prepared corpus "toy" and its text."""
    folder = tmp_path_factory.mktemp("corpora")
    write_toy(folder / "text", 600)
    pairs = {
        name: TextPair(*(folder / "text" / f"{name}.{side}" for side in ("en", "fr")))
        for name in ("train", "valid", "test")
    }
    for name in ("valid", "test"):  # a few sentences are enough
        for path in (pairs[name].source, pairs[name].target):
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:12]))
    parts = [pairs["train"]], pairs["valid"], pairs["test"]
    prepare(folder / "toy", *parts, pipeline="words", min_count=1)
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> plan.Plan:
    path = tmp_path_factory.mktemp("toy") / "plan.toml"
    path.write_text(TOY)
    return plan.load(path)


def options(folder: Path, corpus: Path, **changes: object) -> Options:
    made = Options(out=folder / "out", results=folder / "results", data=corpus, device="cpu")
    return dataclasses.replace(made, **changes)


def reproduce(
    chosen: Plan, runs: Sequence[PlannedRun], options: Options, say: Callable[[str], None]
) -> Summary:
    return Experiment(options, say).run(chosen, runs)


@pytest.fixture(scope="module")
def finished(toy, corpus, tmp_path_factory) -> Path:
    """The folder of a whole experiment, measured by a worker process."""
    folder = tmp_path_factory.mktemp("finished")
    lines: list[str] = []
    chosen = options(
        folder, corpus, jobs=1, revision="abc", command="python -m experiments.harness toy"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "SHARES", 2)
        summary = reproduce(toy, toy.select(), chosen, lines.append)
    assert not summary.failed, lines
    assert sorted(summary.done) == sorted(run.name for run in toy.runs)
    assert not summary.left
    assert all(line.startswith("[") and " s] " in line for line in lines)
    return folder


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / "results" / "results" / f"{name}.json").read_text())


def test_a_result_names_no_folder_of_this_machine(finished, corpus):
    text = (finished / "results" / "results" / "mma-h-var0.1.json").read_text()
    assert str(finished) not in text
    assert str(corpus) not in text
    config = tomllib.loads(json.loads(text)["config"])
    assert config["train"]["init_from"] == "offline"
    assert config["data"]["folder"] in {path.name for path in corpus.rglob("*")} | {corpus.name}


def test_a_worker_that_dies_is_replaced(toy, corpus, tmp_path, monkeypatch):
    real, opened = experiment.open_workers, list[Any]()

    def opening(jobs: int) -> Any:
        opened.append(real(jobs))
        return opened[-1]

    def killed(self: Any, *parts: Any) -> Any:
        if len(opened) == 1:  # as when the machine has no memory left
            self.workers.submit(os._exit, 1).result()
        return measure(self, *parts)

    measure = Experiment._measure
    monkeypatch.setattr(experiment, "open_workers", opening)
    monkeypatch.setattr(Experiment, "_measure", killed)
    lines: list[str] = []
    chosen = options(tmp_path, corpus, jobs=1)
    summary = reproduce(toy, toy.select(["offline"]), chosen, lines.append)
    assert summary.done == ["offline"], lines
    assert len(opened) == 2
    assert any("a process that measures has died" in line for line in lines)


def test_a_device_that_is_lost_loses_no_result(toy, corpus, tmp_path, monkeypatch):
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(experiment, "free_memory", lost)
    lines: list[str] = []
    summary = reproduce(toy, toy.select(), options(tmp_path, corpus, jobs=1), lines.append)
    # trained, or nothing to train; the others are left
    assert sorted(summary.done) == ["offline", "static"], lines
    assert not summary.failed
    assert sum("FAILED: the device is lost" in line for line in lines) == 1


# --- plans


def test_a_plan_is_expanded(toy):
    assert [run.name for run in toy.runs] == [
        "offline",
        "mma-h-var0.1",
        "mma-h-var0.1-seed2",
        "static",
        "layers1-heads1-offline",
        "layers3-heads1-offline",
    ]
    second = toy.run("mma-h-var0.1-seed2")
    assert (second.seed, second.init_from) == (2, "offline")
    config = second.config()
    assert (config.loss.lambda_var, config.train.seed, config.train.updates) == (0.1, 102, 30)
    assert (config.train.save_every, config.train.validate_every) == (10, 0)
    assert toy.run("static").points == (Decoding(agent="static:1,1"), Decoding(agent="wait-k:2"))
    assert [run.name for run in toy.select(["rules", "offline"])] == ["static", "offline"]
    assert second.config(scale=0.5).train.updates == 15
    listed = dataclasses.replace(toy, lists={"next": ["rules", "offline"]})
    assert [run.name for run in listed.select(["next", "mma-h-var0.1"])] == [
        "static", "offline", "mma-h-var0.1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('group = "rules"', 'group = "none"', "no \\[groups.none\\]"),
        ('init_from = "offline"', 'init_from = "later"', "does not stand before it"),
        ('name = "static"', 'name = "offline"', "two runs"),
        ("candidates = 2", "candidats = 2", "unknown key 'candidats'"),
        ("static:1,1", "speed=3", "point 'speed=3'"),
        ("[corpora.", "[lists]\nnext = ['offlin']\n[corpora.", "no run or group 'offlin'"),
    ],
)
def test_a_mistake_in_a_plan_is_told(old, new, says, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(TOY.replace(old, new))
    with pytest.raises(ConfigError, match=says):
        plan.load(path)


def test_the_experiments_plan():
    """Everything the paper's part asks for is planned, and every run's configuration is sound."""
    mma = plan.load(FOLDER / "plan.toml")
    groups = {name: [r for r in mma.runs if r.group.name == name] for name in mma.groups}
    assert [len(groups[n]) for n in ("milk", "hard", "mocha")] == [4, 1, 1]
    for name, keys in {"mma-il": 5, "mma-h": 4, "modern-mma-il": 5, "modern-mma-h": 5}.items():
        assert len({run.settings for run in groups[name]}) >= keys
    assert [point.k for run in groups["wait-k"] for point in run.points] == [1, 2, 3, 5, 7, 9]
    assert {p.agent.split(":")[0] for r in groups["rules"] for p in r.points} == {
        "wait-k", "static", "wait-if-worse", "wait-if-diff",
    }  # fmt: skip
    policies = {run.config().policy.name for run in groups["one-head"]}
    assert policies == {"milk", "mocha", "hard"}
    for name in ("ablation-offline", "ablation-mma-h"):
        shapes = {(r.labels["layers"], r.labels["heads"]) for r in groups[name]}
        assert shapes == {(n, h) for n in (1, 3, 6) for h in (1, 4, 8, 16)}
    control, learned = groups["modern-wait-k"][0], groups["modern-mma-il-diverse"][0]
    assert (control.init_from, control.corpus) == (learned.init_from, learned.corpus)
    assert control.config().train.updates == learned.config().train.updates
    for name in ("mma-il-avg0.04", "mma-h-var0.1"):
        assert {mma.run(f"{name}-seed{seed}").seed for seed in (2, 3)} == {2, 3}
    for run in mma.runs:
        if run.recipe is not None:
            config = run.config()
            assert config.model.decoder_layers == run.labels.get(
                "layers", config.model.decoder_layers
            )
        if run.group.part == 1:
            assert run.group.deviations, "every deviation stands beside its number"


# --- the whole way


def test_a_result_says_everything(finished, toy):
    made = result(finished, "mma-h-var0.1")
    assert made["updates"] == 30
    assert (made["revision"], made["seed"], made["init_from"]) == ("abc", 1, "offline")
    assert set(made["candidates"]) == {"final", "20", "30"}
    scores = made["candidates"]
    assert scores[made["chosen"]]["bleu"] == max(s["bleu"] for s in scores.values())
    known = {"nll", "l_avg", "l_var"}
    assert made["validation_losses"].keys() == known | {f"{name}_hard" for name in known}
    (point,) = made["points"]
    for part in ("valid", "test"):
        wanted = {"bleu", "bleu_lowercased", "ap", "al", "laal", "dal", "atd", "length_ratio"}
        assert wanted <= point[part].keys()
        assert point[part]["span"] is not None
        assert point[part]["sentences"] == 12
    assert "lambda_var = 0.1" in made["config"]
    log = (finished / "results" / "RUNS.md").read_text()
    assert log.count("\n| ") == len(toy.runs) + 1
    assert not list((finished / "out" / "runs").glob("*/checkpoints/*"))  # weights are heavy


def test_heads_that_have_decided_stop_at_one_token(finished, corpus):
    """What `nll_hard` is measured with: expected delays are those of a stream, whole numbers."""
    folder = finished / "out" / "runs" / "mma-h-var0.1" / "final"
    model, config, _ = checkpoint.load_model(folder, "cpu")
    valid = Corpus(corpus / "toy", "valid")
    batch = next(iter(Batches(valid, config.data, epochs=1, prefetch=0)))
    with torch.inference_mode():
        soft = model(batch).delays
        model.decided = True
        hard = model(batch).delays
    keep = torch.arange(batch.target.shape[1]) < batch.target_lengths[:, None]
    soft, hard = (delays.movedim(-1, 1)[keep] for delays in (soft, hard))
    torch.testing.assert_close(hard, hard.round())
    assert (soft - soft.round()).abs().max() > 0.01


def test_stored_predictions_have_no_text_of_the_corpus_and_score_the_same(finished, corpus):
    for name in ("mma-h-var0.1", "static"):
        for point in result(finished, name)["points"]:
            file = finished / "results" / point["predictions"]
            arguments = ["score", str(file), "--tokenized", "--out", str(finished / "again.json")]
            for side, suffix in (("source", "en"), ("reference", "fr")):
                arguments += [f"--{side}", str(corpus / "text" / f"test.{suffix}")]
            assert CliRunner().invoke(cli.app, arguments).exit_code == 0
            again = json.loads((finished / "again.json").read_text())
            for key in ("bleu", "bleu_lowercased", "ap", "al", "laal", "dal", "atd"):
                assert again[key] == pytest.approx(point["test"][key], abs=1e-9), key
            lines = lzma.decompress(file.read_bytes()).decode().splitlines()
            heads = {"spans"} if name.startswith("mma") else set()
            wanted = {"index", "prediction", "delays"} | heads
            assert all(json.loads(x).keys() == wanted for x in lines)
            if heads:
                means = [sum(s) / len(s) for s in (json.loads(x)["spans"] for x in lines) if s]
                assert sum(means) / len(means) == pytest.approx(point["test"]["span"])


def test_what_has_a_result_is_skipped(finished, toy, corpus):
    lines: list[str] = []
    summary = reproduce(toy, toy.select(["static"]), options(finished, corpus), lines.append)
    assert (summary.skipped, summary.done) == (["static"], [])


def test_new_points_are_added_to_a_result(finished, toy, corpus, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(finished / "results", results)
    old = result(finished, "static")["points"]
    old[0]["test"]["bleu"] = 99.0  # what is known is not measured again
    file = results / "results" / "static.json"
    file.write_text(json.dumps(result(finished, "static") | {"points": old}), encoding="utf-8")
    points = *toy.run("static").points, Decoding(agent="wait-k:3")
    run = dataclasses.replace(toy.run("static"), points=points[::2])
    summary = reproduce(toy, [run], options(finished, corpus, results=results), print)
    assert (summary.skipped, summary.done) == ([], ["static"])
    made = json.loads(file.read_text())["points"]
    assert [point["point"] for point in made] == ["static:1,1", "wait-k:3"]
    assert made[0] == old[0]
    assert (results / made[1]["predictions"]).is_file()


def test_a_model_that_is_gone_is_trained_again_for_what_needs_it(finished, toy, corpus, tmp_path):
    (tmp_path / "results" / "results").mkdir(parents=True)
    known = tmp_path / "results" / "results" / "offline.json"
    known.write_text(json.dumps(result(finished, "offline")), encoding="utf-8")
    before = known.read_bytes()
    runs = toy.select(["offline", "mma-h-var0.1"])
    summary = reproduce(toy, runs, options(tmp_path, corpus, tiny=True), print)
    assert (summary.skipped, summary.done) == ([], ["mma-h-var0.1"])
    assert known.read_bytes() == before  # trained, not measured
    summary = reproduce(toy, runs, options(tmp_path, corpus, tiny=True), print)
    assert summary.skipped == ["offline", "mma-h-var0.1"]


def test_a_model_that_is_gone_is_trained_again_for_new_points(finished, toy, corpus, tmp_path):
    results = tmp_path / "results" / "results"
    results.mkdir(parents=True)
    for name in ("offline", "static"):
        shutil.copy(finished / "results" / "results" / f"{name}.json", results)
    points = *toy.run("static").points, Decoding(agent="wait-k:3")
    runs = [toy.run("offline"), dataclasses.replace(toy.run("static"), points=points)]
    summary = reproduce(toy, runs, options(tmp_path, corpus, tiny=True), print)
    assert (summary.skipped, summary.left, summary.done) == ([], [], ["static"])
    made = json.loads((results / "static.json").read_text())["points"]
    assert [point["point"] for point in made][-1] == "wait-k:3"


def test_shapes_start_from_the_same_encoder(finished, toy, corpus):
    from simultan import checkpoint

    start = checkpoint.load_weights(finished / "out" / "starts" / "layers3-heads1-offline")
    offline = checkpoint.load_weights(finished / "out" / "runs" / "offline" / "final")
    same = {name for name in start if name in offline and start[name].equal(offline[name])}
    assert {name for name in start if name.startswith("encoder")} <= same
    assert any(name.startswith("decoder.2.") for name in start)


def test_the_report_is_made_of_results_alone(finished, toy, tmp_path):
    spec = importlib.util.spec_from_file_location("mma2020_report", FOLDER / "report.py")
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    document = tmp_path / "page.md"
    document.write_text("a\n<!-- offline: begin -->\n<!-- offline: end -->\nb\n")
    plan_file = toy.folder / "plan.toml"
    files = report.write_report(finished / "results", document, plan_file)
    before = {file: file.read_bytes() for file in files}
    assert {file.suffix for file in files} == {".svg", ".png", ".md"}
    bleu = result(finished, "offline")["points"][0]["test"]["bleu"]
    assert f"| offline | 99.00 | {bleu:.2f} |" in document.read_text()
    assert f"| offline | 99.00 | {bleu:.2f} |" in (finished / "results/README.md").read_text()
    assert "[a] a toy" in (finished / "results/README.md").read_text()
    report.write_report(finished / "results", document, plan_file)
    assert before == {file: file.read_bytes() for file in files}


# --- what may go wrong


def test_cut_off_and_gone_on_with(toy, corpus, tmp_path, monkeypatch):
    """Told to stop in the middle of a run, it goes on where it was, and others wait."""
    kills = [True]

    def fit(config, *arguments, **more):
        often = dataclasses.replace(config.train, validate_every=10)

        def validate(*_):
            if kills:
                kills.pop()
                os.kill(os.getpid(), signal.SIGTERM)
            return {}

        config = dataclasses.replace(config, train=often)
        return real(config, *arguments, validate=validate, **more)

    real = experiment.fit
    monkeypatch.setattr(experiment, "fit", fit)
    chosen = options(tmp_path, corpus)
    runs = toy.select(["offline", "static"])
    lines: list[str] = []
    summary = reproduce(toy, runs, chosen, lines.append)
    assert (summary.done, summary.left) == ([], ["offline", "static"])
    assert any("cut off at update 1" in line for line in lines)
    assert not list(tmp_path.glob("results/**/*.json"))
    summary = reproduce(toy, runs, chosen, lines.append)
    assert summary.done == ["offline", "static"]
    made = result(tmp_path, "offline")
    assert made["updates"] == 120
    assert made["train_seconds"] > 0


def test_one_that_fails_or_lacks_its_start_does_not_stop_the_others(toy, corpus, tmp_path):
    offline = toy.run("offline")
    broken = dataclasses.replace(offline, name="broken", settings=("model.heads=3",))
    lines: list[str] = []
    runs = [broken, toy.run("mma-h-var0.1"), offline]
    summary = reproduce(toy, runs, options(tmp_path, corpus, tiny=True), lines.append)
    assert (summary.failed, summary.left) == (["broken"], ["mma-h-var0.1"])
    assert summary.done == ["offline"]
    assert "Traceback" in (tmp_path / "out/errors/broken.txt").read_text()
    assert any("needs offline" in line for line in lines)
    assert result(tmp_path, "offline")["tiny"]


def test_a_model_that_another_lane_trains_is_waited_for(toy, corpus, tmp_path, monkeypatch):
    chosen = options(tmp_path, corpus, tiny=True)

    def train(_: float) -> None:
        monkeypatch.undo()
        assert reproduce(toy, toy.select(["offline"]), chosen, print).done == ["offline"]

    monkeypatch.setattr(experiment.time, "sleep", train)
    waiting = dataclasses.replace(chosen, wait=1e6)
    summary = reproduce(toy, [toy.run("mma-h-var0.1")], waiting, print)
    assert (summary.done, summary.left) == (["mma-h-var0.1"], [])


def test_a_corpus_that_is_being_made_is_waited_for(tmp_path, monkeypatch):
    coming, folder = CorpusPlan("coming"), tmp_path / "coming"

    def make(_: float) -> None:
        folder.mkdir()
        (folder / "prepared.json").touch()

    monkeypatch.setattr(corpora.time, "sleep", make)
    with pytest.raises(FileNotFoundError, match="no prepared folder coming"):
        corpora.prepared_folder(coming, tmp_path, tmp_path / "out", print)
    found = corpora.prepared_folder(coming, tmp_path, tmp_path / "out", print, wait=1e6)
    assert found == folder.resolve()


def test_time_that_is_over_ends_training(toy, corpus, tmp_path):
    lines: list[str] = []
    chosen = options(tmp_path, corpus, train_minutes=1e-6)
    summary = reproduce(toy, toy.select(["offline"]), chosen, lines.append)
    assert summary.left == ["offline"]
    assert any("time for training is over" in line for line in lines)


def test_what_each_head_does():
    heads = [[[1, 2], [1, 1]], [[3, 2], [1, 3]], [[3, 4], [1, 4]]]  # three tokens of two layers
    instance = Instance(index=0, prediction="", delays=[], elapsed=[], token_heads=heads)
    found = head_habits([instance])
    assert found["behind"] == [[0.667, 0.333], [2.0, 0.333]]
    assert found["leads"] == [[0.333, 0.667], [0.0, 0.667]]
    assert found["still"] == [[0.5, 0.5], [1.0, 0.0]]


def test_heads_of_single_tokens_never_had_to_move():
    instance = Instance(index=0, prediction="", delays=[], elapsed=[], token_heads=[[[1, 1]]])
    found = head_habits([instance])
    assert found.keys() == {"behind", "leads"}


def test_a_model_of_other_settings_is_not_taken_for_this_one(toy, corpus, tmp_path, monkeypatch):
    """Trained and not yet measured when the plan changed."""
    run = toy.run("offline")
    with monkeypatch.context() as patched:
        patched.setattr(Experiment, "_measure", lambda *_: kill())
        assert reproduce(toy, [run], options(tmp_path, corpus, tiny=True), print).left == [run.name]
    lines: list[str] = []
    summary = reproduce(toy, [run], options(tmp_path, corpus), lines.append)
    assert summary.failed == [run.name]
    assert any("holds a run with" in line for line in lines)


def kill() -> None:
    raise CancelledError


def test_a_redo_that_is_cut_off_goes_on_without_it(toy, corpus, tmp_path, monkeypatch):
    runs = toy.select(["offline"])
    assert reproduce(toy, runs, options(tmp_path, corpus), print).done == ["offline"]
    with monkeypatch.context() as patched:
        patched.setattr(Experiment, "training_is_over", lambda self: bool(self.asked.pop()))
        again = Experiment(options(tmp_path, corpus, redo=True), print)
        again.asked = [True] * 9 + [False] * 40
        assert again.run(toy, runs).left == ["offline"]
    lines: list[str] = []
    assert reproduce(toy, runs, options(tmp_path, corpus), lines.append).done == ["offline"]
    assert result(tmp_path, "offline")["updates"] == 120


def test_only_what_was_asked_for_brings_back_a_model(toy, corpus, tmp_path):
    """A plan that is followed: others of the plan need it, but none of those that are to run."""
    chosen = options(tmp_path, corpus, tiny=True)
    runs = toy.select(["offline"])
    assert reproduce(toy, runs, chosen, print).done == ["offline"]
    shutil.rmtree(tmp_path / "out")
    assert reproduce(toy, (run for run in runs), chosen, print).skipped == ["offline"]
    assert not (tmp_path / "out" / "trained").exists()


def test_choosing_a_checkpoint():
    scores = {"a": {"bleu": 30.0, "dal": 9.0}, "b": {"bleu": 28.0, "dal": 5.0}}
    scores |= {"c": {"bleu": 27.0, "dal": 4.5}, "d": {"bleu": 1.0, "dal": None}}
    assert record.choose(scores, (0.0, 1e9)) == ("a", True)
    assert record.choose(scores, (0.0, 6.0)) == ("b", True)
    assert record.choose(scores, (6.0, 7.0)) == ("b", False)  # none inside: the nearest


def test_the_command(toy, corpus, tmp_path, monkeypatch, capsys):
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["harness", *arguments])
        return command.main()

    path = str(toy.folder)
    assert run(path, "--dry-run", "--scale", "0.5") == 0
    assert "mma-h-var0.1-seed2" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    more = ["--tiny", "--data", str(corpus), "--results", str(tmp_path), "--device", "cpu"]
    assert run(path, "--only", "offline", *more) == 0
    assert (tmp_path / "results" / "offline.json").exists()
    assert run("nothing") == 2
    assert "no plan of 'nothing'" in capsys.readouterr().err


# --- what is stored


def test_a_result_says_how_an_agent_was_trained(tmp_path):
    """Its recipe without folders, and its last update; a table has what was done and guessed."""
    folder = tmp_path / "runs" / "early"
    folder.mkdir(parents=True)
    text = 'name = "predict"\n[data]\nfolder = "/here"\nmax_length = 25\n'
    text += "[train]\nsentences = 12\nsamples = 4\n[reward]\nlag = 0.03\n"
    (folder / "agent.toml").write_text(text)
    notes = [{"kind": "train", "update": 5}, {"kind": "train", "update": 60}, {"kind": "valid"}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(n) + "\n" for n in notes))
    assert record.trained_agent(Decoding.parse("wait-k:3")) == {}
    found = record.trained_agent(Decoding.parse(f"{folder}:0.3"))
    assert found == record.trained_agent(Decoding.parse(str(folder)))
    assert found["agent"]["last"] == notes[1]
    assert found["agent"]["recipe"]["data"] == {"max_length": 25}
    chosen = plan.load(FOLDER / "plan.toml")
    point = {"point": "early:0.3", "test": {"guesses": 1.5, "guesses_right": 0.25}, **found}
    table = agents.trained(chosen, {"agents-predict": {"points": [point]}})
    row = table.splitlines()[2]
    assert row == "| early:0.3 | predict | 60 updates, 2,880 episodes | 0.030 | 1.50 | 25% |"


@pytest.mark.skipif(
    "SIMULTAN_IWSLT15" not in os.environ,
    reason="SIMULTAN_IWSLT15 names no folder with test.en and test.vi of IWSLT15",
)
def test_stored_headline_predictions_score_as_the_tables_say():
    from simultan.data.sources import read_lines
    from simultan.evaluation.instances import read_log, with_texts
    from simultan.evaluation.scores import score
    from simultan.evaluation.scoring import Scoring

    corpus = Path(os.environ["SIMULTAN_IWSLT15"])
    texts = []
    for language in ("en", "vi"):
        names = [f"{s}.{language}{z}" for s in ("test", "tst2013") for z in ("", ".xz", ".gz")]
        path = next(corpus / name for name in names if (corpus / name).exists())
        texts.append(list(read_lines(path)))
    checked = 0
    for file in sorted((FOLDER / "results").glob("*.json")):
        for point in json.loads(file.read_text())["points"]:
            if "predictions" not in point:
                continue
            log = with_texts(read_log(FOLDER / point["predictions"]), *texts)
            again = score(log, Scoring(tokenized=True)).flat()
            for key in ("bleu", "bleu_lowercased", "length_ratio", *METRICS):
                assert again[key] == pytest.approx(point["test"][key], abs=5e-3), file
            checked += 1
    assert checked
