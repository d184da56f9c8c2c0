"""How a log is scored: one value, and options of the verbs that score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

__all__ = ["LatencyUnit", "Scoring"]

LatencyUnit = Literal["words", "subwords"]


@dataclass(frozen=True)
class Scoring:
    """How a log is scored."""

    tokenized: Annotated[bool, "Take text as tokens that are joined by spaces, for BLEU."] = False
    language: Annotated[
        str,
        "Count words and tokenise for BLEU as this target language needs it: zh, ja and th have"
        " no spaces. By default, the model's.",
        "<CODE>",
    ] = ""
    latency_unit: Annotated[LatencyUnit, "Count delays in words or in subwords."] = "words"
    words_per_second: Annotated[
        float, "Assume this speaking rate for al_ca, which counts computing time.", "<RATE>"
    ] = 2.5  # an unhurried speaker
    system: Annotated[str, "Give the system this name in figures.", "<NAME>"] = ""
