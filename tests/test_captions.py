"""Captions in time: nothing is shown before it was spoken, and everything is shown in order."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import simultan
from simultan import checkpoint, cli, cues, display
from simultan.captions import PAUSE, Heard, speak, translate, written
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.cues import Cue
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary
from simultan.layout import GAP, HOLD, LINE, LONGEST, RATES, SHORTEST, Shown, lay_out, measure
from simultan.model import build
from simultan.streaming.session import End, Event, Read, Session, Write

WORDS = st.lists(st.sampled_from(["a", "bb", "ccc.", "dddddddddd", "\u200b"]), max_size=8)


@st.composite
def captions(draw: st.DrawFn) -> list[Cue]:
    """Captions that may overlap, touch, begin together or be far apart."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, 30_000))
        found.append(Cue(start, start + draw(st.integers(51, 5000)), " ".join(draw(WORDS))))
    return sorted(found, key=lambda cue: cue.start)


class Echo:
    """A stand-in session: each word is written when `lag` more have been heard."""

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.reset()

    def reset(self) -> None:
        self.heard: list[str] = []
        self.done = 0

    def feed(self, word: str) -> list[Event]:
        self.heard.append(word)
        if len(self.heard) - self.done <= self.lag:
            return [Read()]
        self.done += 1
        return [Write(self.heard[self.done - 1], len(self.heard), [[len(self.heard)]]), Read()]

    def finish(self) -> list[Event]:
        rest = self.heard[self.done :]
        self.done = len(self.heard)
        if not rest:
            return []
        return [Write(" ".join(rest), len(self.heard), [[len(self.heard)]]), End(len(self.heard))]


def echo(lag: int) -> Session:
    return cast(Session, Echo(lag))


@given(captions())
def test_words_are_spoken_in_order_within_their_captions(made: list[Cue]) -> None:
    spoken = speak(made)
    assert [item.word for item in spoken] == [
        word for cue in made for word in cue.text.replace("\u200b", "").split()
    ]
    ends = [item.end for item in spoken]
    assert ends == sorted(ends)
    assert all(item.begin <= item.end for item in spoken)
    if spoken:
        assert spoken[0].begin >= min(cue.start for cue in made)
        assert ends[-1] <= max(cue.end for cue in made)


def test_lines_that_roll_up_are_said_once() -> None:
    rolling = [
        Cue(0, 2000, "eins zwei"),
        Cue(2000, 2010, "eins zwei"),
        Cue(2010, 4000, "eins zwei\ndrei"),
        Cue(4000, 4010, "drei"),
        Cue(4010, 6000, "drei\nvier fünf"),
        Cue(6010, 7000, "vier fünf\nsechs"),
        Cue(7000, 8000, "sechs"),  # said again: it stays for a second
        Cue(9000, 9900, "sechs\nsieben"),  # and this does not follow at once
    ]
    said = " ".join(item.word for item in speak(rolling))
    assert said == "eins zwei drei vier fünf sechs sechs sechs sieben"


def test_words_share_the_time_by_their_letters() -> None:
    spoken = speak([Cue(1000, 2000, "ab cdefghi"), Cue(1500, 3000, "x")])
    assert [(item.word, item.begin, item.end) for item in spoken] == [
        ("ab", 1000, 1136),  # 3 of 11 parts of the 500 ms before the next caption
        ("cdefghi", 1136, 1500),
        ("x", 1500, 3000),
    ]


@settings(max_examples=60)
@given(captions(), st.integers(0, 5), st.floats(0, 0.5), st.sampled_from(["reading", "instant"]))
def test_nothing_is_shown_before_it_was_spoken(
    made: list[Cue], lag: int, computing: float, layout: str
) -> None:
    spoken = speak(made)
    waits: list[int] = []
    words = written(translate(echo(lag), spoken, computing, waits.append))
    assert [word.text for word in words] == [item.word for item in spoken]
    assert waits == sorted(waits)
    assert [w.time for w in words] == sorted(w.time for w in words)
    for word in words:
        assert word.time >= spoken[word.delay - 1].end + 1000 * computing
    shown = lay_out(words, layout)  # type: ignore[arg-type]
    for one, two in pairwise(shown):
        assert one.start < one.end <= two.start
    for cue in shown:
        assert max(map(len, cue.text.split("\n"))) <= LINE
        assert cue.text.count("\n") <= 1
    if layout == "reading":  # every word was there when its caption began; none is lost
        place = 0
        for cue in shown:
            group = words[place : place + len(cue.text.split())]
            assert [word.text for word in group] == cue.text.split()
            assert max(word.time for word in group) <= cue.start
            assert cue.end - cue.start >= SHORTEST
            assert 1000 * len(cue.text) <= RATES[-1] * (cue.end - cue.start)
            place += len(group)
        assert place == len(words)
        for one, two in pairwise(shown):
            assert not 0 < two.start - one.end < GAP
    found = measure(shown, words, layout)  # type: ignore[arg-type]
    assert found.delay >= 0
    assert found.gaps == 0
    letters: Counter[int] = Counter()
    for word in words:
        letters[word.time] += len(word.text) + 1
    more_than_fits = max(letters.values(), default=0) > LINE // 2  # of what comes at one time
    assert found.delay == 0 or layout == "reading" or more_than_fits


@given(st.lists(st.tuples(st.sampled_from(["aa", "b.", "c" * 20]), st.integers(0, 3000))))
def test_instant_captions(made: list[tuple[str, int]]) -> None:
    time, words = 0, []
    for number, (text, gap) in enumerate(made):
        time += gap
        words.append(Shown(f"{number}{text}", time, 1))
    when = {word.text: word.time for word in words}
    shown = lay_out(words, "instant")
    for cue in shown:
        assert all(when[text] <= cue.start for text in cue.text.split())
    seen = [text for cue in shown for text in cue.text.split()]
    assert list(dict.fromkeys(seen)) == [word.text for word in words]


def test_a_pause_ends_a_sentence() -> None:
    spoken = speak([Cue(0, 1000, "eins zwei"), Cue(9000, 10_000, "drei vier")])
    stream = list(translate(echo(5), spoken, 0.0))
    ends = [item for item in stream if isinstance(item.event, End)]
    assert [(end.event, end.time) for end in ends] == [(End(2), 1000 + PAUSE), (End(4), 10_000)]
    writes = [item.event for item in stream if isinstance(item.event, Write)]
    assert [write.delay for write in writes] == [2, 4]
    assert writes[1].heads == [[4]]
    assert [(w.text, w.last) for w in written(stream)] == [
        ("eins", False), ("zwei", True), ("drei", False), ("vier", True),
    ]  # fmt: skip


def test_computing_takes_its_turn() -> None:
    spoken = speak([Cue(0, 200, "a b c d")])
    words = written(translate(echo(0), spoken, 0.1))
    assert [word.time for word in words] == [150, 250, 350, 450]  # the second waits for the first
    measured = written(translate(echo(0), spoken, None))
    assert all(word.time >= item.end for word, item in zip(measured, spoken, strict=True))


def test_layout_by_hand() -> None:
    words = [
        *(Shown(text, 100 * n, n) for n, text in enumerate(["This", "is", "it."], 1)),
        Shown("Slow", 500, 4),
        Shown("speech", 4000, 5, last=True),
        Shown("w" * 30, 19_000, 6),
        Shown("x" * 30, 19_100, 6),
        Shown("y" * 30, 19_200, 6),
    ]
    shown = lay_out(words)
    assert shown == [
        Cue(300, 2500, "This is it."),  # it stays until the next
        Cue(2500, 4000, "Slow"),  # it waited two seconds
        Cue(4000, 4000 + SHORTEST + HOLD, "speech"),  # and this until nobody looks any more
        Cue(19_200, 22_789, "w" * 30 + "\n" + "x" * 30),  # full when the third came
        Cue(22_789, 22_789 + 2000 + HOLD, "y" * 30),
    ]
    found = measure(shown, words, "reading")
    assert (found.captions, found.gaps) == (5, 0)
    assert found.letters_per_second == pytest.approx(61 / 3.589)
    assert found.shortest == 1.5
    waits = [200, 100, 0, 2000, 0, 200, 100, 3589]
    assert found.delay == pytest.approx(sum(waits) / len(waits) / 1000)


def test_phrases_stay_together() -> None:
    text = "Good evening, ladies and gentlemen, I am glad that you could come to this little town."
    words = [Shown(word, 100 * n, n) for n, word in enumerate(text.split(), 1)]
    assert [cue.text for cue in lay_out(words, language="en")] == [
        "Good evening, ladies and gentlemen,",
        "I am glad that you could come\nto this little town.",
    ]


def test_instant_lines_move_up() -> None:
    texts = ["a" * 20, "b" * 20, "c" * 20, "d" * 30]
    words = [Shown(text, 1000 * n, n) for n, text in enumerate(texts)]
    shown = lay_out(words, "instant")
    first = f"{texts[0]} {texts[1]}"
    assert [(cue.start, cue.text) for cue in shown] == [
        (0, texts[0]),
        (1000, first),
        (2000, f"{first}\n{texts[2]}"),
        (3000, f"{texts[2]}\n{texts[3]}"),
    ]
    assert shown[-1].end == 3000 + min(LONGEST, 1000 * 51 // 15 + HOLD)
    found = measure(shown, words, "instant")
    assert (found.captions, found.delay) == (3, 0)
    assert found.shortest == 3.0  # the first line
    assert found.letters_per_second == pytest.approx(41 / 3)


def test_times_inside_a_caption_are_used() -> None:
    spoken = speak([Cue(1000, 4000, "ab cd\nef gh", (None, 1500, None, 3500))])
    assert [(item.word, item.begin, item.end) for item in spoken] == [
        ("ab", 1000, 1500), ("cd", 1500, 2500), ("ef", 2500, 3500), ("gh", 3500, 4000),
    ]  # fmt: skip
    rolled = speak([Cue(0, 900, "ab"), Cue(900, 4000, "ab\ncd ef", (None, None, 3000))])
    assert [(item.word, item.begin) for item in rolled] == [("ab", 0), ("cd", 900), ("ef", 3000)]
    wrong = speak([Cue(1000, 4000, "ab cd ef", (None, 9000, 500))])  # such times are no times
    assert [item.begin for item in wrong] == [1000, 2000, 3000]


TALK = Path(__file__).parents[1] / "examples" / "talk.de.vtt"


def test_a_talk_can_be_watched() -> None:
    """The model in the box and captions of a German talk: nothing flickers, nothing flashes by."""
    session = simultan.load("de-en").session(segment=True)
    words = written(translate(session, speak(cues.read(TALK)), 0.02))
    assert len(words) > 250
    for layout in ("reading", "instant"):
        found = measure(lay_out(words, layout, "en"), words, layout, "en")  # type: ignore[arg-type]
        assert found.shortest >= 1
        assert found.letters_per_second <= 20
        assert found.gaps == 0
        assert found.delay <= (1.5 if layout == "reading" else 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It has learned nothing but to say something at each word."""
    vocabulary = Vocabulary([*SPECIAL, *"abcdefgh", "ij."])
    config = Config(
        model=ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=1),
        policy=PolicyConfig(name="wait-k", k=(1,)),
    )
    torch.manual_seed(1)
    fresh = build(config, len(vocabulary), len(vocabulary))
    with torch.no_grad():
        fresh.output.weight[: UNK + 1] = 0
    folder = tmp_path_factory.mktemp("model") / "model"
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    checkpoint.save(folder, checkpoint.weights_of(fresh), config, codec)
    return folder


SRT = "1\n00:00:00,100 --> 00:00:00,400\na b ij. c\n\n2\n00:00:00,500 --> 00:00:00,900\nd e\n"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["simultan", "captions", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return cast(int, stopped.value.code)


def test_the_verb(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.srt").write_text(SRT)
    assert run(monkeypatch, tmp_path / "in.srt", model) == 0
    first = capsys.readouterr()
    assert run(monkeypatch, tmp_path / "in.srt", model) == 0
    assert capsys.readouterr() == first  # the same times again
    assert cues.parse(first.out, "srt")
    assert "6 words heard" in first.err
    assert "letters a second, the shortest" in first.err
    assert "computing assumed to be 0.02 s a word" in first.err
    for option in ("--measure", "--live"):
        out = tmp_path / "out.vtt"
        assert run(monkeypatch, tmp_path / "in.srt", model, option, "--out", out) == 0
        assert "computing as measured" in capsys.readouterr().err
        texts = " ".join(cue.text for cue in cues.read(out))
        assert texts.split() == " ".join(c.text for c in cues.parse(first.out, "srt")).split()
        assert "NOTE Each word is shown when" in out.read_text()


def test_bad_files_and_settings_are_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.srt", tmp_path / "bad.vtt"
    good.write_text(SRT)
    bad.write_text("WEBVTT\n\n0:1 --> 0:2\nx\n")
    (tmp_path / "folder.vtt").mkdir()
    for arguments, message in (
        ((bad, model), "bad.vtt:3: '0:1' is no time"),
        ((good, model, "--out", tmp_path / "x.txt"), "ends in .srt or .vtt"),
        ((good, model, "--live", "--speed", 0), "--speed 0.0"),
        ((tmp_path / "none.srt", model), "none.srt: no such file"),
        ((good, model, "--out", good), "this is the file to be read"),
        ((good, tmp_path / "no", "--out", tmp_path / "no" / "x.srt"), "make it first"),
        ((good.parent / "folder.vtt", model), "folder.vtt: Is a directory"),
    ):
        assert run(monkeypatch, *arguments) == 2
        assert message in capsys.readouterr().err


def test_what_was_played_is_kept_at_an_interrupt() -> None:
    def stream() -> Iterator[Heard]:
        yield Heard("a", Write("b", 1, [[1]]), 5)
        raise KeyboardInterrupt

    assert [item.word for item in display.play(stream(), Console(file=io.StringIO()))] == ["a"]


def test_an_interrupt_leaves_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before anything is drawn, where rich has hidden it already."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(display.Live, "refresh", interrupt)
    place = io.StringIO()
    assert not list(display.play(iter(()), Console(file=place, force_terminal=True)))
    assert place.getvalue().endswith("\x1b[?25h")


@pytest.mark.parametrize("heard", [0, 2])
def test_an_interrupt_keeps_what_was_said_and_writes_nothing_empty(
    heard: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def timer(speed: float) -> Callable[[int], None]:
        calls = iter(range(heard))

        def wait(until: int) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt

        return wait

    monkeypatch.setattr(display, "timer", timer)
    (tmp_path / "in.srt").write_text(SRT)
    out = tmp_path / "out.srt"
    out.write_text("of yesterday")
    assert run(monkeypatch, tmp_path / "in.srt", model, "--live", "--out", out) == 0
    said = capsys.readouterr().err
    if heard:
        assert "2 words heard" in said
        assert cues.read(out)
    else:
        assert "nothing was translated yet" in said
        assert out.read_text() == "of yesterday"


def test_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [10.0], []
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(display.time, "sleep", slept.append)
    wait = display.timer(2.0)
    wait(1000)
    now[0] = 10.75
    wait(3000)
    wait(100)  # late: no waiting
    assert slept == [0.5, 0.75, 0.0]
