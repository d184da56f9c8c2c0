"""Files and folders that appear complete or not at all, whoever else writes them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ENDING = ".partial"


@contextmanager
def place(path: Path) -> Iterator[Path]:
    """A hidden name beside `path`, for a file, a folder or a link that takes its place at the end.

    Nobody else has this name, not even another process that writes the same file. What was begun
    and not ended is removed; only a process that is killed leaves it behind.
    """
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
    """Write a file, and its folder if there is none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with place(path) as partial:
        partial.write_text(text, encoding="utf-8")
