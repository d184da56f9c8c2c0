"""Latency metrics: hand-worked values, the plain loops of their definitions, gradients, padding."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simultan import latency

METRICS = {name.upper(): metric.compute for name, metric in latency.METRICS.items()}


def one(name: str, delays: list[float], source: int, reference: int | None = None) -> float:
    """The metric of one sentence."""
    row = torch.tensor([delays], dtype=torch.float64).reshape(1, len(delays))
    wanted = None if reference is None else torch.tensor([reference])
    return METRICS[name](row, torch.tensor([source]), torch.tensor([len(delays)]), wanted).item()


def by_loop(name: str, delays: list[float], source: int, reference: int) -> float:
    """The definitions, word by word."""
    written = len(delays)
    if name == "AP":
        return sum(delays) / (source * reference)
    if name in ("AL", "LAAL"):
        pace = reference if name == "AL" else max(written, reference)
        lags = []
        for i, delay in enumerate(delays):
            lags.append(delay - i * source / pace)
            if delay >= source:
                break
        return sum(lags) / len(lags)
    if name == "DAL":
        total, last = 0.0, -math.inf
        for i, delay in enumerate(delays):
            last = max(delay, last + source / written)
            total += last - i * source / written
        return total / written
    assert name == "ATD", f"write the definition of {name} here, as a plain loop"
    total, end, first, read = 0.0, 0.0, 0, 0.0
    for i, delay in enumerate(delays):
        if i and delay != delays[i - 1]:
            first, read = i, delays[i - 1]
        end = max(delay, end) + 1
        total += end - min(i + 1 - max(0, first - read), delay)
    return total / written


HAND = [
    # wait-1, equal lengths: always one word behind; the word itself takes one more unit of time
    ([1, 2, 3, 4], 4, 4, {"AP": 10 / 16, "AL": 1, "LAAL": 1, "DAL": 1, "ATD": 1}),
    # wait-3: tau = 2
    ([3, 4, 4, 4], 4, 4, {"AP": 15 / 16, "AL": 3, "LAAL": 3, "DAL": 3, "ATD": 3}),
    # offline: everything at the end
    ([4, 4], 4, 2, {"AP": 1, "AL": 4, "LAAL": 4, "DAL": 4, "ATD": 4}),
    # one target word
    ([2], 4, 1, {"AP": 1 / 2, "AL": 2, "LAAL": 2, "DAL": 2, "ATD": 2}),
    # one source word, three written: later words stand beside the one source word
    ([1, 1, 1], 1, 3, {"AP": 1, "AL": 1, "LAAL": 1, "DAL": 1, "ATD": (1 + 2 + 3) / 3}),
    # longer than the reference (2 words): AL goes down to reward it, LAAL and DAL do not
    (
        [1, 2, 3, 4],
        4,
        2,
        {"AP": 10 / 8, "AL": (1 + 0 - 1 - 2) / 4, "LAAL": 1, "DAL": 1, "ATD": 1},
    ),
    # shorter than the reference (4): an ideal writer of the reference is further along
    ([2, 4], 4, 4, {"AP": 6 / 16, "AL": (2 + 3) / 2, "LAAL": (2 + 3) / 2, "DAL": 2}),
    # the source is never finished: tau is the last word written
    ([1, 1, 2], 4, 4, {"AP": 4 / 16, "AL": (1 + 0 + 0) / 3, "LAAL": (1 + 0 + 0) / 3, "DAL": 1}),
]


@pytest.mark.parametrize(("delays", "source", "reference", "wanted"), HAND)
def test_hand_worked(
    delays: list[float], source: int, reference: int, wanted: dict[str, float]
) -> None:
    for name, value in wanted.items():
        assert one(name, delays, source, reference) == pytest.approx(value, abs=1e-12), name


def test_without_reference_the_output_is_its_own_reference() -> None:
    for name in METRICS:
        assert one(name, [1, 1, 3], 5) == one(name, [1, 1, 3], 5, 3)


def test_chunks_written_at_once() -> None:
    # 2 read, 2 written, 2 read, 1 written. Ends of target words: 3, 4, 5; they stand beside
    # source words 1, 2 and 3.
    assert one("ATD", [2, 2, 4], 4) == pytest.approx((2 + 2 + 2) / 3)
    # three words from one: the second chunk is two words ahead of what had been read
    # ends 2, 3, 4, 5; beside 1, 1, 1 and 4 - (3 - 1) = 2
    assert one("ATD", [1, 1, 1, 2], 2) == pytest.approx((1 + 2 + 3 + 3) / 4)


@pytest.mark.parametrize("name", METRICS)
def test_nothing_written(name: str) -> None:
    assert one(name, [], 4, 3) == 0.0
    row = torch.tensor([[5.0, math.nan]], requires_grad=True)
    value = METRICS[name](row, torch.tensor([4]), torch.tensor([0]), torch.tensor([3]))
    value.sum().backward()
    assert value.item() == 0.0
    assert row.grad is not None
    assert not row.grad.any()


@pytest.mark.parametrize("name", METRICS)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 9),
            st.lists(st.integers(1, 9), min_size=1, max_size=12),
            st.integers(1, 12),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_batches_equal_the_loops(name: str, rows: list[tuple[int, list[int], int]]) -> None:
    rows = [(source, sorted(min(d, source) for d in delays), y) for source, delays, y in rows]
    width = max(len(delays) for _, delays, _ in rows) + 2
    padded = torch.full((len(rows), width), math.nan, dtype=torch.float64)  # poison
    for row, (_, delays, _) in zip(padded, rows, strict=True):
        row[: len(delays)] = torch.tensor(delays)
    got = METRICS[name](
        padded,
        torch.tensor([source for source, _, _ in rows]),
        torch.tensor([len(delays) for _, delays, _ in rows]),
        torch.tensor([y for _, _, y in rows]),
    )
    for value, (source, delays, y) in zip(got.tolist(), rows, strict=True):
        assert value == pytest.approx(by_loop(name, delays, source, y), abs=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_gradients_are_right_and_padding_gets_none(name: str) -> None:
    torch.manual_seed(0)
    delays = (torch.rand(3, 6, dtype=torch.float64) * 7).sort(-1).values.requires_grad_()
    lengths = torch.tensor([6, 4, 1]), torch.tensor([6, 3, 1]), torch.tensor([5, 4, 2])

    def metric(rows: torch.Tensor) -> torch.Tensor:
        return METRICS[name](rows, *lengths)

    assert torch.autograd.gradcheck(metric, (delays,))
    metric(delays).sum().backward()
    assert delays.grad is not None
    padding = torch.arange(6) >= lengths[1][:, None]
    assert not delays.grad[padding].any()
    if name in ("AP", "DAL"):  # every word's delay counts, if only through the maximum
        assert (delays.grad[:, 0] > 0).all()


def test_dal_gradient_by_hand() -> None:
    # lag = [2, 2 - 1, 4 - 2] -> running maximum [2, 2, 2]: the last tie belongs to word 3
    delays = torch.tensor([[2.0, 2.0, 4.5]], requires_grad=True)
    value = latency.differentiable_average_lagging(delays, torch.tensor([3]), torch.tensor([3]))
    value.backward()
    assert value.item() == pytest.approx((2 + 2 + 2.5) / 3)
    torch.testing.assert_close(delays.grad, torch.tensor([[2 / 3, 0.0, 1 / 3]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", METRICS)
def test_dtype_is_kept_and_leading_dimensions_are_rows(name: str, dtype: torch.dtype) -> None:
    delays = torch.tensor([1, 2, 2, 4, 5], dtype=dtype)
    value = METRICS[name](delays, torch.tensor(5), torch.tensor(5), None)
    assert value.dtype == dtype
    many = METRICS[name](delays.expand(2, 3, 5), torch.full((2, 3), 5), torch.full((2, 3), 5), None)
    torch.testing.assert_close(many, value.expand(2, 3))


def test_whole_number_delays_are_taken_as_floats() -> None:
    value = latency.average_lagging(
        torch.tensor([[1, 2]]), torch.tensor([2]), torch.tensor([2]), torch.tensor([2])
    )
    assert value.item() == 1.0


def test_average_attention_span() -> None:
    # one layer, two heads, three tokens, the last is padding: spans 2 and 0
    positions = torch.tensor([[[[1.0, 4.0, 9.0], [3.0, 4.0, 1.0]]]])
    span = latency.average_attention_span(positions, torch.tensor([2]))
    assert span.tolist() == [1.0]
    # over layers as well as heads
    stacked = torch.cat([positions, positions + 1], 1)
    assert latency.average_attention_span(stacked, torch.tensor([2])).tolist() == [2.0]


def test_emission_times_by_hand() -> None:
    # two words a second; 0.1 s of computing, then 1.4 s (the next word queues), then 0.5 s
    delays = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    computing = torch.tensor([0.1, 1.5, 2.0], dtype=torch.float64)
    # out at 0.5 + 0.1; at max(1.0, 0.6) + 1.4; at max(1.5, 2.4) + 0.5 seconds
    times = latency.emission_times(delays, computing, 2.0)
    torch.testing.assert_close(times, 2 * torch.tensor([0.6, 2.4, 2.9], dtype=torch.float64))


def test_computation_aware_average_lagging() -> None:
    delays = torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64)
    lengths = torch.tensor([2]), torch.tensor([3]), torch.tensor([2])
    free = latency.emission_times(delays, torch.zeros_like(delays), 2.5)
    torch.testing.assert_close(free, delays)
    same = latency.average_lagging(delays, *lengths, times=free)
    torch.testing.assert_close(same, latency.average_lagging(delays, *lengths))
    # tau = 2 by the delays, although word 1 came out after the whole source had been heard
    late = torch.tensor([[4.0, 4.5, 5.0]], dtype=torch.float64)
    value = latency.average_lagging(delays, *lengths, times=late)
    assert value.item() == pytest.approx((4.0 + 4.5 - 1) / 2)


def test_a_metric_is_found_by_name_and_a_wrong_name_is_told() -> None:
    assert latency.find_metric("DAL") is latency.METRICS["dal"]
    assert latency.find_metric("al").axis("subwords") == "Average Lagging (subwords)"
    assert latency.find_metric("ap").axis() == "Average Proportion"
    with pytest.raises(ValueError, match="'CAL' is not a latency metric: choose one of AP, AL"):
        latency.find_metric("CAL")
