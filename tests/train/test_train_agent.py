"""Training agents: a toy task is learnt, a killed run resumes to the bit, the verb works."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from simultan import checkpoint, cli, config
from simultan.config import Config, ConfigError, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.data.vocabulary import EOS, UNK
from simultan.model import TranslationModel, build
from simultan.model.state import State, Step
from simultan.streaming.translator import Translator
from simultan.train.agents.loop import fit_agent
from simultan.train.agents.recipe import (
    AgentPart,
    AgentRecipe,
    DataPart,
    RewardPart,
    SourcePart,
    TrainPart,
)

WORDS = ["an", "ba", "co", "do", "en", "fu", "go", "ha"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences in which every word but the first follows from the one before it; copied."""
    folder = tmp_path_factory.mktemp("copy")
    draw = random.Random(1)
    lines = []
    for _ in range(200):
        first = draw.randrange(len(WORDS))
        words = [WORDS[(first + i) % len(WORDS)] for i in range(draw.randint(4, 8))]
        lines.append(" ".join(words) + "\n")
    for name, part in (("train", lines), ("valid", lines[:40])):
        for side in ("en", "fr"):
            (folder / f"{name}.{side}").write_text("".join(part), "utf-8")
    train, valid = (TextPair(folder / f"{n}.en", folder / f"{n}.fr") for n in ("train", "valid"))
    prepare(folder / "prepared", [train], valid, pipeline="words", min_count=1)
    return folder / "prepared"


def copier(corpus: Path) -> Translator:
    """It copies word i once it has seen word i + 1; before that it is unsure and wrong."""
    codec = Codec.load(corpus)
    shape = ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    settings = Config(model=shape, policy=PolicyConfig(name="offline"))
    torch.manual_seed(1)
    sizes = len(codec.source_vocabulary), len(codec.target_vocabulary)
    model = build(settings, *sizes).eval()
    honest_step, honest_extend = model.step, model.extend
    heard: dict[tuple[int, int], list[int]] = {}  # by state and row

    def extend(tokens, state: State, rows, counts, finished) -> None:  # type: ignore[no-untyped-def]
        for row, new, count in zip(rows, tokens.tolist(), counts, strict=True):
            before = heard.get((id(state), row), [])[: state.available[row]]
            heard[id(state), row] = before + new[:count]
        honest_extend(tokens, state, rows, counts, finished)

    def step(tokens, state: State, rows, threshold, **options) -> Step:  # type: ignore[no-untyped-def]
        found = honest_step(tokens, state, rows, threshold, **options)
        logits = torch.zeros_like(found.logits)
        for i, row in enumerate(found.rows):
            stop, written = int(found.positions[i].max()) + 1, state.length[row]
            seen = heard[id(state), row][:stop]
            if EOS in seen or len(seen) > written + 1:
                logits[i, seen[min(written, len(seen) - 1)]] = 9.0
            else:
                logits[i, UNK] = 1.0
        found.logits.copy_(logits)
        return found

    model.step, model.extend = step, extend  # type: ignore[method-assign]
    return Translator(model, settings, codec)


def recipe(corpus: Path, name: str = "reinforced", **changes: object) -> AgentRecipe:
    train = TrainPart(
        updates=8, sentences=4, samples=2, log_every=2, save_every=2, validate_every=0
    )
    return AgentRecipe(
        DataPart(str(corpus)),
        AgentPart(name, width=16, slope=0.0),  # type: ignore[arg-type]
        RewardPart(),
        replace(train, **changes),  # type: ignore[arg-type]
        SourcePart(width=16, updates=4, sentences=8, positions=32),
    )


def records(out: Path, kind: str) -> list[dict[str, float]]:
    lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_it_learns_when_to_read(corpus: Path, tmp_path: Path) -> None:
    """Reading two words more than are written is right; less is wrong, more is too slow."""
    settings = recipe(
        corpus, updates=80, sentences=8, samples=4, lr=1e-2, log_every=5, save_every=80,
        validate_every=80, validate_sentences=40,
    )  # fmt: skip
    settings = replace(settings, reward=RewardPart(0.6, 2.0, 3, 0.05))
    fit_agent(settings, copier(corpus), tmp_path / "agent", tensorboard=False)
    first, *_, last = records(tmp_path / "agent", "train")
    assert last["reward"] > first["reward"] + 0.5
    assert last["BLEU"] > 85
    assert last["AL"] < 3.5
    (live,) = records(tmp_path / "agent", "valid")
    assert live["BLEU"] > 95
    assert 1.5 < live["AL"] < 3
    # the same through the front door
    translation = copier(corpus).translate(["an ba co do en fu"], str(tmp_path / "agent"))[0]
    assert translation.text == "an ba co do en fu"
    assert translation.delays[0] < 4


def test_guesses_are_learnt_to_be_right(corpus: Path, tmp_path: Path) -> None:
    """The next word follows from the last: a language model knows it, and a guess saves a word."""
    settings = recipe(
        corpus, "predict", updates=80, sentences=8, samples=4, lr=1e-2, log_every=5, save_every=80,
        validate_every=80, validate_sentences=40,
    )  # fmt: skip
    settings = replace(
        settings,
        reward=RewardPart(0.5, 4.0, 2, 0.05),
        source=SourcePart(width=32, updates=60, sentences=32, positions=256, lr=1e-2),
    )
    fit_agent(settings, copier(corpus), tmp_path / "agent", tensorboard=False)
    assert records(tmp_path / "agent", "source")[-1]["accuracy"] > 0.6
    last = records(tmp_path / "agent", "train")[-1]
    assert last["guesses"] > 0.5
    assert last["guesses_right"] > 0.6
    (live,) = records(tmp_path / "agent", "valid")
    assert live["guesses_right"] > 0.6


@pytest.mark.parametrize("name", ["reinforced", "predict"])
def test_a_killed_run_resumes_to_the_same_weights(name: str, corpus: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    settings = recipe(corpus, name)
    fit_agent(settings, copier(corpus), tmp_path / "whole", tensorboard=False)
    expected = load_file(tmp_path / "whole" / "weights.safetensors")
    for point in (3, 7, 9):  # also while the language model learns
        asked = 0

        def stop(point: int = point) -> bool:
            nonlocal asked
            asked += 1
            if asked == point:
                raise Killed
            return False

        out = tmp_path / f"killed-{point}"
        limit = len(records(tmp_path / "whole", "train")) * 2 + (4 if name == "predict" else 0)
        if point <= limit:
            with pytest.raises(Killed):
                fit_agent(settings, copier(corpus), out, tensorboard=False, stop=stop)
        fit_agent(settings, copier(corpus), out, tensorboard=False)
        found = load_file(out / "weights.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)
        values = [
            [{k: v for k, v in r.items() if k != "tokens_per_second"} for r in records(o, "train")]
            for o in (out, tmp_path / "whole")
        ]
        assert values[0][-1] == values[1][-1] or point == 7  # a part of what a note sums up is lost


def test_a_run_that_is_told_to_stop_goes_on(corpus: Path, tmp_path: Path) -> None:
    settings = recipe(corpus, save_every=100)
    outcome = fit_agent(
        settings, copier(corpus), tmp_path / "agent", tensorboard=False, stop=lambda: True
    )
    assert not outcome.finished
    assert outcome.update == 1
    assert fit_agent(settings, copier(corpus), tmp_path / "agent", tensorboard=False).finished
    with pytest.raises(ConfigError, match="another recipe"):
        fit_agent(recipe(corpus, updates=9), copier(corpus), tmp_path / "agent")
    again = fit_agent(
        recipe(corpus, updates=2), copier(corpus), tmp_path / "agent", overwrite=True,
        tensorboard=False,
    )  # fmt: skip
    assert again.update == 2


def test_it_needs_an_offline_model_and_a_folder_of_its_own(corpus: Path, tmp_path: Path) -> None:
    translator = copier(corpus)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(ConfigError, match="neither empty nor an agent"):
        fit_agent(recipe(corpus), translator, tmp_path / "full")
    shape = replace(translator.config.model)
    learned = build(Config(model=shape), 20, 20)
    other = Translator(learned, Config(model=shape), translator.codec)
    with pytest.raises(ValueError, match="over an offline model of simultan: train one"):
        fit_agent(recipe(corpus), other, tmp_path / "agent")


def test_recipes_of_agents_are_read() -> None:
    folder = Path(__file__).parents[2] / "recipes" / "agents"
    paths = [path for path in sorted(folder.glob("*.toml")) if path.stem != "imitation"]
    assert {path.stem for path in paths} >= {"reinforced", "predict"}
    for path in paths:
        assert config.load_as(AgentRecipe, path).agent.name == path.stem.partition("-")[0]
    with pytest.raises(ConfigError, match=r"train\.samples = 1: it must be at least 2"):
        config.load_as(AgentRecipe, paths[0], ["train.samples=1"])


def test_the_verb(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a model, a recipe, and the agent at work in another verb."""
    translator = copier(corpus)
    model = tmp_path / "model"
    assert isinstance(translator.model, TranslationModel)
    weights = checkpoint.weights_of(translator.model)
    checkpoint.save(model, weights, translator.config, translator.codec)
    monkeypatch.chdir(Path(__file__).parents[2])
    out = tmp_path / "agent"
    small = ["data.folder=" + str(corpus), "train.updates=2", "train.sentences=2", "agent.width=8"]
    small += ["source.updates=2", "source.width=8"]
    changes = [part for change in small for part in ("--set", change)]
    valid = [str(corpus / f"valid.{side}.txt") for side in ("source", "target")]
    for name in ("reinforced", "predict"):
        command = ["train-agent", f"recipes/agents/{name}.toml", "--model", str(model)]
        command += ["--out", str(out / name), *changes]
        done = CliRunner().invoke(cli.app, command)
        assert done.exit_code == 0, done.output
        assert records(out / name, "train")
        command = ["evaluate", str(model), "--source", valid[0], "--reference", valid[1]]
        command += ["--out", str(tmp_path / "scores" / name), "--agent", str(out / name)]
        done = CliRunner().invoke(cli.app, command)
        assert done.exit_code == 0, done.output
        assert "bleu" in done.output


def test_an_agent_of_another_width_is_refused(corpus: Path, tmp_path: Path) -> None:
    translator = copier(corpus)
    fit_agent(recipe(corpus, updates=1), translator, tmp_path / "agent", tensorboard=False)
    shape = replace(translator.config.model, width=32)
    settings = Config(model=shape, policy=PolicyConfig(name="offline"))
    codec = translator.codec
    wider: TranslationModel = build(
        settings, len(codec.source_vocabulary), len(codec.target_vocabulary)
    )
    with pytest.raises(ValueError, match="another width"):
        Translator(wider, settings, codec).translate(["an ba"], str(tmp_path / "agent"))
