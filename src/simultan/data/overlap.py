"""Lines of evaluation text, so that training text can be kept free of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from simultan.data.sources import read_lines

SHORTEST = 3  # words: shorter lines ("Guten Morgen!") are everybody's, and prove nothing
_BETWEEN = re.compile(r"[\W_]+")


def key(text: str) -> str:
    """What two lines have in common that differ in case, spaces and punctuation alone."""
    return _BETWEEN.sub("", text.casefold())


class Overlap:
    """The lines of any number of texts, in whatever languages."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._names: dict[str, str] = {}  # where a line stands, by its key
        for path in paths:
            name = f"{path.parent.name}/{path.name}".lstrip("/")
            for line in read_lines(path, "replace"):
                words = sum(1 for word in line.split() if key(word))
                if words >= SHORTEST:
                    self._names.setdefault(key(line), name)

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, *texts: str) -> str:
        """The evaluation text that has one of these lines, or nothing."""
        return next((name for text in texts if (name := self._names.get(key(text), ""))), "")
