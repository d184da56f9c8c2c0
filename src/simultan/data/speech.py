"""Text as speech recognition gives it: sentences without end, case or punctuation.

A share of the training pairs becomes runs of two or more consecutive pairs of one document; a
share of the sources has its numbers spelled, and a share is lower-cased, loses its punctuation, or
both, a third each. The target stays as it is: the model learns to write proper text from either.
"""

from __future__ import annotations

import random
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from simultan.data.sources import Lines, TextPair
from simultan.data.spoken import speller

Pairs = Iterable[tuple[int, str, str]]  # line number, source, target
SHORTEST, LONGEST = 2, 4  # how many pairs are joined
KINDS = "lower_cased", "unpunctuated", "both"  # what becomes of a source
COUNTED = "runs", "pairs_in_runs", "spelled", *KINDS
LONGEST_RUN = 120  # words on a side; a run ends before it gets longer
_DIGIT = re.compile("[0-9]")
_KEPT = frozenset("%&@#§°+=€$£/\\^~|<>*")  # these are spoken


@lru_cache(maxsize=1)
def _silent() -> str:
    """All punctuation that is not spoken."""
    characters = map(chr, range(0x20000))  # there is none beyond
    return "".join(c for c in characters if unicodedata.category(c)[0] == "P" and c not in _KEPT)


def as_recognised(text: str, lower: bool = True, bare: bool = True) -> str:
    """The text in lower case, without the punctuation around its words.

    What stands inside a word stays ("3,5", "E-Mail", "geht's"); a word of nothing else goes.
    """
    if lower:
        text = text.lower()
    if not bare:
        return text
    return " ".join(filter(None, (word.strip(_silent()) for word in text.split())))


@dataclass
class Speech:
    """How to change the training text, and counts of what was changed."""

    join: float = 0.0  # share of the pairs that are joined with their neighbours
    recognised: float = 0.0  # share of the sources (of runs, after joining) that are changed
    seed: int = 1
    longest: int = LONGEST  # pairs in a run
    spelled: float = 0.0  # share of the sources with numbers in which these are spelled
    language: str = ""  # of the source
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def __post_init__(self) -> None:
        if not 0 <= self.join <= 1 or not 0 <= self.recognised <= 1:
            raise ValueError("the shares of --join and --asr lie in [0, 1]")
        if not 0 <= self.spelled <= 1:
            raise ValueError("the share of --spell-numbers lies in [0, 1]")
        if self.longest < SHORTEST:
            raise ValueError(f"--longest-run {self.longest}: at least {SHORTEST} pairs")
        self._spell = speller(self.language) if self.spelled else None

    def change(self, pairs: Pairs, number: int, documents: array[int] | None) -> Pairs:
        """The pairs of the text of this number, joined and changed as the seed says."""
        if not self.join and not self.recognised and not self.spelled:
            return pairs
        chance = random.Random(f"{self.seed}/{number}")
        return self._recognise(self._join(pairs, documents, chance), chance)

    def _join(self, pairs: Pairs, documents: array[int] | None, chance: random.Random) -> Pairs:
        # a run of n pairs begins with probability q: of q n + 1 - q pairs, q n are in runs
        mean = (SHORTEST + self.longest) / 2
        begins = self.join / (mean - self.join * (mean - 1))
        run: list[tuple[int, str, str]] = []
        wanted = 1
        for pair in pairs:
            if run and (len(run) == wanted or not _goes_on(run, pair, documents)):
                yield self._joined(run)
                run = []
            if not run:
                wanted = chance.randint(SHORTEST, self.longest) if chance.random() < begins else 1
            run.append(pair)
        if run:
            yield self._joined(run)

    def _joined(self, run: list[tuple[int, str, str]]) -> tuple[int, str, str]:
        if len(run) == 1:
            return run[0]
        self.counts["runs"] += 1
        self.counts["pairs_in_runs"] += len(run)
        return run[0][0], " ".join(p[1].strip() for p in run), " ".join(p[2].strip() for p in run)

    def _recognise(self, pairs: Pairs, chance: random.Random) -> Iterator[tuple[int, str, str]]:
        for number, source, target in pairs:
            has_number = _DIGIT.search(source) is not None
            if self._spell is not None and has_number and chance.random() < self.spelled:
                said = self._spell(source)
                self.counts["spelled"] += said != source
                source = said
            if chance.random() < self.recognised:
                kind = chance.randrange(len(KINDS))
                changed = as_recognised(source, lower=kind != 1, bare=kind != 0)
                if changed:  # a source of nothing but punctuation stays
                    source = changed
                    self.counts[KINDS[kind]] += 1
            yield number, source, target


def _goes_on(
    run: list[tuple[int, str, str]], pair: tuple[int, str, str], documents: array[int] | None
) -> bool:
    """Whether a pair follows the run's last one in its document, and the run stays short."""
    if pair[0] != run[-1][0] + 1:  # a pair between them was skipped
        return False
    if documents is not None:
        here = documents[pair[0] - 2 : pair[0]]  # too few lines: read_pairs will say so
        if len(here) < 2 or here[0] != here[1]:
            return False
    longer = (*run, pair)
    sides = " ".join(p[1] for p in longer), " ".join(p[2] for p in longer)
    return all(len(side.split()) <= LONGEST_RUN for side in sides)


def read_documents(pair: TextPair) -> array[int] | None:
    """The number of each line's document, or None: the whole text is one.

    A line of the file names the document of that line of the text, in its first tab-separated
    columns; lines with equal names that follow one another are of one document.
    """
    if pair.documents is None:
        return None
    numbers, name = array("l"), None
    with Lines(pair.documents) as lines:
        for line in lines:
            found = b"\t".join(line.rstrip(b"\r\n").split(b"\t")[: pair.document_columns or None])
            numbers.append(numbers[-1] + (found != name) if numbers else 0)
            name = found
    return numbers
