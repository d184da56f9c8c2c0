"""What both architectures share: the policy, in training and in streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from simultan.config import Config, ConfigError
from simultan.data.batching import Batch
from simultan.model import algorithm1, kernels
from simultan.model.attention import MonotonicAttention, SelfAttention
from simultan.model.cache import Cache, Span
from simultan.model.linear import Joint, Linear, Tiled, choose_layout, lay_out
from simultan.model.policy import NO_CHANCE, Chance, fixed_stops, policy_of
from simultan.model.state import Memory, State

MANY = 256  # source tokens read at once: their projections are best kept one at a time
WORD = 8  # source tokens of a row that may be rows of their own


@dataclass(frozen=True)
class ModelOutput:
    """What the losses need; logits = model.project(hidden)."""

    hidden: Tensor  # [B, T, D]
    delays: Tensor | None  # [B, L, H, T] expected source tokens read, from 1; None: not learned
    hard: Tensor | None = None  # [B] rows whose heads stopped as in a stream; None: no row
    shift: Tensor | None = None  # [B] of the energies, as if for another threshold; None: none


class TranslationModel(nn.Module, ABC):
    """forward() for training; initial_state(), extend() and step() for streams."""

    splits_words = False  # whether tokens of one row can be encoded as rows of their own
    compiled = False  # whether streams call kernels.c
    decided = False  # outside of training: heads of whole sentences stop as those of streams do
    bidirectional = False  # whether the encoder must read a sentence as a whole
    source_prefix: tuple[int, ...] = ()  # tokens before every source, and before
    target_prefix: tuple[int, ...] = ()  # every target
    lags: Tensor  # the policy's, on the model's device
    output: Linear
    source_keys: Joint  # what the decoder keeps of an encoded token: all layers, then selection

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.policy = policy_of(config)
        lags = torch.tensor(self.policy.lags, dtype=torch.long)
        self.register_buffer("lags", lags, persistent=False)  # a copy for each batch would wait
        self.window = config.model.window
        self.hard, self.spread = config.policy.hard, config.policy.spread

    def tie(self, which: str, source: nn.Embedding, target: nn.Embedding) -> None:
        """Make embeddings and output one matrix, as configured."""
        if which in ("target", "all"):
            self.output.weight = target.weight
        if which == "all":
            if source.num_embeddings != target.num_embeddings:
                raise ConfigError(
                    f'model.tie = "all" needs one vocabulary for both sides; they have'
                    f" {source.num_embeddings} and {target.num_embeddings} entries"
                )
            source.weight = target.weight

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states to logits."""
        logits: Tensor = self.output(hidden)
        return logits

    def join_source_keys(self) -> None:
        """Called once by an architecture, when it is built."""
        attentions = self.cross_attentions()
        kept = [linear for attention in attentions for linear in attention.source_linears()]
        self.source_keys = Joint(*kept, *(a.select_key for a in attentions if a.selecting_heads))

    def prepare_inference(self, quantize: str | None = None) -> Self:
        """Lay the weights out for streams, "int8" rounds them: much faster on a CPU.

        The layouts are copies: weights that change later are not seen, train() drops them.
        """
        lay_out(self, choose_layout(self.output.weight, quantize))
        self.compiled = isinstance(self.output.layout, Tiled)
        self._set_exact(quantize == "int8", self.compiled)
        for module in self.modules():  # found at once, not by __getattr__
            module.__dict__.update(module._modules)
            module.__dict__.update(module._parameters)
        return self

    def train(self, mode: bool = True) -> Self:
        if mode:
            lay_out(self, None)
            self.compiled = False
            self._set_exact(False, False)
            for module in self.modules():
                for name in [*module._modules, *module._parameters]:
                    module.__dict__.pop(name, None)
        return super().train(mode)

    def _set_exact(self, exact: bool, compiled: bool) -> None:
        """Rounding would make large differences of small ones between one row and many."""
        for module in self.modules():
            if isinstance(module, SelfAttention | MonotonicAttention):
                module.exact, module.compiled = exact, compiled

    @abstractmethod
    def forward(self, batch: Batch) -> ModelOutput: ...

    @abstractmethod
    def repeated_parts(self) -> list[nn.Module]:
        """Modules worth compiling: layers are alike, so that one compilation serves them all."""

    @abstractmethod
    def cross_attentions(self) -> list[MonotonicAttention]:
        """The attentions over the source, in the order a step passes them."""

    def fixed_stops(self, batch: Batch) -> Tensor | None:
        """Where target tokens stop under a fixed policy [B, T or 1]; None: it is learned."""
        if self.policy.learned:
            return None
        count, lag = len(self.lags), None
        target = batch.target.shape[1] if count else 1  # offline: the same for every target token
        if count:
            lag = self.lags[0]
            if count > 1 and self.training:
                # A list of one index: a single one would be read on the host, which waits for it.
                lag = self.lags[torch.randint(count, (1,), device=self.lags.device)][0]
        return fixed_stops(target, batch.source_lengths, lag)

    def chance(self, batch: Batch) -> Chance:
        """Drawn for a batch in training."""
        rows, device = len(batch.source), batch.source.device
        if self.decided and not self.training:
            return Chance(hard=torch.ones(rows, dtype=torch.bool, device=device))
        if not self.training or not self.policy.learned:
            return NO_CHANCE
        hard = torch.rand(rows, device=device) < self.hard if self.hard else None
        shift = (2 * torch.rand(rows, device=device) - 1) * self.spread if self.spread else None
        return Chance(hard, shift)

    @staticmethod
    def expected_delays(alphas: list[Tensor]) -> Tensor | None:
        """g_i = sum_j j alpha_ij for each layer and head [B, L, H, T]."""
        if not alphas:
            return None
        positions = torch.arange(1, alphas[0].shape[-1] + 1, device=alphas[0].device)
        return torch.stack([(alpha * positions).sum(-1) for alpha in alphas], 1)

    # --- what an architecture adds to a stream ---

    @abstractmethod
    def memory(self, rows: int) -> Memory: ...

    @abstractmethod
    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: list[int],
        starts: list[int],
        state: State,
    ) -> Tensor:
        """New source tokens [R, C], counts[r] of them real, from positions starts[r] on ->
        their encodings [R, C, D]. A row may be there twice, one token after the other."""

    @abstractmethod
    def begin(self, tokens: list[int], rows: list[int], state: State) -> Tensor:
        """The last written tokens -> the first layer's input [R, D]."""

    @abstractmethod
    def look_back(self, layer: int, x: Tensor, rows: list[int], state: State) -> Tensor:
        """The part of a decoder layer that looks at the target's past, x [R, D]."""

    @abstractmethod
    def queries(self, layer: int, x: Tensor) -> Tensor:
        """Those of a layer's attention over the source."""

    @abstractmethod
    def look_at(self, layer: int, x: Tensor, found: Tensor) -> Tensor:
        """The rest of the layer, with what that attention has found."""

    @abstractmethod
    def end(self, x: Tensor) -> Tensor:
        """The last layer's output -> what logits are made from."""

    # --- streams ---

    def initial_state(self, rows: int) -> State:
        """Nothing read, nothing written."""
        attentions = self.cross_attentions()
        weight = self.output.weight.detach()
        heads = attentions[0].heads
        size = weight.shape[1] // heads
        selecting = [a.selecting_heads for a in attentions if a.selecting_heads]
        selection = None
        if selecting:
            selection = Cache(len(selecting), 1, rows, selecting[0], size, weight)
        return State(
            memory=self.memory(rows),
            source=Cache(
                len(attentions), len(attentions[0].source_linears()), rows, heads, size, weight
            ),
            selection=selection,
            layers=len(selecting) or 1,
            heads=selecting[0] if selecting else 1,
            lags=[self.policy.lags[0] if self.policy.lags else 0] * rows,
            lookback=self.policy.lookback,
            rows=rows,
        )

    def extend(
        self,
        tokens: Tensor,
        state: State,
        rows: Sequence[int],
        counts: Sequence[int],
        finished: Sequence[bool],
    ) -> None:
        """Read counts[r] new tokens of row r, tokens [R, C]; `finished`: the last is the end."""
        starts = [state.available[row] for row in rows]
        for row, count, last in zip(rows, counts, finished, strict=True):
            state.available[row] += count
            state.finished[row] = last
        width = tokens.shape[1] if self.splits_words and tokens.device.type == "cpu" else 1
        if 1 < width <= WORD and len(rows) > 1 and 4 * sum(counts) <= 3 * len(rows) * width:
            # words of one token, and a few longer ones: no padding, each token is a row
            real = torch.arange(width) < torch.tensor(counts)[:, None]
            tokens = tokens[real][:, None]
            starts = [s + i for s, n in zip(starts, counts, strict=True) for i in range(n)]
            rows = [row for row, n in zip(rows, counts, strict=True) for _ in range(n)]
            counts = [1] * len(rows)
        rows, count = list(rows), tokens.shape[1]
        memory = self.encode_more(tokens, counts, rows, starts, state)
        spans = []
        for cache in state.source_caches:
            cache.reserve(rows, [start + count for start in starts], state.needed)
            spans.append(Span(cache, rows, starts, count))
        sizes = [cache.sizes for cache in state.source_caches]
        if memory[..., 0].numel() >= MANY:
            outputs = self.source_keys.each(memory)
        else:
            together = self.source_keys.forward(memory)
            if self.compiled:
                parts = together.flatten(0, 1).split([sum(some) for some in sizes], -1)
                for span, part in zip(spans, parts, strict=True):
                    kernels.append(part, span.cache.layers, span.reach)
                return
            outputs = iter(together.split([size for some in sizes for size in some], -1))
        for span in spans:
            span.cache.write_layers(span, outputs)

    step = algorithm1.step
