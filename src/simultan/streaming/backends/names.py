"""Names of models that are not ours: hf:NAME?source=deu_Latn&target=eng_Latn, ct2:FOLDER."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl

TRUSTED = "trusted"


@dataclass(frozen=True)
class Name:
    """Where a model is, and what has to be said about it."""

    kind: Literal["hf", "ct2"]
    place: str  # a folder, or for hf a name on the hub
    source: str = ""  # languages, for a model of many; in the model's own codes
    target: str = ""
    prefix: str = ""  # text before every source, for T5
    pickle: str = ""  # "trusted": weights may be a pickle

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """None for a name without hf: or ct2:."""
        kind, colon, rest = text.partition(":")
        if not colon or kind not in ("hf", "ct2"):
            return None
        place, mark, query = rest.rpartition("?")
        if not mark or Path(rest).is_dir():  # whose name may hold any sign
            place, query = rest, ""
        options = dict(parse_qsl(query, keep_blank_values=True))
        known = [field.name for field in fields(cls)][2:]
        for option, value in options.items():
            if option not in known or not value:
                raise ValueError(f"{text}: {option}={value}: give {', '.join(known)} after the ?")
        if not place:
            raise ValueError(f"{text}: name a folder after {kind}:, or for hf: OWNER/NAME")
        if options.get("pickle", TRUSTED) != TRUSTED:
            raise ValueError(f"{text}: pickle={options['pickle']}: write pickle={TRUSTED}")
        return cls("hf" if kind == "hf" else "ct2", place, **options)

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def trusts_pickles(self) -> bool:
        return self.pickle == TRUSTED
