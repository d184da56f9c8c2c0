"""Training text as people have it: what looks wrong is noticed, and left out if one says so."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from simultan.data.languages import is_in_other_language, row
from simultan.data.overlap import Overlap
from simultan.data.sources import Skips, TextPair

LOOKED_AT = 1_000_000  # pairs among which repetitions are counted if they are not left out
MANY_REPEATED = 0.1  # share of pairs that is worth a note
FEW_PAIRS = 200  # fewer say nothing about a text
LEAST_CORRELATION = 0.3  # of the lengths of the two sides; translations have 0.7 and more
LEAST_SPREAD = 0.1  # of the logarithm of lengths: lines of one length have no correlation
LEAST_NUMBERS = 0.3  # share of the sources' numbers that stand in their targets, too
LONGEST_COPY = 3  # words: a longer line that is the same on both sides was not translated
_NUMBER = re.compile(r"\d\d+")

Pairs = Iterable[tuple[int, str, str]]


@dataclass
class Suspicion:
    """Whether line n of one side is the translation of line n of the other, told from statistics.

    Long sentences have long translations, and a number is mostly written the same in both.
    """

    lengths: array[int] = field(default_factory=lambda: array("I"))  # of both sides, in turn
    numbers: int = 0  # sources that have one
    kept: int = 0  # of these, the targets that have one of the source's

    def look(self, source: str, target: str) -> None:
        self.lengths.extend((len(source), len(target)))
        if wanted := set(_NUMBER.findall(source)):
            self.numbers += 1
            self.kept += not wanted.isdisjoint(_NUMBER.findall(target))

    def correlation(self) -> float | None:
        """Of the logarithms of the lengths; None where there is too little to tell."""
        logarithms = np.log1p(np.array(self.lengths).reshape(-1, 2))
        if len(logarithms) < FEW_PAIRS or logarithms.std(0).min() < LEAST_SPREAD:
            return None
        return float(np.corrcoef(logarithms.T)[0, 1])

    def note(self, pair: TextPair) -> str:
        """What to tell the user, or nothing."""
        found = self.correlation()
        if found is None or found >= LEAST_CORRELATION:
            return ""
        if self.numbers >= FEW_PAIRS // 10 and self.kept >= LEAST_NUMBERS * self.numbers:
            return ""
        return (
            f"{pair.source.name} and {pair.target.name} do not look like translations of each other"
            f" (their lengths correlate by {found:.2f}): was one side shuffled or sorted?"
        )


@dataclass
class Filters:
    """What is left out of the training text beside what cannot be read, and what was noticed."""

    max_ratio: float = 0.0  # of the words of the longer side to those of the shorter; 0: any
    deduplicate: bool = False
    without: Overlap = field(default_factory=Overlap)  # evaluation text
    drop: str = ""  # a regular expression: pairs are left out where it is found on a side
    languages: tuple[str, str] = ("", "")  # each side must look like its own; empty: any
    notes: list[str] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _looked: int = 0
    _repeated: int = 0

    def __post_init__(self) -> None:
        if self.max_ratio and self.max_ratio < 1:
            raise ValueError(f"--max-ratio {self.max_ratio}: at least 1, or 0 for any")
        try:
            self._pattern = re.compile(self.drop)
        except re.error as error:
            raise ValueError(f"--drop {self.drop!r}: no regular expression ({error})") from error
        for language in self.languages if any(self.languages) else ():
            if not row(language).frequent:
                raise ValueError(
                    f"--check-languages: the frequent words of {language!r} are not known; they"
                    " stand in simultan/data/languages.py"
                )

    def apply(self, pairs: Pairs, pair: TextPair, skips: Skips) -> Iterator[tuple[int, str, str]]:
        """The pairs of one text that are kept; the others are counted in `skips`."""
        suspicion = Suspicion()
        for number, source, target in pairs:
            suspicion.look(source, target)
            if reason := self._reason(source, target):
                skips.add(reason, pair.source, number)
                continue
            yield number, source, target
        if note := suspicion.note(pair):
            self.notes.append(note)

    def _reason(self, source: str, target: str) -> str:
        """Why a pair is left out; nothing if it is not."""
        if self._is_repeated(source, target) and self.deduplicate:
            return "repeated"
        if self.without and (name := self.without.find(source, target)):
            return f"stands in {name}"
        if self.drop and (self._pattern.search(source) or self._pattern.search(target)):
            return f"{self.drop} found"
        lengths = sorted((len(source.split()), len(target.split())))
        if self.max_ratio and lengths[1] > self.max_ratio * lengths[0]:
            return f"one side more than {self.max_ratio:g} times as long"
        return self._check_languages(source, target) if self.languages[0] else ""

    def _check_languages(self, source: str, target: str) -> str:
        if source == target and len(source.split()) > LONGEST_COPY:
            return "not translated"
        own, other = self.languages
        if is_in_other_language(source, own, other) or is_in_other_language(target, other, own):
            return "in the other language"
        return ""

    def _is_repeated(self, source: str, target: str) -> bool:
        if not self.deduplicate and self._looked >= LOOKED_AT:
            return False
        self._looked += 1
        key = hash((source, target))
        known = key in self._seen
        self._repeated += known
        self._seen.add(key)
        return known

    def finish(self) -> list[str]:
        """All notes; what was only kept to compare with is forgotten."""
        if not self.deduplicate and self._repeated > MANY_REPEATED * max(1, self._looked):
            self.notes.append(
                f"{self._repeated:,} of the first {self._looked:,} pairs are repetitions:"
                " --deduplicate leaves them out"
            )
        self._seen.clear()
        return self.notes
