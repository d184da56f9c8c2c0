"""What a model does not read: told word by word, copied in its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import CODEC, feed_all, make, writes

from simultan.data.alphabet import Alphabet
from simultan.data.text import normalise
from simultan.streaming.copying import LONGEST_REMARK, Copies, Sieve
from simultan.streaming.session import End, Event, Read, Session, Write


@pytest.fixture(scope="module")
def alphabet() -> Alphabet:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÜäöüß"
    return Alphabet([*(f"{letter}n" for letter in letters), *letters, "и", "Ł"])


@pytest.mark.parametrize(
    "word",
    ["Haus", "Haus.", "„Ja“", "geht's", "E-Mail", "z.B.", "3,5%", "1.250.000", "5€", "§5", "km/h",
     "und/oder", "-", "–", "...", "(ja)", "50/50", "20°C", "GROSS"],
)  # fmt: skip
def test_words_are_read_as_they_are(alphabet: Alphabet, word: str) -> None:
    heard = Sieve(alphabet).sift(word)
    assert (heard.text, heard.copy) == (word, "")


@pytest.mark.parametrize(
    "word",
    ["😀", "👨\u200d👩\u200d👧", "🇩🇪", "☺️", "♪", "→", "★", "©", "3×4", "a|b", "今天", "مرحبا",
     "Привет", "и", "Nguyễn", "２３", "†", "•", "!!!!", "#####",
     "http://example.com/a?x=1", "www.example.org,", "example.com.", "git@example.com:a/b.git",
     "max@example.de", "@anna", "#Klima", "/usr/bin/env", "C:\\Windows\\x", "foo_bar()", "a::b",
     "<b>Hallo</b>", "[Musik]", "x" * 101],
)  # fmt: skip
def test_words_that_are_copied(alphabet: Alphabet, word: str) -> None:
    heard = Sieve(alphabet).sift(word)
    assert (heard.text, heard.copy) == ("", word)


@pytest.mark.parametrize(
    ("word", "text", "copy"),
    [
        ("Super👍!", "Super!", "👍"),
        ("❤️Danke", "Danke", "❤️"),  # and leads
        ("Z\u0337a\u0337", "Za", ""),
        ("Tag\ufffd", "Tag", ""),
        ("5\u202e", "5", ""),
        ("\u200d", "", ""),
        ("\ufe0f", "", ""),
        ("\ue000\ue001", "", ""),
    ],
)
def test_words_of_which_a_part_is_read(alphabet: Alphabet, word: str, text: str, copy: str) -> None:
    heard = Sieve(alphabet).sift(word)
    assert (heard.text, heard.copy) == (text, copy)


def test_a_remark_is_copied_to_its_end(alphabet: Alphabet) -> None:
    def told(text: str) -> list[bool]:
        sieve = Sieve(alphabet)
        return [bool(sieve.sift(word).text) for word in text.split()]

    assert told("ja [leise Musik] ja") == [True, False, False, True]
    assert told("[Musik] ja [Applaus]") == [False, True, False]
    # a bracket that is never closed is no remark
    assert told("[a b c d e f g h i") == [False] * LONGEST_REMARK + [True] * 3


def test_without_an_alphabet_all_scripts_are_read() -> None:
    assert Sieve().sift("今天").text == "今天"
    assert Sieve().sift("👍").text == ""


def test_alphabets() -> None:
    assert Alphabet("abc").knows("abba")
    assert not Alphabet("abc").knows("d")
    alphabet = Alphabet([*(f"a{n}" for n in range(4000)), "a", "é", "и"])
    assert alphabet.knows("aé1")  # a name
    assert alphabet.knows("aéaaéa")
    assert not alphabet.knows("aéaaé")  # too many foreign letters, as in ñandú
    assert not alphabet.knows("aéé")  # more foreign letters than others
    assert not alphabet.knows("aé")
    assert not alphabet.knows("aaи")  # another script
    assert not alphabet.knows("a٣")


@given(st.text(max_size=20))
def test_any_text(text: str) -> None:
    sieve = Sieve(Alphabet(["ab", "a", "b"]))
    for word in normalise(text).split():
        heard = sieve.sift(word)
        assert heard.word == word
        assert set(heard.text) <= set(word)
        assert set(heard.copy) <= set(word)
        assert not any(letter.isspace() for letter in heard.text + heard.copy)


def test_copies_come_in_their_place() -> None:
    copies = Copies()
    copies.hear(3, 2, "a")
    copies.hear(4, 2, "b")
    copies.hear(7, 4, "c")
    copies.hear(7, 4, "c")  # read again
    assert copies.first() == []
    assert copies.due(slowest=2, written=9) == []  # a head stands before it
    assert copies.due(slowest=9, written=1) == []  # two words come before it
    assert copies.due(slowest=5, written=2) == ["a", "b"]
    assert copies.due(slowest=9, written=3) == []
    copies.forget(3)  # the segment begins three words later
    assert copies.due(slowest=2, written=1) == ["c"]
    copies.hear(8, 0, "d")
    copies.hear(9, 1, "e")
    assert copies.first() == ["d"]
    assert copies.rest(8) == []
    assert copies.rest() == ["e"]
    assert copies.rest() == []


# --- in a session ---

MIXED = st.lists(
    st.sampled_from(["a", "bc", "def", "😀", "ab😀", "[x", "y]", "3×4", "\u200d", "c."])
)
DECODINGS = [
    ("mma-il", ""),
    ("mma-h", ""),
    ("wait-k", "k=2"),
    ("offline", ""),
    ("offline", "wait-k:2"),
]


@settings(max_examples=100, deadline=None)
@given(MIXED, st.booleans(), st.sampled_from(DECODINGS), st.integers(0, 3))
def test_copies_do_not_depend_on_how_the_source_arrives(
    words: list[str], segment: bool, how: tuple[str, str], seed: int
) -> None:
    policy, decoding = how
    model = make(policy, "transformer", seed)

    def run(chunks: list[str]) -> list[Event]:
        session = Session(model, CODEC, decoding, segment=segment)
        events = feed_all(session, chunks)
        assert session.rows[0].done
        return [event for event in events if event != Read()]

    at_once, one_by_one = run([" ".join(words)]), run(words)
    written = [(w.text, w.delay, w.heads) for w in writes(at_once)]
    assert [(w.text, w.delay, w.heads) for w in writes(one_by_one)] == written
    assert one_by_one == at_once
    delays = [write.delay for write in writes(at_once)]
    assert delays == sorted(delays)
    assert all(1 <= delay <= len(words) for delay in delays)
    # every copy is there, once and in order
    said = " ".join(write.text for write in writes(at_once)).split()
    sieve = Sieve(CODEC.alphabet)
    copies = [heard.copy for heard in map(sieve.sift, words) if heard.copy]
    assert [word for word in said if word in {"😀", "[x", "y]", "3×4"} | set(copies)] == copies
    if segment and words:
        assert at_once[-1] == End(len(words)) or not at_once


def test_rows_copy_as_sessions_do() -> None:
    model = make("mma-il", "transformer", 1)
    texts = ["a 😀 b c", "😀", "a b 3×4", "ab😀 c. 😀 d"]
    session = Session(model, CODEC, rows=4, segment=True)
    for row, text in enumerate(texts):
        session.push(text, row)
        session.close(row)
    found: list[list[Event]] = [[] for _ in texts]
    while any(session.wants_turn(row) for row in range(4)):
        for row, event in session.advance():
            found[row].append(event)
    for text, events in zip(texts, found, strict=True):
        alone = feed_all(Session(model, CODEC, segment=True), [text])
        assert [event for event in alone if event != Read()] == events


def test_what_comes_first_is_written_at_once() -> None:
    session = Session(make("mma-il", "transformer", 1), CODEC, segment=True)
    assert session.feed("😀") == [Write("😀", 1, [[1, 1], [1, 1]]), Read()]
    assert session.finish() == [End(1)]
