"""Training an agent that imitates: a toy task is learnt with guesses, and the verb works."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_train_agent import copier, corpus
from typer.testing import CliRunner

from simultan import checkpoint, cli, config
from simultan.config import ConfigError
from simultan.model import TranslationModel
from simultan.train.agents import imitation
from simultan.train.agents.imitation import (
    DataPart,
    ImitationRecipe,
    OraclePart,
    TrainPart,
    fit_imitation,
)

__all__ = ["corpus"]  # a fixture
RECIPES = Path(__file__).parents[2] / "recipes" / "agents"


def test_a_toy_task_is_learnt(corpus: Path, tmp_path: Path) -> None:
    """The model copies a word once it has seen the next one, which can be guessed."""
    translator, out = copier(corpus), tmp_path / "agent"
    recipe = ImitationRecipe(
        data=DataPart(str(corpus)), oracle=OraclePart(sentences=60), train=TrainPart(epochs=150)
    )
    said: list[str] = []
    found = fit_imitation(recipe, translator, out, say=said.append)
    assert said
    assert found is not None
    assert json.loads((out / "metrics.json").read_text())["accuracy"] == found["accuracy"] > 0.97
    assert found["next_word"] > 0.1
    text = ["an ba co do en fu", "go ha an ba"]
    for line, translation in zip(text, translator.translate(text, f"{out}/"), strict=True):
        assert translation.words == line.split()
        # a guess stands in for the next word, but for the first one's
        assert translation.delays[1:] == list(range(2, len(translation.words) + 1))
    with pytest.raises(ValueError, match="is not empty"):
        fit_imitation(recipe, translator, out)


def test_a_killed_run_resumes_to_the_same_weights(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def kill() -> bool:
        raise Killed

    monkeypatch.setattr(imitation, "PORTION", 16)
    recipe = ImitationRecipe(
        data=DataPart(str(corpus)), oracle=OraclePart(sentences=40), train=TrainPart(epochs=60)
    )
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    found = fit_imitation(recipe, copier(corpus), whole)
    with pytest.raises(Killed):
        fit_imitation(recipe, copier(corpus), cut, stop=kill)
    with pytest.raises(ConfigError, match="another recipe"):
        fit_imitation(replace(recipe, train=TrainPart(epochs=61)), copier(corpus), cut)
    assert fit_imitation(recipe, copier(corpus), cut, stop=lambda: True) is None
    said: list[str] = []
    assert fit_imitation(recipe, copier(corpus), cut, say=said.append) == found
    assert "continues after 32 sentences" in said[1]
    weights = [load_file(folder / "classifier.safetensors") for folder in (whole, cut)]
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    assert sorted(path.name for path in cut.iterdir()) == sorted(
        path.name for path in whole.iterdir()
    )


def test_the_verb(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = copier(corpus)
    model, out = tmp_path / "model", tmp_path / "agent"
    assert isinstance(translator.model, TranslationModel)
    weights = checkpoint.weights_of(translator.model)
    checkpoint.save(model, weights, translator.config, translator.codec)
    changes = [f"data.folder={corpus}", "oracle.sentences=8", "train.epochs=3"]
    command = ["train-agent", str(RECIPES / "imitation.toml"), "--model", str(model)]
    command += ["--out", str(out), *(part for c in changes for part in ("--set", c))]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert "can be guessed" in done.output
    valid = [str(corpus / f"valid.{side}.txt") for side in ("source", "target")]
    command = ["evaluate", str(model), "--source", valid[0], "--reference", valid[1]]
    command += ["--out", str(tmp_path / "scores"), "--agent", str(out)]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output


def test_the_recipe_is_read() -> None:
    assert config.load_as(ImitationRecipe, RECIPES / "imitation.toml").agent.threshold == 0.85
    with pytest.raises(ConfigError, match=r"oracle\.explore = 2\.0"):
        config.load_as(ImitationRecipe, RECIPES / "imitation.toml", ["oracle.explore=2.0"])
