"""Sessions: however the source arrives, the same words come out, and nothing is ever taken back."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from small import ARCHITECTURES, CODEC, POLICIES, feed_all, make, sentence, writes
from torch import Tensor

from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.session import Event, Read, Session, Write

every_model = pytest.mark.parametrize(
    ("policy", "architecture"), list(itertools.product(POLICIES, ARCHITECTURES))
)


def chunkings(text: str) -> list[list[str]]:
    words = text.split()
    cuts = [0, 1, 3, 4, len(words)]
    ragged = [" ".join(words[a:b]) for a, b in itertools.pairwise(cuts)]
    return [words, [text], ["", *ragged, "  "], [words[0], " ".join(words[1:])]]


class Counting(Session):
    """Counts what a session computes."""

    rejected = 0

    def _end_is_early(
        self, row: int, heads: list[list[int]], events: list[tuple[int, Event]]
    ) -> bool:
        early = super()._end_is_early(row, heads, events)
        self.rejected += early
        return early


@every_model
def test_any_chunking_gives_the_same(policy: str, architecture: str) -> None:
    disagreed = rejected = written = 0
    for seed in range(4):
        model, text = make(policy, architecture, seed), sentence(8, seed)
        layers = len(model.cross_attentions())
        results = []
        for chunks in chunkings(text):
            session = Counting(model, CODEC)
            tokens: list[int] = []
            session.on_token = lambda row, token, heads, tokens=tokens: tokens.append(token)
            results.append(writes(feed_all(session, chunks)))
            # one pass for each token, the end and each end that came too early, whatever was read
            passes = len(tokens) + 1 + session.rejected
            assert session.state.decoder.evaluations == layers * passes
            rejected += session.rejected
        assert all(result == results[0] for result in results)
        for one, two in itertools.pairwise(results[0]):
            assert one.delay <= two.delay
            assert all(a <= b for x, y in zip(one.heads, two.heads, strict=True)
                       for a, b in zip(x, y, strict=True))  # fmt: skip
        for write in results[0]:
            written += 1
            assert write.delay == max(map(max, write.heads))
            disagreed += len({at for layer in write.heads for at in layer}) > 1
    assert written > 4
    if policy.startswith("mma"):
        assert disagreed
    if policy != "offline":
        assert rejected


@every_model
def test_a_word_is_written_as_soon_as_it_can_be(policy: str, architecture: str) -> None:
    for seed in range(4):
        session, text = Session(make(policy, architecture, seed), CODEC), sentence(8, seed)
        for fed, word in enumerate(text.split(), 1):
            events = session.feed(word)
            assert events[-1] == Read()
            assert all(event.delay == fed for event in writes(events))
        assert all(event.delay == 8 for event in writes(session.finish()))


@every_model
def test_rows_are_sessions(policy: str, architecture: str) -> None:
    """Rows of different lengths and thresholds, each at its own pace."""
    model = make(policy, architecture, seed=3)
    texts = [sentence(3 + 2 * row, row) for row in range(4)]
    thresholds = [0.5, 0.1, 0.9, 0.5]
    alone = [
        writes(feed_all(Session(model, CODEC, threshold=threshold), text.split()))
        for text, threshold in zip(texts, thresholds, strict=True)
    ]
    session = Session(model, CODEC, rows=4)
    for row, threshold in enumerate(thresholds):
        session.set_threshold(threshold, row)
    together: list[list[Write]] = [[] for _ in texts]
    waiting = [text.split() for text in texts]
    for turn in range(1000):
        for row, words in enumerate(waiting):
            if words and turn % (row + 1) == 0:
                session.push(words.pop(0), row)
            elif not words:
                session.close(row)
        for row, event in session.advance():
            if isinstance(event, Write):
                together[row].append(event)
        if all(state.done for state in session.rows):
            break
    assert together == alone


@pytest.mark.gpu
@every_model
def test_a_gpu_writes_the_same(policy: str, architecture: str) -> None:
    """In float32, whose attention kernels have their own wishes."""
    texts = [sentence(3 + 5 * row, row) for row in range(4)]
    here = make(policy, architecture, seed=3).float()
    there = make(policy, architecture, seed=3).float().cuda()
    for text in texts:
        alone = writes(feed_all(Session(here, CODEC), text.split()))
        assert writes(feed_all(Session(there, CODEC), text.split())) == alone


def committed(session: Session) -> list[Tensor]:
    """All that a write may change and a read may not."""
    decoder = session.state.decoder
    parts = [torch.tensor(decoder.length), decoder.positions.clone()]
    if decoder.target is not None:
        parts.append(decoder.target.data[..., : decoder.length[0], :].clone())
    if decoder.recurrent is not None:
        parts += [part.clone() for part in decoder.recurrent]
    return parts


@every_model
def test_a_read_changes_nothing_that_is_committed(policy: str, architecture: str) -> None:
    reads = 0
    for seed in range(6):
        session = Session(make(policy, architecture, seed), CODEC)
        for word in sentence(9, seed).split():
            before = committed(session)
            tokens: list[int] = []
            session.on_token = lambda row, token, heads, tokens=tokens: tokens.append(token)
            session.feed(word)
            if not tokens:
                reads += 1
                for old, new in zip(before, committed(session), strict=True):
                    assert torch.equal(old, new)
    assert reads


class Recording(Session):
    """Keeps the logits of every step, and where the furthest head stood."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__(model, CODEC)
        self.logits: list[tuple[int, Tensor]] = []

    def _step(self, rows: list[int]) -> Step:
        step = super()._step(rows)
        for logits, positions in zip(step.logits, step.positions, strict=True):
            self.logits.append((self._word(0, int(positions.max())), logits.clone()))
        return step


@every_model
@pytest.mark.parametrize("split", [str.split, lambda text: [text]], ids=["by word", "at once"])
def test_the_future_cannot_be_heard(
    policy: str, architecture: str, split: Callable[[str], list[str]]
) -> None:
    """Change a word: whatever was written before it was read is the same, logits to the bit."""
    model = make(policy, architecture, seed=2)
    words = sentence(9, 7).split()
    first = Recording(model)
    events = writes(feed_all(first, split(" ".join(words))))
    for changed in range(2, 10):
        word = words[changed - 1]
        other = word.translate(str.maketrans("abcdef", "badcfe"))  # of as many pieces
        text = " ".join([*words[: changed - 1], other, *words[changed:]])
        second = Recording(model)
        again = writes(feed_all(second, split(text)))
        known = [event for event in events if event.delay < changed]
        assert again[: len(known)] == known
        heard = sum(word < changed for word, _ in first.logits)
        for (_, one), (_, two) in zip(first.logits[:heard], second.logits[:heard], strict=True):
            assert torch.equal(one, two)
        # a source that ends earlier is a change, too
        shorter = writes(feed_all(Session(model, CODEC), split(" ".join(words[: changed - 1]))))
        certain = [event for event in events if event.delay < changed - 1]
        assert shorter[: len(certain)] == certain


def test_threshold_is_a_latency_knob() -> None:
    """p_choose between the thresholds: the low one stops at once, the high one at the end."""
    model = make("mma-il", "transformer")
    with torch.no_grad():
        for attention in model.cross_attentions():
            attention.select_query.weight.zero_()
            attention.select_query.bias.zero_()
            attention.energy_bias.zero_()  # p = 0.5 everywhere
    stops: dict[float, list[int]] = {0.3: [], 0.7: []}
    for threshold, furthest in stops.items():
        session = Session(model, CODEC, threshold=threshold)
        session.on_token = lambda row, token, heads, to=furthest: to.append(max(map(max, heads)))
        feed_all(session, ["a b c d e f"])
    assert stops[0.3][0] == 0
    assert set(stops[0.7]) == {12}  # two tokens to a word, and the end


def test_k_is_wait_ks_knob() -> None:
    text = sentence(8, 2)
    for policy in ("wait-k", "offline"):
        model = make(policy, "transformer", seed=1, end=0.0)
        first = [writes(feed_all(Session(model, CODEC, k=k), [text]))[0].delay for k in (1, 5, 99)]
        assert first == sorted(first)
        assert first[0] < first[2] == 8


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_bad_thresholds(threshold: float) -> None:
    model = make("mma-il", "transformer")
    with pytest.raises(ValueError, match="between 0 and 1"):
        Session(model, CODEC, threshold=threshold)
    session = Session(model, CODEC, rows=2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        session.set_threshold(threshold, 1)


def test_other_bad_arguments() -> None:
    model = make("mma-il", "transformer")
    for arguments, message in (
        ({"rows": 0}, "at least one"),
        ({"k": 3}, "has no k"),
        ({"longest": 0}, "at least one token"),
    ):
        with pytest.raises(ValueError, match=message):
            Session(model, CODEC, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        Session(make("wait-k", "transformer"), CODEC, k=0)
