"""The work of the stretch, in the background: see work(). stretch.py starts it."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from schedule import HERE, ROOT, STUDENTS, TESTS, TRIES, Stretch

PATIENCE = 120  # seconds that the GPU waits for the texts
LAST_OF_ALL = ["nice", "-n", "14"]  # more: nobody waits for it
LATE = 60  # seconds after the end until nothing is tried again
GRACE = 30  # seconds that a process has, even if time is up when it starts
REHEARSAL = 300  # seconds; nobody waits for it
HANGS = 90  # seconds after its end until a stage is stopped: it saves, and goes on to its end


@dataclass
class Worker:
    """The background: one process on the GPU at a time, others on the cores beside it."""

    stretch: Stretch
    beside: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def open(self, name: str, *commands: list[object], cpu: bool = True) -> subprocess.Popen[bytes]:
        """Run commands, each if the one before it was right, with a log of their name."""
        line = " && ".join(shlex.join(map(str, command)) for command in commands)
        with (self.stretch.folder("logs") / f"{name}.log").open("ab") as log:
            log.write(f"$ {line}\n".encode())
            log.flush()
            process = subprocess.Popen(
                ["nice", "-n", "5" if cpu else "0", "bash", "-c", line],
                cwd=ROOT,
                env=self.stretch.environment(cpu),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        with (self.stretch.folder("state") / "processes").open("a", encoding="utf-8") as file:
            file.write(f"{process.pid}\n")
        return process

    def start(self, name: str, *commands: list[object]) -> None:
        """Beside the GPU."""
        self.beside[name] = self.open(name, *commands)

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        for sign, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
            if process.poll() is None:
                os.killpg(process.pid, sign)
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue

    def run(
        self,
        name: str,
        *commands: list[object],
        seconds: float = math.inf,
        over: Callable[[], bool] = lambda: False,
    ) -> int:
        """On the GPU, until it ends, is over or time is up; what else is due is done meanwhile."""
        self.stretch.note("stage", name)
        process, end = self.open(name, *commands, cpu=False), time.time() + seconds
        while process.poll() is None and time.time() < end and not over():
            self.look_around()
            time.sleep(0.5)
        self.stop(process)
        code = process.wait()
        print(f"{name}: {code} after {self.stretch.elapsed:.0f} s", flush=True)
        return code

    def wait(self, name: str) -> None:
        """For something beside the GPU."""
        while name in self.beside:
            self.look_around()
            time.sleep(0.5)

    def look_around(self) -> None:
        """Note what has ended beside; export, pack and measure what has been trained."""
        for name, process in list(self.beside.items()):
            if process.poll() is not None:
                del self.beside[name]
                self.stretch.note(f"{name}.failed" if process.returncode else f"{name}.done")
                print(f"{name}: {process.returncode} at {self.stretch.elapsed:.0f} s", flush=True)
        self._unpack_texts()
        self._unpack_start()
        for name in STUDENTS:
            if self.stretch.noted(f"{name}.done") is not None:
                self.ship(name, "final")
            elif name == "mma-il" and self.stretch.noted("mma-il.looked") is not None:
                self.ship(name, "last")

    def _unpack_texts(self) -> None:
        """As soon as they are there, so that the GPU need not wait for them."""
        stretch, data = self.stretch, self.stretch.work / "data"
        begun = "texts" in self.beside or _ended(stretch, "texts")
        if not begun and stretch.noted("swapped.done") is not None and has_part(stretch, "texts"):
            unpack = _script("carry", "unpack", stretch.work / "parts" / "texts", "--into", data)
            gather = _script("pieces", "english", data, "--texts", stretch.texts)
            self.start("texts", unpack, [*gather, "--out", stretch.work / "english.en"])

    def _unpack_start(self) -> None:
        """The weights of an earlier stretch, if they came along."""
        begun = "start" in self.beside or _ended(self.stretch, "start")
        if not begun and has_part(self.stretch, "start"):
            parts, into = self.stretch.work / "parts" / "start", self.stretch.work
            self.start("start", _script("carry", "unpack", parts, "--into", into))

    def ship(self, name: str, kind: str) -> None:
        """Export to int8, pack, measure; a model that is not finished is called early."""
        called = name if kind == "final" else f"{name}-early"
        model, begun = self.stretch.model(name), f"{called}.ship.begun"
        tries = self.stretch.noted(begun)
        failed = self.stretch.noted(f"{called}.ship.failed") is not None
        # measuring may fail; without its pieces a model is lost
        again = failed and not (self.stretch.work / "out" / called).exists()
        if model is None or (tries is not None and (not again or len(tries) >= TRIES)):
            return
        if f"{called}.ship" in self.beside:
            return
        self.stretch.forget(f"{called}.ship.failed")
        self.stretch.note(begun, (tries or "") + "x")
        work, ship = self.stretch.work, self.stretch.folder("ship") / called
        export = [sys.executable, "-m", "simultan.cli", "export", model, ship, "--weights", "int8"]
        commands = [["rm", "-rf", ship], export, *_pack(self.stretch, called, ship)]
        if kind == "final" and (work / "tests").exists():
            out, system = work / "measured", name
            if name == "pairs":
                out, system = out / "pairs", "offline"
            measure = [*LAST_OF_ALL, sys.executable, ROOT / "recipes/de-en/measure.py"]
            measure += ["--system", system, "--out", out]
            measure += ["--tests", work / "tests", "--jobs", _jobs()]
            commands += [[*measure, "--training", work / name], [*measure, ship]]
            if name == "mma-il":  # what storing it as int8 costs
                commands.append([*measure, model, "--sets", "newstest2015,europarl"])
        self.start(f"{called}.ship", *commands)


def _jobs() -> int:
    return max(1, min(10, (os.cpu_count() or 1) - 4))


def _pack(stretch: Stretch, name: str, *paths: Path) -> Iterator[list[object]]:
    """Commands that leave the pieces of a name in a folder of their own, all at once."""
    out, partial = stretch.folder("out") / name, stretch.work / "out" / f".{name}"
    yield ["rm", "-rf", partial]
    yield [sys.executable, HERE / "carry.py", "pack", partial / name, *paths]
    yield ["rm", "-rf", out]
    yield ["mv", partial, out]


# -- the work


def parts_of(stretch: Stretch) -> dict[str, int]:
    """All pieces that are to come, and their sizes."""
    table = stretch.work / "parts" / "parts.json"
    return json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}


def has_part(stretch: Stretch, name: str) -> bool:
    """Whether all pieces of a name have come, and whole."""
    sizes = parts_of(stretch)
    pieces = {path: size for path, size in sizes.items() if path.startswith(f"{name}.tar.")}
    places = {path: stretch.work / "parts" / path for path in pieces}
    return bool(pieces) and all(
        place.exists() and place.stat().st_size == pieces[path] for path, place in places.items()
    )


def _await_part(worker: Worker, name: str) -> None:
    while not has_part(worker.stretch, name):
        worker.stretch.note("stage", f"waits for {name}")
        worker.look_around()
        time.sleep(0.2)


def _await_unpacked(worker: Worker, name: str) -> None:
    """For a while: the others do without."""
    patience = time.time() + PATIENCE
    while not _ended(worker.stretch, name) and time.time() < patience:
        worker.stretch.note("stage", f"waits for the {name}")
        worker.look_around()
        time.sleep(0.5)


def _ended(stretch: Stretch, name: str) -> bool:
    return any(stretch.noted(f"{name}.{how}") is not None for how in ("done", "failed"))


def _script(name: str, *arguments: object) -> list[object]:
    return [sys.executable, HERE / f"{name}.py", *arguments]


def end_leftovers(stretch: Stretch) -> None:
    """What an earlier work that was killed has left running, or two would write to one place."""
    groups = [int(pid) for pid in (stretch.noted("processes") or "").split()]
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(40):
            groups = [group for group in groups if _signal(group, 0)]
            if not groups:
                break
            for group in groups:
                _signal(group, sign)
            time.sleep(0.5)
    stretch.note("processes")
    for path in (stretch.work / "state").glob("*.ship.begun"):
        if stretch.noted(f"{path.stem}.done") is None:  # is begun again
            path.unlink()


def _signal(group: int, sign: int) -> bool:
    try:
        os.killpg(group, sign)
    except ProcessLookupError:
        return False
    return True


def work(stretch: Stretch) -> None:
    """All of it, in order; what was done before is passed over."""
    end_leftovers(stretch)
    worker, path = Worker(stretch), stretch.work
    data, pairs, pieces = path / "data", path / "data" / "pairs", path / "pieces"
    cores = max(1, (os.cpu_count() or 1) - 4)
    if stretch.noted("warm.done") is None:
        # while parts come: errors show at once, and code is compiled
        rehearse = ["timeout", REHEARSAL, *_script("rehearse")]
        worker.beside["warm"] = worker.open("warm", rehearse, cpu=False)
    if stretch.noted("swapped.done") is None:
        _await_part(worker, "pairs")
        shutil.rmtree(data / "swapped", ignore_errors=True)
        unpack = _script("carry", "unpack", path / "parts" / "pairs", "--into", data)
        swap = _script("prepare", "swap", pairs, "--out", data / "swapped")
        if worker.run("unpack", unpack, _script("pieces", "restore", pairs), swap, seconds=300):
            raise RuntimeError("the pairs cannot be unpacked: see unpack.log")
        stretch.note("swapped.done")
    speak = _script("pieces", "speak", pairs, "--out", pieces, "--workers", cores)
    if stretch.noted("spoken.done") is None:  # the pairs as speech, for the students
        join = _script("pieces", "join", pairs, "--pieces", pieces, "--out", data / "spoken")
        worker.start("spoken", speak, [*join, "--without-made"])
    train(worker, ["back"])
    if stretch.table["translate"] or has_part(stretch, "texts"):
        _await_unpacked(worker, "texts")
        _link_tests(stretch)
    there = stretch.noted("texts.done") is not None and stretch.model("back") is not None
    if there and stretch.noted("translate.done") is None:
        try:
            translate(worker)
        except (OSError, ValueError):  # the others do without
            traceback.print_exc()
    worker.wait("spoken")
    if stretch.noted("speech.done") is None and stretch.noted("translate.done") is not None:
        made = _script("pieces", "made", data, "--made", path / "made", "--like", pairs)
        made += ["--out", pieces, "--texts", stretch.texts, "--workers", cores]
        join = _script("pieces", "join", pairs, "--pieces", pieces, "--out", data / "speech")
        worker.start("speech", speak, made, join)  # pieces that are there are kept
        pack = ([*LAST_OF_ALL, *command] for command in _pack(stretch, "made", path / "made"))
        worker.start("made", *pack)
    elif stretch.noted("speech.done") is None:
        stretch.note("speech.failed")
    if any(part.startswith("start.") for part in parts_of(stretch)):
        _await_unpacked(worker, "start")
    train(worker, list(STUDENTS))
    stretch.note("stage", "trained; measures")
    undone = [name for name in STUDENTS if stretch.noted(f"{name}.done") is None]
    for name in undone:
        worker.ship(name, "last")  # unfinished, but better than nothing
    while worker.beside:
        worker.look_around()
        time.sleep(0.5)
    if undone and stretch.elapsed < stretch.until:  # perhaps the next call brings better code
        stretch.note("stage", f"stopped: {undone[0]} cannot be trained, see logs")
        return
    stretch.note("stage", "finished")
    stretch.note("finished")


def train(worker: Worker, names: list[str]) -> None:
    """One process for all: the code of a model is compiled once. If it dies it starts again."""
    stretch = worker.stretch
    for _ in range(TRIES * len(names)):
        todo = [name for name in names if stretch.noted(f"{name}.done") is None]
        left = stretch.until - stretch.elapsed
        if not todo or left < -LATE:
            return
        stretch.note("training", todo[0])
        began = stretch.elapsed

        def hangs(began: float = began) -> bool:
            if stretch.elapsed > max(began + GRACE, stretch.until):  # calls move it
                return True
            end = stretch.noted(f"{stretch.noted('training')}.end")
            return end is not None and stretch.elapsed > max(began, float(end)) + HANGS

        command = _script("students", *names)
        worker.run(names[0], command, over=hangs)


def translate(worker: Worker) -> None:
    """English into German with `back`: all texts in one go, the smallest first."""
    stretch = worker.stretch
    model, path = stretch.model("back"), stretch.work
    english, german = path / "english.en", path / "english.de"
    counts = json.loads((path / "english.en.json").read_text(encoding="utf-8"))
    command: list[object] = [sys.executable, "-m", "simultan.cli", "distill", model]
    command += ["--source", english, "--out", german, "--device", stretch.device]
    command += ["--longest", 192]
    for more in ([], ["--rows", 512]):  # was it memory? What is written is kept
        left = stretch.seconds("translate")
        if left <= 1 or not worker.run("translate", [*command, *more], seconds=left):
            break
    written = german.read_bytes().split(b"\n")[:-1] if german.exists() else []  # whole lines
    first = 0
    for name, count in counts.items():
        some = b"".join(line + b"\n" for line in written[first : first + count])
        (stretch.folder("made") / f"{name}.back.de").write_bytes(some)
        first += count
    print(f"translated {len(written):,} of {first:,} lines", flush=True)
    if written:
        stretch.note("translate.done")


def _link_tests(stretch: Stretch) -> None:
    for name, place in TESTS.items():
        for side in ("de", "en"):
            link = stretch.folder("tests") / f"{name}.{side}.xz"
            if not link.is_symlink():
                link.symlink_to(stretch.work.resolve() / "data" / f"{place}.{side}.xz")


def main() -> None:
    os.chdir(ROOT)
    stretch = Stretch.read()
    lock = stretch.lock()
    if lock is not None:
        with lock:
            work(stretch)


if __name__ == "__main__":
    main()
