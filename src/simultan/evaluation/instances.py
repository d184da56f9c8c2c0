"""The log of an evaluation: SimulEval's JSON lines, read and written.

Every line has SimulEval's keys (index, prediction, delays, elapsed, prediction_length, reference,
source, source_length). The keys after them are ours, and other tools ignore them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simultan import atomic
from simultan.data.sources import read_lines


@dataclass(frozen=True)
class Instance:
    """One sentence of a log."""

    index: int
    prediction: str
    delays: list[float]  # source words read before each word of the prediction
    elapsed: list[float]  # the same with computing time in it; all 0 where it was not measured
    prediction_length: float = 0
    reference: str | None = None
    source: str | list[str] | None = None  # a list: not a text (SimulEval's speech logs)
    source_length: float | None = None
    computing: list[float] | None = None  # seconds of computing up to each word
    seconds: float | None = None  # this sentence's share of the whole run's time
    source_tokens: list[str] | None = None  # vocabulary pieces, without end-of-sequence
    target_tokens: list[str] | None = None
    reference_tokens: int | None = None  # how many
    token_delays: list[float] | None = None  # source pieces read before each target piece
    token_heads: list[list[list[int]]] | None = None  # [T, L, H] source piece of each head, from 1
    guesses: list[bool] | None = None  # of an agent that guesses: whether each guess was right


_REQUIRED = ("index", "prediction", "delays")
_NUMBERS = ("delays", "elapsed", "computing", "token_delays")
_KEYS = [field.name for field in dataclasses.fields(Instance)]
_SIMULEVAL = _KEYS[: _KEYS.index("source_length") + 1]


def read_log(path: str | Path) -> list[Instance]:
    """Read a log (or the instances.log of a folder), in the order of the indices."""
    path = Path(path) / "instances.log" if Path(path).is_dir() else Path(path)
    found: dict[int, Instance] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            instance = _parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if instance.index in found:
            raise ValueError(f"{path}, line {number}: index {instance.index} appears twice")
        found[instance.index] = instance
    if not found:
        raise ValueError(f"{path} is empty: there is no sentence to score")
    return [found[index] for index in sorted(found)]


def write_log(path: str | Path, instances: Iterable[Instance]) -> None:
    """Write a log that SimulEval and OmniSTEval read; our keys without a value are left out."""
    lines = []
    for instance in instances:
        table = {key: getattr(instance, key) for key in _KEYS}
        kept = {k: v for k, v in table.items() if k in _SIMULEVAL or v is not None}
        lines.append(json.dumps(kept) + "\n")  # in ASCII: SimulEval reads in the locale's encoding
    atomic.write_text(path, "".join(lines))


def with_texts(
    instances: Sequence[Instance],
    sources: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
) -> list[Instance]:
    """Fill in texts: the sentence with index n takes line n."""
    for name, lines in (("source", sources), ("reference", references)):
        if lines is not None and len(lines) <= instances[-1].index:
            raise ValueError(
                f"the {name} has {len(lines)} lines, but the log has a sentence with index "
                f"{instances[-1].index}: give the files the log was made from"
            )
    filled = []
    for instance in instances:
        changes: dict[str, Any] = {}
        if sources is not None:
            words = sources[instance.index].split()
            changes |= {"source": " ".join(words), "source_length": len(words)}
        if references is not None:
            changes |= {"reference": references[instance.index]}
        filled.append(dataclasses.replace(instance, **changes))
    return filled


def _parse(line: str) -> Instance:
    try:
        table = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(table, dict):
        raise ValueError("a JSON object is wanted")
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise ValueError(f"the key {missing[0]!r} is missing")
    for key in _NUMBERS:
        values = table.get(key)
        if values is not None and not (
            isinstance(values, list) and all(_is_number(value) for value in values)
        ):
            raise ValueError(f"{key!r} must be a list of numbers")
    if not isinstance(table["index"], int) or table["index"] < 0:
        raise ValueError("'index' must be a whole number, from 0")
    if not isinstance(table["prediction"], str):
        raise ValueError("'prediction' must be a text")
    if table.get("reference") is not None and not isinstance(table["reference"], str):
        raise ValueError("'reference' must be a text")
    if table.get("source_length") is not None and not _is_number(table["source_length"]):
        raise ValueError("'source_length' must be a number")
    if "heads" in table:  # the name of token_heads before 0.2
        table.setdefault("token_heads", table["heads"])
    table["elapsed"] = table.get("elapsed") or [0.0] * len(table["delays"])
    for key in ("elapsed", "computing"):
        if table.get(key) is not None and len(table[key]) != len(table["delays"]):
            raise ValueError(
                f"{len(table['delays'])} delays, but {len(table[key])} values of {key!r}"
            )
    return Instance(**{key: table[key] for key in _KEYS if key in table})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
