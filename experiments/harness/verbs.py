"""German verbs that come late: does their translation stand in the output, and when was it written?

    python -m experiments.harness.verbs KEYS LOG...      a table; LOG: instances.log or predictions
A key names a sentence by test set, line and digest, the place of its late verb (or separable
prefix), and English verbs that are accepted as its translation. It holds no text of the corpus.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.harness.curves import between
from experiments.harness.tables import NOT_RUN, not_run, number, table
from simultan.evaluation.instances import Instance, read_log

__all__ = ["KINDS", "Judged", "Key", "Tally", "digest", "forms", "judge", "read_keys", "tally"]

# a separable prefix; a participle or an infinitive that ends a main clause; a subordinate clause
KINDS = ("prefix", "participle", "infinitive", "clause")
DRAWS = 2_000  # of the keys, for an interval
REACH = 4  # words between a verb and its particle, at most
IRREGULAR = """
admit admitted admitting | be am is are was were been being | bear bore borne bearing
beat beat beaten beating | become became | befall befell befallen | begin began begun beginning
bet betting | bite bit bitten biting | blow blew blown | break broke broken | bring brought
build built | buy bought | cancel cancelled cancelling | catch caught
choose chose chosen choosing | come came coming | commit committed committing | cost
cut cutting | deal dealt | do did done does doing | draw drew drawn | drive drove driven driving
eat ate eaten | fall fell fallen | feel felt | fight fought | find found | flee fled
fly flew flown flies | forget forgot forgotten forgetting | fulfil fulfils fulfilled fulfilling
get got gotten getting | give gave given giving | go went gone goes | grow grew grown
hear heard | hide hid hidden hiding | hit hitting | hold held | keep kept | know knew known
lay laid | lead led | leave left leaving | let letting | lie lay lain lying | lose lost losing
make made making | mean meant | meet met | occur occurred occurring | overcome overcame
overthrow overthrew overthrown | pay paid | permit permitted permitting
prefer preferred preferring | prove proved proven proving | put putting | quit quitting | read
rebel rebelled rebelling | refer referred referring | rid ridding | ride rode ridden riding
ring rang rung | rise rose risen rising | run ran running | say said | see saw seen
seek sought | sell sold | send sent | set setting | shoot shot | show showed shown
shrink shrank shrunk | shut shutting | sing sang sung | sink sank sunk | sit sat sitting
sleep slept | speak spoke spoken | speed sped | spend spent | spread | spring sprang sprung
stand stood | steal stole stolen | stick stuck | strike struck stricken striking
submit submitted submitting | swear swore sworn | swim swam swum | take took taken taking
teach taught | tell told | think thought | throw threw thrown
transfer transferred transferring | travel travelled | undergo underwent undergone undergoes
understand understood | undertake undertook undertaken undertaking | wear wore worn
win won winning | withdraw withdrew withdrawn | withhold withheld | write wrote written writing
"""
_VOWELS = "aeiou"


@dataclass(frozen=True)
class Key:
    """A sentence and what counts as a translation of its late verb."""

    set: str
    line: int  # from 1
    digest: str  # of the source line
    position: int  # of the verb, or of the prefix that completes it, in words, from 1
    kind: str
    verb: str  # in its base form
    accepted: tuple[str, ...]  # a verb in its base form; "set off"; "=noun": this form alone


@dataclass(frozen=True)
class Judged:
    """A key and what became of it."""

    key: Key
    delay: float | None  # source words read when its translation was written; None: it is missing

    @property
    def foreseen(self) -> bool:
        """Written before the verb was read."""
        return self.delay is not None and self.delay < self.key.position


@dataclass(frozen=True)
class Tally:
    """How a system did: shares of the keys, and words from the verb to its translation."""

    keys: int
    found: float
    by_kind: Mapping[str, float]
    foreseen: float
    lag: float | None  # of those that were found and not foreseen


def digest(line: str) -> str:
    """Enough of a hash to tell that a line is the one that was annotated."""
    plain = unicodedata.normalize("NFC", " ".join(line.split()))
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def read_keys(path: Path) -> list[Key]:
    """A file of tab-separated columns; lines that begin with # are comments."""
    keys = []
    for number_, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        try:
            name, place, mark, position, kind, verb, accepted = line.split("\t")
            if kind not in KINDS:
                raise ValueError(f"no kind {kind!r}: it is one of {', '.join(KINDS)}")
            words = tuple(word.strip() for word in accepted.split(";"))
            keys.append(Key(name, int(place), mark, int(position), kind, verb, words))
        except ValueError as error:
            raise ValueError(f"{path}, line {number_}: {error}") from error
    return keys


_IRREGULAR = {
    entry.split()[0]: set(entry.split())
    for line in IRREGULAR.strip().splitlines()
    for entry in line.split("|")
}


def forms(verb: str) -> set[str]:
    """A verb's inflected forms, in British and American spelling."""
    found = {verb, *_IRREGULAR.get(verb, ())}
    third = "es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s"
    consonant = len(verb) > 2 and verb[-1] not in _VOWELS + "wxy"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        found |= {f"{verb[:-1]}ies", f"{verb[:-1]}ied", f"{verb}ing"}
    elif verb.endswith("e"):
        found |= {f"{verb}s", f"{verb}d", f"{verb[:-1]}ing", f"{verb}ing"}
    else:
        found |= {f"{verb}{third}", f"{verb}ed", f"{verb}ing"}
        if consonant and verb[-2] in _VOWELS and verb[-3] not in _VOWELS:  # stop, stopped
            found |= {f"{verb}{verb[-1]}ed", f"{verb}{verb[-1]}ing"}
    for one in sorted(found):
        for british, american in (("is", "iz"), ("ys", "yz")):
            found.add(re.sub(rf"{british}(e|es|ed|ing)$", rf"{american}\1", one))
    return found


def _place(words: Sequence[str], accepted: str) -> int | None:
    """The word that completes the first occurrence; None: there is none."""
    if accepted.startswith("="):
        return next((i for i, word in enumerate(words) if word == accepted[1:]), None)
    verb, _, particle = accepted.partition(" ")
    for place in (i for i, word in enumerate(words) if word in forms(verb)):
        if not particle:
            return place
        following = words[place + 1 : place + 2 + REACH]
        if particle in following:
            return place + 1 + following.index(particle)
    return None


def judge(keys: Iterable[Key], instances: Iterable[Instance]) -> list[Judged]:
    """Look for each key's verb in what was written; a log without its sentence is an error."""
    known = {instance.index: instance for instance in instances}
    judged = []
    for key in keys:
        if key.line - 1 not in known:
            raise ValueError(f"the log has no sentence {key.line} of {key.set}")
        instance = known[key.line - 1]
        words = [
            re.sub(r"^\W+|\W+$", "", w).removesuffix("'s") for w in instance.prediction.split(" ")
        ]
        lower = [word.lower() for word in words]
        places = [_place(lower, accepted) for accepted in key.accepted]
        first = min((place for place in places if place is not None), default=None)
        judged.append(Judged(key, None if first is None else instance.delays[first]))
    return judged


def tally(judged: Sequence[Judged]) -> Tally:
    def share(some: Sequence[Judged]) -> float:
        return sum(j.delay is not None for j in some) / len(some)

    kinds = {kind: [j for j in judged if j.key.kind == kind] for kind in KINDS}
    lags = [j.delay - j.key.position for j in judged if j.delay is not None and not j.foreseen]
    return Tally(
        keys=len(judged),
        found=share(judged),
        by_kind={kind: share(some) for kind, some in kinds.items() if some},
        foreseen=sum(j.foreseen for j in judged) / len(judged),
        lag=sum(lags) / len(lags) if lags else None,
    )


def difference(one: Sequence[Judged], other: Sequence[Judged]) -> tuple[float, float, float]:
    """Shares of one minus other, with its 95% interval: the same keys are drawn for both."""
    found = [[j.delay is not None for j in judged] for judged in (one, other)]
    apart = np.subtract(*np.array(found, dtype=np.float64))
    drawn = np.random.default_rng(1).integers(len(apart), size=(DRAWS, len(apart)))
    low, high = np.percentile(apart[drawn].mean(1), [2.5, 97.5])
    return float(apart.mean()), float(low), float(high)


def difference_table(
    pairs: Iterable[tuple[str, str, str, tuple[float, float, float]]],
) -> str:
    """What is claimed, one, other, and the difference in points."""
    body = [
        [claim, one, other, f"{100 * found:+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}"]
        for claim, one, other, (found, low, high) in pairs
    ]
    return table(["", "one", "other", "verbs, points", "95%"], body) if body else not_run()


def point_table(rows: Iterable[tuple[str, float | None, float | None, Tally]]) -> str:
    """Every point: its name, AL, BLEU, and the tally."""
    body = []
    for name, al, bleu, one in rows:
        shares = [one.found, *(one.by_kind.get(kind) for kind in KINDS), one.foreseen]
        cells = ["" if share is None else f"{100 * share:.1f}" for share in shares]
        body.append([name, number(al), number(bleu), *cells, number(one.lag)])
    if not body:
        return not_run()
    header = ["run", "AL", "BLEU", "verbs, %", *(f"{kind}, %" for kind in KINDS)]
    return table([*header, "foreseen, %", "words later"], body)


def level_table(
    systems: Mapping[str, Sequence[tuple[float, float]]], levels: Sequence[float]
) -> str:
    """Share of the verbs by system at equal AL, on the lines between its points."""
    body = []
    for name, points in systems.items():
        values = [between(sorted(points), level) for level in levels]
        cells = ["" if value is None else f"{100 * value:.1f}" for value in values]
        body.append([name, *(cells if points else [NOT_RUN, *[""] * (len(levels) - 1)])])
    return table(["verbs, %", *(f"AL {level:g}" for level in levels)], body)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.harness.verbs")
    parser.add_argument("keys", type=Path)
    parser.add_argument("logs", type=Path, nargs="+", help="instances.log, or its folder")
    parser.add_argument("--missing", action="store_true", help="list the keys without a verb")
    arguments = parser.parse_args()
    try:
        keys = read_keys(arguments.keys)
        rows = []
        for log in arguments.logs:
            judged = judge(keys, read_log(log))
            rows.append((log.name.removesuffix(".jsonl.xz"), None, None, tally(judged)))
            for one in judged if arguments.missing else ():
                if one.delay is None:
                    print(one.key.set, one.key.line, one.key.verb)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(point_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
