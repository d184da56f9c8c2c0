"""The stretch that makes the second edition: its time, its tries, its parts and what it sends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simultan.config import Config

RECIPE = Path(__file__).parents[1] / "recipes" / "de-en" / "second"
sys.path.insert(0, str(RECIPE))
try:
    import background  # type: ignore[import-not-found]
    import carry  # type: ignore[import-not-found]
    import rehearse  # type: ignore[import-not-found]
    import schedule  # type: ignore[import-not-found]
    import stretch as calls  # type: ignore[import-not-found]
    import students  # type: ignore[import-not-found]
finally:
    sys.path.remove(str(RECIPE))


@pytest.fixture
def stretch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("work", "parts", "out"):
        monkeypatch.setenv(name.upper(), str(tmp_path / name))
        (tmp_path / name).mkdir()
    for name in ("TABLE", "UNTIL", "SET", "TEXTS", "LEAST_BLEU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEVICE", "cpu")
    return schedule.Stretch.read()


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only where a test says so."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


def began(stretch: Any, seconds: float) -> None:
    stretch.note("began", str(time.time() - seconds))


def save(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").touch()


def test_the_table_fits_into_the_time(stretch: Any) -> None:
    assert 1400 < sum(stretch.table.values()) < stretch.until - schedule.PACKING
    assert set(students.STAGES) == {*stretch.table, schedule.LAST} - {"translate"}


@pytest.mark.usefixtures("still")
def test_time_that_was_lost_is_shared(stretch: Any) -> None:
    began(stretch, 60)
    table = schedule.TABLE
    left = 1600 - schedule.PACKING - 60
    wanted = table["back"] * min(1, left / sum(table.values()))
    assert stretch.seconds("back") == pytest.approx(wanted, abs=1)
    began(stretch, 900)
    left = 1600 - schedule.PACKING - 900
    share = table["offline"] / (table["offline"] + table["mma-il"])
    assert stretch.seconds("offline") == pytest.approx(left * share, abs=1)
    began(stretch, 1000)
    assert stretch.seconds("offline") == pytest.approx(left * share - 100, abs=1)  # it goes on
    began(stretch, 1300)
    assert stretch.seconds("mma-il") == pytest.approx(1600 - schedule.PACKING - 1300, abs=1)


@pytest.mark.usefixtures("still")
def test_what_is_left_is_for_the_last(stretch: Any) -> None:
    began(stretch, 1000)
    assert stretch.seconds("mma-il") == pytest.approx(schedule.TABLE["mma-il"], abs=1)
    began(stretch, 1330)
    assert stretch.seconds("wait-k") == pytest.approx(235, abs=1)


def test_a_call_may_say_how_long_the_machine_stays(stretch: Any) -> None:
    began(stretch, 40)
    stretch.set_left(1500)
    assert stretch.until == pytest.approx(1540 - schedule.RESERVE, abs=1)
    assert schedule.Stretch.read().until == stretch.until  # the work hears of it
    assert stretch.seconds("mma-il") == pytest.approx(schedule.TABLE["mma-il"], abs=1)
    began(stretch, 1300)
    left = 1480 - schedule.PACKING - 1300
    assert stretch.seconds("wait-k") == pytest.approx(left, abs=1)


def test_the_place_stays_when_it_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, disk = tmp_path / "shm", tmp_path / "disk"
    shared.mkdir()

    def free(size: float) -> Path:
        usage = SimpleNamespace(free=size)
        monkeypatch.setattr(schedule.shutil, "disk_usage", lambda path: usage)
        return schedule.choose_place(shared, disk)

    assert free(1e9) == disk
    assert free(1e12) == shared / "de-en2"
    (shared / "de-en2").mkdir()
    assert free(1e9) == shared / "de-en2"


def test_parts_are_waited_for(stretch: Any) -> None:
    first, second = stretch.parts / "1", stretch.parts / "2"
    first.mkdir()
    (first / "pairs.tar.xz.00").write_bytes(b"one")
    sizes = {"pairs.tar.xz.00": 3, "pairs.tar.xz.01": 4, "texts.tar.xz.00": 1}
    (first / "parts.json").write_text(json.dumps(sizes))
    calls.keep(stretch)
    assert not background.has_part(stretch, "pairs")
    second.mkdir()
    (second / "pairs.tar.xz.01").write_bytes(b"two")  # cut off
    calls.keep(stretch)
    assert not background.has_part(stretch, "pairs")
    (second / "pairs.tar.xz.01").write_bytes(b"two2")
    calls.keep(stretch)
    assert background.has_part(stretch, "pairs")
    assert not background.has_part(stretch, "texts")


def test_the_best_is_sent_first_and_nothing_twice(stretch: Any) -> None:
    def packed(name: str, pieces: int) -> None:
        folder = stretch.folder("out") / name
        folder.mkdir()
        for number in range(pieces):
            (folder / f"{name}.tar.xz.{number:02}").write_bytes(b"x")

    def bring(wanted: str = "") -> list[str]:
        """What a call brings, which works on nothing."""
        for path in stretch.out.iterdir():
            path.unlink()
        stretch.note("finished")
        calls.call(stretch, 0, wanted)
        return sorted(path.name for path in stretch.out.glob("*.xz.*"))

    assert bring() == []
    packed("made", 6)
    packed("offline", 2)
    assert bring() == ["offline.tar.xz.00", "offline.tar.xz.01"]
    packed("mma-il-early", 1)
    assert bring() == ["mma-il-early.tar.xz.00"]
    packed("mma-il", 1)
    assert bring() == ["mma-il.tar.xz.00"]
    assert len(bring()) == calls.SENT
    assert bring() == ["made.tar.xz.04", "made.tar.xz.05"]
    assert bring() == []
    assert bring("offline") == ["offline.tar.xz.00", "offline.tar.xz.01"]
    assert (stretch.out / "logs.tar").exists()


def test_a_call_that_finds_something_better_brings_that(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(name: str) -> None:
        (stretch.folder("out") / name).mkdir()
        (stretch.work / "out" / name / f"{name}.tar.xz.00").write_bytes(b"x")

    def sleep(seconds: float) -> None:
        packed("mma-il")
        stretch.note("finished")

    packed("offline")
    monkeypatch.setattr(calls, "start", lambda stretch: None)
    monkeypatch.setattr(calls.time, "sleep", sleep)
    calls.call(stretch, 60)
    assert [path.name for path in stretch.out.glob("*.xz.*")] == ["mma-il.tar.xz.00"]
    monkeypatch.undo()
    calls.call(stretch, 0)  # it was pushed out, so it is not forgotten
    assert [path.name for path in stretch.out.glob("*.xz.*")] == ["offline.tar.xz.00"]


class Fit:
    """Stands for training: remembers what it was asked for, and fails or looks as told."""

    def __init__(self, stretch: Any, failures: int = 0, looks: dict[str, Any] | None = None):
        self.stretch, self.failures, self.looks = stretch, failures, looks
        self.configs: list[Config] = []
        self.minutes: list[float] = []

    def __call__(self, config: Config, out: Path, **options: Any) -> Any:
        self.configs.append(config)
        self.minutes.append(options["minutes"])
        if len(self.configs) <= self.failures:
            raise RuntimeError("out of memory")
        if self.looks is not None:
            options["validate"](None, config, None)
            if options["stop"]():
                save(out / "last")
                return SimpleNamespace(finished=False)
        save(out / "final")
        return SimpleNamespace(finished=True)


def texts(stretch: Any, *names: str) -> None:
    for name in names or ("pairs", "swapped", "spoken", "speech"):
        folder = stretch.folder("data") / name
        folder.mkdir()
        (folder / "prepared.json").touch()


def test_a_stage_that_fails_is_tried_more_carefully(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts(stretch)
    began(stretch, 500)
    fit = Fit(stretch, failures=2)
    monkeypatch.setattr(students, "fit", fit)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="memory"):
            students.main(["pairs", "offline"])
    students.main(["pairs", "offline"])
    assert [config.data.batch_tokens for config in fit.configs] == [32768, 32768, 16384, 32768]
    assert [config.train.compile for config in fit.configs] == [True, True, False, True]
    assert fit.configs[2].train.lr < fit.configs[0].train.lr
    assert fit.configs[3].train.init_from == str(stretch.work / "pairs" / "final")
    assert fit.configs[3].data.folder == str(stretch.work / "data" / "speech")


def test_students_start_from_a_model_that_came_along(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts(stretch)
    began(stretch, 500)
    save(stretch.work / "start" / "final")
    fit = Fit(stretch, failures=1)
    monkeypatch.setattr(students, "fit", fit)
    with pytest.raises(RuntimeError):
        students.main(["pairs"])
    students.main(["pairs", "offline"])
    starts = [config.train.init_from for config in fit.configs]
    # perhaps it did not fit
    assert starts == [str(stretch.work / "start/final"), "", str(stretch.work / "pairs/final")]


def test_a_stage_that_never_works_is_left_out(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts(stretch)
    began(stretch, 500)
    fit = Fit(stretch, failures=students.TRIES)
    monkeypatch.setattr(students, "fit", fit)
    for _ in range(students.TRIES):
        with pytest.raises(RuntimeError):
            students.main(["pairs", "offline"])
    students.main(["pairs", "offline"])
    assert stretch.model("pairs") is None
    assert fit.configs[-1].train.init_from == ""


def test_a_short_stretch_has_the_policy_alone(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLE", "back=0 translate=0 pairs=0 offline=0 mma-il=400")
    short = schedule.Stretch.read()
    texts(short, "spoken")
    began(short, 100)
    short.note("speech.failed")
    save(short.work / "start" / "final")
    fit = Fit(short)
    monkeypatch.setattr(students, "fit", fit)
    students.main(["back"])
    assert not background.has_part(short, "texts")
    assert short.model("back") is None
    students.main(["pairs", "offline", "mma-il"])
    assert [config.train.init_from for config in fit.configs] == [str(short.work / "start/final")]
    assert fit.configs[0].policy.name == "mma-il"
    assert fit.minutes[0] == pytest.approx((400 - students.ENDING) / 60, abs=0.1)


def test_a_run_that_goes_on_has_the_settings_that_it_had(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts(stretch)
    stretch.note("back.tries", "2")
    first = students.changes(stretch, "back", 2)
    assert "data.batch_tokens=16384" in first
    (stretch.work / "back" / "checkpoints" / "00000040").mkdir(parents=True)
    assert students.changes(stretch, "back", 0) == first


@pytest.mark.parametrize("learns", [True, False])
def test_a_policy_that_does_not_learn_is_replaced(
    stretch: Any, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    texts(stretch)
    began(stretch, 1000)
    found = {"BLEU": 20.0 if learns else 3.0, "AL": 4.0, "DAL": 5.0, "length_ratio": 1.0}
    asked: list[str] = []

    def evaluate(translator: Any, folder: str, sentences: int, decoding: str) -> Any:
        asked.append(decoding)
        return found

    fit = Fit(stretch, looks=found)
    monkeypatch.setattr(students, "fit", fit)
    monkeypatch.setattr(students, "Translator", lambda *parts: None)
    monkeypatch.setattr(students, "evaluate_translator", evaluate)
    save(stretch.work / "offline" / "final")
    students.main(["mma-il"])
    assert asked[:3] == ["threshold=0.1", "threshold=0.5", "threshold=0.9"]
    graded = [config.loss.lambda_grade > 0 for config in fit.configs]
    assert graded == ([True] if learns else [True, False])
    assert stretch.model("mma-il") == stretch.work / "mma-il" / "final"
    assert stretch.noted("mma-il.done") is not None


def test_without_back_translation_the_pairs_have_to_do(stretch: Any) -> None:
    texts(stretch, "pairs")
    stretch.note("speech.failed")
    stretch.note("spoken.failed")
    assert students.choose_text(stretch, "pairs") == "pairs"
    texts(stretch, "spoken")
    assert students.choose_text(stretch, "offline") == "spoken"
    texts(stretch, "speech")  # too late: a run does not change its text
    assert students.choose_text(stretch, "offline") == "spoken"


def test_what_a_killed_work_left_is_ended(stretch: Any) -> None:
    worker = background.Worker(stretch)
    process = worker.open("sleep", ["sleep", 600])
    threading.Thread(target=process.wait).start()  # nobody else would bury it
    stretch.note("mma-il.ship.begun")
    stretch.note("pairs.ship.begun")
    stretch.note("pairs.ship.done")
    background.end_leftovers(stretch)
    assert process.wait(300) != 0
    assert stretch.noted("mma-il.ship.begun") is None  # is done again
    assert stretch.noted("pairs.ship.begun") is not None


def test_a_model_is_shipped_until_its_pieces_are_there(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(stretch.work / "mma-il" / "final")
    stretch.note("mma-il.done")
    begun: list[str] = []
    ends: list[int] = []

    def open_(worker: Any, name: str, *commands: list[object], cpu: bool = True) -> Any:
        begun.append(name)
        code = ends.pop(0)
        if not code:  # what follows the pieces, the measuring, fails
            stretch.folder("out").joinpath("mma-il").mkdir()
        return SimpleNamespace(returncode=1, poll=lambda: 1)

    monkeypatch.setattr(background.Worker, "open", open_)
    worker = background.Worker(stretch)
    ends += [1, 0]
    for _ in range(5):
        worker.look_around()
    assert begun == ["mma-il.ship"] * 2
    (stretch.work / "out" / "mma-il").rmdir()
    ends += [1, 1]
    for _ in range(5):
        worker.look_around()
    assert begun == ["mma-il.ship"] * schedule.TRIES  # not for ever


def test_a_stage_that_hangs_is_stopped(stretch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HANGS", 0.5)
    monkeypatch.setattr(background, "TRIES", 1)
    monkeypatch.setattr(background, "_script", lambda *_: ["sleep", 600])
    began(stretch, 500)
    stretch.note("back.end", "499")
    start = time.time()
    background.train(background.Worker(stretch), ["back"])
    assert time.time() - start < 30


def test_a_stage_goes_on_when_a_call_gives_it_more_time(
    stretch: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background, "TRIES", 1)
    monkeypatch.setattr(background, "GRACE", 0)
    monkeypatch.setattr(background, "_script", lambda *_: ["sleep", 5])
    stretch.note("until", str(stretch.elapsed + 4))
    worker = background.Worker(stretch)
    monkeypatch.setattr(worker, "look_around", lambda: stretch.set_left(600))
    background.train(worker, ["back"])
    assert "back: 0 after" in capfd.readouterr().out
    monkeypatch.setattr(background, "_script", lambda *_: ["sleep", 600])
    monkeypatch.setattr(worker, "look_around", lambda: stretch.note("until", "0"))
    background.train(worker, ["back"])
    assert "back: -15 after" in capfd.readouterr().out


def test_every_model_is_rehearsed(
    stretch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "model.width=16 model.ffn=16 model.encoder_layers=1 model.decoder_layers=1"
    small += " data.batch_tokens=64 train.compile=false train.precision=float32"
    monkeypatch.setenv("SET", small)
    assert rehearse.main() == 0
    assert capsys.readouterr().out.count("rehearsed") == 4
    monkeypatch.setenv("SET", small + " train.lr=1e30 train.warmup=1")
    assert rehearse.main() == 4
    assert "the loss is not finite" in capsys.readouterr().err


def test_a_failure_ends_the_call_and_is_told_once(
    stretch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calls, "start", lambda _: None)
    (stretch.folder("logs") / "back.log").write_text("Traceback: it is broken")
    stretch.note("back.tries", "2")
    stretch.note("warm.failed")
    start = time.time()
    calls.call(stretch, 600)
    assert time.time() - start < 60
    told = capsys.readouterr().out
    assert "it is broken" in told
    assert "FAILED: back, try 2 warm.failed" in told
    stretch.note("finished")
    calls.call(stretch, 600)
    assert "FAILED" not in capsys.readouterr().out


def test_what_was_left_out_can_be_begun_again(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mma-il.done", "mma-il.tries", "mma-il.end", "offline.done", "finished"):
        stretch.note(name)
    monkeypatch.setattr(calls, "call", lambda *_: None)
    monkeypatch.chdir(calls.ROOT)
    calls.main(["call", "1", "--again", "mma-il"])
    left = {path.name for path in (stretch.work / "state").iterdir()}
    assert left == {"offline.done"}


def test_work_that_cannot_train_is_not_finished(
    stretch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call begins it again, perhaps with better code."""
    for name in ("warm", "swapped", "spoken", "texts", "translate", "speech"):
        stretch.note(f"{name}.done")
    begun: list[str] = []

    def open_(worker: Any, name: str, *commands: list[object], cpu: bool = True) -> Any:
        begun.append(name)
        return SimpleNamespace(returncode=1, poll=lambda: 1, wait=lambda *_: 1)

    monkeypatch.setattr(background.Worker, "open", open_)
    background.work(stretch)
    assert begun == ["back"] * schedule.TRIES + ["pairs"] * 4 * schedule.TRIES
    assert stretch.noted("finished") is None
    assert "stopped" in calls.describe(stretch)
    began(stretch, 1601)
    background.work(stretch)
    assert stretch.noted("finished") is not None


def test_one_works(stretch: Any) -> None:
    held = stretch.lock()
    assert held is not None
    assert stretch.lock() is None
    assert (stretch.work / "state" / "lock").read_text() == f"{os.getpid()}\n"
    held.close()
    again = stretch.lock()
    assert again is not None
    again.close()


def test_the_whole_work_in_order(stretch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage is there once, each model is shipped, and a second work finds nothing to do."""
    stretch.folder("parts").joinpath("parts.json").write_text(
        json.dumps({"pairs.tar.xz.00": 0, "texts.tar.xz.00": 0})
    )
    for name in ("pairs", "texts"):
        (stretch.work / "parts" / f"{name}.tar.xz.00").touch()
    begun: list[str] = []

    def open_(worker: Any, name: str, *commands: list[object], cpu: bool = True) -> Any:
        begun.append(name)
        words = [str(word) for command in commands for word in command]
        if name == "texts":
            (stretch.work / "english.en.json").write_text('{"wiki": 2, "more": 1}')
        if name == "translate":  # its time was up in the third line
            (stretch.work / "english.de").write_text("eins\nzwei\ndr", encoding="utf-8")
        if any(word.endswith("students.py") for word in words):
            for stage in words[words.index(next(w for w in words if "students" in w)) + 1 :]:
                save(stretch.work / stage / "final")
                stretch.note(f"{stage}.done")
        done = SimpleNamespace(returncode=0, poll=lambda: 0, wait=lambda *_: 0)
        return done

    monkeypatch.setattr(background.Worker, "open", open_)
    background.work(stretch)
    order = [name for name in begun if not name.endswith(".ship")]
    gpu = ["warm", "unpack", "spoken", "back", "texts", "translate", "speech", "made", "pairs"]
    assert order == gpu
    assert sorted(name for name in begun if name.endswith(".ship")) == [
        f"{name}.ship" for name in ("mma-il", "offline", "pairs", "wait-k")
    ]
    assert (stretch.work / "made" / "wiki.back.de").read_text("utf-8") == "eins\nzwei\n"
    assert (stretch.work / "made" / "more.back.de").read_text("utf-8") == ""
    assert stretch.noted("finished") is not None
    begun.clear()
    background.work(stretch)
    assert begun == []


def test_what_came_back_becomes_a_model(tmp_path: Path) -> None:
    """Pieces of several calls, the newest last: the finished model counts, with its lags."""
    for call, (name, text) in enumerate([("mma-il-early", "early"), ("mma-il", "final")]):
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_text(text)
        got = tmp_path / "got" / str(call)
        carry.pack(got / name, [folder], workers=1)
        measured = tmp_path / str(call) / "measured"
        measured.mkdir(parents=True)
        (measured / "lags.json").write_text(f"[[0.5, {call}]]")
        with tarfile.open(got / "logs.tar", "w") as archive:
            archive.add(measured, "measured")
    places = {name: str(tmp_path / name.lower()) for name in ("WORK", "BACK", "MODEL")}
    environment = os.environ | places | {"PYTHON": sys.executable}
    script = [str(RECIPE / "at_home.sh"), "take", str(tmp_path / "got")]
    subprocess.run(script, check=True, env=environment, capture_output=True)
    assert (tmp_path / "model" / "weights.safetensors").read_text() == "final"
    assert (tmp_path / "model" / "lags.json").read_text() == "[[0.5, 1]]"


def test_the_readme_has_the_table_of_the_script() -> None:
    readme = (RECIPE.parent / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|.*?\|.*?\| (\d+)[a-z ]* \|", readme, re.M)
    assert {name: int(seconds) for name, seconds in rows} == schedule.TABLE
    assert f"{1600:,} s after" in readme
    assert schedule.Stretch.read().until == 1600
