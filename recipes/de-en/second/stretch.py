"""The second edition in one stretch, on a machine with a GPU that keeps nothing.

    python3 recipes/de-en/second/stretch.py call SECONDS [--left SECONDS]

Every call does the same: it keeps the parts that came with it, starts the work in the background if
nobody does it, says for SECONDS how far it is, and puts the best model that has not been sent, and
the logs, into $OUT. What the work is stands in background.py; its training is in students.py. A
work that was killed continues with the next call.

--left: how long the machine stays, which nobody knows before the first call: the work then ends in
time for it. The environment: UNTIL: seconds after the first call by which all is packed, without
--left. TABLE: seconds of stages, such as "back=400 pairs=150"; with 0 it is left out. SET: settings
of all training, "model.width=64 ...". WORK: a folder that outlives a call, in memory by default;
PARTS: where parts come; DEVICE, TEXTS.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from schedule import HERE, ROOT, Stretch

BEST_FIRST = ("mma-il", "mma-il-early", "offline", "offline-early", "wait-k", "made", "pairs")
SENT = 4  # pieces of 15 MiB a call
LINES = 3000  # characters of a log that are shown when something fails
LOOK = 20  # seconds between two lines of a call


def keep(stretch: Stretch) -> None:
    """Parts that came with this call; a file is there whole or not at all."""
    parts = stretch.folder("parts")
    for path in sorted(stretch.parts.rglob("*")):
        place = parts / path.name
        if path.is_file() and not (place.exists() and place.stat().st_size == path.stat().st_size):
            partial = parts / f".{path.name}"
            shutil.copyfile(path, partial)
            partial.rename(place)


def start(stretch: Stretch) -> None:
    """The work in the background, if it is not there."""
    lock = stretch.lock()
    if lock is None or stretch.noted("finished") is not None:
        return
    lock.close()
    with (stretch.folder("logs") / "work.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, HERE / "background.py"],
            cwd=ROOT,
            env=stretch.environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # it outlives the call
        )


def describe(stretch: Stretch) -> str:
    """How far it is, in one line."""
    stage = stretch.noted("stage") or "starts"
    if stage in ("back", "pairs"):  # one process may train several
        stage = stretch.noted("training") or stage
    parts = [f"{stretch.elapsed:.0f} of {stretch.until:.0f} s", stage]
    metrics = stretch.work / stage / "metrics.jsonl"
    if metrics.exists() and (lines := metrics.read_text(encoding="utf-8").splitlines()):
        last = json.loads(lines[-1])
        shown = ("update", "epoch", "nll", "tokens_per_second", "BLEU", "AL")
        parts += [f"{name} {round(last[name], 2):,}" for name in shown if name in last]
    end = stretch.noted(f"{stage}.end")
    if end is not None:
        parts.append(f"ends at {float(end):.0f} s")
    packed = sorted(path.name for path in stretch.folder("out").iterdir() if path.name[0] != ".")
    return "; ".join([*parts, f"packed: {' '.join(packed) or '-'}"])


Choice = tuple[str, float]  # a name with its first piece, and when it was packed


def choose(stretch: Stretch, wanted: str = "") -> tuple[Choice, list[Path]] | None:
    """The best that no call has brought: at most so many pieces as one takes."""
    sent = json.loads(stretch.noted("sent") or "{}")
    for name in [wanted] if wanted else BEST_FIRST:
        folder, final = stretch.work / "out" / name, name.removesuffix("-early")
        if name != final and (stretch.work / "out" / final).exists() and not wanted:
            continue
        pieces = sorted(folder.iterdir()) if folder.exists() else []
        for first in range(0, len(pieces), SENT):
            choice = f"{name}.{first}", folder.stat().st_mtime
            if sent.get(choice[0]) != choice[1] or wanted:
                return choice, pieces[first : first + SENT]
    return None


def put(stretch: Stretch, pieces: list[Path]) -> None:
    """Into $OUT, in the place of what is there."""
    for old in stretch.out.glob("*.tar.xz.*"):
        old.unlink()
    for piece in pieces:
        shutil.copyfile(piece, stretch.out / piece.name)


def send_logs(stretch: Stretch) -> None:
    partial = stretch.out / ".logs.tar"
    with tarfile.open(partial, "w") as archive:
        for name in ("logs", "measured", "state"):
            if (stretch.work / name).exists():
                archive.add(stretch.work / name, name, filter=_few)
        for path in stretch.work.glob("*/metrics.jsonl"):
            archive.add(path, f"logs/{path.parent.name}.metrics.jsonl")
    partial.rename(stretch.out / "logs.tar")


def _few(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the outputs of measurements, which are large."""
    return None if member.name.startswith("measured") and "/logs" in member.name else member


def failures(stretch: Stretch) -> set[str]:
    """Stages that are tried again, and what was left out."""
    state = stretch.folder("state")
    tries = {path.stem: path.read_text(encoding="utf-8") for path in state.glob("*.tries")}
    again = {f"{name}, try {number}" for name, number in tries.items() if number > "1"}
    return again | {path.name for path in state.glob("*.failed")}


def tell(stretch: Stretch, new: set[str]) -> None:
    """What failed, and the ends of the newest logs, which say why."""
    logs = [path for path in stretch.folder("logs").iterdir() if path.stat().st_size]
    for path in sorted(logs, key=lambda path: path.stat().st_mtime)[-3:]:
        print(f"-- {path.name}", path.read_text("utf-8", "replace")[-LINES:], sep="\n")
    print("FAILED:", *sorted(new), flush=True)


def call(stretch: Stretch, seconds: float, wanted: str = "") -> None:
    # nobody need reckon when the last call has to end
    end = time.time() + max(3.0, min(seconds, stretch.until - stretch.elapsed))
    stretch.out.mkdir(parents=True, exist_ok=True)
    print(f"{stretch.elapsed:.0f} s since the first call; work in {stretch.work}", flush=True)
    keep(stretch)
    shown, choice = 0.0, None
    while True:
        over = time.time() >= end or stretch.noted("finished") is not None
        found = failures(stretch)
        if new := found - set((stretch.noted("told") or "").splitlines()):
            tell(stretch, new)  # and come back: somebody may send better code
            stretch.note("told", "\n".join(sorted(found)))
            over = True
        try:
            if over or time.time() - shown >= LOOK:
                shown = time.time()
                start(stretch)
                print(describe(stretch), flush=True)
                send_logs(stretch)
            found = choose(stretch, wanted)
            if found is not None and found[0] != choice:
                put(stretch, found[1])
                choice = found[0]
        except Exception as error:  # a file changed while it was read: once more
            print(f"{type(error).__name__}: {error}", flush=True)
        if over:
            break
        time.sleep(min(1.0, max(0.0, end - time.time())))
    if choice is not None:  # only now: a call may bring something better before it ends
        sent = json.loads(stretch.noted("sent") or "{}")
        stretch.note("sent", json.dumps(sent | {choice[0]: choice[1]}))
    print("sent:", *sorted(path.name for path in stretch.out.iterdir()), flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["call"])
    parser.add_argument("seconds", type=float, nargs="?", default=5)
    parser.add_argument("--send", default="", help="this, though it was sent before")
    parser.add_argument("--again", nargs="*", default=[], help="stages that were left out")
    parser.add_argument("--left", type=float, default=0, help="seconds until the machine goes")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    stretch = Stretch.read()
    if options.left:
        stretch.set_left(options.left)
    for name in options.again:  # with the code that came with this call
        for what in ("done", "tries", "changes", "end"):
            stretch.forget(f"{name}.{what}")
        stretch.forget("finished")
    call(stretch, options.seconds, options.send)


if __name__ == "__main__":
    main()
