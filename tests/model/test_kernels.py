"""The kernels of this machine give what PyTorch's operations give, row by row."""

import copy
import shutil
from functools import partial

import pytest
import torch
from test_prepared import soft
from test_streaming_parity import draw, stream

from simultan.model import kernels
from simultan.model.attention import MonotonicAttention, attend
from simultan.model.cache import Cache, Span
from simultan.model.linear import Int8, Joined, Linear, Tiled
from simultan.model.pages import Pages

needed = pytest.mark.skipif(kernels.find() is None, reason="no compiler, or no AVX-512 VNNI")
float32 = partial(Tiled, pages=Pages(), plain=Joined)
int8 = partial(Tiled, pages=Pages(), plain=Int8, int8=True)


@needed
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 40), (33, 1), (7, 130), (512, 64)])
@pytest.mark.parametrize("rows", [1, 2, 6, 7, 50])
@torch.no_grad()
def test_linear(rows: int, inputs: int, outputs: int) -> None:
    linears = [Linear(inputs, outputs), Linear(inputs, 5, bias=False)]
    x, plus = torch.randn(rows, inputs), torch.randn(rows, outputs + 5)
    layer, expected = float32(linears), torch.cat([linear(x) for linear in linears], 1)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x, relu=True), expected.relu())
    torch.testing.assert_close(layer(x, plus=plus), expected + plus)
    torch.testing.assert_close(layer(x.t().contiguous().t()), expected)
    assert torch.equal(torch.cat([layer(row[None]) for row in x]), layer(x))


@needed
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 40), (33, 1), (2048, 100)])
@torch.no_grad()
def test_int8_is_the_librarys_to_the_bit(inputs: int, outputs: int, positive: bool) -> None:
    torch.manual_seed(0)
    linear = Linear(inputs, outputs)
    linear.positive = positive
    x = torch.randn(51, inputs) * torch.logspace(-9, 9, 51)[:, None]
    x[5] = 0
    if positive:
        x.relu_()
    layer, expected = int8([linear]), Int8([linear])(x)
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer(x, relu=True), expected.relu())
    assert torch.equal(torch.cat([layer(row[None]) for row in x]), expected)
    torch.set_num_threads(2)
    try:
        assert torch.equal(layer(x), expected)
    finally:
        torch.set_num_threads(1)


@needed
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("rows", "starts", "count"), [([2], [9], 1), ([0, 1, 2], [7, 0, 3], 2)])
def test_attention(rows: list[int], starts: list[int], count: int, window: int | None) -> None:
    torch.manual_seed(0)
    cache = Cache(1, 2, 3, 4, 24, torch.zeros(0))
    cache.layers[0].normal_()
    span, q = Span(cache, rows, starts, count, window), torch.randn(len(rows), count, 4, 24)
    found = kernels.attend(q.view(-1, 4 * 24), cache.layers[0], span.reach)
    expected = attend(q, *span.read(0), span.mask, exact=True)
    torch.testing.assert_close(found.view(q.shape), expected)


@needed
@pytest.mark.parametrize("rows", [[1], [0, 1, 2]])
@torch.no_grad()
def test_scan(rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some heads stop at once, some later, some not at all; some have nothing to look at."""
    cross = soft("mma-il", "transformer").cross_attentions()[0]
    assert isinstance(cross, MonotonicAttention)
    heads, size = cross.selecting_heads, cross.select_width // cross.selecting_heads
    for seed in range(20):
        torch.manual_seed(seed)
        selection = Cache(1, 1, 3, heads, size, torch.zeros(0))
        selection.layers[0].normal_()
        queries = torch.randn(len(rows), cross.select_width)
        begins = torch.randint(0, 5, (len(rows), heads)).tolist()
        ends = [5 + 7 * row for row in rows]
        limits = [0.5 * row for row in rows]
        monkeypatch.setattr(cross, "compiled", False)
        expected = cross.first_chosen(queries, selection, 0, rows, begins, ends, limits)
        monkeypatch.setattr(cross, "compiled", True)
        assert cross.first_chosen(queries, selection, 0, rows, begins, ends, limits) == expected


@needed
def test_a_prepared_model_can_be_copied() -> None:
    model, batch = soft("mma-il", "transformer").prepare_inference(), draw(7, 5, seed=0)
    with torch.no_grad():
        expected = stream(model, batch, [7])[0]
        again = copy.deepcopy(model)
        del model
        assert torch.equal(stream(again, batch, [7])[0], expected)


def test_without_a_compiler_there_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert kernels.find.__wrapped__() is None


@needed
def test_a_compiler_that_fails_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/false")
    assert kernels.find.__wrapped__() is None
