"""Numbers of a segment: what was said in digits is written in digits, and in the same ones.

A written number that is no number of the source but close to one is put right; one that was never
written comes at the end of its segment. Separators are those of the target language: 1.250,5 in
German is 1,250.5 in English.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from simultan.data.languages import row

_DIGITS = re.compile(r"[0-9]+")
_CORE = re.compile(r"[0-9](?:.*[0-9])?")


def digit_groups(text: str) -> list[str]:
    """Digits that stand together: "1.250 am 3." has 1, 250 and 3."""
    return _DIGITS.findall(text)


def convert(number: str, source_language: str, target_language: str) -> str:
    """A number with the separators of another language; what is no plain number stays."""
    here, there = row(source_language).decimal, row(target_language).decimal
    thousands = "." if here == "," else ","
    pattern = rf"[0-9]{{1,3}}(?:\{thousands}[0-9]{{3}})+(?:\{here}[0-9]+)?|[0-9]+\{here}[0-9]+"
    if here == there or re.fullmatch(pattern, number) is None:
        return number
    return number.translate(str.maketrans(here + thousands, there + ("," if there == "." else ".")))


@dataclass
class _Number:
    """A number of the source, written or not."""

    groups: list[str]
    text: str  # as it is to be written
    place: int


class Numbers:
    """The numbers of one segment."""

    def __init__(self, source_language: str = "", target_language: str = "") -> None:
        self.languages = source_language, target_language
        words = row(target_language).numerals.split()
        self.numerals = {
            word: (str(n if n < 13 else n - 12), n > 12) for n, word in enumerate(words)
        }
        self.waiting: list[_Number] = []  # heard and not written
        self.known: list[list[str]] = []  # groups of all that were heard
        self.heard = 0  # the place of the last one
        self.begun = ""  # digits of a number that is written in several words
        self.written: Counter[str] = Counter()  # groups written that belong to no whole number

    def hear(self, word: str, place: int) -> None:
        """A source word at this place."""
        core = _CORE.search(word)
        if core is None or place <= self.heard:  # what is read again counts once
            return
        self.heard = place
        text = convert(core[0], *self.languages)
        self.waiting.append(_Number(digit_groups(core[0]), text, place))
        self.known.append(digit_groups(core[0]))

    def check(self, word: str, place: int) -> str:
        """A target word, written when the furthest head stood here: its number put right."""
        core = _CORE.search(word)
        if core is None:
            return self._check_numeral(word, place)
        groups = digit_groups(core[0])
        heard = [number for number in self.waiting if number.place <= place]
        number = next((number for number in heard if number.groups == groups), None)
        if number is None:
            number = next((n for n in heard if "".join(n.groups) == "".join(groups)), None)
        if number is None and self._goes_on("".join(groups), heard):
            return word
        if number is None:
            if groups in self.known or all(
                any(group in known for known in self.known) for group in groups
            ):
                self.written.update(groups)  # a part of one, or several
                return word
            number = self._closest(groups, heard)
        if number is None:
            return word  # the source may have said it in words
        self.waiting.remove(number)
        return word[: core.start()] + number.text + word[core.end() :]

    def _check_numeral(self, word: str, place: int) -> str:
        """A number in words: digits were said, so digits are written, unless it is an ordinal."""
        plain = word.strip(".,;:!?()\"'")
        value, ordinal = self.numerals.get(plain.lower(), ("", False))
        for number in self.waiting:
            if number.groups == [value] and number.place <= place:
                self.waiting.remove(number)
                return word if ordinal else word.replace(plain, number.text)
        return word

    def _goes_on(self, digits: str, heard: list[_Number]) -> bool:
        """Whether a number is being written in several words: 2 000."""
        for number in heard:
            joined = "".join(number.groups)
            if joined.startswith(self.begun + digits):
                self.begun += digits
                if joined == self.begun:
                    self.begun = ""
                    self.waiting.remove(number)
                return True
        self.begun = ""
        return False

    def _closest(self, groups: list[str], heard: list[_Number]) -> _Number | None:
        inside = [n for n in heard if not Counter(n.groups) - Counter(groups)]
        if inside:  # 5.32 for 5
            return inside[0]
        digits = "".join(groups)
        near = [(_distance(digits, "".join(number.groups)), number.place) for number in heard]
        for distance, place in sorted(near):
            number = next(number for number in heard if number.place == place)
            if 2 * distance <= max(len(digits), len("".join(number.groups))):
                return number
        return None

    def rest(self, place: int | None = None) -> list[str]:
        """Numbers, up to this place, of which something was never written."""
        lost = []
        over = [number for number in self.waiting if place is None or number.place <= place]
        for number in over:
            self.waiting.remove(number)
            needed = Counter(number.groups)
            if needed <= self.written:
                self.written -= needed
            else:
                lost.append(number.text)
        return lost


def _distance(one: str, two: str) -> int:
    """How many digits to change, add or leave out."""
    row_ = list(range(len(two) + 1))
    for i, digit in enumerate(one, 1):
        row_, above = [i], row_
        for j, other in enumerate(two, 1):
            row_.append(min(above[j] + 1, row_[j - 1] + 1, above[j - 1] + (digit != other)))
    return row_[-1]
