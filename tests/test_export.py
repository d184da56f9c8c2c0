"""`simultan export`: a model to ship translates as the one it was made of."""

from __future__ import annotations

import shutil
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
