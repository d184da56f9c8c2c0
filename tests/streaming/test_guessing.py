"""Agents that guess the next source word: wrong guesses leave no trace, right ones are words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from small import ARCHITECTURES, CODEC, feed_all, make, sentence, writes

from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.streaming.agents import READ, WRITE, Agent, Answer, Guess, Seen
from simultan.streaming.deciders import AgentsDecide
from simultan.streaming.session import Session

WRONG = (CODEC.encode_source_word("fff")[0],) * 2


def words_of(text: str) -> list[tuple[int, ...]]:
    """The tokens of each word of a sentence, and its end."""
    return [*(tuple(CODEC.encode_source_word(word)) for word in text.split()), (EOS,)]


@dataclass(frozen=True)
class Waits(Agent):
    """Stays two words behind what it writes."""

    def decide(self, seen: Seen) -> Sequence[Answer]:
        pairs = zip(seen.read, seen.written, strict=True)
        return [READ if read < written + 2 else WRITE for read, written in pairs]


@dataclass(frozen=True)
class GuessesInVain(Waits):
    """The same, but before it reads it guesses, and does nothing with the guess."""

    guesses = True

    def decide(self, seen: Seen) -> Sequence[Answer]:
        assert seen.scores.best  # the model really sees the guess
        plain = super().decide(seen)
        pairs = zip(plain, seen.guessed, strict=True)
        return [Guess(WRONG) if a == READ and not guessed else a for a, guessed in pairs]


@dataclass(frozen=True)
class Knows(Agent):
    """Guesses the next word of one sentence, and writes with the guess in view."""

    text: str
    guesses = True

    def decide(self, seen: Seen) -> Sequence[Answer]:
        words = words_of(self.text)
        answers: list[Answer] = []
        for read, written, guessed, ended in zip(
            seen.read, seen.written, seen.guessed, seen.ended, strict=True
        ):
            if written >= read or ended:
                answers.append(READ)
            else:
                answers.append(WRITE if guessed else Guess(words[min(read, len(words) - 1)]))
        return answers


def session(model: TranslationModel, agent: Agent, rows: int = 1) -> Session:
    opened = Session(model, CODEC, rows=rows, segment=False)
    assert isinstance(opened.decider, AgentsDecide)
    opened.decider.agents = [agent] * rows
    return opened


def watch(stream: Session) -> list[bool]:
    """Whether the guesses of a session were right."""
    judged: list[bool] = []
    stream.decider.on_guess = lambda row, right: judged.append(right)  # type: ignore[union-attr]
    return judged


def source_state(stream: Session) -> tuple[object, ...]:
    """All that a session's first row remembers of the source."""
    state = stream.decider.backend.state  # type: ignore[union-attr]
    read = state.available[0]
    caches = [*state.source_caches, *state.memory.caches[:1]]
    kept = [layer[0, :read].clone() for cache in caches for layer in cache.layers]
    if not state.memory.caches:
        kept.append(state.memory.encoder.clone())
    return read, state.finished[0], [cache.ends[0] for cache in caches], kept


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_wrong_guess_leaves_no_trace(architecture: str, seed: int) -> None:
    model, text = make("offline", architecture, seed), sentence(7, seed)
    words = text.split()
    found = []
    for agent in (Waits(), GuessesInVain()):
        stream = session(model, agent)
        judged = watch(stream)
        written = [write for word in words for write in writes(stream.feed(word))]
        with torch.inference_mode():  # as the next word will
            stream.decider._judge(0)  # type: ignore[union-attr]
            stream.decider._encode([0], [len(stream.decider.heard[0])])  # type: ignore[union-attr]
        found.append((source_state(stream), written + writes(stream.finish())))
        assert not any(judged)
        assert bool(judged) == agent.guesses
    (*plain, kept), (*after, kept_after) = found[0][0], found[1][0]
    assert plain == after
    torch.testing.assert_close(kept, kept_after)
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_right_guess_is_the_word(architecture: str) -> None:
    """The model sees the same, and the state is the same once the word has been read."""
    model, text = make("offline", architecture, 1, end=0.9), sentence(6, 1)
    words = text.split()
    early, late = session(model, Knows(text)), session(model, Waits())
    judged = watch(early)
    early.feed(words[0])
    late.feed(" ".join(words[:2]))
    one, other = source_state(early), source_state(late)
    assert one[:3] == other[:3]
    torch.testing.assert_close(one[3], other[3])
    first = [writes(feed_all(session(model, agent), [text]))[0] for agent in (Knows(text), Waits())]
    assert first[0].text == first[1].text
    assert [write.delay for write in first] == [1, 2]  # a guess is nothing that was read
    feed_all(early, words[1:])
    assert judged
    assert all(judged)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("right", [True, False])
def test_a_session_with_guesses_is_like_any_other(architecture: str, right: bool) -> None:
    """How words arrive and who else is there changes nothing; nor does what was not yet read."""
    model, text = make("offline", architecture, 1, end=0.9), sentence(7, 1)
    words = text.split()
    agent = Knows(text if right else sentence(12, 5))
    expected = writes(feed_all(session(model, agent), [text]))
    for chunks in (words, [" ".join(words[:3]), "", " ".join(words[3:])]):
        assert writes(feed_all(session(model, agent), chunks)) == expected
    other = [*words[:5], "fed", "cab"]
    known = [write for write in expected if write.delay <= 5]
    assert writes(feed_all(session(model, agent), other))[: len(known)] == known
    texts = [text, sentence(3, 2), sentence(9, 3)]
    many = session(model, agent, rows=3)
    for row, one in enumerate(texts):
        many.push(one, row)
        many.close(row)
    together: list[list[object]] = [[], [], []]
    while not all(row.done for row in many.rows):
        for row, event in many.advance():
            together[row].append(event)
    assert together == [writes(feed_all(session(model, agent), [one])) for one in texts]
    many.reset(0)
    many.push(text, 0)
    many.close(0)
    again = []
    while not many.rows[0].done:
        again += [event for row, event in many.advance() if row == 0]
    assert again == expected


def test_an_agent_that_is_changed_takes_its_guess_with_it() -> None:
    model, text = make("offline", "transformer", 1), sentence(7, 1)
    words = text.split()
    stream = session(model, Knows("a " * 9))
    stream.feed(words[0])
    decider = stream.decider
    assert isinstance(decider, AgentsDecide)
    assert decider.guessed[0] is not None
    stream.set_decoding("wait-k:3")
    assert decider.guessed[0] is None
    assert stream.decider.backend.state.available[0] == len(words_of(words[0])[0])  # type: ignore[union-attr]
    assert writes(stream.feed(" ".join(words[1:]))) or writes(stream.finish())


def test_a_window_cannot_take_back() -> None:
    model = make("offline", "transformer", 1, window=8)
    with pytest.raises(ValueError, match="without a window"):
        feed_all(session(model, Knows("a b c d")), ["a b c d"])
