"""Batches by token budget: length-bucketed, few shapes, shuffled by seed and epoch, resumable.

The batches of all epochs form one stream; process r of w takes numbers r, r + w, r + 2w, ...
so all of them get equally many, no pair is dropped or doubled, and a place in the stream means
the same whatever the number of processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simultan.config import ConfigError, DataConfig
from simultan.data.prefixes import Prefixes
from simultan.data.shapes import Shapes, choose_shapes
from simultan.data.shards import Corpus

Ints = NDArray[Any]
Place = tuple[int, int]  # in the stream: the epoch, and the number of its next batch (of all)


class Batch(NamedTuple):
    """Padded pairs; both sides end in end-of-sequence, which the lengths count."""

    source: Tensor  # [B, S] int64
    source_lengths: Tensor  # [B] int64
    target: Tensor  # [B, T] int64
    target_lengths: Tensor  # [B] int64

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        """The batch on another device; from pinned memory the copy does not wait."""
        return Batch(*(tensor.to(device, non_blocking=non_blocking) for tensor in self))

    def pin_memory(self) -> Batch:
        return Batch(*(tensor.pin_memory() for tensor in self))


@dataclass(frozen=True)
class Epoch:
    """The batches of one epoch: shape and pairs of each."""

    number: int
    batches: list[tuple[int, Ints]]
    source_lengths: Ints  # of every pair of the corpus
    target_lengths: Ints


class Batches:
    """The batches of a corpus for one process, for ever or for a number of epochs.

    Iterating continues where the last iteration stopped. `state()` is the place after the last
    batch that was handed out, the same on every process at the same step, and `resume(state)`
    returns to it. A pair of a source with weight 2.5 is seen twice an epoch, and half of them,
    drawn anew each epoch, thrice. A full batch has one of at most `data.shapes` shapes; the pairs
    that do not fill a batch move on to the next larger shape, so that only the last batch of
    an epoch has fewer rows.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: DataConfig,
        *,
        seed: int = 1,
        rank: int = 0,
        world: int = 1,
        epochs: int | None = None,
        prefetch: int = 16,
        prefixes: Prefixes | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"process {rank} of {world}")
        self.corpus, self.seed, self.rank, self.world = corpus, seed, rank, world
        self.epochs, self._prefetch, self.prefixes = epochs, prefetch, prefixes
        step = max(1, min(config.length_step, config.batch_tokens))
        self._longest = min(config.max_length, config.batch_tokens // step * step)
        self._place: Place = (0, 0)
        self._plan: Epoch | None = None
        source, target = corpus.source.lengths(), corpus.target.lengths()
        fits = np.maximum(source, target) <= self._longest
        if not fits.any():
            raise ConfigError(
                f"{corpus.folder}: no {corpus.split} pair has at most {self._longest} tokens a"
                " side; raise data.max_length or data.batch_tokens"
            )
        self.left_out = int((~fits).sum())  # pairs that are too long
        source, target = source[fits], target[fits]
        # Many batches to a shape, or most of them would be incomplete.
        full = np.maximum(source, target).sum() / config.batch_tokens
        tops = self._longest, self._longest
        if not (corpus.source.varies or corpus.target.varies):
            tops = int(source.max()), int(target.max())
        limit = int(min(config.shapes, max(1, full // 4)))
        self.shapes: Shapes = choose_shapes(source, target, config.batch_tokens, step, limit, tops)

    def describe_left_out(self) -> str:
        """One line about the pairs that are too long; empty if there are none."""
        if not self.left_out:
            return ""
        pairs = len(self.corpus.source)
        return (
            f"{self.left_out:,} of {pairs:,} pairs ({self.left_out / pairs:.1%}) are left out: a"
            f" side has more than {self._longest} tokens (data.max_length)"
        )

    # -- the order of things

    def plan(self, number: int) -> Epoch:
        """All batches of an epoch, those of the other processes too."""
        known = self._plan  # the prefetching thread may replace it at any time
        if known is not None and known.number == number:
            return known
        random = np.random.default_rng([self.seed, number, 0x5151])
        source = self.corpus.source.lengths(number)
        target = self.corpus.target.lengths(number)
        pairs = self._draw(random)
        pairs = pairs[np.maximum(source[pairs], target[pairs]) <= self._longest]
        pairs = random.permutation(pairs)
        shape = self.shapes.of(source[pairs], target[pairs])
        pairs = pairs[np.argsort(shape, kind="stable")]
        ends = np.cumsum(np.bincount(shape, minlength=len(self.shapes)))
        batches: list[tuple[int, Ints]] = []
        moved: list[list[Ints]] = [[] for _ in range(len(self.shapes))]
        for index, end in enumerate(ends):
            own = pairs[ends[index - 1] if index else 0 : end]
            waiting = np.concatenate([*moved[index], own])  # those that moved here go first
            rows, last = int(self.shapes.rows[index]), self.shapes.overflow[index] < 0
            stop = len(waiting) if last else len(waiting) - len(waiting) % rows
            batches += [(index, waiting[i : i + rows]) for i in range(0, stop, rows)]
            if stop < len(waiting):
                moved[self.shapes.overflow[index]].append(waiting[stop:])
        if self.epochs is not None:
            _even(batches, self.world)
        batches = [batches[i] for i in random.permutation(len(batches))]
        made = Epoch(number, batches, source, target)
        self._plan = made
        return made

    def _draw(self, random: np.random.Generator) -> Ints:
        """The pairs of an epoch, each as often as its source's weight says."""
        drawn, first = [], 0
        for count, weight in self.corpus.weights:
            own = np.arange(first, first + count)
            whole = int(weight)
            drawn += [own] * whole
            part = round((weight - whole) * count)
            if part:
                drawn.append(np.sort(random.permutation(own)[:part]))
            first += count
        return np.concatenate(drawn)

    # -- places

    def state(self) -> dict[str, int]:
        return dict(zip(("epoch", "batch"), self._place, strict=True))

    def resume(self, state: dict[str, int]) -> None:
        self._place = state["epoch"], state["batch"]

    def __len__(self) -> int:
        """Batches of all processes in the current epoch."""
        return len(self.plan(self._place[0]).batches)

    # -- the stream

    def __iter__(self) -> Iterator[Batch]:
        produced = self._produce(self._place)
        stream = _prefetched(produced, self._prefetch) if self._prefetch else produced
        for batch, place in stream:
            self._place = place
            yield batch

    def _produce(self, place: Place) -> Iterator[tuple[Batch, Place]]:
        epoch, number = place
        pin = torch.cuda.is_available()
        while self.epochs is None or epoch < self.epochs:
            plan = self.plan(epoch)
            if number >= len(plan.batches):
                epoch, number = epoch + 1, number - len(plan.batches)
                continue
            # This step begins at `number`; this process's part of it may lie in the next epoch.
            own, mine = plan, number + self.rank
            while mine >= len(own.batches):
                mine -= len(own.batches)
                own = self.plan(own.number + 1)
            batch = self.assemble(own, mine)
            number += self.world
            yield (batch.pin_memory() if pin else batch), (epoch, number)

    def assemble(self, epoch: Epoch, number: int) -> Batch:
        """One batch of an epoch, as tensors."""
        shape, pairs = epoch.batches[number]
        source_lengths, target_lengths = epoch.source_lengths[pairs], epoch.target_lengths[pairs]
        width = int(self.shapes.source[shape]), int(self.shapes.target[shape])
        parts = (
            self.corpus.source.rows(pairs, width[0], epoch.number),
            source_lengths,
            self.corpus.target.rows(pairs, width[1], epoch.number),
            target_lengths,
        )
        if self.prefixes is not None and self.prefixes.share:
            random = np.random.default_rng([self.seed, epoch.number, number, 0x9E37])
            parts = self.prefixes.cut(*parts, random)
        return Batch(*map(torch.from_numpy, parts))


def _even(batches: list[tuple[int, Ints]], world: int) -> None:
    """Halve the largest batches until every process gets equally many."""
    while len(batches) % world:
        largest = max(range(len(batches)), key=lambda i: len(batches[i][1]))
        shape, pairs = batches[largest]
        if len(pairs) < 2:
            raise ValueError(f"{len(batches)} pairs cannot be shared among {world} processes")
        half = len(pairs) // 2
        batches[largest : largest + 1] = [(shape, pairs[:half]), (shape, pairs[half:])]


def _prefetched(items: Iterator[tuple[Batch, Place]], depth: int) -> Iterator[tuple[Batch, Place]]:
    """The same items, made ahead of time in a thread; its errors are raised here."""
    thread = ThreadPoolExecutor(1, "batches")
    try:
        waiting = deque(thread.submit(next, items, None) for _ in range(depth))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
