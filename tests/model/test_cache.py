"""Caches grow with the longest row, and give memory back when it has ended."""

import torch
from test_streaming_parity import draw, extend, make

from simultan.model.cache import Cache, Span


def fill(cache: Cache, row: int, start: int, values: torch.Tensor) -> None:
    count = len(values)
    cache.reserve([row], [start + count], lambda _: 0)
    new = values.view(1, count, 1, 1, 1).expand(1, count, 2, 3, 4)
    cache.write(1, 0, Span(cache, [row], [start], count), new)


def test_a_long_row_leaves_no_memory_behind() -> None:
    cache = Cache(2, 2, 3, 3, 4, torch.zeros(0))
    fill(cache, 1, 0, torch.arange(40.0))
    fill(cache, 0, 0, torch.arange(3000.0))
    assert cache.capacity >= 3000
    keys, values = cache.read(1, [0, 1], [0, 0], 40).unbind(2)
    assert torch.equal(keys, values)
    assert torch.equal(keys[0], keys[1])
    assert keys[0, :, 0, 0].tolist() == list(range(40))
    cache.reset(2)  # the long row is still there
    assert cache.capacity >= 3000
    cache.reset(0)
    assert cache.capacity <= 128
    assert cache.read(1, [1], [0], 40)[0, :, 0, 0, 0].tolist() == list(range(40))
    fill(cache, 1, 40, torch.arange(40.0, 200.0))
    assert cache.read(1, [1], [0], 200)[0, :, 1, 2, 3].tolist() == list(range(200))


def test_rows_at_different_slots() -> None:
    cache = Cache(2, 2, 2, 3, 4, torch.zeros(0))
    fill(cache, 0, 0, torch.arange(9.0))
    fill(cache, 1, 0, torch.arange(10.0, 30.0))
    keys, _ = cache.read(1, [0, 1], [4, 12], 3).unbind(2)
    assert keys[:, :, 0, 0].tolist() == [[4, 5, 6], [22, 23, 24]]
    cache.reorder([1, 1])
    keys, _ = cache.read(1, [0, 1], [12, 12], 3).unbind(2)
    assert keys[:, :, 0, 0].tolist() == [[22, 23, 24]] * 2


def test_a_stream_of_sentences_keeps_little() -> None:
    model = make("mma-il", "transformer", "plain")
    with torch.no_grad():
        state = model.initial_state(2)
        for row in range(2):
            extend(model, state, draw(900, 5, seed=1).source[0], True, row)
        assert max(state.slots()) >= 900
        state.reset(0)
        assert max(state.slots()) >= 900
        state.reset(1)
        assert max(state.slots()) <= 256
