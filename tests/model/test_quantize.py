"""int8 weights: close to the model they come from, and rows that know nothing of each other."""

import warnings
from pathlib import Path

import pytest
import torch
from test_prepared import soft, stream_together
from test_streaming_parity import ARCHITECTURES, draw, stream

import simultan
from simultan import checkpoint
from simultan.config import Config, ModelConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, Vocabulary
from simultan.model import build
from simultan.model.linear import Int8


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative, in norm."""
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_map_is_close(rows: int) -> None:
    torch.manual_seed(0)
    linears = [torch.nn.Linear(64, 96), torch.nn.Linear(64, 33, bias=False)]
    x = torch.randn(rows, 64)
    with torch.no_grad():
        x[-1] *= 1000  # a row's precision is its own
        for linear in linears:
            found, expected = Int8([linear])(x), linear(x)
            assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < 0.02
        side_by_side = torch.cat([linear(x) for linear in linears], -1)
        assert error(Int8(linears)(x), side_by_side) < 0.02


def test_rows_know_nothing_of_each_other() -> None:
    torch.manual_seed(0)
    quantized, x = Int8([torch.nn.Linear(64, 96)]), torch.randn(5, 64)
    with torch.no_grad():
        expected = quantized(x)[:3]
        x[3:] = torch.randn(2, 64) * 50
        assert torch.equal(quantized(x)[:3], expected)


def test_zeros_are_zeros() -> None:
    linear = torch.nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        assert not Int8([linear])(torch.zeros(2, 8)).any()
        linear.weight.zero_()
        assert not Int8([linear])(torch.ones(1, 8)).any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["wait-k", "offline"])  # no head whose decision could tip over
def test_logits_are_close(policy: str, architecture: str) -> None:
    model = soft(policy, architecture)
    batches = [draw(source=9, target=8, seed=seed) for seed in range(3)]
    with torch.no_grad():
        alone = [stream(model, batch, [9])[0] for batch in batches]
        together = stream_together(model, batches)
        model.prepare_inference("int8")
        assert isinstance(model.output.layout, Int8)
        for batch, logits in zip(batches, alone, strict=True):
            assert error(stream(model, batch, [9])[0], logits) < 0.05
        for found, logits in zip(stream_together(model, batches), together, strict=True):
            assert error(found, logits) < 0.05


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shape = ModelConfig(width=32, ffn=64, heads=2, encoder_layers=1, decoder_layers=2)
    vocabulary = Vocabulary([*SPECIAL, *"abcdefgh"])
    config = Config(model=shape)
    torch.manual_seed(0)
    model = build(config, len(vocabulary), len(vocabulary))
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    checkpoint.save(tmp_path / "model", checkpoint.weights_of(model), config, codec)
    return tmp_path / "model"


def test_a_session_in_int8(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator = simultan.load(folder, quantize="int8")
        session = translator.session()
        for word in ("a", "b", "c", "d"):
            session.feed(word)
        session.finish()
    assert session.rows[0].done
    results = translator.translate(["a b c d", "d c b", "a"], rows=2)
    assert len(results) == 3


def test_what_cannot_be_is_said(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"int4.*int8"):
        simultan.load(folder, quantize="int4")
    with pytest.raises(ValueError, match="for a CPU"):
        build(Config(), 9, 9).to("meta").prepare_inference("int8")
