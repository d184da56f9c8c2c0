"""Caption files: what is written is read again, and what is wrong is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan.cues import CaptionError, Cue, Format, parse, read, render

WORD = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="\u00ad{}<"), min_size=1
)
LINES = st.lists(st.lists(WORD, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=3)
TIME = st.integers(0, 100 * 3600 * 1000)


@st.composite
def cues(draw: st.DrawFn) -> list[Cue]:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        start, end = sorted((draw(TIME), draw(TIME)))
        found.append(Cue(start, end, "\n".join(draw(LINES))))
    return sorted(found, key=lambda cue: cue.start)


@pytest.mark.parametrize("kind", ["srt", "vtt"])
@given(made=cues(), newline=st.sampled_from(["\n", "\r\n", "\r"]), note=st.sampled_from(["", "a"]))
def test_round_trip(kind: Format, made: list[Cue], newline: str, note: str) -> None:
    text = render(made, kind, note).replace("\n", newline)
    assert parse(text, kind) == made
    assert text.endswith(newline)


@given(cues())
def test_signs_of_the_format_are_text_in_vtt(made: list[Cue]) -> None:
    odd = [Cue(cue.start, cue.end, f"<b> {cue.text} & --> &amp; </b>") for cue in made]
    assert parse(render(odd, "vtt"), "vtt") == odd


@given(st.text(alphabet="0123456789:.,-> \nWEBVTTabc<>&"), st.sampled_from(["srt", "vtt"]))
def test_any_text_is_read_or_refused_with_a_line(text: str, kind: Format) -> None:
    try:
        found = parse(text, kind, "file")
    except CaptionError as error:
        name, line, _ = str(error).split(":", 2)
        assert name == "file"
        assert 1 <= int(line) <= text.count("\n") + 1
    else:
        assert found
        assert all(0 <= cue.start <= cue.end and cue.text for cue in found)


def test_what_others_write() -> None:
    text = (
        "WEBVTT - a title\nKind: captions\n\nSTYLE\n::cue { color: red }\n\n"
        "NOTE\nnot shown\n\n"
        "1 - first\n00:01.500 --> 00:02.000 align:start position:10%\n"
        "<v Ann>Guten <i.loud>Tag</i></v> &amp; <00:00:01.900>hallo\n- zwei\n\n"
        "01:00:00.000 --> 01:00:01.000\n\n"  # no text
        "00:00.500 --> 00:01.000\nzuerst\n"
    )
    assert parse(text, "vtt") == [
        Cue(500, 1000, "zuerst"),
        Cue(1500, 2000, "Guten Tag & hallo\n- zwei", (None, None, None, 1900, None, None)),
    ]
    text = "\n\n7\n00:00:01,000 --> 00:00:02,000 X1:10\n{\\an8}<i>Ja</i> & 3 < 4\n\n\n"
    text += "00:00:02.000 --> 00:00:03.000\nohne Nummer\n--> darin"
    assert parse(text, "srt") == [
        Cue(1000, 2000, "Ja & 3 < 4"),
        Cue(2000, 3000, "ohne Nummer\n--> darin"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.vtt", "00:01.000 --> 00:02.000\na\n", "a.vtt:1: a WebVTT file begins"),
        ("a.vtt", "WEBVTT\n\nhallo\nwelt\n", "a.vtt:3: a caption's times are missing"),
        ("a.vtt", "WEBVTT\n\nx\n00:01.000 -> 00:02.000\na", "a.vtt:3: a caption's times"),
        ("a.vtt", "WEBVTT\n\n\n00:01 --> 00:02.000\na\n", "a.vtt:4: '00:01' is no time"),
        ("a.vtt", "WEBVTT\n\n1\n00:01.000 -->\na\n", "a.vtt:4: '' is no time"),
        ("a.vtt", "WEBVTT\n\n00:61.000 --> 00:62.000\na\n", "a.vtt:3: '00:61.000' is no time"),
        ("a.srt", "1\n00:00:02,000 --> 00:00:01,000\na\n", "a.srt:2: the caption ends before"),
        ("a.srt", "eins\n00:00:01,000 --> 00:00:02,000\na\n", "a.srt:1: a caption begins with"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\nb\n", "a.srt:5: a caption's times"),
        ("a.srt", "1\n0:00:01,000 --> 0:00:02,000\na\n\n0:00:02,0\nb\n", "a.srt:5: a caption's"),
        ("a.srt", "\n\n", "a.srt:3: the file ends without a caption"),
        ("a.vtt", "WEBVTT", "a.vtt:1: the file ends without a caption"),
        ("a.ass", "x", "ends in .srt or .vtt"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as error:
        read(tmp_path / name)
    assert message in str(error.value)


def test_encodings(tmp_path: Path) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nGrüße\n"
    path = tmp_path / "a.SRT"
    path.write_bytes(text.encode("utf-8-sig"))
    assert read(path) == [Cue(1000, 2000, "Grüße")]
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        data = text.encode(encoding)
        mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
        path.write_bytes(mark + data)
        assert read(path) == [Cue(1000, 2000, "Grüße")]
    path.write_bytes(text.encode("utf-16-le"))
    with pytest.raises(CaptionError, match=r"a\.SRT:1: not UTF-8.*UTF-16LE"):
        read(path)
    path.write_bytes(b"\xff\xfea")
    with pytest.raises(CaptionError, match=r"a\.SRT:1: not UTF-16"):
        read(path)
    path.write_bytes(text.encode("cp1252"))
    with pytest.raises(CaptionError, match=r"a\.SRT:3: not UTF-8.*WINDOWS-1252"):
        read(path)


AUTOMATIC = """WEBVTT
Kind: captions
Language: de

00:00:00.080 --> 00:00:02.389 align:start position:0%
 \nja<00:00:00.480><c> hallo</c><00:00:01.000><c> zusam</c><c>men</c>

00:00:02.389 --> 00:00:02.399 align:start position:0%
ja hallo zusammen
 \n
00:00:02.399 --> 00:00:04.200 align:start position:0%
ja hallo zusammen
wie<00:00:02.800><c> geht's</c>
"""


def test_automatic_captions_have_lines_of_one_space() -> None:
    assert parse(AUTOMATIC, "vtt") == [
        Cue(80, 2389, "ja hallo zusammen", (None, 480, 1000)),
        Cue(2389, 2399, "ja hallo zusammen"),
        Cue(2399, 4200, "ja hallo zusammen\nwie geht's", (None, None, None, None, 2800)),
    ]


def test_a_blank_line_inside_a_subrip_caption() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\neins\n\nzwei\n \ndrei\n\n"
    text += "2\n00:00:02,000 --> 00:00:03,000\nvier\n\n\n"
    assert parse(text, "srt") == [Cue(1000, 2000, "eins\nzwei\ndrei"), Cue(2000, 3000, "vier")]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.srt: no such file"):
        read(tmp_path / "none.srt")
