"""Many whole sentences at once, with an offline model: for a GPU, and for a CPU.

Sentences of like length share buffers of one shape. A sentence that is complete makes room for the
next one, and what is left in the end is moved to fewer rows. On a GPU a step of each shape is
recorded as a CUDA graph, and the host looks every few steps at which sentences are complete.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simultan.data.ragged import Array, Ragged
from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.model.buffers import halve, widens
from simultan.streaming.board import Board, Recorder
from simultan.streaming.search import Found, Hypothesis, Search

STEPS = 8  # of a GPU between two looks at it
FEWEST = 64  # rows of a GPU; fewer are no faster
SPREAD = 256  # slots of a row, on average: longer sentences get fewer rows
TOGETHER = 2**16  # source tokens that are encoded at once
GREEDY = Search()
SHAPES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # source tokens; beyond, powers of 2


@dataclass(frozen=True)
class Generated:
    """What was found for N sentences, up to K hypotheses for each, the best first."""

    tokens: Ragged  # [N K]
    scores: Array  # [N, K]; -inf: there are fewer
    seconds: Array  # [N] from the first step of a sentence to its last

    def __len__(self) -> int:
        return len(self.scores)

    def hypotheses(self, sentence: int) -> list[Hypothesis]:
        scores = self.scores[sentence].tolist()
        first = sentence * len(scores)
        return [
            Hypothesis(tuple(self.tokens[first + k]), score)
            for k, score in enumerate(scores)
            if score > -math.inf or not k
        ]

    def best(self) -> Ragged:
        """The tokens of the best hypothesis of each sentence."""
        count = self.scores.shape[1]
        if count == 1:
            return self.tokens
        return Ragged.of([self.tokens[count * i] for i in range(len(self))])


class Generator:
    """Translates with one model in one way; buffers and recorded steps are kept between calls."""

    def __init__(
        self,
        model: TranslationModel,
        search: Search = GREEDY,
        *,
        rows: int = 1024,
        half: bool = True,
        record: bool = True,
        fixed: bool | None = None,
    ) -> None:
        """At most so many rows side by side. On a GPU the model is copied to bfloat16 (`half`),
        shapes are few (`fixed`), and a step of each is recorded (`record`)."""
        if model.policy.name != "offline":
            raise ValueError(
                "whole sentences: the search hears all of a sentence, so it needs an offline"
                f" model; this one is {model.policy.name}"
            )
        if rows < 1:
            raise ValueError(f"rows = {rows}: it must be at least 1")
        self.device = model.output.weight.device
        gpu = self.device.type == "cuda"
        self.fixed = gpu if fixed is None else fixed
        halves = half and gpu and model.output.weight.dtype == torch.float32
        self.model = halve(model) if halves else model
        self.search, self.rows = search, rows
        # an LSTM's library kernels refuse to be recorded
        self.recorder = Recorder() if record and gpu and model.repeated_parts() else None
        self.boards: dict[tuple[int, int, int], Board] = {}
        if gpu:
            widens()  # asked now, not while a step is recorded

    @torch.inference_mode()
    def generate(
        self,
        sources: Ragged | Sequence[Sequence[int]],
        *,
        limits: Array | Sequence[int] | None = None,
        numbers: Array | Sequence[int] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Generated:
        """The translations of sources, token ids that end with end-of-sequence, in their order.

        At most limits[i] tokens are written; twice the source's and 30 by default. numbers[i]
        tells what is drawn for a sentence; its place by default.
        """
        if not isinstance(sources, Ragged):
            sources = Ragged.of(sources)
        lengths, count = sources.lengths, len(sources)
        work = Work(
            sources=sources,
            prefix=self.model.source_prefix,
            limits=np.array(2 * lengths + 30 if limits is None else limits, dtype=np.int64),
            numbers=np.array(np.arange(count) if numbers is None else numbers, dtype=np.int64),
        )
        some = np.flatnonzero((lengths > 1) & (work.limits > 0))  # else there is nothing to do
        if progress is not None and len(some) < count:
            progress(count - len(some))
        parts: list[Part] = []
        for group, source in self._groups(some, lengths + len(work.prefix)):
            target = source + source // 2 + 16
            while len(group):  # few outgrow the first buffers; they are done again
                part, again = self._decode(group, source, target, work, progress)
                parts.append(part)
                group, target = group[again], 2 * target
        return _collect(parts, count, self.search.best)

    def _groups(self, some: Array, lengths: Array) -> Iterator[tuple[Array, int]]:
        """Sentences that share buffers, the longest first, and the room they need."""
        rest = some[np.argsort(-lengths[some], kind="stable")]
        shapes = SHAPES if self.fixed else (64, 256)
        while len(rest):
            longest = int(lengths[rest[0]])
            fitting = [shape for shape in shapes if shape >= longest]
            source = fitting[0] if fitting else 1 << (longest - 1).bit_length()
            lower = max((shape for shape in (0, *shapes) if shape < source), default=0)
            if not fitting:
                lower = max(lower, source // 2)
            count = int((lengths[rest] > lower).sum())
            yield rest[:count], source
            rest = rest[count:]

    def _decode(
        self,
        group: Array,
        source: int,
        target: int,
        work: Work,
        progress: Callable[[int], None] | None,
    ) -> tuple[Part, Array]:
        """Translate sentences of one shape; returns places of those that need more room."""
        prefix = len(self.model.target_prefix)
        most = int(work.limits[group].max())
        target = -(-min(target, most + prefix + 1) // 16) * 16
        room = target - prefix - 1  # a row that is complete still has a slot after its last
        queue = Queue(work, group, source, room, self.device)
        found: Found | None = None
        board = self._board(self._fit(len(group), source, target), source, target)
        playing = np.full(board.sentences, -1)  # the place in the group of each sentence
        began, seconds = np.zeros(len(group)), np.zeros(len(group))
        while True:
            free = np.flatnonzero(playing < 0)[: queue.left]
            busy = board.sentences - int((playing < 0).sum())
            # not one by one: a few sentences take as long to encode as many
            enough = len(free) == queue.left or 16 * len(free) >= board.sentences
            if len(free) and enough:
                playing[free] = queue.next(len(free), board, self._index(free))
                began[playing[free]] = time.perf_counter()
                busy += len(free)
            if not busy:
                break
            if not queue.left and busy <= self._small(board.sentences):
                board, playing = self._compact(board, playing, source, target)
            board.run(STEPS if self.fixed else 1, self.recorder)
            alive = board.tokens.alive.cpu().numpy()  # the host waits here, and nowhere else
            over = np.flatnonzero((playing >= 0) & ~alive)
            if len(over):
                part = board.tokens.found(self._index(over), board.buffers.positions)
                if found is None:
                    found = Found(*(one.new_zeros(len(group), *one.shape[1:]) for one in part))
                places = self._index(playing[over])
                for whole, one in zip(found, part, strict=True):
                    whole[places] = one
                seconds[playing[over]] = time.perf_counter() - began[playing[over]]
                playing[over] = -1
                if progress is not None:
                    progress(len(over))
        assert found is not None
        lengths, scores, complete = (one.cpu().numpy() for one in found[1:])
        longest = int(lengths.max())
        tokens = found.tokens[:, :, :longest].to(torch.int32).cpu().numpy()
        again = np.flatnonzero(~complete & (work.limits[group] > room))
        if progress is not None and len(again):
            progress(-len(again))
        return Part(group, tokens, lengths, scores, seconds), again

    def _fit(self, count: int, source: int, target: int) -> int:
        """Sentences side by side, of `count`: on a GPU a few numbers only, each a recording."""
        most = max(1, self.rows // self.search.rows)
        if not self.fixed:
            return min(count, most)
        most = max(1, min(most, most * SPREAD // (source + target)))
        while most // 4 >= max(count, FEWEST // self.search.rows):
            most //= 4
        return most

    def _small(self, sentences: int) -> int:
        """So few sentences that are left are moved together."""
        if not self.fixed:
            return 3 * sentences // 4
        return sentences // 4 if sentences // 4 >= FEWEST // self.search.rows else 0

    def _compact(
        self, board: Board, playing: Array, source: int, target: int
    ) -> tuple[Board, Array]:
        """The sentences that are left, on fewer rows."""
        left = np.flatnonzero(playing >= 0)
        count = board.sentences // 4 if self.fixed else len(left)
        smaller = self._board(count, source, target)
        smaller.take_over(board, self._index(left))
        return smaller, np.concatenate([playing[left], np.full(count - len(left), -1)])

    def _board(self, sentences: int, source: int, target: int) -> Board:
        shape = sentences, source, target
        if not self.fixed:
            return Board(self.model, self.search, *shape, self.fixed)
        if shape not in self.boards:
            self.boards[shape] = Board(self.model, self.search, *shape, self.fixed)
        board = self.boards[shape]
        board.tokens.alive.zero_()
        return board

    def _index(self, places: Array) -> Tensor:
        index = torch.from_numpy(places)
        if self.device.type == "cpu":
            return index
        return index.pin_memory().to(self.device, non_blocking=True)


@dataclass(frozen=True)
class Work:
    """Sentences to be translated."""

    sources: Ragged
    prefix: tuple[int, ...]  # before every source
    limits: Array
    numbers: Array


class Part(NamedTuple):
    """What was found for sentences of one shape."""

    group: Array  # [n] which ones they are
    tokens: Array  # [n, K, T]
    lengths: Array  # [n, K]
    scores: Array  # [n, K]
    seconds: Array  # [n]


def _collect(parts: list[Part], count: int, best: int) -> Generated:
    """All parts in the order of the sentences; a later part replaces an earlier one."""
    lengths = np.zeros((count, best), np.int64)
    scores, seconds = np.full((count, best), -np.inf), np.zeros(count)
    scores[:, 0], latest = 0.0, np.full(count, -1)
    for index, part in enumerate(parts):
        lengths[part.group] = np.where(part.scores > -np.inf, part.lengths, 0)
        scores[part.group] = part.scores
        seconds[part.group] += part.seconds
        latest[part.group] = index
    tokens = Ragged.empty(lengths.flatten())
    for index, part in enumerate(parts):
        valid = np.flatnonzero(latest[part.group] == index)
        rows = (part.group[valid, None] * best + np.arange(best)).flatten()
        tokens.put(rows, part.tokens[valid].reshape(len(rows), part.tokens.shape[2]))
    return Generated(tokens, scores, seconds)


class Queue:
    """The sentences of a group on the device, handed out from first to last."""

    def __init__(
        self, work: Work, group: Array, source: int, room: int, device: torch.device
    ) -> None:
        before = np.tile(np.array(work.prefix, np.int64), (len(group), 1))
        padded = work.sources.padded(group, source - len(work.prefix), EOS)
        lengths = work.sources.lengths[group] + len(work.prefix)
        limits = np.minimum(work.limits[group], room)
        arrays = np.concatenate([before, padded], 1), lengths, limits, work.numbers[group]
        self.sources, self.lengths, self.limits, self.numbers = (
            torch.from_numpy(array).to(device) for array in arrays
        )
        self.widths = lengths
        self.given = 0

    @property
    def left(self) -> int:
        return len(self.lengths) - self.given

    def next(self, count: int, board: Board, places: Tensor) -> Array:
        """Give the next sentences these places on a board; returns which ones they are."""
        first = self.given
        self.given += count
        step = max(1, TOGETHER // self.sources.shape[1])
        for start in range(first, self.given, step):
            part = slice(start, min(start + step, self.given))
            some = places[start - first : part.stop - first]
            width = self.sources.shape[1] if board.fixed else int(self.widths[part].max())
            board.buffers.read(self.sources[part, :width], self.lengths[part], some)
            board.tokens.begin(some, self.limits[part], self.numbers[part])
            board.width = max(board.width, width)
        return np.arange(first, self.given)
