"""Rows of a model that keeps nothing: it reads source and target so far for every token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simultan.data import languages
from simultan.data.codec import Codec
from simultan.data.vocabulary import EOS
from simultan.data.writer import WORD_END
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.backends.pieces import OFFSET, PieceCodec, Spelling
from simultan.streaming.backends.protocol import Backend, OfflineModel

VIEWS = 4  # of a row that are remembered: an agent seldom compares more


@dataclass(frozen=True)
class Frame:
    """What a model wants around the source and before the target; ids of the model."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()  # the end of the sentence, mostly; it is there from the beginning
    begin: tuple[int, ...] = ()
    unknown: int = 0
    longest: int = 500  # tokens on each side; of more the last ones are read
    offset: int = OFFSET  # of the session's tokens, before which are its special ones


class View(NamedTuple):
    """One row as the model sees it."""

    source: tuple[int, ...]  # as the model reads it, with its frame
    target: tuple[int, ...]
    visible: int  # tokens of the session that are in `source`; the end of the source is one
    forgotten: int  # of them, those before what the model can hold
    begun: bool  # a word is being written
    fresh: bool  # nothing is written yet
    memory: dict[Any, Any]  # of the row, for what the engine wants to keep

    def remember(self, key: Hashable, value: object, most: int = VIEWS) -> None:
        """Keep what the row needs again; what it has kept longest goes."""
        while len(self.memory) >= most:
            del self.memory[next(iter(self.memory))]
        self.memory[key] = value


class Engine(OfflineModel):
    """A model that keeps nothing from one token to the next."""

    frame: Frame
    codec: Codec | None = None
    attention_layers = 0  # that can say where they look

    def backend(self, rows: int) -> Rereading:
        return Rereading(self, rows)

    @abstractmethod
    def score(self, views: list[View], attention: bool) -> Scores:
        """The next token of each row, in ids of a session."""


def present(spelling: Spelling | None, logits: Tensor, views: list[View]) -> Tensor:
    """Scores of a model's ids as scores of a session's tokens; a codec's own ids are tokens."""
    if spelling is not None:
        return spelling.present(logits, [v.begun for v in views], [v.fresh for v in views])
    logits[:, :EOS] = -torch.inf  # padding and begin are never written
    return logits


@dataclass
class _Row:
    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    begun: bool = False
    memory: dict[Any, Any] = field(default_factory=dict)


class Rereading(Backend):
    """An engine and what its rows have read and written."""

    tries = rewinds = True

    def __init__(self, engine: Engine, rows: int) -> None:
        self.engine, self.frame, self.codec = engine, engine.frame, engine.codec
        language = self.codec.source_language if self.codec else ""
        spaced = languages.row(language).spaced  # if not, its pieces are not words'
        self.attention_layers = engine.attention_layers if spaced else 0
        self.rows = [_Row() for _ in range(rows)]

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        offset, unknown = self.frame.offset, self.frame.unknown
        for row, new in zip(rows, tokens, strict=True):
            ids = [id - offset if id >= offset else unknown for id in new if id != EOS]
            self.rows[row].source += ids

    def score(self, rows: Sequence[int], visible: Sequence[int], attention: bool) -> Scores:
        views = [
            self._view(self.rows[row], count) for row, count in zip(rows, visible, strict=True)
        ]
        return self.engine.score(views, attention)

    def _view(self, row: _Row, visible: int) -> View:
        frame, source = self.frame, row.source[:visible]
        if isinstance(self.codec, PieceCodec):
            source = self.codec.reread(source)
        room = max(1, frame.longest - len(frame.before) - len(frame.after))
        kept = max(1, frame.longest - len(frame.begin) - 1)
        return View(
            (*frame.before, *source[-room:], *frame.after),
            (*frame.begin, *row.target[-kept:]),
            visible,
            max(0, len(source) - room),
            row.begun,
            not row.target,
            row.memory,
        )

    def commit(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        for number, token in zip(rows, tokens, strict=True):
            row = self.rows[number]
            row.begun = token != WORD_END
            if row.begun:
                row.target.append(token - self.frame.offset)

    def reset(self, row: int) -> None:
        self.rows[row] = _Row()

    def keep(self, rows: Sequence[int]) -> list[tuple[int, bool]]:
        return [(len(self.rows[row].target), self.rows[row].begun) for row in rows]

    def restore(self, rows: Sequence[int], kept: list[tuple[int, bool]]) -> None:
        for row, (length, begun) in zip(rows, kept, strict=True):
            del self.rows[row].target[length:]
            self.rows[row].begun = begun

    def mark(self, row: int) -> int:
        return len(self.rows[row].source)

    def rewind(self, row: int, mark: int) -> None:
        del self.rows[row].source[mark:]
