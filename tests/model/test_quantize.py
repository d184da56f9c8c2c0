"""int8 weights: close to the model they come from, and rows that know nothing of each other."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from test_prepared import soft, stream_together
from test_streaming_parity import ARCHITECTURES, POLICIES, VARIANTS, draw, stream

import simultan
from simultan import checkpoint
from simultan.config import Config, ModelConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, Vocabulary
from simultan.model import build, kernels
from simultan.model.attention import attend
from simultan.model.linear import Int8, Linear, Tiled, choose_layout, lay_out
from simultan.model.transformer import FeedForward
from simultan.streaming.session import Write


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


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("inputs", [24, 512])
def test_one_row_is_many_rows_to_the_bit(inputs: int, positive: bool) -> None:
    torch.manual_seed(0)
    linear = Linear(inputs, 300)
    linear.positive = positive
    quantized, x = Int8([linear]), torch.randn(33, inputs) * torch.logspace(-9, 9, 33)[:, None]
    x[5] = 0
    if positive:
        x.relu_()
    with torch.no_grad():
        together = quantized(x)
        assert torch.equal(torch.cat([quantized(row[None]) for row in x]), together)
        assert torch.equal(quantized(x.view(11, 3, inputs)).flatten(0, 1), together)
        for found, expected in zip(together, linear(x), strict=True):
            assert error(found, expected) < 0.02


@pytest.mark.parametrize("heads", [1, 3, 4, 8])
def test_attention_is_exact(heads: int) -> None:
    """Alone, with other rows, with longer rows, one position or several at once."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(5, n, heads, 64) for n in (3, 70, 70))
    ends = torch.tensor([70, 3, 40, 17, 66])
    seen = torch.arange(70) < (ends[:, None] - torch.arange(3).flip(0))[..., None]  # [R, C, N]
    together = attend(q, k, v, torch.where(seen, 0.0, -torch.inf)[:, None], exact=True)
    for row, end in enumerate(ends.tolist()):
        for c in range(3):
            length = end - 2 + c
            keys, values = k[row, None, :length], v[row, None, :length]
            alone = attend(q[row, None, c : c + 1], keys, values, None, exact=True)
            assert torch.equal(alone[0, 0], together[row, c])


@pytest.mark.usefixtures("kernels_or_none")
@pytest.mark.parametrize("variant", ["plain", "rotary post-norm", "more decoder heads"])
@pytest.mark.parametrize("policy", POLICIES)
def test_how_the_source_arrives_changes_no_bit(
    policy: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, variant, replace(VARIANTS[variant], width=64))
    model = soft(policy, "transformer", variant).prepare_inference("int8")
    batches = [draw(source=12, target=9, seed=seed) for seed in range(4)]
    with torch.no_grad():
        together = stream_together(model, batches)
        for batch, row in zip(batches, together, strict=True):
            one_by_one, positions, _ = stream(model, batch, [1] * 12)
            at_once, positions_at_once, _ = stream(model, batch, [12])
            ragged, positions_ragged, _ = stream(model, batch, [2, 1, 5, 1, 3])
            assert positions == positions_at_once == positions_ragged
            for logits in (one_by_one, at_once, ragged):
                assert torch.equal(logits, row)


def test_the_model_in_the_box_in_int8() -> None:
    """Many rows, one row, word by word: the same words with the same delays."""
    translator = simultan.load("de-en", quantize="int8")
    pins = Path(__file__).parents[1] / "shipped_de-en.json"
    sentences = [pin["source"] for pin in json.loads(pins.read_text())]
    many = translator.translate(sentences, rows=4)
    for sentence, found in zip(sentences, many, strict=True):
        alone = translator.translate([sentence], rows=1)[0]
        session = translator.session(segment=False)
        events = [event for word in sentence.split() for event in session.feed(word)]
        writes = [e for e in [*events, *session.finish()] if isinstance(e, Write)]
        assert found.words == alone.words == " ".join(w.text for w in writes).split()
        assert found.delays == alone.delays
        assert found.delays == [w.delay for w in writes for _ in w.text.split()]


@pytest.mark.usefixtures("kernels_or_none")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["wait-k", "offline"])  # no head whose decision could tip over
def test_logits_are_close(policy: str, architecture: str) -> None:
    model = soft(policy, architecture)
    batches = [draw(source=9, target=8, seed=seed) for seed in range(3)]
    with torch.no_grad():
        alone = [stream(model, batch, [9])[0] for batch in batches]
        together = stream_together(model, batches)
        model.prepare_inference("int8")
        assert isinstance(model.output.layout, Tiled if kernels.find() else Int8)
        for batch, logits in zip(batches, alone, strict=True):
            assert error(stream(model, batch, [9])[0], logits) < 0.05
        for found, logits in zip(stream_together(model, batches), together, strict=True):
            assert error(found, logits) < 0.05


@pytest.mark.usefixtures("kernels_or_none")
@pytest.mark.parametrize("activation", ["relu", "swish", "gelu"])
def test_a_feed_forward_layer_keeps_what_is_negative(
    activation: Literal["relu", "swish", "gelu"],
) -> None:
    torch.manual_seed(0)
    layer = FeedForward(ModelConfig(width=64, ffn=256, activation=activation)).eval()
    x = torch.randn(5, 64)
    with torch.no_grad():
        expected = layer.outer(layer(x))
        lay_out(layer, choose_layout(layer.inner.weight, "int8"))
        assert error(layer.outer(layer(x)), expected) < 0.03


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
