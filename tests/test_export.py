"""`simultan export`: a model to ship translates as the one it was made of."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import simultan
from simultan import checkpoint, cli
from simultan.config import Config, DataConfig, ModelConfig, PolicyConfig, TrainConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary
from simultan.model import build

CONFIG = Config(
    model=ModelConfig(width=64, ffn=64, heads=2, encoder_layers=1, decoder_layers=2, tie="all"),
    policy=PolicyConfig(name="mma-il"),
    data=DataConfig(folder="/home/someone/data"),
    train=TrainConfig(init_from="/home/someone/model", updates=7),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with three checkpoints."""
    vocabulary = Vocabulary([*SPECIAL, *"abcdefgh", "ij."])
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    folder = tmp_path_factory.mktemp("run")
    for number in range(3):
        torch.manual_seed(number)
        model = build(CONFIG, len(vocabulary), len(vocabulary))
        with torch.no_grad():
            model.output.weight[: UNK + 1] = 0
        place = folder / "checkpoints" / f"{number:08d}"
        checkpoint.save(place, checkpoint.weights_of(model), CONFIG, codec, trainer={"update": 1})
    return folder


def export(*arguments: object) -> str:
    done = CliRunner().invoke(cli.app, ["export", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_the_same_translations(run: Path, tmp_path: Path, weights: str) -> None:
    model = run / "checkpoints" / "00000001"
    assert "MiB" in export(model, tmp_path / "out", "--weights", weights)
    text = ["a b c d ij.", "h g f e", "ij. a b"]
    ways = [simultan.load(folder).translate(text) for folder in (model, tmp_path / "out")]
    for one, other in zip(*ways, strict=True):
        assert (one.words, one.delays) == (other.words, other.delays)
        assert one.words
    config = checkpoint.load_config(tmp_path / "out")
    assert "/home" not in (tmp_path / "out" / "config.toml").read_text()
    assert (config.model, config.train.updates) == (CONFIG.model, 7)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *("SHA256SUMS", "config.toml", "pipeline.json"),
        *("vocabulary.source.json", "vocabulary.target.json", "weights.safetensors"),
    ]


def test_the_mean_of_checkpoints(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", "--weights", "float32", "--average", 2)
    folders = [run / "checkpoints" / f"{number:08d}" for number in (1, 2)]
    wanted, found = checkpoint.average(folders), checkpoint.load_weights(tmp_path / "out")
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    with pytest.raises(ValueError, match="has 3 checkpoints, not 4"):
        export(run, tmp_path / "more", "--average", 4)
    with pytest.raises(FileExistsError):
        export(folders[0], tmp_path / "out")


def test_the_lags_of_one_model_go_with_it(run: Path, tmp_path: Path) -> None:
    model = shutil.copytree(run / "checkpoints" / "00000001", tmp_path / "model")
    (model / "lags.json").write_text("[[0.3, 2.0], [0.7, 5.0]]\n")
    export(model, tmp_path / "out")
    assert simultan.load(tmp_path / "out").lags == simultan.load(model).lags
    assert (tmp_path / "out" / "lags.json").read_text() == "[[0.3, 2.0], [0.7, 5.0]]\n"


def test_without_the_weights_that_select(run: Path, tmp_path: Path) -> None:
    """An offline model of the same weights: whole sentences are those of heads that never stop."""
    model = shutil.copytree(run / "checkpoints" / "00000001", tmp_path / "model")
    (model / "lags.json").write_text("[[0.3, 2.0], [0.7, 5.0]]\n")
    export(model, tmp_path / "out", "--weights", "float32", "--offline")
    before, after = (checkpoint.load_weights(folder) for folder in (model, tmp_path / "out"))
    left_out = before.keys() - after.keys()
    assert left_out
    assert all("select_" in name or "energy_" in name for name in left_out)
    assert all(torch.equal(before[name], value) for name, value in after.items())
    weights = {n: torch.full_like(w, -99.0) if "energy_bias" in n else w for n, w in before.items()}
    codec = Codec.load(model)
    checkpoint.save(tmp_path / "patient", weights, CONFIG, codec)
    text = ["a b c d ij.", "h g f e", "ij. a b"]
    offline, patient = (simultan.load(tmp_path / name) for name in ("out", "patient"))
    assert offline.model.policy.name == "offline"
    assert not offline.lags.points
    for one, other in zip(offline.translate(text), patient.translate(text), strict=True):
        assert one.words == other.words
        assert one.words
    assert offline.translate(text, decoding="wait-k:1")[0].delays[0] == 1


def test_a_model_that_never_sees_the_whole_source_has_no_offline_one(tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIAL, *"abc"])
    config = replace(CONFIG, policy=PolicyConfig(name="mma-h"))
    model = build(config, len(vocabulary), len(vocabulary))
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    checkpoint.save(tmp_path / "model", checkpoint.weights_of(model), config, codec)
    with pytest.raises(ValueError, match="mma-h looks at one place or a few"):
        export(tmp_path / "model", tmp_path / "out", "--offline")
    assert not (tmp_path / "out").exists()
