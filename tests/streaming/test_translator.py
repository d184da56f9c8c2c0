"""A translator: test sets through many rows, agents and beams over a trained offline model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small import ARCHITECTURES, CODEC, POLICIES, feed_all, make, sentence, writes

import simultan
from simultan import config
from simultan.config import Config
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair, read_lines
from simultan.data.toy import write_toy
from simultan.evaluation.evaluate import evaluate
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator
from simultan.train.loop import fit

RECIPES = Path(__file__).parents[2] / "recipes" / "toy"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_test_set_is_its_sentences(policy: str, architecture: str) -> None:
    model = make(policy, architecture, seed=1)
    texts = ["", *(sentence(2 + i % 5, i) for i in range(9)), " "]
    done: list[int] = []
    found = Translator(model, Config(), CODEC).translate(texts, rows=4, progress=done.append)
    assert sum(done) == len(texts)
    for text, translation in zip(texts, found, strict=True):
        session = Session(model, CODEC, segment=False)
        tokens: list[int] = []
        session.on_token = lambda choice, tokens=tokens: tokens.append(choice.token)
        alone = writes(feed_all(session, [text]))
        words = [(word, write.delay) for write in alone for word in write.text.split()]
        assert list(zip(translation.words, translation.delays, strict=True)) == words
        assert translation.tokens == tokens
        assert len(translation.elapsed) == len(words)
        source = len(CODEC.encode_source(text))
        assert all(1 <= delay <= source for delay in translation.token_delays)
        assert len(translation.token_heads) == (len(tokens) if model.policy.learned else 0)


def test_no_sentences_and_bad_settings() -> None:
    translator = Translator(make("offline", "transformer"), Config(), CODEC)
    assert translator.translate([]) == []
    assert translator.translate([], "beam=3") == []
    assert translator.translate(text for text in ["a b", "c"])[1].text == " ".join(
        translator.translate(["c"])[0].words
    )
    with pytest.raises(TypeError, match=r"write translate\(\[text\]\)"):
        translator.translate("a b")
    with pytest.raises(TypeError, match=r"write translate\(\[text\]\)"):
        translator.translate([["a", "b"]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="it takes beam=4 or an agent"):
        translator.translate(["a"], "threshold=0.5")
    with pytest.raises(ValueError, match="device 'gpu': write cpu or cuda"):
        simultan.load("de-en", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device 'cuda': PyTorch finds no GPU"):
            simultan.load("de-en", device="cuda")
    with pytest.raises(OSError, match="neither a model"):
        simultan.load("nowhere")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy language and an offline model of it."""
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder, 3000)
    train = TextPair(folder / "train.en", folder / "train.fr")
    prepare(folder / "data", [train], None, pipeline="words", min_count=1)
    settings = [f"data.folder={folder / 'data'}", "train.updates=250", "train.validate_every=0"]
    fit(config.load(RECIPES / "offline.toml", settings), folder / "run", tensorboard=False)
    return folder


def test_agents_over_a_trained_model(toy: Path) -> None:
    translator = simultan.load(toy / "run" / "final")
    source, reference = (list(read_lines(toy / f"test.{side}"))[:60] for side in ("en", "fr"))
    scores = {
        agent: evaluate(translator, source, reference, decoding=agent)
        for agent in ("", "wait-k:1", "wait-k:3", "wait-k:99", "static:3,2", "wait-if-worse:1,1",
                     "wait-if-diff:1,1", "wait-if-diff:4,2")
    }  # fmt: skip
    bleu = {agent: score.bleu for agent, score in scores.items()}
    lag = {agent: score.latency["al"] for agent, score in scores.items()}
    assert bleu[""] > 95  # type: ignore[operator]
    assert (bleu["wait-k:99"], lag["wait-k:99"]) == (bleu[""], lag[""])
    assert bleu["wait-k:1"] < bleu["wait-k:3"]  # type: ignore[operator]
    assert lag["wait-k:1"] == pytest.approx(1.0, abs=0.3)
    assert lag["wait-k:3"] == pytest.approx(3.0, abs=0.3)
    assert lag["wait-if-diff:1,1"] < lag["wait-if-diff:4,2"] < lag[""]  # type: ignore[operator]
    assert all(score.latency["al"] <= lag[""] for score in scores.values())  # type: ignore[operator]
    assert bleu["wait-if-worse:1,1"] > bleu["wait-k:1"]  # type: ignore[operator]


def test_beams_over_a_trained_model(toy: Path) -> None:
    translator = simultan.load(toy / "run" / "final")
    source = list(read_lines(toy / "test.en"))[:40]
    greedy, beams = translator.translate(source), translator.translate(source, "beam=4")
    same = sum(a.words == b.words for a, b in zip(greedy, beams, strict=True))
    assert same > 35
    for one, other in zip(greedy, beams, strict=True):
        if one.words == other.words:
            assert (one.delays, one.token_delays) == (other.delays, other.token_delays)
