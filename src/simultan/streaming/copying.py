"""Words that no model should translate: they are copied to the output in their place, or left out.

Emoji, other scripts, symbols, addresses, `[Musik]` and `♪` do not enter the model at all: it never
learned them, and would make something up. A word is told by itself and the words before it, so
text that arrives live is told like a file.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress

from simultan.data.alphabet import Alphabet

LONGEST_WORD = 100  # letters: a longer one is no language
LONGEST_REMARK = 6  # words in brackets; more is text in brackets
_SPOKEN = frozenset("%&@#§°+=€$£¥/*<>²³½")  # symbols that are read aloud
_PUNCTUATION = frozenset(".,;:!?…-–—()\"'„“”‚‘’»«›‹%&+=/€$£§°")  # signs that stand alone in texts
_ADDRESS = re.compile(
    r"\W*(?:(?:https?|ftp|file|mailto|wss?):\S+|www\.\S+"  # http://..., www...
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?:[:/]\S*)?"  # mail
    r"|[@#][\w-]*[^\W\d_][\w-]*"  # @name, #word
    r"|(?:[\w-]+\.)+(?:com|org|net|edu|gov|info|io|eu|de|at|ch|uk|fr|nl|it|es|pl)(?:/\S*)?"
    r"|(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.-]+[/\\]\S*"  # paths
    r")\W*",
    re.IGNORECASE,
)
_CODE = re.compile(r"\w(?:_|::|->|=>|\(\)|[{}\\|^~`<>])|[{}\\|^~`<>_]\w|\w[=?&]\w+[=&]")


@dataclass(frozen=True)
class Heard:
    """A source word: what the model reads of it, and what is written as it stands."""

    word: str
    text: str  # empty: the model does not read it
    copy: str = ""
    leads: bool = False  # the copy stands before the text


@lru_cache(maxsize=65_536)
def _kind(letter: str) -> str:
    """What a character is: a letter, a sign, a symbol, a mark on others, or nothing to see."""
    category = unicodedata.category(letter)
    if letter == "\ufffd" or category in ("Cf", "Cc", "Cs", "Co", "Cn"):
        return "unseen"
    if category[0] in "LN":
        return "letter"
    if category[0] == "M":
        return "mark"
    if category[0] == "P" or letter in _SPOKEN:
        return "sign"
    return "symbol"


class Sieve:
    """Tells the words of one stream apart. Without an alphabet all letters are known."""

    def __init__(self, alphabet: Alphabet | None = None, remark: int = 0) -> None:
        self.alphabet = alphabet
        self.remark = remark  # words since a bracket was opened

    def sift(self, word: str) -> Heard:
        """What becomes of the next word."""
        if self._in_remark(word):
            return Heard(word, "", _shown(word))
        if word.isascii() and word.isalnum():  # nearly all words
            return Heard(word, word) if len(word) <= LONGEST_WORD else Heard(word, "", word)
        kinds = [_kind(letter) for letter in word]
        if not {"letter", "sign", "symbol"} & set(kinds):
            return Heard(word, "")
        plain = "".join(compress(word, (kind in ("letter", "sign") for kind in kinds)))
        letters = [letter for letter in plain if _kind(letter) == "letter"]
        if (
            len(word) > LONGEST_WORD
            or _ADDRESS.fullmatch(plain)
            or _CODE.search(plain)
            or not self._knows("".join(letters))
            or _parted(kinds)
        ):
            return Heard(word, "", _shown(word))
        symbols = "symbol" in kinds
        if not letters and (symbols or len(plain) > 3 or not set(plain) <= _PUNCTUATION):
            return Heard(word, "", _shown(word))
        if not symbols:
            marks = "mark" in kinds  # an accent that has no letter of its own: "Z\u0337"
            return Heard(word, plain if marks or "unseen" in kinds else word)
        return Heard(word, plain, _shown("".join(_outside(word, kinds))), kinds[0] == "symbol")

    def _knows(self, letters: str) -> bool:
        return not letters or self.alphabet is None or self.alphabet.knows(letters)

    def _in_remark(self, word: str) -> bool:
        """Whether the word stands in brackets that tell a sound: [leise Musik]."""
        begins = word.startswith("[") or (self.remark > 0 and self.remark < LONGEST_REMARK)
        if not begins:
            self.remark = 0
            return False
        self.remark = 0 if "]" in word else self.remark + 1
        return True


def _parted(kinds: list[str]) -> bool:
    """Whether a symbol stands between letters: 3×4."""
    first, last = (
        order.index("letter") if "letter" in order else None for order in (kinds, kinds[::-1])
    )
    return first is not None and last is not None and "symbol" in kinds[first : len(kinds) - last]


def _outside(word: str, kinds: list[str]) -> Iterable[str]:
    """The symbols of a word, with what joins them."""
    inside = False
    for letter, kind in zip(word, kinds, strict=True):
        inside = kind == "symbol" or (inside and kind in ("mark", "unseen"))
        if inside:
            yield letter


# marks that turn the direction of text, and characters that are nothing, are never copied
_HIDDEN = re.compile(
    r"[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffd\ue000-\uf8ff]+"
)


def _shown(word: str) -> str:
    return _HIDDEN.sub("", word)


class Copies:
    """What of a segment is to be copied, until its turn comes.

    A copy is due when every head stands past its place and as many words are written as were
    read before it; what is left comes at the segment's end.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, int, str]] = deque()
        self.heard = 0  # the last place of a copy; what is read again is not copied again

    def hear(self, place: int, before: int, text: str) -> None:
        """A copy at this word of the stream, after so many words that the model reads."""
        if place > self.heard:
            self.waiting.append((place, before, text))
            self.heard = place

    def first(self) -> list[str]:
        """What comes before any word that the model reads."""
        return self.due(1, 0)

    def due(self, slowest: int, written: int) -> list[str]:
        """What comes before the next written word; `slowest`: the word of the slowest head."""
        found = []
        while self.waiting and self.waiting[0][1] < min(slowest, written + 1):
            found.append(self.waiting.popleft()[2])
        return found

    def rest(self, place: int | None = None) -> list[str]:
        """What is left, up to this place."""
        found = []
        while self.waiting and (place is None or self.waiting[0][0] <= place):
            found.append(self.waiting.popleft()[2])
        return found

    def forget(self, words: int) -> None:
        """The segment begins so many words later."""
        self.waiting = deque((place, max(1, n - words), text) for place, n, text in self.waiting)
