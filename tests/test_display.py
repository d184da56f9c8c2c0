"""`simultan translate`: words in as they come, words out as soon as they are there."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import simultan
from simultan import boxed, checkpoint, cli, display
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary
from simultan.model import build
from simultan.streaming import distill
from simultan.streaming.session import End, Event, Read, Write
from simultan.verbs import demo
from simultan.verbs.translate import translate


def piped(*parts: bytes, pause: float = 0.0) -> int:
    """A pipe into which the parts are written one after the other."""
    reading, writing = os.pipe()

    def send() -> None:
        for part in parts:
            os.write(writing, part)
            time.sleep(pause)
        os.close(writing)

    threading.Thread(target=send).start()
    return reading


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_words_in_any_pieces(pause: float) -> None:
    text = "der  kleine Bär\nschläft. ".encode()
    whole = ["der", "kleine", "Bär", "\n", "schläft."]
    assert list(display.read_words(piped(text))) == whole
    cut = piped(*(text[i : i + 3] for i in range(0, len(text), 3)), pause=pause)
    assert list(display.read_words(cut)) == whole
    assert list(display.read_words(piped(b"a\xffb\n\nc"))) == ["a\ufffdb", "\n", "\n", "c"]
    assert list(display.read_words(piped())) == []
    assert list(display.read_words(piped(text.decode().encode("utf-16")))) == whole


def test_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    reading, writing = os.pipe()
    os.write(writing, b"a b\nc")
    os.close(writing)
    assert list(display.read_words(reading, pace=4)) == ["a", "b", "\n", "c"]
    assert slept == [0.25] * 3


EVENTS: list[tuple[str, Event]] = [
    ("red", Read()),
    ("moon", Write("la lune", 2, [[1, 2], [2, 2]])),
    ("", Write("rouge", 2, [[2, 2], [2, 2]])),
    ("", End(2)),
    ("now", Write("maintenant", 3, [[3, 3], [3, 3]])),
    ("", End(3)),
]


def test_plain_text() -> None:
    out = io.StringIO()
    display.write(EVENTS, out)
    assert out.getvalue() == "la lune rouge\nmaintenant\n"
    out = io.StringIO()
    display.write(EVENTS[:2], out)  # cut off
    assert out.getvalue() == "la lune\n"


def test_the_picture() -> None:
    picture = display.Picture()
    for word, event in EVENTS[:3]:
        picture.add(word, event)
    console = Console(file=io.StringIO(), width=60)
    console.print(picture)
    rows = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert rows == [
        ["heard", "heads", "written"],
        ["1", "red", "○·", "··"],
        ["2", "moon", "●●", "●●", "la", "lune", "rouge"],
    ]


def test_a_narrow_terminal_has_no_heads_and_cuts_no_word() -> None:
    console = Console(file=io.StringIO(), width=24)
    display.draw([("Mond", Write("weltraumgesellschaften", 1, [[1, 1]])), ("", End(1))], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    table = text.split("Mond\n")[0]
    assert "●" not in table
    assert "…" not in table
    assert re.sub(r"\W", "", table.split("Mond")[1]) == "weltraumgesellschaften"


def test_lines_of_a_text_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    def joined(text: str) -> tuple[list[str], int]:
        words = display.read_words(piped(text.encode()))
        found = list(display.join_lines(words, "de"))
        return found, capsys.readouterr().err.count("are read as one text")

    wrapped = "der Mond\nist rot. Er\nist schön.\n"
    assert joined(wrapped) == ([*wrapped.split(), "\n"], 0)  # the end of the text ends it, too
    assert joined("guten Tag\n\nund Dank")[0] == ["guten", "Tag", "\n", "und", "Dank"]
    for text, said in (
        ("guten Tag\n\nwie geht es\n\nund Dank\n", 0),
        ("guten Tag\nwie geht es", 1),
        ("guten Tag\nwie geht es\n" * 4, 1),
        ("guten Tag\nwie geht es\n\nUnd Dank.\n", 1),
        ("Guten Tag.\nWie geht es?\nUnd Dank\n", 0),
        ("Der Mond,\nder heute\nso rot\nund schön\nist, geht auf.\n", 0),  # wrapped
    ):
        assert joined(text)[1] == said, text


def test_many_lines_without_a_full_stop_are_told_of_while_they_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = display.join_lines(["Tag", "\n"] * 100)
    for number in range(100):
        assert next(lines) == "Tag"
        assert ("are read as one text" in capsys.readouterr().err) == (number == 8)


def test_advice_is_for_the_verb_that_is_called(
    model: Path, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A demo and a server's client know no --lines."""
    (tmp_path / "text").write_text("a b\nc d\n")
    demo.demo(str(model), text=tmp_path / "text", pace=0.0)
    assert capsys.readouterr().err == display.JOINED + "\n"
    done = subprocess.run(
        command, input=b"a b\nc d\n", capture_output=True, timeout=300, env=ENVIRONMENT, check=True
    )
    assert done.stderr.decode().startswith(f"{display.JOINED}, and with --lines")
    assert b"simultan:" not in done.stdout


def test_the_end_of_a_line_ends_a_sentence(model: Path) -> None:
    translator = simultan.load(model)
    sentences = [display.translate(translator.session(), text.split(" ")) for text in ("a b", "c")]
    alone = [event for sentence in sentences for event in sentence]
    both = list(display.translate(translator.session(), ["a", "b", "\n", "c", "\n", "\n"]))
    assert both[: len(alone)] == alone
    assert all(item == ("", End(0)) for item in both[len(alone) :])
    out = io.StringIO()
    display.write(both, out)
    assert out.getvalue().count("\n") == 2  # the empty line says nothing
    console = Console(file=io.StringIO(), width=60)
    display.draw(both, console, typed=True)
    assert console.file.getvalue().count("heard") == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("terminal", [False, True])
def test_drawing(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=60, height=20, force_terminal=terminal)
    display.draw(EVENTS, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "la lune rouge" in text
    assert "maintenant" in text
    assert " 3 " in re.sub("\x1b\\[[0-9;]*m", "", text).replace("\n", " ")  # numbered on


@pytest.mark.parametrize("typed", [False, True])
def test_the_next_sentence_is_heard_before_this_one_ends(typed: bool) -> None:
    """As without punctuation, where an end shows two words later: nothing is lost."""
    events: list[tuple[str, Event]] = [(word, Read()) for word in ("wie", "geht's", "ich")]
    events += [("habe", Write("How are you?", 4, [[2]])), ("", End(2))]
    events += [("", Write("I", 4, [[4]])), ("zeit", Write("have time.", 5, [[5]])), ("", End(5))]
    console = Console(file=io.StringIO(), width=80)
    display.draw(iter(events), console, typed=typed)
    rows = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [row for row in rows if row] == [
        ["heard", "heads", "written"],
        ["1", "wie", "·"],
        ["2", "geht's", "●"],
        ["3", "ich"],  # the next one's, and heard when this one was written
        ["4", "habe", "How", "are", "you?"],
        ["wie", "geht's"],
        ["How", "are", "you?"],
        ["heard", "heads", "written"],
        ["3", "ich", "·"],
        ["4", "habe", "○", "I"],
        ["5", "zeit", "●", "have", "time."],
        ["ich", "habe", "zeit"],
        ["I", "have", "time."],
    ]


def test_empty_lines_draw_nothing() -> None:
    console = Console(file=io.StringIO(), width=80)
    display.draw(iter([("", End(0)), ("", End(0)), ("gut", Read())]), console)
    assert console.file.getvalue().count("heard") == 1  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing but to stop at each word and to say something."""
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


@pytest.fixture
def command(model: Path) -> list[str]:
    return [sys.executable, "-m", "simultan.cli", "translate", str(model)]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_each_word_comes_before_the_next_is_sent(command: list[str]) -> None:
    def heed_interrupts() -> None:  # which a shell's background jobs do not
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, bufsize=0,
        preexec_fn=heed_interrupts,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write(b"a\n")
            assert process.stdout.read(1)  # blocks until it is there
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(300) == 130
        assert rest.endswith(b"\n")


def test_end_of_input_and_sentences(command: list[str]) -> None:
    done = subprocess.run(
        command,
        input=b"a b ij. c\nd",
        capture_output=True,
        timeout=300,
        env=ENVIRONMENT,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 2  # a full stop ends a sentence, a line does not
    done = subprocess.run(
        [*command, "--lines"], input=b"a b c\n\n  \nd\n", capture_output=True, timeout=300,
        env=ENVIRONMENT, check=True,
    )  # fmt: skip
    lines = done.stdout.split(b"\n")
    assert [bool(line) for line in lines] == [True, False, False, True, False]  # empty lines stay
    assert done.stderr == b""


def test_a_file(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("a b c\n\nd\ne f\n")
    run = [*command, "--in", str(tmp_path / "a.de"), "--rows", "2", "--out"]
    target = tmp_path / "a.en"
    target.write_text("old\n")
    subprocess.run([*run, str(target)], timeout=300, env=ENVIRONMENT, check=True)
    lines = target.read_text().split("\n")
    assert [bool(line) for line in lines] == [True, False, True, True, False]
    done = subprocess.run(run[:-1], capture_output=True, timeout=300, env=ENVIRONMENT, check=True)
    assert done.stdout.decode() == target.read_text()  # without --out
    assert done.stderr == b""
    (tmp_path / "latin").write_bytes("schön".encode("latin-1"))
    for wrong, message in (
        ([*run, str(tmp_path / "a.de")], b"this is the file to be read"),
        ([*run, str(tmp_path)], b"this is a folder; write to a file"),
        ([*run, str(tmp_path / "no" / "a.en")], b"make it first"),
        ([*command, "--in", str(tmp_path / "latin")], b"line 1: not valid UTF-8; convert it"),
        ([*command, "--out", "x"], b"--in FILE"),
        ([*run, str(target), "--show"], b"without --url and --show"),
    ):
        done = subprocess.run(wrong, capture_output=True, timeout=300, env=ENVIRONMENT)
        assert done.returncode == 2
        assert message in done.stderr


def test_an_interrupt_adds_no_line_to_a_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(*_: object, **__: object) -> Iterator[list[str]]:
        yield ["x", "y"]
        raise KeyboardInterrupt

    monkeypatch.setattr(distill, "translate_lines", lines)
    (tmp_path / "a.de").write_text("a\nb\nc\n")
    with pytest.raises(SystemExit) as stopped:
        translate(str(model), in_=tmp_path / "a.de")
    assert stopped.value.code == 130
    assert capsys.readouterr().out == "x\ny\n"


def test_closed_streams_are_empty(command: list[str]) -> None:
    """As a service may find them."""
    for closing in ("<&-", "</dev/null >&-", "</dev/null 2>&-"):
        shell = ["sh", "-c", f'"$@" {closing}', "sh", *command]
        done = subprocess.run(shell, capture_output=True, timeout=300, env=ENVIRONMENT)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_typing_by_hand() -> None:
    out = io.StringIO()
    words = display.prompted(iter(["a", "b", "\n", "c", "\n"]), out)
    seen = [(word, out.getvalue()) for word in words]
    assert seen[0] == ("a", "> ")
    assert seen[3] == ("c", "> \n> ")
    assert out.getvalue() == "> \n> \n> \n"
    console = Console(file=io.StringIO(), width=60, height=20, force_terminal=True)
    display.draw(EVENTS, console, typed=True)
    text = re.sub("\x1b\\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "\x1b" not in text  # nothing moves the cursor over what is typed
    assert text.count("heard") == 2  # each sentence has its own table


def test_a_closed_pipe(command: list[str]) -> None:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=ENVIRONMENT, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdout.read(1)
        process.stdout.close()
        for _ in itertools.repeat(None, 50):
            try:
                process.stdin.write(b"b c ij.\n")
            except BrokenPipeError:  # it has left already
                break
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(300) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threshold", "2"), "between 0 and 1"),
        (("--k", "0"), "at least 1"),
        (("--rule", "wait-k:2"), "this model's policy is wait-k; it takes k=3"),
    ],
)
def test_bad_settings_are_one_line(
    model: Path,
    options: tuple[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["simultan", "translate", str(model), *options])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_tally() -> None:
    tally = display.Tally()
    tally.run(lambda: [Write("a", 2, [[2]]), Write("b c", 4, [[4]]), End(4)])
    tally.run(lambda: [Read()])
    tally.run(lambda: [Write("d", 5, [[5]]), Write("e", 6, [[6]]), End(6)])
    tally.run(lambda: [End(6)])  # nothing was said
    assert tally.sentences == [(4, [2, 4, 4]), (2, [1, 2])]
    assert tally.words == 5
    # (2 + 4 - 4/3) / 2 and (1 + 2 - 1) / 2
    assert tally.average_lagging() == pytest.approx((7 / 3 + 1) / 2)


def test_the_demo_takes_the_model_in_the_box(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "models" / "de-en")
    monkeypatch.setattr(boxed, "BOXES", (tmp_path / "models",))
    picture = tmp_path / "demo.svg"
    for options in ((), ("--text", str(tmp_path / "text"), "--svg", str(picture))):
        (tmp_path / "text").write_text("a b c\nd ij. e f g ij.")
        monkeypatch.setattr(sys, "argv", ["simultan", "demo", "--pace", "0", *options])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        said = capsys.readouterr().out
        assert re.search(r"\(AL\) \d+\.\d words; \d+ words written at \d+ words a second", said)
        assert ("Guten Abend" in said) == (not options)
    assert "ij." in picture.read_text()
    with pytest.raises(ValueError, match=f"--svg {tmp_path}: this is a folder"):
        demo.demo("none", svg=tmp_path)  # before the talk is played


@pytest.mark.parametrize("there", [True, False])
def test_make_demo(tmp_path: Path, there: bool) -> None:
    shutil.copy(Path(__file__).parents[1] / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    if there:
        (tmp_path / "models" / "de-en").mkdir(parents=True)
        (tmp_path / "models" / "de-en" / "weights.safetensors").touch()
    plan = subprocess.run(
        ["make", "-n", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert ("simultan demo" in plan) == there
    assert ("simultan toy" in plan) == (not there)


def test_text_that_is_not_utf8_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for encoding, said in (("utf-8", 0), ("latin-1", 1)):
        reading, writing = os.pipe()
        os.write(writing, "schön und grün\ndie Straße\n".encode(encoding))
        os.close(writing)
        words = list(display.read_words(reading))
        os.close(reading)
        assert words.count("und") == 1
        assert capsys.readouterr().err.count("not UTF-8") == said
