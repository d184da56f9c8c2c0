"""Text from a client -> words, at a cost that grows with its length and no faster."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

LONGEST_WORD = 200  # characters; the rest of a word is not heard
MOST_MARKS = 8  # combining characters in a row: putting a long run in order is quadratic


def split_words(text: str, split: Callable[[str], list[str]]) -> list[str]:
    """The words of a text: each is cut before anything else is done to it."""
    words = [word[:LONGEST_WORD] for word in text.split()]
    if not text.isascii():
        pattern = _long_runs()
        words = [word if word.isascii() else pattern.sub(r"\1", word) for word in words]
    return split(" ".join(words))


@lru_cache(maxsize=1)
def _long_runs() -> re.Pattern[str]:
    """A run of more combining characters than any language has; its first ones are kept."""
    marks = "".join(filter(unicodedata.combining, map(chr, range(0x300, 0x1F000))))
    return re.compile(f"([{marks}]{{{MOST_MARKS}}})[{marks}]+")
