"""simultan adapt: a model learns a dialect, keeps what it is told to keep, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import simultan
from simultan import checkpoint, cli, config
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.data.toy import write_toy
from simultan.streaming.ends import EndNetwork, save_ends
from simultan.train import adaptation
from simultan.train.adaptation import adapt
from simultan.train.loop import fit

RECIPE = Path(__file__).parents[2] / "recipes" / "toy" / "mma-il.toml"
DIALECT = {"maison": "table", "table": "maison", "voit": "aime", "aime": "voit"}
CHANGES = ("train.lr=2e-3", "data.batch_tokens=600", "train.log_every=1000")


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """A model of the toy language as int8, with lags and sentence ends, and a dialect."""
    folder = tmp_path_factory.mktemp("adapt")
    write_toy(folder, 2000)
    prepare(
        folder / "corpus",
        [TextPair(folder / "train.en", folder / "train.fr")],
        pipeline="words",
        min_count=1,
    )
    quick = ["train.updates=250", "train.validate_every=0", "train.average=1"]
    settings = config.load(RECIPE, [f"data.folder={folder / 'corpus'}", *quick])
    fit(settings, folder / "run", tensorboard=False, device="cpu")
    checkpoint.export([folder / "run" / "final"], folder / "model", "int8")
    (folder / "model" / "lags.json").write_text('{"points": [[0.3, 2.0], [0.7, 4.0]]}\n')
    size = len(Codec.load(folder / "model").source_vocabulary)
    save_ends(EndNetwork(size, 2, 3), folder / "model")
    write_toy(folder / "dialect", 600, seed=2)
    for name in ("train", "test"):
        path = folder / "dialect" / f"{name}.fr"
        words = (
            [DIALECT.get(word, word) for word in line.split()]
            for line in path.read_text().splitlines()
        )
        path.write_text("".join(" ".join(line) + "\n" for line in words))
    return folder


def dialect(toy: Path) -> list[TextPair]:
    return [TextPair(toy / "dialect" / "train.en", toy / "dialect" / "train.fr")]


def learn(toy: Path, out: Path, **options):
    options = {"epochs": 8, "changes": CHANGES, "device": "cpu", "say": lambda line: None} | options
    return adapt(toy / "model", dialect(toy), out, **options)


def right(model: Path, folder: Path) -> float:
    """The share of 60 test sentences that are translated to the letter."""
    sources, targets = (
        (folder / f"test.{side}").read_text().splitlines()[:60] for side in ("en", "fr")
    )
    found = simultan.load(model).translate(sources, "threshold=0.5")
    return sum(a.text == b for a, b in zip(found, targets, strict=True)) / len(targets)


def test_a_dialect_is_learnt(toy, tmp_path):
    adapted = learn(toy, tmp_path / "out", keep=0.0)
    assert adapted.pairs == 540
    assert adapted.held_out == 60
    assert adapted.before.bleu < 75 < 90 < adapted.after.bleu
    assert (
        right(toy / "model", toy / "dialect") < 0.5 < 0.8 < right(tmp_path / "out", toy / "dialect")
    )
    assert right(toy / "model", toy) > 0.8  # what it knew, and knows no longer
    assert right(tmp_path / "out", toy) < 0.5
    # all that the model was, and nothing of where it was made
    names = {path.name for path in (toy / "model").iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    for name in ("lags.json", "ends.safetensors", "vocabulary.source.json"):
        assert (tmp_path / "out" / name).read_bytes() == (toy / "model" / name).read_bytes()
    assert checkpoint.stored_as(tmp_path / "out") == "int8"
    kept = checkpoint.load_config(tmp_path / "out")
    assert (kept.data.folder, kept.train.init_from) == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_keep_is_a_share_of_the_weights(toy, tmp_path, monkeypatch):
    """W = keep W_before + (1 - keep) W_after, to the last weight."""
    monkeypatch.setattr(adaptation.shutil, "rmtree", lambda *_, **__: None)  # the run stays
    learn(toy, tmp_path / "out", keep=0.75, epochs=1)
    before = checkpoint.load_weights(toy / "model")
    after = checkpoint.load_weights(tmp_path / "out.unfinished" / "run" / "final")
    checkpoint.export([tmp_path / "out.unfinished" / "run" / "final"], tmp_path / "all", "float32")
    mixed = checkpoint.average([toy / "model", tmp_path / "all"], (0.75, 0.25))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    for name, value in mixed.items():
        wanted = 0.75 * before[name].double() + 0.25 * after[name].double()
        assert torch.equal(value, wanted.float())
    stored = checkpoint.load_weights(tmp_path / "out")
    for name, value in mixed.items():  # int8: half a step of a row's largest weight
        step = value.abs().flatten(1).amax(1) / 127 if value.dim() > 1 else torch.zeros(1)
        error = (stored[name] - value).abs()
        assert (error <= 0.51 * step.reshape(-1, *[1] * (value.dim() - 1))).all()


def test_kept_wholly_nothing_changes(toy, tmp_path):
    adapted = learn(toy, tmp_path / "out", keep=1.0, epochs=0.2)
    before, after = (checkpoint.load_weights(f) for f in (toy / "model", tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert adapted.before.bleu == adapted.after.bleu


def test_it_goes_on_where_it_was_stopped(toy, tmp_path, monkeypatch):
    """And gives the weights of an unbroken one; other text is not mixed into it."""
    whole = learn(toy, tmp_path / "whole", epochs=1)

    def stopped(*given, **options):
        updates = iter(range(3))
        return fit(*given, **options, stop=lambda: next(updates, None) is None)

    monkeypatch.setattr(adaptation, "fit", stopped)
    assert learn(toy, tmp_path / "out", epochs=1) is None
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    shutil.copytree(tmp_path / "out.unfinished", tmp_path / "other.unfinished")
    half = TextPair(toy / "train.en", toy / "train.fr")
    with pytest.raises(ValueError, match=r"other.unfinished is an unfinished .* remove it"):
        adapt(toy / "model", [half], tmp_path / "other", say=lambda line: None)
    again = learn(toy, tmp_path / "out", epochs=1)
    assert again.updates == whole.updates > 3
    one, other = (checkpoint.load_weights(tmp_path / name) for name in ("whole", "out"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_measured_is_not_learnt(toy):
    """Neither the held-out pairs nor others with one of their sides."""
    pairs = adaptation._read(dialect(toy), print)
    pairs += [(pairs[5][0], "autre chose"), ("another thing", pairs[15][1])]
    learnt, held = adaptation._hold_out(pairs)
    assert held[:2] == [pairs[5], pairs[15]]
    assert not {source for source, _ in learnt} & {source for source, _ in held}
    assert not {target for _, target in learnt} & {target for _, target in held}
    assert set(learnt) | set(held) == set(pairs) - set(pairs[-2:])


def test_bad_input_says_what_to_do(toy, tmp_path):
    few = TextPair(tmp_path / "few.en", tmp_path / "few.fr")
    few.source.write_text("the cat\n" * 300)
    few.target.write_text("le chat\n" * 300)
    with pytest.raises(ValueError, match="1 different pairs: 100 are the least"):
        adapt(toy / "model", [few], tmp_path / "out")
    with pytest.raises(ValueError, match="between 0 and 1"):
        learn(toy, tmp_path / "out", keep=1.5)
    with pytest.raises(ValueError, match="simultan import"):
        adapt(tmp_path, dialect(toy), tmp_path / "out")
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError, match="already there"):
        learn(toy, tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.en", "few.fr", "there"]


def test_the_verb(toy, tmp_path):
    lines = zip(
        *((toy / "dialect" / f"train.{side}").read_text().splitlines() for side in ("en", "fr")),
        strict=True,
    )
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(pair) + "\n" for pair in lines))
    options = ["--epochs", "1", "--keep", "0.5", "--threads", "1"]
    for change in CHANGES:
        options += ["--set", change]
    arguments = [str(toy / "model"), "--source", str(tmp_path / "pairs.tsv"), *options]
    result = CliRunner().invoke(cli.app, ["adapt", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    first, *_, title, before, after, last = result.stdout.splitlines()
    assert first.startswith("540 pairs, 60 more to measure; ")
    assert title == "on 60 pairs that were kept apart:"
    assert before.split()[:2] == ["before", "BLEU"]
    assert after.split()[:2] == ["after", "BLEU"]
    assert last == str(tmp_path / "out")
    assert simultan.load(tmp_path / "out").translate(["the cat sees the dog"])[0].text


def test_what_is_left_out_and_what_looks_wrong_is_told(toy, tmp_path):
    sources, targets = (
        (toy / "dialect" / f"train.{side}").read_text().splitlines() for side in ("en", "fr")
    )
    sources[3], targets[7] = "", "  "
    text = TextPair(tmp_path / "odd.en", tmp_path / "odd.fr")
    text.source.write_text("".join(f"{line}\n" for line in sources))
    text.target.write_text("".join(f"{line}\n" for line in targets))
    said: list[str] = []
    options = {"epochs": 0.2, "changes": CHANGES, "device": "cpu", "say": said.append}
    adapted = adapt(toy / "model", [text], tmp_path / "out", **options)
    assert said[0].startswith("left out: 2 pairs, empty (odd.en:4, odd.fr:8")
    assert adapted.pairs + adapted.held_out == 598
