"""Languages of a model of many: their codes, and where each family of models wants them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simultan.streaming.backends.names import Name
from simultan.streaming.backends.rereading import Frame

# M2M100 has __de__, NLLB deu_Latn, mBART de_DE, Marian >>deu<< for the target only
_CODE = re.compile(r"__([a-z]{2,4})__|([a-z]{2,3}_[A-Z][A-Za-z]+)|>>([\w.-]+)<<")
_SHOWN = 8


@dataclass(frozen=True)
class Family:
    """What is known of a model beside its vocabulary."""

    eos: int
    unknown: int
    start: tuple[int, ...] = ()  # what its decoder starts with, before the target's language
    language_last: bool = False  # the source's language stands behind the end (mBART-25)
    adds_end: bool = False  # the model adds the end of the source by itself
    longest: int = 500


def language_tokens(pieces: Iterable[str]) -> dict[str, str]:
    """Codes of languages, and the token of each."""
    found = ((_CODE.fullmatch(piece), piece) for piece in pieces)
    return {next(filter(None, match.groups())): piece for match, piece in found if match}


def frame_for(
    name: Name, family: Family, vocabulary: Mapping[str, int], prefix: list[int]
) -> Frame:
    """What stands around source and target in this model."""
    tokens = language_tokens(vocabulary)
    marks_target_only = any(token.startswith(">>") for token in tokens.values())
    before, begin = tuple(prefix), family.start
    after = () if family.adds_end else (family.eos,)
    if not tokens:
        if name.source or name.target:
            raise ValueError(
                f"{name}: this model has one pair of languages; leave source and target"
            )
    elif marks_target_only:
        before = (vocabulary[_token(name, "target", tokens)],)
    else:
        source = vocabulary[_token(name, "source", tokens)]
        begin = (*begin, vocabulary[_token(name, "target", tokens)])
        before, after = ((), (*after, source)) if family.language_last else ((source,), after)
    return Frame(before, after, begin, family.unknown, family.longest)


def _token(name: Name, side: str, tokens: dict[str, str]) -> str:
    """The token of a language that was chosen."""
    code: str = getattr(name, side)
    if code in tokens:
        return tokens[code]
    some = ", ".join(sorted(tokens)[:_SHOWN]) + (", ..." if len(tokens) > _SHOWN else "")
    reason = f"no {side} language {code!r}" if code else f"which {side} language?"
    raise ValueError(f"{name}: {reason} Write ?{side}=CODE after its name, CODE one of: {some}")
