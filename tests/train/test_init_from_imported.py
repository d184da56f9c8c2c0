"""A model that decides by itself starts from an imported one whose encoder looks both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

import simultan
from simultan import checkpoint, config, marian
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.train.loop import fit
from simultan.train.validation import evaluate_model
from tests.foreign_folders import make_marian, write_text

RECIPE = """
[policy]
name = "mma-il"
[model]
width = 64
ffn = 96
heads = 4
decoder_heads = 2
encoder_layers = 2
decoder_layers = 1
dropout = 0.0
norm = "post"
positions = "marian"
activation = "swish"
output_bias = true
tie = "all"
[loss]
lambda_avg = 0.005
lambda_var = 0.01
[data]
batch_tokens = 700
[train]
updates = 350
lr = 2e-3
warmup = 60
save_every = 350
validate_every = 350
validate_sentences = 60
average = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    make_marian(folder / "theirs", write_text(folder), std=0.1)
    marian.convert(folder / "theirs", folder / "ours")
    train, valid = (TextPair(folder / f"{n}.en", folder / f"{n}.fr") for n in ("train", "valid"))
    prepare(folder / "prepared", [train], valid, codec=Codec.load(folder / "ours"))
    return folder


def recipe(folder: Path, *changes: str) -> Config:
    places = [f"data.folder={folder / 'prepared'}", f"train.init_from={folder / 'ours'}"]
    return config.parse(RECIPE, [*places, *changes])


def test_it_learns(folder: Path, tmp_path: Path) -> None:
    found: dict[str, float] = {}

    def validate(model, settings, codec):  # type: ignore[no-untyped-def]
        found.update(evaluate_model(model, settings, codec))
        return found

    outcome = fit(recipe(folder), tmp_path / "run", validate=validate, tensorboard=False)
    assert found["BLEU"] > 90
    assert found["AL"] < 5
    words = simultan.load(outcome.folder).translate(["the red house sees a young cat"])[0]
    assert words.text == "la maison rouge voit un chat jeune"
    assert words.delays[0] < 7


@pytest.mark.parametrize("policy", ["mma-h", "wait-k"])
def test_others_start_from_it(folder: Path, tmp_path: Path, policy: str) -> None:
    changes = [f"policy.name={policy}", "train.updates=1", "train.validate_every=0"]
    fit(recipe(folder, *changes), tmp_path / "run", tensorboard=False)
    assert checkpoint.load_config(tmp_path / "run" / "final").policy.name == policy


def test_another_network_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has model\.activation = 'swish', here it is 'relu'"):
        fit(recipe(folder, "model.activation=relu"), tmp_path / "run", tensorboard=False)
    with pytest.raises(ValueError, match='"bidirectional" is for offline models'):
        recipe(folder, "model.encoder=bidirectional")
