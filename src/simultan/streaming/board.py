"""Sentences that are decoded side by side: one step of all of them, as a CUDA graph or not."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simultan.model import TranslationModel
from simultan.model.buffers import Buffers
from simultan.streaming.search import Beams, Pick, Search, Tokens

WARM = 24  # steps before one is recorded: few sentences are done sooner without


class Board:
    """Buffers of one shape, what is written there, and a step of it, recorded or not."""

    def __init__(
        self,
        model: TranslationModel,
        search: Search,
        sentences: int,
        source: int,
        target: int,
        fixed: bool,
    ) -> None:
        self.sentences, self.source, self.target = sentences, source, target
        self.buffers = Buffers(model, sentences, search.rows, source, target)
        weight = model.output.weight
        prefix = torch.tensor(model.target_prefix, dtype=torch.long, device=weight.device)
        self.tokens: Tokens = (
            Beams(sentences, target, prefix, search)
            if search.beam
            else Pick(sentences, target, prefix, search.sampling)
        )
        self.fixed = fixed  # a step always looks at all slots
        self.width = 0  # source tokens that a step looks at
        self.steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, steps: int, recorder: Recorder | None) -> None:
        """Every sentence that is not complete gets so many tokens more."""
        if recorder is not None and self.graph is None and self.steps >= WARM:
            self.graph = recorder.try_record(self.step)
        for _ in range(steps):
            if self.graph is None:
                self.step()
            else:
                self.graph.replay()
        self.steps += steps

    def step(self) -> None:
        """One token; nothing in here waits for a GPU."""
        buffers, tokens = self.buffers, self.tokens
        source, target = self.source, self.target
        if not self.fixed:
            source, target = self.width, int(buffers.positions.max()) + 1
        logits = buffers.step(tokens.last.flatten(), source, target)
        parents = tokens.choose(logits, buffers.positions)
        if parents is not None:
            buffers.reorder(parents)

    def take_over(self, other: Board, places: Tensor) -> None:
        self.buffers.take_over(other.buffers, places)
        self.tokens.take_over(other.tokens, places)
        self.width = self.source if self.fixed else int(self.buffers.lengths.max())


@dataclass
class Recorder:
    """Records steps, or updates of training, as CUDA graphs.

    All share memory, since they never run together, and one stream, since the allocator gives no
    stream what another one has freed.
    """

    stream: torch.cuda.Stream = field(default_factory=torch.cuda.Stream)
    first: torch.cuda.CUDAGraph | None = None
    works: bool = True

    def try_record(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """A recording; None: this machine makes none, and steps are done one by one."""
        try:
            return self.record(step) if self.works else None
        except RuntimeError as error:
            self.works = False
            warnings.warn(f"steps cannot be recorded, which is slower: {error}", stacklevel=2)
            return None

    def record(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), self.stream
        stream.wait_stream(torch.cuda.current_stream())
        gc.disable()  # a collection in between could free what must not be freed now
        try:
            with torch.cuda.stream(stream):
                # thread_local: the thread that prefetches batches may pin memory meanwhile. And
                # not torch.cuda.graph(), which empties the allocator's cache for each shape.
                if self.first is None:
                    graph.capture_begin(capture_error_mode="thread_local")
                else:
                    graph.capture_begin(pool=self.first.pool(), capture_error_mode="thread_local")
                try:
                    step()
                except BaseException:
                    with contextlib.suppress(RuntimeError):
                        graph.capture_end()  # else nothing could run in this process any more
                    raise
                graph.capture_end()
        finally:
            gc.enable()
        torch.cuda.current_stream().wait_stream(stream)
        self.first = self.first or graph
        return graph
