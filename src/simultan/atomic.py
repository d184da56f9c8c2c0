"""Files and folders that appear complete or not at all, whoever else writes them."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ENDING = ".partial"
ABANDONED = 86_400  # seconds after which nobody writes to it any more


@contextmanager
def place(path: Path) -> Iterator[Path]:
    """A hidden name beside `path`, for a file, a folder or a link that takes its place at the end.

    Nobody else has this name, not even another process that writes the same file. What was begun
    and not ended is removed; only a process that is killed leaves it behind, until the next one
    writes the same file a day later.
    """
    for old in path.parent.glob(f".{glob.escape(path.name)}.*{ENDING}"):
        with suppress(OSError):
            if time.time() - old.lstat().st_mtime > ABANDONED:
                remove(old)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{ENDING}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        remove(partial)


def remove(path: Path) -> None:
    """A file, a link or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def sweep(folder: Path) -> None:
    """Remove what killed processes have left in a folder that is ours alone."""
    for path in folder.glob(f".*{ENDING}"):
        remove(path)


def write_text(path: str | Path, text: str) -> None:
    """Write a file, and its folder if there is none; a link stays one."""
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device, whose place nothing can take
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with place(path) as partial:
        partial.write_text(text, encoding="utf-8")
