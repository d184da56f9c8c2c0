"""Heads that stay undecided stream what training computes, as far as they have read."""

import pytest
import torch
from test_streaming_parity import ARCHITECTURES, VARIANTS, draw, extend
from test_streaming_parity import make as make_certain
from torch import Tensor

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS
from simultan.model import TranslationModel, build
from simultan.model.undecided import align, moved, scaled, trim
from simultan.ops import naive

LEARNED = ["hard", "mocha", "milk", "mma-h", "mma-il"]
ALL_BUT = 1 - 1e-12


def make(policy: str, architecture: str, variant: str = "plain", spread: float = 0.0,
         seed: int = 0) -> TranslationModel:  # fmt: skip
    """Heads of every degree of certainty."""
    base = VARIANTS[variant]
    shape = ModelConfig(**{**base.__dict__, "architecture": architecture, "dropout": 0.0})
    chosen = PolicyConfig(name=policy, chunk=2, energy_bias=-0.5, spread=spread)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    model = build(Config(model=shape, policy=chosen), 23, 19).double().eval()
    with torch.no_grad():
        for attention in model.cross_attentions():
            if attention.selecting_heads:
                attention.select_query.weight *= 4
    return model


def stream(
    model: TranslationModel, batch: Batch, chunks: list[int], mass: float | None, row: int = 0
) -> tuple[Tensor, list[list[list[int]]], list[int]]:
    """Teacher-forced: logits [T, V], head positions, tokens read at each write."""
    source, target = batch.source[0], batch.target[0]
    state = model.initial_state(row + 1)
    read, logits, positions, delays = 0, [], [], []
    inputs = [BOS, *target[:-1].tolist()]
    while len(logits) < len(target):
        result = model.step([inputs[len(logits)]], state, [row], [0.5], mass=[mass])
        if result.rows:
            logits.append(result.logits[0])
            positions.append(result.positions[0].tolist())
            delays.append(read)
            state.commit([row])
        else:
            size = chunks.pop(0) if chunks else len(source)
            extend(model, state, source[read : read + size], read + size >= len(source), row)
            read = min(read + size, len(source))
    return torch.stack(logits), positions, delays


@pytest.mark.parametrize(
    ("before", "p", "mass", "wanted"),
    [
        ([1.0], [0.5, 0.5, 0.5], 0.4, [0.5]),
        ([1.0], [0.5, 0.5, 0.5], 0.7, [0.5, 0.25]),
        ([1.0], [0.5, 0.5, 0.5], 0.8, [0.5, 0.25, 0.125]),
        ([1.0], [0.5, 0.5, 0.5], 0.9, None),
        ([1.0], [0.0, 1.0], 0.9, [0.0, 1.0]),
        ([0.5, 0.5], [1.0, 0.0, 1.0], 0.9, [0.5, 0.0, 0.5]),
        ([0.5, 0.5], [1.0, 0.0, 1.0], 0.4, [0.5, 0.0]),  # what was read is not unread
        ([0.25, 0.75], [0.5, 0.5], 0.5, [0.125, 0.4375]),
        ([0.5], [1.0, 0.5], 0.4, [0.5]),
        ([0.5], [1.0, 0.5], 0.7, [0.5, 0.25]),  # the other half was waiting after the first token
        ([0.5], [1.0, 0.0, 0.5], 0.7, [0.5, 0.0, 0.25]),
    ],
)
def test_alignments_by_hand(
    before: list[float], p: list[float], mass: float, wanted: list[float] | None
) -> None:
    assert align(before, p, mass) == (wanted if wanted is None else pytest.approx(wanted))


def test_the_end_of_the_source_is_enough() -> None:
    assert align([1.0], [0.2, 1.0], ALL_BUT, ended=True) == pytest.approx([0.2, 0.8])
    assert align([0.5], [0.5, 1.0], ALL_BUT, ended=True) == pytest.approx([0.25, 0.75])
    assert align([0.5, 0.3], [0.5, 1.0], ALL_BUT, ended=True) == pytest.approx([0.25, 0.75])


def test_what_has_not_stopped_is_not_lost() -> None:
    """Where it stops at the first token that was not read, the stream goes on as training does."""
    p = torch.tensor([[0.5, 0.25, 1.0, 0.5, 1.0], [0.2, 0.4, 0.6, 0.5, 1.0]]).double()
    wanted = naive.expected_alignment(p[None, None], torch.tensor([5]))[0, 0]
    first = align([1.0], p[0].tolist()[:2], 0.6)
    assert first == pytest.approx(wanted[0, :2].tolist())
    second = align(first or [], p[1].tolist()[:3], 0.7)
    assert second == pytest.approx(wanted[1, :3].tolist())


def test_what_is_attended_to_is_whole() -> None:
    assert scaled([0.25, 0.0, 0.5]) == pytest.approx([1 / 3, 0.0, 2 / 3])


def test_a_share_of_nothing_is_left_out() -> None:
    assert trim([1e-9, 0.0, 0.25, 0.0, 0.75]) == [0.25, 0.0, 0.75]
    assert trim([0.0, 1e-9, 3e-9]) == [1e-9, 3e-9]  # of a mass that is next to nothing itself


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        (0, (5, [0.25, 0.25, 0.5])),
        (3, (5, [0.25, 0.25, 0.5])),
        (4, (5, [0.5, 0.5])),
        (5, (5, [1.0])),
        (7, (7, [1.0])),
    ],
)
def test_no_share_stays_before_the_first_token(first: int, wanted: tuple[int, list[float]]) -> None:
    assert moved(5, [0.25, 0.25, 0.5], first) == wanted


@pytest.mark.parametrize(
    ("first", "wanted"), [(4, (5, [0.5, 0.25])), (5, (5, [0.75])), (6, (6, [1.0]))]
)
def test_what_has_not_stopped_waits_after_the_last_share(
    first: int, wanted: tuple[int, list[float]]
) -> None:
    assert moved(5, [0.25, 0.25, 0.25], first) == wanted


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", LEARNED)
def test_a_stream_that_leaves_nothing_out_is_training(
    policy: str, architecture: str, variant: str
) -> None:
    if architecture == "recurrent" and variant == "rotary post-norm":
        variant = "plain"
    model = make(policy, architecture, variant, spread=2.0 if variant == "windowed" else 0.0)
    batch = draw(source=9, target=8, seed=1)
    with torch.no_grad():
        wanted = model.project(model(batch).hidden)[0]
        for chunks in ([1] * 9, [2, 4], [9]):
            logits, _, _ = stream(model, batch, chunks, ALL_BUT)
            torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", LEARNED)
def test_heads_that_are_certain_stop_as_by_a_threshold(policy: str, architecture: str) -> None:
    model = make_certain(policy, architecture, "plain")
    batch = draw(source=9, target=8, seed=2)
    with torch.no_grad():
        wanted, stops, delays = stream(model, batch, [1] * 9, None)
        logits, positions, times = stream(model, batch, [1] * 9, 0.6)
    torch.testing.assert_close(logits, wanted)
    assert (positions, times) == (stops, delays)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", LEARNED)
def test_what_is_written_does_not_depend_on_how_the_source_arrives(
    policy: str, architecture: str
) -> None:
    model = make(policy, architecture)
    batch, changed = (draw(source=20, target=8, seed=3) for _ in range(2))
    with torch.no_grad():
        wanted, stops, delays = stream(model, batch, [1] * 20, 0.6)
        for chunks, row in (([20], 0), ([2, 3], 0), ([1] * 20, 2)):
            logits, positions, _ = stream(model, batch, chunks, 0.6, row)
            torch.testing.assert_close(logits, wanted)
            assert positions == stops
        early = sum(delay < 19 for delay in delays)
        assert early
        changed.source[0, delays[early - 1] : -1] = 7  # unread by then, so unseen
        logits, _, _ = stream(model, changed, [1] * 20, 0.6)
    torch.testing.assert_close(logits[:early], wanted[:early])
    read = [max(map(max, heads)) + 1 for heads in stops]
    assert read == sorted(read)
    assert delays == read  # no more is read than heads stand on


def test_more_mass_is_closer_to_training_and_later() -> None:
    """And a threshold is further away, while it reads as much."""
    gaps: dict[float | None, float] = {}
    read: dict[float | None, int] = {}
    for mass in (None, 0.5, 0.7, 0.9):
        gaps[mass], read[mass] = 0.0, 0
        for seed in range(6):
            model = make("mma-h", "transformer", seed=seed)
            batch = draw(source=12, target=8, seed=seed)
            with torch.no_grad():
                wanted = model.project(model(batch).hidden)[0]
                logits, _, delays = stream(model, batch, [1] * 12, mass)
            gaps[mass] += float((logits - wanted).abs().mean())
            read[mass] += sum(delays)
    assert gaps[0.9] < gaps[0.7] < gaps[0.5] < gaps[None]
    assert read[0.5] < read[0.7] < read[0.9]
    assert read[0.5] <= read[None]


def test_rows_that_stop_in_different_ways_do_not_mind_each_other() -> None:
    model = make("mma-il", "transformer")
    batch = draw(source=9, target=8, seed=4)
    masses = [None, 0.6, 0.9]
    with torch.no_grad():
        alone = [stream(model, batch, [9], mass)[0][0] for mass in masses]
        state = model.initial_state(3)
        source = batch.source.expand(3, -1)
        model.extend(source, state, range(3), [9] * 3, [True] * 3)
        step = model.step([BOS] * 3, state, range(3), [0.5] * 3, mass=masses)
    torch.testing.assert_close(step.logits, torch.stack(alone))


@pytest.mark.parametrize(("before", "after"), [(None, 0.9), (0.9, None)])
def test_a_row_that_waits_may_stop_in_another_way(
    before: float | None, after: float | None
) -> None:
    model = make("mma-h", "transformer")
    batch = draw(source=9, target=8, seed=5)
    with torch.no_grad():
        wanted = stream(model, batch, [9], after)[0][0]
        state = model.initial_state(1)
        extend(model, state, batch.source[0, :1], False)
        assert not model.step([BOS], state, [0], [0.99], mass=[before]).rows
        assert state.pending[0] is not None
        extend(model, state, batch.source[0, 1:], True)
        step = model.step([BOS], state, [0], [0.5], mass=[after])
    torch.testing.assert_close(step.logits[0], wanted)


def test_what_is_taken_back_was_never_written() -> None:
    model = make("mma-h", "transformer")
    batch = draw(source=9, target=8, seed=6)
    with torch.no_grad():
        state = model.initial_state(1)
        extend(model, state, batch.source[0], True)
        for token in (BOS, 5):
            model.step([token], state, [0], [0.5], mass=[0.8])
            state.commit([0])
        kept = state.keep([0])
        wanted = model.step([6], state, [0], [0.5], mass=[0.8]).logits
        state.commit([0])
        model.step([7], state, [0], [0.5], mass=[0.8])
        state.commit([0])
        state.restore([0], kept)
        again = model.step([6], state, [0], [0.5], mass=[0.8]).logits
    torch.testing.assert_close(again, wanted)
    assert state.needed(0) <= min(map(min, state.positions[0]))
