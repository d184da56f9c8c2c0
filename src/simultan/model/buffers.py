"""One decoder step of many whole sentences, over buffers that stay in place.

A stream's state (model/state.py) grows and is told by lists. Here tensors alone say where a row
stands, and nothing waits for the device: a CUDA graph can record a step and play it back.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from simultan.model.attention import LARGE, attend_once, rotate
from simultan.model.policy import additive, visible
from simultan.model.recurrent import Recurrent
from simultan.model.transformer import Transformer
from simultan.model.translation import TranslationModel
from simultan.ops import masked_attention


def halve(model: TranslationModel) -> TranslationModel:
    """A copy in bfloat16, laid out for inference."""
    half = copy.deepcopy(model).train()  # without the layouts, which would stay as they are
    for module in half.modules():
        module.__dict__.pop("_compiled_call_impl", None)  # it would call the original
    half = half.to(torch.bfloat16).eval().requires_grad_(False)
    return half.prepare_inference()


class Buffers:
    """What `beam` rows of each sentence have read and written; rows of a sentence lie together."""

    def __init__(
        self, model: TranslationModel, sentences: int, beam: int, source: int, target: int
    ) -> None:
        """Room for `source` and `target` tokens of each sentence."""
        self.model, self.beam = model, beam
        self.attentions = model.cross_attentions()
        weight = model.output.weight.detach()
        self.heads = self.attentions[0].heads
        size = weight.shape[1] // self.heads
        kinds = len(self.attentions[0].source_linears())
        self.source = [
            weight.new_zeros(sentences, source, kinds, self.heads, size) for _ in self.attentions
        ]
        self.lengths = torch.ones(sentences, dtype=torch.long, device=weight.device)
        self.positions = torch.zeros_like(self.lengths)  # target tokens before the next one
        rows = sentences * beam
        self.memory: Memory
        if isinstance(model, Transformer):
            self.memory = TransformerBuffers(model, rows, target)
        else:
            assert isinstance(model, Recurrent)
            self.memory = RecurrentBuffers(model, rows)
        self.beams = torch.arange(beam, device=weight.device)

    def rows_of(self, sentences: Tensor) -> Tensor:
        """The rows of sentences [N] -> [N beam]."""
        return (sentences[:, None] * self.beam + self.beams).flatten()

    def read(self, tokens: Tensor, lengths: Tensor, places: Tensor) -> None:
        """New sentences [N, S], of these lengths [N], take these places [N]."""
        memory = _encode(self.model, tokens, lengths)
        outputs = self.model.source_keys.each(memory)
        for buffer in self.source:
            for kind in range(buffer.shape[2]):
                new = next(outputs).unflatten(-1, (self.heads, -1))
                buffer.select(2, kind)[places, : tokens.shape[1]] = new
        self.lengths[places] = lengths
        self.positions[places] = 0
        self.memory.reset(self.rows_of(places))

    def step(self, tokens: Tensor, source: int, target: int) -> Tensor:
        """The last written tokens [R] -> logits of the next ones [R, V], not bfloat16.

        Rows look at no more than the first `source` and `target` slots.
        """
        model, memory = self.model, self.memory
        positions = self.positions[:, None].expand(-1, self.beam).flatten()
        x = memory.begin(tokens, positions)
        for layer, cross in enumerate(self.attentions):
            x = memory.look_back(layer, x, positions, target)
            query = model.queries(layer, x) if cross.soft else x  # of one token, nothing is asked
            query = query.view(len(self.lengths), self.beam, self.heads, -1)
            kept = self.source[layer].narrow(1, 0, source)
            context = _attend(
                query, kept.select(2, 0), kept.select(2, -1), self.lengths - 1,
                model.policy.lookback, cross.exact,
            )  # fmt: skip
            x = model.look_at(layer, x, context.reshape(len(x), -1))
        return _project(model, model.end(x))

    def reorder(self, parents: Tensor) -> None:
        """Row r takes over what row parents[r] [R] has written."""
        self.memory.reorder(parents)

    def take_over(self, other: Buffers, places: Tensor) -> None:
        """The first sentences become those of other buffers at these places [N]."""
        count = len(places)
        for buffer, old in zip(self.source, other.source, strict=True):
            width = min(buffer.shape[1], old.shape[1])
            buffer[:count, :width] = old[places, :width]
        self.lengths[:count] = other.lengths[places]
        self.positions[:count] = other.positions[places]
        self.memory.take_over(other.memory, other.rows_of(places))


class Memory(Protocol):
    """What rows have written, as an architecture keeps it."""

    def begin(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Tokens [R] at positions [R] -> the first layer's input [R, D]."""
        ...

    def look_back(self, layer: int, x: Tensor, positions: Tensor, target: int) -> Tensor:
        """The part of a decoder layer that looks at the first `target` slots of the past."""
        ...

    def reset(self, rows: Tensor) -> None: ...

    def reorder(self, parents: Tensor) -> None: ...

    def take_over(self, other: Memory, rows: Tensor) -> None: ...


class TransformerBuffers:
    """Keys and values of self-attention, [R, T, 2, H, D] of each layer."""

    def __init__(self, model: Transformer, rows: int, target: int) -> None:
        weight = model.output.weight.detach()
        self.model, self.heads = model, model.decoder_heads
        self.size = weight.shape[1] // self.heads
        shape = rows, target, 2, self.heads, self.size
        self.layers = [weight.new_zeros(shape) for _ in model.decoder_layers]
        self.rows = torch.arange(rows, device=weight.device)
        embedding, self.dtype = model.target_embedding, weight.dtype
        self.table: Tensor | None = None  # for all slots, and not rounded to bfloat16
        if embedding.positions:
            self.table = embedding.waves(torch.arange(target, device=weight.device))

    def begin(self, tokens: Tensor, positions: Tensor) -> Tensor:
        embedding = self.model.target_embedding
        x: Tensor = embedding.tokens(tokens) * embedding.scale
        return x if self.table is None else (x + self.table[positions]).to(self.dtype)

    def look_back(self, layer: int, x: Tensor, positions: Tensor, target: int) -> Tensor:
        part = self.model.decoder_layers[layer]
        residual, attention = part.attention_residual, part.attention
        qkv = attention.qkv(x, norm=residual.before).view(len(x), 1, 3, self.heads, self.size)
        query, new = qkv.select(2, 0), qkv[:, 0, 1:]
        if attention.rotary:
            query, key = (
                rotate(one.transpose(1, 2), positions[:, None]).transpose(1, 2)
                for one in qkv.unbind(2)[:2]
            )
            new = torch.stack([key[:, 0], qkv[:, 0, 2]], 1)
        kept = self.layers[layer]
        kept[self.rows, positions] = new
        kept = kept.narrow(1, 0, target)
        window = self.model.window or None
        context = _attend(
            query, kept.select(2, 0), kept.select(2, 1), positions, window, attention.exact
        )
        return residual.after(x, attention.output, context.reshape(x.shape))

    def reset(self, rows: Tensor) -> None:
        pass  # what lies past a row's position does not count

    def reorder(self, parents: Tensor) -> None:
        for kept in self.layers:
            kept.copy_(kept.index_select(0, parents))

    def take_over(self, other: Memory, rows: Tensor) -> None:
        assert isinstance(other, TransformerBuffers)
        for kept, old in zip(self.layers, other.layers, strict=True):
            width = min(kept.shape[1], old.shape[1])
            kept[: len(rows), :width] = old[rows, :width]


class RecurrentBuffers:
    """States h and c of the decoder, [2, L, R, D]."""

    def __init__(self, model: Recurrent, rows: int) -> None:
        self.model = model
        lstm = model.decoder
        shape = 2, lstm.num_layers, rows, lstm.hidden_size
        self.states = model.output.weight.detach().new_zeros(shape)

    def begin(self, tokens: Tensor, positions: Tensor) -> Tensor:
        embedded = self.model.scale * self.model.target_embedding(tokens)[:, None]
        x, after = self.model.decoder(embedded, (self.states[0], self.states[1]))
        self.states.copy_(torch.stack(after))
        first: Tensor = x[:, 0]
        return first

    def look_back(self, layer: int, x: Tensor, positions: Tensor, target: int) -> Tensor:
        return x

    def reset(self, rows: Tensor) -> None:
        self.states[:, :, rows] = 0

    def reorder(self, parents: Tensor) -> None:
        self.states.copy_(self.states.index_select(2, parents))

    def take_over(self, other: Memory, rows: Tensor) -> None:
        assert isinstance(other, RecurrentBuffers)
        self.states[:, :, : len(rows)] = other.states[:, :, rows]


def _encode(model: TranslationModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """[N, S] -> [N, S, D]; what lies past a length means nothing."""
    if isinstance(model, Transformer):
        half = model.output.weight.dtype == torch.bfloat16
        # positions beyond the table are float32: autocast, as in training, rounds what they make
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half):
            return model.encode(tokens, lengths)
    assert isinstance(model, Recurrent)  # padding is its future
    memory: Tensor = model.encoder(model.scale * model.source_embedding(tokens))[0]
    return memory


def _attend(
    q: Tensor, k: Tensor, v: Tensor, stops: Tensor, lookback: int | None, exact: bool
) -> Tensor:
    """q [B, C, H, D] over k and v [B, N, H, D], up to the stop of each row [B] -> as q.

    `exact`: as in model/attention.py, a row's numbers do not depend on the other rows.
    """
    if q.is_cuda and lookback is None:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return masked_attention(q, k, v, stops[:, None]).transpose(1, 2)
    mask = additive(visible(stops, k.shape[1], lookback), v)  # [B, N]
    if exact or (not q.is_cuda and k.numel() * q.shape[1] <= LARGE):
        mask = mask[:, None, :, None, None]
        return attend_once(q.unsqueeze(2), k.unsqueeze(1), v.unsqueeze(1), mask).squeeze(2)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None]).transpose(1, 2)


def _project(model: TranslationModel, hidden: Tensor) -> Tensor:
    """Logits. In bfloat16 many would be equal, and the first of them no better than the others."""
    if hidden.dtype != torch.bfloat16:
        return model.project(hidden)
    if not (hidden.is_cuda and widens()):
        return model.project(hidden).float()
    output = model.output
    logits: Tensor = torch.mm(hidden, output.weight.t(), out_dtype=torch.float32)
    return logits if output.bias is None else logits.add_(output.bias)


@cache
def widens() -> bool:
    """Whether a product of two bfloat16 matrices can be float32 here; asked before recording."""
    one = torch.ones(16, 16, dtype=torch.bfloat16, device="cuda")
    try:
        torch.mm(one, one, out_dtype=torch.float32)
    except (TypeError, RuntimeError, NotImplementedError):
        return False
    return True
