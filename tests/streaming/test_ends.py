"""Sentence ends that nobody wrote: what is held, where a segment ends, what a delay counts."""

import random
from collections import deque
from pathlib import Path

import pytest
import torch
from small import CODEC, feed_all, make, sentence, writes

import simultan.train.ends
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import Vocabulary
from simultan.streaming.ends import EndFinder, EndNetwork, Taken, load_ends, save_ends
from simultan.streaming.session import End, Session
from simultan.train.ends import measure_ends, sentences_of, train_ends
from simultan.verbs.ends import ends

NO, MAYBE, YES = -9.0, 0.5, 9.0
WORDS = "amBCS"
ODDS = {  # that a sentence ends with this word, one word before, two words before
    "a": (NO, NO, NO),
    "m": (MAYBE, MAYBE, MAYBE),
    "B": (NO, YES, NO),
    "C": (NO, MAYBE, YES),
    "S": (YES, NO, NO),
}


class Said(EndNetwork):
    """Says what stands in the table."""

    def __init__(self) -> None:
        super().__init__(len(WORDS), 2, 2)

    def forward(self, tokens, state=None):  # type: ignore[no-untyped-def]
        found = [[ODDS[WORDS[token]] for token in row] for row in tokens.tolist()]
        return torch.tensor(found), torch.zeros(1, 1, 2)


def taken(text: str, *, closed: bool = True, at_once: bool = False) -> list[tuple[str, bool, int]]:
    """What is read of these letters, when they come one by one: word, end, words awaited."""
    finder = EndFinder(Said(), lambda word: [WORDS.index(word[0])])
    queue: deque[str] = deque()
    found = []
    for number, letter in enumerate(text, 1):
        queue.append(letter)
        if at_once and number < len(text):
            continue
        while (word := finder.take(queue, closed and at_once)) is not None:
            found.append(tuple(word))
    while closed and (word := finder.take(queue, True)) is not None:
        found.append(tuple(word))
    return found


@pytest.mark.parametrize("mark", [".", ",", ":"])
def test_a_word_with_a_mark_is_no_business_of_the_network(mark: str) -> None:
    """ "S." is an initial, as "15." is a day."""
    finder = EndFinder(Said(), lambda word: [WORDS.index(word[0])], "de")
    queue = deque(["a", f"S{mark}", "B"])
    assert finder.take(queue, False) == Taken("a")
    assert finder.take(queue, False) == Taken(f"S{mark}")


def test_a_word_after_which_nothing_ends_is_read_at_once() -> None:
    assert taken("aa", closed=False) == [("a", False, 0), ("a", False, 0)]


def test_a_word_that_may_be_the_last_awaits_the_next_one() -> None:
    assert taken("am", closed=False) == [("a", False, 0)]
    assert taken("ama", closed=False) == [("a", False, 0), ("m", False, 1), ("a", False, 0)]


def test_the_next_word_says_that_a_sentence_ended() -> None:
    assert taken("amB") == [("a", False, 0), ("m", True, 1), ("B", False, 0)]


def test_two_words_are_awaited_at_most() -> None:
    assert taken("mC", closed=False) == []
    assert taken("mCa", closed=False) == [("m", False, 2), ("C", False, 1), ("a", False, 0)]
    assert taken("maC") == [("m", False, 1), ("a", False, 0), ("C", False, 0)]
    assert taken("mmC")[0] == ("m", True, 2)
    assert taken("mmm", closed=False) == [("m", True, 2)]  # likelier than not, and no more to hear


def test_a_sure_end_awaits_nothing() -> None:
    assert taken("aS", closed=False) == [("a", False, 0), ("S", True, 0)]


def test_a_written_end_is_one_whatever_was_heard() -> None:
    finder = EndFinder(Said(), lambda word: [WORDS.index(word[0])], "de")
    assert finder.take(deque(["am."]), False) == Taken("am.", True, 0)


def test_the_end_of_the_stream_lets_go_of_a_word() -> None:
    assert [word for word, _, _ in taken("am")] == ["a", "m"]


@pytest.mark.parametrize("text", ["amBmmaSamB", "mmmm", "mCmBaS", "aaCmC"])
def test_all_at_once_is_word_by_word(text: str) -> None:
    one = taken(text)
    assert "".join(word for word, _, _ in one) == text
    assert taken(text, at_once=True) == one


def test_without_a_network_nothing_is_held() -> None:
    finder = EndFinder(None, lambda word: [0])
    assert finder.take(deque("m"), False) == Taken("m")


def test_sentences_of_a_line() -> None:
    line = "Er kam z.B. heute. Dr. Kern ging! und dann"
    assert sentences_of(line, "de") == ["Er kam z.B. heute.", "Dr. Kern ging!", "und dann"]


# --- in a session ---


class Every(EndNetwork):
    """A sentence ends with every third word of a segment; that is clear one word later."""

    def __init__(self) -> None:
        super().__init__(len(CODEC.source_vocabulary), 2, 1)

    def forward(self, tokens, state=None):  # type: ignore[no-untyped-def]
        heard = 1 if state is None else int(state) + 1
        odds = torch.tensor([[[MAYBE if heard == 3 else NO, YES if heard == 4 else NO, NO]]])
        return odds, torch.tensor([[[float(heard)]]])


def test_a_segment_ends_where_it_is_heard() -> None:
    session = Session(make("mma-il", "transformer"), CODEC, ends=Every())
    events = feed_all(session, sentence(8, 0).split())
    assert [event.words for event in events if isinstance(event, End)] == [3, 6, 8]


@pytest.mark.parametrize("policy", ["mma-il", "wait-k", "offline"])
def test_any_chunking_gives_the_same(policy: str) -> None:
    for seed in range(4):
        text = sentence(11, seed)
        model = make(policy, "transformer", seed)
        one = feed_all(Session(model, CODEC, ends=Every()), text.split())
        all_at_once = feed_all(Session(model, CODEC, ends=Every()), [text])
        assert writes(one) == writes(all_at_once)
        assert sum(isinstance(event, End) for event in one) == 4


def test_a_delay_counts_the_word_that_was_awaited() -> None:
    for seed in range(4):
        session = Session(make("mma-il", "transformer", seed), CODEC, ends=Every())
        for heard, word in enumerate(sentence(9, seed).split(), 1):
            for event in writes(session.feed(word)):
                assert event.delay == heard


def test_each_segment_is_translated_as_if_it_were_alone() -> None:
    model, words = make("mma-il", "transformer", 2), sentence(9, 0).split()
    alone = [
        [event.text for event in writes(feed_all(Session(model, CODEC), words[at : at + 3]))]
        for at in (0, 3, 6)
    ]
    stream = writes(feed_all(Session(model, CODEC, ends=Every()), words))
    assert [event.text for event in stream] == [text for texts in alone for text in texts]


# --- training ---


def test_it_learns_a_language_whose_sentences_begin_with_the_same_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simultan.train.ends, "ROWS", 8)
    vocabulary = Vocabulary.learn_words(dict.fromkeys(["ich", "bin", "da", "hier", "nie"], 9), 1)
    codec = Codec(Pipeline("words", "de", "en"), vocabulary, vocabulary)
    chance = random.Random(0)
    lines = [
        " ".join(["Ich", *chance.choices(["bin", "da", "hier", "nie"], k=chance.randint(1, 6))])
        for _ in range(200)
    ]
    network = train_ends([[line + "." for line in lines]], codec, 40)
    scores = measure_ends(network, [lines], codec, batches=2)
    assert scores.precision > 0.9  # the stream's first word looks as if one had ended before it
    assert scores.recall > 0.99
    finder = EndFinder(network, codec.encode_source_word)
    queue = deque(["ich", "bin", "hier", "nie", "ich", "da"])
    found = []
    while (word := finder.take(queue, True)) is not None:
        found.append(word.ends)
    assert found == [False, False, False, True, False, False]
    codec.save(tmp_path)
    save_ends(network, tmp_path)
    again = load_ends(tmp_path, len(vocabulary))
    assert again is not None
    assert measure_ends(again, [lines], codec, batches=2) == scores


def test_a_folder_without_ends_has_none(tmp_path: Path) -> None:
    assert load_ends(tmp_path, 5) is None


def test_ends_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    CODEC.save(tmp_path)
    save_ends(EndNetwork(7, 2, 3), tmp_path)
    with pytest.raises(ValueError, match="made for 7 pieces, not for 5"):
        load_ends(tmp_path, 5)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ends.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match="not sentence ends"):
        load_ends(tmp_path, 5)


def test_the_verb_leaves_out_the_lines_of_the_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simultan.train.ends, "ROWS", 2)
    CODEC.save(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    (tmp_path / "train").write_text("a b c.\nb a.\nc c c.\n")
    (tmp_path / "test").write_text("B A!\n")
    ends(str(tmp_path), (tmp_path / "train",), without=(tmp_path / "test",), updates=2)
    assert load_ends(tmp_path, len(CODEC.source_vocabulary)) is not None
    said = capsys.readouterr().out
    assert "ends.safetensors: 2 lines" in said
    assert "test without case and punctuation" in said
    with pytest.raises(ValueError, match="at least two lines"):
        ends(str(tmp_path), (tmp_path / "test",))
