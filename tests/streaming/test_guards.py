"""Guards and segments: streams without end, models that loop, and text that is no text."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import ARCHITECTURES, CODEC, POLICIES, WORDS, feed_all, make, sentence, writes

from simultan.data.languages import ends_sentence
from simultan.data.vocabulary import EOS
from simultan.data.writer import LONGEST_WORD
from simultan.model import TranslationModel
from simultan.streaming.guards import Guard
from simultan.streaming.session import LONGEST_SEGMENT, End, Event, Read, Session, Write

# --- segments ---


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_sentence_end_starts_a_new_segment(policy: str, architecture: str) -> None:
    model = make(policy, architecture, seed=1)
    texts = [sentence(n, n, "ab.") for n in (4, 2, 5)] + [sentence(3, 9)]
    expected: list[Event] = []
    words = 0
    for text in texts:
        for write in writes(feed_all(Session(model, CODEC), [text])):
            heads = [[at + words for at in layer] for layer in write.heads]
            expected.append(Write(write.text, write.delay + words, heads))
        words += len(text.split())
        expected.append(End(words))
    whole = " ".join(texts)
    for chunks in ([whole], whole.split(), texts):
        events = feed_all(Session(model, CODEC, segment=True), chunks)
        assert [event for event in events if event != Read()] == expected
    # the last word of a sentence is enough: nobody waits for the next sentence
    session = Session(model, CODEC, segment=True)
    assert End(4) in session.feed(texts[0])
    assert session.finish() == []


@pytest.mark.parametrize(
    ("word", "ends"),
    [
        ("home.", True), ("home", False), (".", True), ("what?!", True), ('over."', True),
        ("(yes.)", True), ("好。", True), ("है।", True), ("2015.", True), ("end…", True),
        ("Dr.", False), ("z.B.", False), ("U.S.", False), ("3.", False), ("A.", False),
        ("3.5", False), ("...and", False), ("", False), ("." * 10_000, True),
    ],
)  # fmt: skip
def test_sentence_ends(word: str, ends: bool) -> None:
    assert ends_sentence(word) == ends


@pytest.mark.parametrize(
    ("policy", "decoding"), [("mma-il", ""), ("wait-k", "k=3"), ("offline", "wait-k:2")]
)
def test_text_without_sentence_ends(policy: str, decoding: str) -> None:
    """They are cut, where the model has nothing more to say or after so many tokens."""
    text = " ".join("abc"[i % 3] for i in range(400))  # two tokens to a word
    for seed in range(3):
        model = make(policy, "transformer", seed, end=0.3)
        found = []
        for chunks in ([text], text.split(), [text[i : i + 60] for i in range(0, len(text), 60)]):
            session = Session(model, CODEC, decoding, segment=True, longest=20)
            events: list[Event] = []
            for chunk in chunks:
                events += session.feed(chunk)
                assert session.rows[0].available <= 20 + 2
            events += session.finish()
            assert session.rows[0].done
            found.append([event for event in events if event != Read()])
        assert found[0] == found[1] == found[2]
        ends = [event.words for event in found[0] if isinstance(event, End)]
        assert ends == sorted(set(ends))
        assert ends[-1] == 400
        delays = [write.delay for write in writes(found[0])]
        assert delays == sorted(delays)
        gaps = [two - one for one, two in itertools.pairwise([0, *delays, 400])]
        assert max(gaps) <= 40, gaps
    assert Session(model, CODEC, segment=True).longest == LONGEST_SEGMENT


@pytest.mark.parametrize("longest", [3, 17])
@pytest.mark.parametrize("policy", ["mma-h", "mma-il", "wait-k", "offline"])
def test_a_windowed_model_is_cut_only_where_it_writes_nothing(
    policy: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simultan.streaming.session.LONGEST_SEGMENT", longest)
    monkeypatch.setattr("simultan.streaming.session.LONGEST_READ", longest)
    for seed, end in itertools.product(range(6), (0.0, 5.0)):
        model = make(policy, "transformer", seed, end=end, window=4)
        letters = torch.randint(6, (40,), generator=torch.Generator().manual_seed(seed))
        text = " ".join("abcdef"[i] for i in letters)
        results = []
        for size in (1, 7, 40):
            words = text.split()
            chunks = [" ".join(words[i : i + size]) for i in range(0, 40, size)]
            events = feed_all(Session(model, WORDS, segment=True), chunks)
            results.append([event for event in events if event != Read()])
        assert results[0] == results[1] == results[2]
        ends = [event.words for event in results[0] if isinstance(event, End)]
        if policy == "wait-k":
            assert ends == [40]
        if policy == "offline":
            assert ends == [*range(longest, 40, longest), 40]


def sizes(session: Session) -> list[int]:
    state = session.decider.backend.state  # type: ignore[union-attr]
    row = session.rows[0]
    lists = (row.word_of, row.queue, row.writer.pieces, row.guard.recent)
    return state.slots() + [len(x) for x in lists]


@pytest.mark.parametrize(("end", "seed", "words"), [(0.0, 9, 20_000), (9.0, 1, 20_000)])
def test_memory_is_flat(end: float, seed: int, words: int) -> None:
    """No sentence end for ever; one model writes, the other only says "end", much too early."""
    model = make("mma-h", "transformer", seed, end=end, window=4).float()
    session = Session(model, WORDS, segment=True)
    chunk = " ".join("abcdef"[i * i % 6] for i in range(500))
    written: list[int] = []
    session.on_token = lambda choice: written.append(choice.token)
    cuts = 0
    for _ in range(words // 500):
        cuts += sum(isinstance(event, End) for event in session.feed(chunk))
        assert max(sizes(session)) <= 1200
    assert session.rows[0].read == words
    assert cuts <= 5  # a head of theirs may read and read
    assert (len(written) > 1000) == (end == 0)
    assert session.finish()[-1] == End(words)
    assert session.rows[0].done


# --- models that loop ---


def babbling(*tokens: int) -> TranslationModel:
    """A model that says these tokens in turn, for ever, whatever it hears."""
    model = make("wait-k", "transformer")
    calls = 0

    def project(hidden: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        logits = torch.zeros(*hidden.shape[:-1], len(CODEC.target_vocabulary))
        logits[..., tokens[calls % len(tokens)]] = 1
        calls += 1
        return logits

    model.project = project  # type: ignore[method-assign]
    return model


PIECE = len(CODEC.target_vocabulary) - 8  # the first that ends a word


@pytest.mark.parametrize(
    ("tokens", "most"),
    [
        ([PIECE], 7),  # at every place the eighth is one too many
        ([PIECE, PIECE + 1], 7),
        ([PIECE, PIECE + 1, PIECE + 2], 11),
        (list(range(PIECE, PIECE + 7)), 44),  # too long for what was read
        ([PIECE - 1], 7),  # a word that is never finished
    ],
)
def test_a_loop_ends(tokens: list[int], most: int) -> None:
    session = Session(babbling(*tokens), CODEC)
    written: list[int] = []
    session.on_token = lambda choice: written.append(choice.delay - 1)
    events = feed_all(session, ["a", "b", "c"])
    assert session.rows[0].done
    assert sum(at == 6 for at in written) <= most
    assert len(written) <= 2 * 7 + 30
    assert writes(events)
    # the same loop fed at once
    again = feed_all(Session(babbling(*tokens), CODEC), ["a b c"])
    assert writes(again) == writes(events)


def test_padding_and_begin_are_never_written() -> None:
    model = make("wait-k", "transformer")
    vocabulary = len(CODEC.target_vocabulary)
    model.project = lambda hidden: torch.tensor([3.0, 2.0, 1.0] + [0.0] * (vocabulary - 3)).expand(  # type: ignore[method-assign]
        len(hidden), -1
    )
    session = Session(model, CODEC, segment=False)
    written: list[int] = []
    session.on_token = lambda choice: written.append(choice.token)
    assert feed_all(session, ["a b"]) == [Read()]  # end of sequence is the best that is left
    assert written == []


def test_a_guard_by_hand() -> None:
    guard = Guard(extra=3, most=9, times=2, longest=2)
    for token in (5, 6, 5):
        assert not guard.stuck(token, 0)
        guard.note(token, 0)
    assert guard.stuck(6, 0)  # 5 6 5 6
    assert not guard.stuck(7, 0)
    guard.moved()
    assert not guard.stuck(6, 0)
    for token in (6, 7):
        guard.note(token, 0)
    assert guard.stuck(9, 0)  # five written, 2 * 1 + 3 allowed
    assert not guard.stuck(9, 1)
    for token in range(10):  # far along in a stream: not 2 * 1000 more, but `most`
        assert guard.stuck(token + 10, 1000) == (token == 9)
        guard.note(token + 10, 1000)


# --- input that is no input ---


def test_nothing_to_say() -> None:
    for policy in POLICIES:
        for segment in (False, True):
            session = Session(make(policy, "transformer"), CODEC, segment=segment)
            assert session.feed("") == [Read()]
            assert session.feed(" \n\t ") == [Read()]
            assert session.finish() == []
            assert session.finish() == []
            with pytest.raises(ValueError, match="finished"):
                session.feed("a")
            with pytest.raises(ValueError, match="finished"):
                session.feed("")
            session.reset()
            assert writes(feed_all(session, ["a b c"])) == writes(
                feed_all(Session(make(policy, "transformer"), CODEC, segment=segment), ["a b c"])
            )


@pytest.mark.parametrize("character", ["a", "\U0001f600", "字", ".", "<", "\u0301"])
def test_a_very_long_word(character: str) -> None:
    model = make("mma-il", "transformer", seed=1)
    session = Session(model, CODEC, segment=True)
    events = feed_all(session, ["a b", character * 10_000, "c d."])
    assert session.rows[0].done
    assert writes(events)[-1].delay == 5
    state = session.decider.backend.state  # type: ignore[union-attr]
    assert state.source.capacity < 2 * LONGEST_WORD + 64


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=5), st.booleans(), st.sampled_from(POLICIES))
def test_any_text(chunks: list[str], segment: bool, policy: str) -> None:
    model = make(policy, "transformer", seed=1)
    session = Session(model, CODEC, segment=segment)
    events = feed_all(session, chunks)
    assert session.rows[0].done
    words = sum(len(CODEC.pipeline.split_source(chunk)) for chunk in chunks)
    for write in writes(events):
        assert 1 <= write.delay <= words
        assert write.text == " ".join(write.text.split()) != ""
    again = feed_all(Session(model, CODEC, segment=segment), [" ".join(chunks)])
    assert writes(again) == writes(events)


def test_end_of_sequence_cannot_be_spelled() -> None:
    for text in ("</s>", "<s> </s> <pad>", "<0x02>"):
        for codec in (CODEC, WORDS):
            assert EOS not in codec.encode_source(text)[:-1]
