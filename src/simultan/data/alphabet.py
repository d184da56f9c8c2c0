"""The letters a subword vocabulary has words of."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache


class Alphabet:
    """The letters a model has learned: those of its pieces, in scripts it has words of."""

    def __init__(self, pieces: Iterable[str]) -> None:
        pieces = list(pieces)
        uses = Counter(letter for piece in pieces for letter in set(piece))
        self.letters = frozenset(uses)
        # a letter that hardly any piece has is one of foreign names
        self.common = frozenset(letter for letter, n in uses.items() if 2000 * n > len(pieces))
        longer = [piece for piece in pieces if len(piece) > 1 and piece[:2].isalpha()] or pieces
        scripts = Counter(_script(piece[0]) for piece in longer)
        most = max(scripts.values(), default=0)
        self.scripts = frozenset(name for name, count in scripts.items() if 20 * count >= most)

    def knows(self, word: str) -> bool:
        """Whether the letters and digits of a word are those of the words it was made of."""
        for letter in word:
            if letter.isdecimal() and not letter.isascii():
                return False
            if letter.isalpha() and not (
                letter in self.letters and _script(letter) in self.scripts
            ):
                return False
        foreign = sum(letter not in self.common and not letter.isdecimal() for letter in word)
        # "René" and "Dvořák", not "ñandú"
        return 2 * foreign < len(word) and (foreign < 2 or 3 * foreign <= len(word))


@lru_cache(maxsize=65_536)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").partition(" ")[0]
