"""What both architectures share: the policy, in training and as Algorithm 1 over streams.

A step blocked at a layer keeps its place: heads that have stopped stay stopped, and the next
source word costs a scan of its keys, not another pass through the decoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from simultan.config import Config, ConfigError
from simultan.data.batching import Batch
from simultan.model.attention import MonotonicAttention
from simultan.model.maps import Make, Map, Mapped, Plain, maker
from simultan.model.policy import (
    NO_CHANCE,
    Chance,
    energy_limit,
    fixed_stops,
    lookback_start,
    policy_of,
    scan,
)
from simultan.model.state import Cache, DecoderState, EncoderState, State, Step

MANY = 256  # source tokens read at once: their projections are best kept one at a time
KEYS = 8  # source tokens a head looks at in one go, on a CPU
WORD = 8  # source tokens of a row that may be rows of their own


@dataclass(frozen=True)
class ModelOutput:
    """What the losses need; logits = model.project(hidden)."""

    hidden: Tensor  # [B, T, D]
    delays: Tensor | None  # [B, L, H, T] expected source tokens read, from 1; None: not learned


@dataclass(frozen=True)
class Scanning:
    """What all layers need to know of the rows whose heads scan."""

    rows: list[int]
    every: slice | list[int]  # the same, to index by
    base: Tensor  # [R, 1] the position of the first key at hand
    available: Tensor  # [R, 1] keys at hand
    end: Tensor  # [R, 1] the last one, if it ends the source; else -1
    limit: Tensor  # [R, 1] energies that stop exceed it
    floor: Tensor  # [R, 1]
    length: int  # the most keys of a row
    all_finished: bool


def scanning(rows: list[int], limit: dict[int, float], state: DecoderState) -> Scanning:
    """These rows, as they are now; limit of their energies."""
    assert state.selection is not None
    device = state.hidden.device
    base = [state.selection.base[row] for row in rows]
    available = [state.available[row] - first for row, first in zip(rows, base, strict=True)]
    finished = [state.finished[row] for row in rows]
    end = [count - 1 if done else -1 for count, done in zip(available, finished, strict=True)]

    def column(values: list[int] | list[float]) -> Tensor:
        return torch.tensor(values, device=device)[:, None]

    return Scanning(
        rows,
        slice(None) if rows == state.selection.all_rows else rows,
        column(base),
        column(available),
        column(end),
        column([limit[row] for row in rows]),
        column([state.floor[row] for row in rows]),
        max(available),
        all(finished),
    )


class TranslationModel(nn.Module, Mapped, ABC):
    """forward() for training; initial_state(), extend(), step() and commit() for streams."""

    splits_words = False  # whether tokens of one row can be encoded as rows of their own
    lags: Tensor  # the policy's, on the model's device
    output: nn.Linear
    output_map: Map
    source_map: Map  # what the decoder keeps of an encoded token: all layers, then selection keys

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
        return self.output(hidden) if hidden.dim() > 2 else self.output_map(hidden)

    def lay_out(self, make: Make) -> None:
        """Called once by an architecture, when it is built, and by prepare_inference()."""
        attentions = self.cross_attentions()
        keys = [a.select_key for a in attentions if a.selecting_heads]
        source = [linear for attention in attentions for linear in attention.source_linears()]
        self.output_map, self.source_map = make(self.output), make(*source, *keys)

    def prepare_inference(self, quantize: str | None = None) -> Self:
        """Lay the weights out for streams, "int8" rounds them: much faster on a CPU.

        The layouts are copies: weights that change later are not seen, train() drops them.
        """
        self._lay_out_all(maker(self.output.weight, quantize))
        return self

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._lay_out_all(Plain)
        return super().train(mode)

    def _lay_out_all(self, make: Make) -> None:
        for module in self.modules():
            if isinstance(module, Mapped):
                module.lay_out(make)

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
        if not self.training or not self.policy.learned:
            return NO_CHANCE
        rows, device = len(batch.source), batch.source.device
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
    def encoder_state(self, rows: int) -> EncoderState: ...

    @abstractmethod
    def prepare_target(self, rows: int, state: DecoderState) -> None: ...

    @abstractmethod
    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: Sequence[int],
        starts: Sequence[int],
        state: EncoderState,
        last: bool,
    ) -> Tensor:
        """New source tokens [R, C], counts[r] of them real -> their encodings [R, C, D].

        Row r goes on at its position starts[r]. `last`: no row has any more to come.
        """

    @abstractmethod
    def begin(self, tokens: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        """The last written tokens [R] -> the first layer's input [R, D]."""

    @abstractmethod
    def before_source(self, index: int, x: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        """The part of a layer that looks at the target's past."""

    @abstractmethod
    def source_query(self, index: int, x: Tensor, state: DecoderState) -> Tensor: ...

    @abstractmethod
    def after_source(
        self, index: int, x: Tensor, context: Tensor, state: DecoderState
    ) -> Tensor: ...

    @abstractmethod
    def end(self, x: Tensor) -> Tensor: ...

    # --- streams ---

    def initial_state(self, rows: int) -> State:
        """Nothing read, nothing written."""
        attentions = self.cross_attentions()
        weight = self.output.weight
        size = weight.shape[1] // attentions[0].heads
        selecting = [a.selecting_heads for a in attentions if a.selecting_heads]
        heads, layers = (selecting[0], len(selecting)) if selecting else (1, 1)
        kinds = 2 if attentions[0].soft else 1
        asked = attentions[0].select_width + (weight.shape[1] if attentions[0].soft else 0)
        selection = Cache(layers, 1, rows, heads, size, weight) if selecting else None
        source = Cache(len(attentions), kinds, rows, attentions[0].heads, size, weight)
        device = weight.device
        decoder = DecoderState(
            source=source,
            selection=selection,
            lags=[self.policy.lags[0] if self.policy.lags else 0] * rows,
            stops=[-1] * rows,
            available=[0] * rows,
            finished=[False] * rows,
            length=[0] * rows,
            positions=torch.zeros(rows, layers, heads, dtype=torch.long, device=device),
            floor=[0] * rows,
            layer=[-1] * rows,
            hidden=weight.new_zeros(rows, weight.shape[1]),
            query=weight.new_zeros(rows, asked),
            stopped=torch.zeros(rows, heads, dtype=torch.bool, device=device),
            nothing=weight.new_zeros(0, len(weight)),
            trial=torch.zeros(rows, layers, heads, dtype=torch.long, device=device),
        )
        self.prepare_target(rows, decoder)
        return State(self.encoder_state(rows), decoder, self.policy.lookback)

    def reset(self, row: int, state: State) -> None:
        state.reset(row)

    def extend(
        self,
        tokens: Tensor,
        state: State,
        rows: Sequence[int],
        counts: Sequence[int],
        finished: Sequence[bool],
    ) -> None:
        """Read counts[r] new tokens of row r, tokens [R, C]; `finished`: the last is the end."""
        encoder, decoder = state.encoder, state.decoder
        starts = [decoder.available[row] for row in rows]
        for row, count, last in zip(rows, counts, finished, strict=True):
            encoder.length[row] += count
            decoder.available[row] += count
            decoder.finished[row] = last
        width = tokens.shape[1] if self.splits_words and tokens.device.type == "cpu" else 1
        if 1 < width <= WORD and len(rows) > 1 and 4 * sum(counts) <= 3 * len(rows) * width:
            # words of one token, and a few longer ones: no padding, each token is a row
            real = torch.arange(width) < torch.tensor(counts)[:, None]
            tokens = tokens[real][:, None]
            starts = [s + i for s, n in zip(starts, counts, strict=True) for i in range(n)]
            rows = [row for row, n in zip(rows, counts, strict=True) for _ in range(n)]
            counts = [1] * len(rows)
        memory = self.encode_more(tokens, counts, rows, starts, encoder, all(finished))
        caches = [c for c in (decoder.source, decoder.selection) if c is not None]
        for cache in caches:
            cache.reserve(
                rows, [s + tokens.shape[1] for s in starts], lambda row: self.needed(row, decoder)
            )
        if memory[..., 0].numel() < MANY:
            new = self.source_map(memory.flatten(0, 1)).view(*memory.shape[:2], -1)
            for cache in caches:
                width = cache.token_size
                cache.write_layers(rows, starts, new[..., :width])
                new = new[..., width:]
        else:
            parts = self.source_map.parts(memory.flatten(0, 1))
            for cache in caches:
                cache.write_parts(rows, starts, parts)

    def needed(self, row: int, state: DecoderState) -> int:
        """The first source token a head may still look at: what lies before it can be dropped."""
        first = max(int(state.positions[row].min()), state.floor[row])
        return lookback_start(first, self.policy.lookback)

    def step(
        self,
        tokens: Sequence[int],
        state: State,
        rows: Sequence[int],
        threshold: Sequence[float],
        *,
        attention: bool = False,
    ) -> Step:
        """Take rows on by one target token, each as far as its heads let it come.

        tokens[r] is the last token written in row rows[r]. Rows in the result have decided to
        write; the others wait for source. Nothing is committed. `attention`, for fixed
        policies: the result has the weights over the source.
        """
        if attention and self.policy.learned:
            raise ValueError(f"attention: not of a model whose policy, {self.policy.name}, learns")
        decoder = state.decoder
        device = decoder.hidden.device
        last = dict(zip(rows, tokens, strict=True))
        limit = {r: energy_limit(t, self.spread) for r, t in zip(rows, threshold, strict=True)}
        x = decoder.hidden[:0]
        coming = [r for r in rows if decoder.layer[r] < 0 and decoder.available[r]]
        if not self.policy.learned:
            coming = [row for row in coming if self.place_fixed(row, decoder)]
        if coming:
            x = self.begin(torch.tensor([last[r] for r in coming], device=device), coming, decoder)
        asked, scanned = decoder.query[:0], None
        at_end = self.layers_at_end(rows, decoder)
        weights: list[Tensor] = []
        for index, cross in enumerate(self.cross_attentions()):
            select = cross.selecting_heads > 0 and not at_end[index]
            if coming:
                x = self.before_source(index, x, coming, decoder)
                asked = cross.ask(self.source_query(index, x, decoder), select)
            if select:
                resumed = [row for row in rows if decoder.layer[row] == index]
                if resumed:
                    x = torch.cat([x, decoder.hidden[resumed]])
                    waiting = decoder.query[resumed]
                    asked = torch.cat([asked, waiting]) if coming else waiting
                if coming or resumed:
                    if scanned is None or scanned.rows != coming + resumed:
                        scanned = scanning(coming + resumed, limit, decoder)
                    kept = self.select(index, cross, x, asked, coming, scanned, decoder)
                    coming = scanned.rows
                    if len(kept) < len(coming):
                        coming, x, asked = [coming[i] for i in kept], x[kept], asked[kept]
            if not coming:
                continue
            every = slice(None) if coming == decoder.source.all_rows else coming
            stops = decoder.trial[every, index if self.policy.every_head else 0]
            before = [decoder.source.base[row] for row in coming]
            if any(before):
                stops = stops - torch.tensor(before, device=device)[:, None]
            if device.type == "cpu":
                length = int(stops.max()) + 1
            else:  # it would have to wait for the answer
                length = max(decoder.available[r] - b for r, b in zip(coming, before, strict=True))
            source = decoder.source.read(index, coming, length)
            if attention:
                weights.append(cross.weights(asked, source, stops))
            context = cross.step(asked, source, stops)
            x = self.after_source(index, x, context, decoder)
            decoder.evaluations += len(coming)
        positions = decoder.trial[coming]
        if not coming:
            return Step([], decoder.nothing, x, positions)
        x = self.end(x)
        seen = torch.stack(weights, 1) if attention else None
        return Step(list(coming), self.project(x), x, positions, seen)

    def layers_at_end(self, rows: Sequence[int], state: DecoderState) -> list[bool]:
        """Selecting layers all of whose heads stand on the last token: they have stopped."""
        layers = state.positions.shape[1]
        if state.selection is None or state.positions.is_cuda:  # a GPU would have to answer first
            return [False] * layers
        if not rows or not all(state.finished[row] and state.layer[row] < 0 for row in rows):
            return [False] * layers
        every = slice(None) if rows == state.selection.all_rows else list(rows)
        known = torch.tensor([[state.floor[row], state.available[row] - 1] for row in rows])
        at = torch.maximum(state.positions[every], known[:, :1, None])
        found: list[bool] = (at >= known[:, 1:, None]).all(2).all(0).tolist()
        if any(found):
            state.trial[every] = at
        return found

    def place_fixed(self, row: int, state: DecoderState) -> bool:
        """Stop where the fixed lag says; False: that token has not come yet."""
        lag, available = state.lags[row], state.available[row]
        stop = max(int(state.positions[row, 0, 0]), state.floor[row])
        stop = max(stop, state.length[row] + lag - 1) if lag else available
        if state.stops[row] >= 0:
            stop = state.stops[row]
        if state.finished[row]:
            stop = min(stop, available - 1)
        if stop >= available:
            return False
        state.trial[row] = stop
        return True

    def select(
        self,
        index: int,
        attention: MonotonicAttention,
        x: Tensor,
        asked: Tensor,
        coming: list[int],
        scanned: Scanning,
        state: DecoderState,
    ) -> list[int]:
        """Scan for stops in one layer; which of the rows, by place, have all heads stopped.

        The first of scanned.rows are those that have just come, the others have waited here.
        """
        rows, every = scanned.rows, scanned.every
        if coming == rows:
            state.trial[every, index] = torch.maximum(state.positions[every, index], scanned.floor)
            state.stopped[every] = False
        elif coming:
            fresh = torch.maximum(state.positions[coming, index], scanned.floor[: len(coming)])
            state.trial[coming, index], state.stopped[coming] = fresh, False
        stopped = self.scan_keys(index, attention, asked, scanned, state, coming == rows)
        if scanned.all_finished:  # then every head has stopped: no need to look
            for row in rows[len(coming) :]:
                state.layer[row] = -1
            return list(range(len(rows)))
        passed = stopped.all(-1).tolist()
        state.stopped[every], state.hidden[every], state.query[every] = stopped, x, asked
        for row, through in zip(rows, passed, strict=True):
            state.layer[row] = -1 if through else index
        return [i for i, through in enumerate(passed) if through]

    def scan_keys(
        self,
        index: int,
        attention: MonotonicAttention,
        asked: Tensor,
        scanned: Scanning,
        state: DecoderState,
        fresh: bool,
    ) -> Tensor:
        """Move the heads of one layer; which of them have stopped [R, H]; fresh: none had."""
        assert state.selection is not None
        every, length = scanned.every, scanned.length
        position = first = state.trial[every, index] - scanned.base
        stopped = state.stopped[every]
        query, selection = attention.selection(asked), state.selection
        if asked.device.type != "cpu":  # a GPU reads all keys at once
            keys = selection.read(index, scanned.rows, length)[0]
            begin = torch.zeros_like(scanned.base)
            energy = attention.energy(query, keys)[:, :, 0]
            at, found = scan(energy, begin, first, scanned.available, scanned.end, scanned.limit)
            state.trial[every, index] = torch.where(stopped, position, at) + scanned.base
            return stopped | found
        # a CPU looks a few keys ahead of where each row's heads are, where most of them stop
        start = (first if fresh else torch.where(stopped, scanned.available, first)).amin(1)
        low, high = (int(bound) for bound in start.aminmax())
        together = high - low < KEYS  # they look at the same keys, which need no copy
        stride = KEYS + high - low if together else KEYS
        length = scanned.length - low if together else int((scanned.available[:, 0] - start).max())
        for offset in range(0, length, stride):
            count = min(stride, length - offset)
            begin = start.new_tensor([low]) if together else start
            begin = (begin + offset).clamp_(max=selection.capacity - count)[:, None]
            keys = selection.windows(index, scanned.rows, begin, count)[0]
            energy = attention.energy(query, keys)[:, :, 0]
            at, found = scan(energy, begin, first, scanned.available, scanned.end, scanned.limit)
            if fresh and not offset:
                position, stopped = at, found
            else:
                position, stopped = torch.where(stopped, position, at), stopped | found
            if offset + count < length and bool(stopped.all()):
                break
        state.trial[every, index] = position + scanned.base
        return stopped

    def commit(self, rows: Sequence[int], state: State) -> None:
        state.commit(rows)
