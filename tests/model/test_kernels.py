"""The kernels of this machine give what PyTorch's operations give, row by row."""

import copy
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from test_prepared import soft
from test_streaming_parity import draw, stream
from torch import nan

from simultan.model import kernels
from simultan.model.attention import MonotonicAttention, attend
from simultan.model.cache import Cache, Span
from simultan.model.linear import Int8, Linear, Tiled
from simultan.model.pages import Pages

needed = pytest.mark.skipif(kernels.find() is None, reason="no compiler, or no AVX-512 VNNI")
float32 = partial(Tiled, pages=Pages())
int8 = partial(Tiled, pages=Pages(), int8=True)


@pytest.fixture(params=[2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@needed
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 40), (33, 1), (7, 130), (512, 64)])
@pytest.mark.parametrize("rows", [0, 1, 2, 6, 7, 50])
@torch.no_grad()
def test_linear(rows: int, inputs: int, outputs: int) -> None:
    linears = [Linear(inputs, outputs), Linear(inputs, 5, bias=False)]
    x, plus = torch.randn(rows, inputs), torch.randn(rows, outputs + 5)
    layer, expected = float32(linears), torch.cat([linear(x) for linear in linears], 1)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x, relu=True), expected.relu())
    torch.testing.assert_close(layer(x, plus=plus), expected + plus)
    torch.testing.assert_close(layer(x.t().contiguous().t()), expected)
    assert torch.equal(torch.cat([x.new_empty(0, outputs + 5), *map(layer, x.split(1))]), layer(x))


@needed
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 40), (33, 1), (2048, 100)])
@torch.no_grad()
def test_int8_is_the_librarys_to_the_bit(inputs: int, outputs: int, positive: bool) -> None:
    torch.manual_seed(0)
    linear = Linear(inputs, outputs)
    linear.positive = positive
    x = torch.randn(51, inputs) * torch.logspace(-9, 9, 51)[:, None]
    x[5], x[6] = 0, x[6] * 1e-37
    if positive:
        x.relu_()
    layer, expected = int8([linear]), Int8([linear])(x)
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer(x, relu=True), expected.relu())
    assert torch.equal(torch.cat([layer(row[None]) for row in x]), expected)


@needed
@pytest.mark.parametrize("make", [float32, int8])
@pytest.mark.parametrize("rows", [1, 7, 100])
@torch.no_grad()
def test_threads_change_no_bit(make: partial[Tiled], rows: int, threads: int) -> None:
    layer, x = make([Linear(500, 1200)]), torch.randn(rows, 500)
    shared = [layer(x) for _ in range(20)]
    torch.set_num_threads(1)
    assert all(torch.equal(y, layer(x)) for y in shared)


@needed
@pytest.mark.parametrize("make", [float32, int8])
@torch.no_grad()
def test_what_is_no_number_stays_in_its_row(make: partial[Tiled]) -> None:
    layer, x = make([Linear(40, 70)]), torch.randn(9, 40)
    expected = layer(x, relu=True)
    x[2, 39], x[4, 0], x[5, 7] = nan, nan, torch.inf
    found = layer(x, relu=True)
    rows = [0, 1, 3, 6, 7, 8]
    assert torch.equal(found[rows], expected[rows])
    assert found[[2, 4]].isnan().all()
    assert not found[5].isfinite().all()


@needed
@pytest.mark.parametrize("make", [float32, int8])
@torch.no_grad()
def test_many_threads_may_be_first(make: partial[Tiled]) -> None:
    """Each lays the weights out, and one's stay."""
    linears = [Linear(64, 64), Linear(64, 64)]
    x = torch.randn(3, 64)
    expected = make(linears)(x)
    for _ in range(20):
        layer, start = make(linears), threading.Barrier(4)

        def call(layer: Tiled = layer, start: threading.Barrier = start) -> bool:
            start.wait()
            return all(torch.equal(layer(x), expected) for _ in range(10))

        with ThreadPoolExecutor(4) as pool:
            assert all(future.result() for future in [pool.submit(call) for _ in range(4)])


@needed
def test_other_numbers_are_refused() -> None:
    layer = float32([Linear(8, 8)])
    with pytest.raises(TypeError, match="float32 on a CPU"):
        layer(torch.zeros(1, 8, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="float32 on a CPU"):
        layer(torch.zeros(1, 8, device="meta"))


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
@pytest.mark.parametrize(("heads", "size", "count"), [(1, 1, 3_000_000), (3, 33, 10_000)])
def test_attention_far_back(heads: int, size: int, count: int) -> None:
    """More positions than the stack of a thread has room for; none at all; one NaN."""
    torch.manual_seed(0)
    data, q = torch.randn(2, count, 2, heads, size), torch.randn(3, heads * size)
    q[2] = nan
    begins, ends = [0] * heads + [7] * heads + [0] * heads, [count] * heads + [7] * heads * 2
    found = kernels.attend(q, data, kernels.Reach([1, 0, 0], begins, ends))
    keys, values = data[1].transpose(0, 1).unbind()
    query = q[0].view(heads, 1, size).double()
    expected = attend(
        query[None].transpose(1, 2), *(x[None].double() for x in (keys, values)), None, exact=True
    )
    torch.testing.assert_close(found[0], expected.flatten().float(), rtol=1e-4, atol=1e-5)
    assert (found[1] == 0).all()
    assert found[2].isnan().all()


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


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where libraries are kept, with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "simultan"


@pytest.mark.usefixtures("cache")
def test_without_a_compiler_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert kernels.find.__wrapped__() is None


@needed
def test_a_compiler_that_fails_is_none(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    """As one does whose disk is full."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo half > "$2"; exit 1\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(compiler))
    assert kernels.find.__wrapped__() is None
    assert list(cache.iterdir()) == []


@needed
def test_without_a_place_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kernels.find.__wrapped__() is None


def test_another_processor_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the library is there: it may come with an image that was built elsewhere."""
    monkeypatch.setattr(kernels, "has_vnni", lambda: False)
    assert kernels.find.__wrapped__() is None


@needed
def test_half_a_library_is_made_again(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    place = kernels.make()
    whole = place.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        place.write_bytes(whole[:size])
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "which", lambda name: None)
            assert kernels.find.__wrapped__() is None
    assert kernels.find.__wrapped__() is not None
    assert kernels.make() == place
    assert kernels.is_whole(place)
    assert list(cache.iterdir()) == [place]


@needed
def test_many_may_compile_at_once(cache: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        made = {future.result() for future in [pool.submit(kernels.make) for _ in range(3)]}
    assert list(cache.iterdir()) == list(made)
    assert all(map(kernels.is_whole, made))
