"""Beam search: one beam is greedy search, more beams find better translations."""

from __future__ import annotations

import math

import pytest
import torch
from small import ARCHITECTURES, CODEC, beam_search, make

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel, build
from simultan.streaming.search import Search


def undecided(architecture: str, seed: int) -> TranslationModel:
    """A random model of few tokens, none of them much likelier than the others."""
    shape = ModelConfig(
        architecture=architecture,  # type: ignore[arg-type]
        width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0, tie="none",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = build(Config(model=shape, policy=PolicyConfig(name="offline")), 12, 9).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
    return model


def greedy_tokens(model: TranslationModel, source: list[int]) -> tuple[int, ...]:
    """Step by step, without a session."""
    state = model.initial_state(1)
    tokens: list[int] = []
    with torch.no_grad():
        model.extend(torch.tensor([source]), state, [0], [len(source)], [True])
        while len(tokens) < 2 * len(source) + 30:
            logits = model.step([tokens[-1] if tokens else BOS], state, [0], [0.5]).logits[0]
            state.commit([0])
            token = int(logits[EOS:].argmax()) + EOS
            if token == EOS:
                break
            tokens.append(token)
    return tuple(tokens)


def score(model: TranslationModel, source: list[int], target: tuple[int, ...]) -> float:
    """log p(y | x) / |y|, from the training side of the model."""
    y = torch.tensor([[*target, EOS]])
    batch = Batch(
        torch.tensor([source]), torch.tensor([len(source)]), y, torch.tensor([y.shape[1]])
    )
    with torch.no_grad():
        logits = model.project(model(batch).hidden)[0].clone()
    logits[:, :EOS] = -math.inf
    return float(torch.log_softmax(logits, -1).gather(1, y[0, :, None]).sum()) / y.shape[1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_beams(architecture: str) -> None:
    better = ended = 0
    for seed in range(8):
        model = undecided(architecture, seed)
        generator = torch.Generator().manual_seed(seed)
        sources = [
            [*torch.randint(4, 12, (n,), generator=generator).tolist(), EOS] for n in (2, 6, 4)
        ]
        one, five = beam_search(model, sources, 1), beam_search(model, sources, 5)
        for source, greedy, best in zip(sources, one, five, strict=True):
            assert greedy.tokens == greedy_tokens(model, source)
            for found in (greedy, best):
                if len(found.tokens) < 2 * len(source) + 30:
                    ended += 1
                    assert found.score == pytest.approx(score(model, source, found.tokens))
            if len(greedy.tokens) < 2 * len(source) + 30:
                (likely,) = beam_search(model, [source], 5, penalty=0.0)
                total = greedy.score * (len(greedy.tokens) + 1)
                assert likely.score >= total - 1e-9
                better += likely.score > total + 1e-9
            if seed < 2:  # rows do not see each other
                (alone,) = beam_search(model, [source], 5)
                assert alone.tokens == best.tokens
                assert alone.score == pytest.approx(best.score)
    assert better
    assert ended > 10


def test_edges() -> None:
    model = make("offline", "transformer")
    assert beam_search(model, []) == []
    empty, other = beam_search(model, [[EOS], CODEC.encode_source("a b")], 3)
    assert (empty.tokens, empty.score) == ((), 0.0)
    assert other.score < 0
    with pytest.raises(ValueError, match="at least 1"):
        Search(beam=-1)
    with pytest.raises(ValueError, match="needs an offline model; this one is mma-il"):
        beam_search(make("mma-il", "transformer"), [[EOS]])
