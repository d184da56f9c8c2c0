"""Where everything of the stretch is, what is done of it, and how much time is left."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TABLE = {"back": 230, "translate": 110, "pairs": 100, "offline": 720, "mma-il": 390}
LAST = "wait-k"  # has what is left
STUDENTS = ("pairs", "offline", "mma-il", LAST)
ROOMY = 16e9  # bytes; about ten are taken
LEAST = 100  # seconds: a shorter last stage is not worth its start, and mma-il has them
PACKING = 35  # seconds kept at the end to export and to pack
RESERVE = 60  # seconds for the way of the last model, and for a number that is not quite new
TRIES = 3  # of a stage and of what is shipped
TESTS = {
    "newstest2013": "wmt-newstest-de-en/newstest2013",
    "newstest2015": "wmt-newstest-de-en/newstest2015",
    "europarl": "europarl-de-en/test",
    "tatoeba": "tatoeba-de-en/test",
    "covost2": "covost2-de-en/valid",
}


def choose_place(shared: Path = Path("/dev/shm"), disk: Path = ROOT / "work/de-en2-runs") -> Path:
    """In memory where there is enough: saving must not hold up the GPU. Then always the same."""
    if disk.exists() or not shared.is_dir():
        return disk
    memory = shared / "de-en2"
    return memory if memory.exists() or shutil.disk_usage(shared).free > ROOMY else disk


@dataclass(frozen=True)
class Stretch:
    """Where everything is, what is done, and how much time is left."""

    work: Path
    parts: Path
    out: Path
    device: str
    texts: Path
    first_until: float  # unless a call has said better, see until
    table: dict[str, float]
    changes: list[str]  # of all training
    least_bleu: float = 10.0  # of mma-il half-way; less: it is begun again

    @classmethod
    def read(cls) -> Stretch:
        get = os.environ.get
        table = {name: float(seconds) for name, seconds in TABLE.items()}
        for entry in get("TABLE", "").split():
            name, seconds = entry.split("=")
            table[name] = float(seconds)
        return cls(
            Path(get("WORK") or choose_place()),
            Path(get("PARTS", "runs/de-en2/carry")),
            Path(get("OUT", "runs/de-en2/out")),
            get("DEVICE", "cuda"),
            Path(get("TEXTS", str(HERE / "texts.toml"))),
            float(get("UNTIL", "1600")),
            table,
            get("SET", "").split(),
            float(get("LEAST_BLEU", "10")),
        )

    def folder(self, name: str) -> Path:
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def environment(self, cpu: bool = False) -> dict[str, str]:
        """Of a process of the work."""
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        more = {"PYTHONPATH": ":".join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
        more |= {"PYTHONPYCACHEPREFIX": str(self.work / "pycache"), "WORK": str(self.work)}
        if cpu:
            more |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return os.environ | more

    # -- what is done

    def lock(self) -> IO[str] | None:
        """Held by the one who works; None: somebody does."""
        file = (self.folder("state") / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def note(self, name: str, value: str = "") -> None:
        partial = self.folder("state") / f".{name}.partial"
        partial.write_text(value, encoding="utf-8")
        partial.rename(self.work / "state" / name)

    def noted(self, name: str) -> str | None:
        path = self.work / "state" / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def forget(self, name: str) -> None:
        (self.work / "state" / name).unlink(missing_ok=True)

    def model(self, name: str) -> Path | None:
        """The model of a stage, finished or the last that was saved."""
        found = [self.work / name / kind for kind in ("final", "last")]
        return next((path for path in found if (path / "weights.safetensors").exists()), None)

    # -- time

    @property
    def until(self) -> float:
        """Seconds after the first call by which all is packed."""
        return float(self.noted("until") or self.first_until)

    def set_left(self, seconds: float) -> None:
        """The machine goes in so many seconds: stages that have not begun share what is left."""
        self.note("until", str(self.elapsed + seconds - RESERVE))

    @property
    def elapsed(self) -> float:
        began = self.noted("began")
        if began is None:
            began = str(time.time())
            self.note("began", began)
        return time.time() - float(began)

    def seconds(self, stage: str) -> float:
        """What a stage has: as the table says, or less where time has been lost."""
        end = self.noted(f"{stage}.end")
        if end is None:  # a stage that is continued has no more than it had
            left = max(1.0, self.until - PACKING - self.elapsed)
            given = left
            if stage != LAST:
                names = list(self.table)
                rest = sum(self.table[name] for name in names[names.index(stage) :])
                given = self.table[stage] * min(1.0, left / rest)
                if stage == "mma-il" and left - given < LEAST:
                    given = left
            end = str(self.elapsed + given)
            self.note(f"{stage}.end", end)
        return max(1.0, float(end) - self.elapsed)
