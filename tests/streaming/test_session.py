"""Sessions: however the source arrives, the same words come out, and nothing is ever taken back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small import ARCHITECTURES, CODEC, POLICIES, feed_all, make, sentence, writes
from torch import Tensor

from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.decoding import Decoding
from simultan.streaming.lags import Lags
from simultan.streaming.row import Choice
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

    def _end_is_early(self, choice: Choice, events: list[tuple[int, Event]]) -> bool:
        early = super()._end_is_early(choice, events)
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
            session.on_token = lambda choice, tokens=tokens: tokens.append(choice.token)
            results.append(writes(feed_all(session, chunks)))
            # one pass for each token, the end and each end that came too early, whatever was read
            passes = len(tokens) + 1 + session.rejected
            assert session.decider.backend.state.evaluations == layers * passes
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
    """Rows of different lengths and decodings, each at its own pace."""
    model = make(policy, architecture, seed=3)
    texts = [sentence(3 + 2 * row, row) for row in range(4)]
    decodings = ["", "threshold=0.1", "threshold=0.9", "threshold=0.5"]
    if policy == "wait-k":
        decodings = ["", "k=1", "k=5", "k=2"]
    elif policy == "offline":
        decodings = ["", "wait-k:1", "wait-if-diff:2,1", "static:2,2"]
    alone = [
        writes(feed_all(Session(model, CODEC, decoding), text.split()))
        for text, decoding in zip(texts, decodings, strict=True)
    ]
    session = Session(model, CODEC, rows=4)
    for row, decoding in enumerate(decodings):
        session.set_decoding(decoding, row)
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
    state = session.decider.backend.state
    decoder = state.memory.decoder  # type: ignore[attr-defined]
    kept = [decoder] if isinstance(decoder, Tensor) else decoder.layers
    if not isinstance(decoder, Tensor):
        kept = [layer[:, : state.length[0]] for layer in kept]
    kept = [part.clone() for part in kept]
    return [torch.tensor(state.length), torch.tensor(state.positions), *kept]


@every_model
def test_a_read_changes_nothing_that_is_committed(policy: str, architecture: str) -> None:
    reads = 0
    for seed in range(6):
        session = Session(make(policy, architecture, seed), CODEC)
        for word in sentence(9, seed).split():
            before = committed(session)
            tokens: list[int] = []
            session.on_token = lambda choice, tokens=tokens: tokens.append(choice.token)
            session.feed(word)
            if not tokens:
                reads += 1
                for old, new in zip(before, committed(session), strict=True):
                    assert torch.equal(old, new)
    assert reads


class Recording(Session):
    """Keeps the logits of every step, and the word on which the furthest head stood."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__(model, CODEC)
        self.logits: list[tuple[int, Tensor]] = []

        def step(*arguments: Any, **options: Any) -> Step:
            result = type(model).step(model, *arguments, **options)
            for logits, positions in zip(result.logits, result.positions, strict=True):
                self.logits.append((self.rows[0].word(int(positions.max())), logits.clone()))
            return result

        model.step = step  # type: ignore[method-assign]


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
        shorter = writes(feed_all(Recording(model), split(" ".join(words[: changed - 1]))))
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
        session = Session(model, CODEC, Decoding(threshold=threshold))
        session.on_token = lambda choice, to=furthest: to.append(choice.delay - 1)
        feed_all(session, ["a b c d e f"])
    assert stops[0.3][0] == 0
    assert set(stops[0.7]) == {12}  # two tokens to a word, and the end


def test_k_is_wait_ks_knob() -> None:
    text = sentence(8, 2)
    model = make("wait-k", "transformer", seed=1, end=0.0)
    delays = [
        writes(feed_all(Session(model, CODEC, f"k={k}"), [text]))[0].delay for k in (1, 5, 99)
    ]
    assert delays == sorted(delays)
    assert delays[0] < delays[2] == 8


def test_words_behind_are_a_threshold() -> None:
    model, text = make("mma-il", "transformer"), sentence(8, 2)
    lags = Lags(((0.1, 2.0), (0.5, 4.0)))
    behind = Session(model, CODEC, "lag=2", lags=lags)
    assert writes(feed_all(behind, [text])) == writes(
        feed_all(Session(model, CODEC, "threshold=0.1"), [text])
    )
    with pytest.raises(ValueError, match=r"has 2\.0 to 4\.0"):
        behind.set_decoding("lag=9")


@pytest.mark.parametrize(
    ("policy", "decoding", "message"),
    [
        ("mma-il", "threshold=1", "between 0 and 1"),
        ("mma-il", "k=3", "it takes threshold"),
        ("mma-il", "wait-k:3", "it takes threshold"),
        ("mma-il", "lag=3", "was not measured"),
        ("wait-k", "k=0", "at least 1"),
        ("wait-k", "threshold=0.5", "it takes k=3"),
        ("offline", "k=3", "it takes beam=4 or an agent"),
        ("offline", "beam=4", "cannot search whole sentences"),
    ],
)
def test_bad_decodings(policy: str, decoding: str, message: str) -> None:
    model = make(policy, "transformer")
    with pytest.raises(ValueError, match=message):
        Session(model, CODEC, decoding)
    session = Session(model, CODEC, rows=2)
    with pytest.raises(ValueError, match=message):
        session.set_decoding(decoding, 1)


def test_other_bad_arguments() -> None:
    model = make("mma-il", "transformer")
    with pytest.raises(ValueError, match="at least one"):
        Session(model, CODEC, rows=0)
    with pytest.raises(ValueError, match="at least one token"):
        Session(model, CODEC, longest=0)
    session = Session(model, CODEC, rows=4)
    for row in (7, -1):
        for call in (session.reset, session.close, lambda row: session.push("a", row)):
            with pytest.raises(ValueError, match=f"row {row}: this session has rows 0 to 3"):
                call(row)  # type: ignore[operator]
    with pytest.raises(TypeError, match="a session is fed text, not list"):
        session.feed(["a"])  # type: ignore[arg-type]
