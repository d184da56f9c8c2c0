"""A unidirectional LSTM encoder and an LSTM decoder with one attention on top.

    s_i = LSTM(y_{i-1}, s_{i-1}),  c_i = attention(s_i, m),  h_i = tanh(W [c_i; s_i])
Without input feeding, so that training is parallel over time (Luong et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simultan.config import Config
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS
from simultan.model.attention import MonotonicAttention
from simultan.model.cache import Cache
from simultan.model.linear import Linear
from simultan.model.state import State
from simultan.model.translation import ModelOutput, TranslationModel


@dataclass
class RecurrentMemory:
    """States h and c of both LSTMs, [2, L, B, D] each."""

    encoder: Tensor
    decoder: Tensor  # after the last token that was written
    following: Tensor  # after the step under way

    @property
    def caches(self) -> list[Cache]:
        return []  # it does not grow

    def reset(self, row: int) -> None:
        self.encoder[:, :, row] = 0
        self.decoder[:, :, row] = 0

    def commit(self, rows: Sequence[int]) -> None:
        self.decoder[:, :, list(rows)] = self.following[:, :, list(rows)]

    def take_over(self, rows: range, other: RecurrentMemory, parent: int, length: int) -> None:
        self.decoder[:, :, rows.start : rows.stop] = other.following[:, :, parent, None]

    def reorder(self, parents: Sequence[int]) -> None:
        self.decoder = self.decoder[:, :, list(parents)]

    def keep(self, rows: Sequence[int]) -> Tensor:
        return self.decoder[:, :, list(rows)].clone()

    def restore(self, rows: Sequence[int], kept: Tensor | None) -> None:
        assert kept is not None
        self.decoder[:, :, list(rows)] = kept

    def mark(self, row: int) -> Tensor:
        return self.encoder[:, :, row].clone()

    def rewind(self, row: int, tokens: int, kept: Tensor | None) -> None:
        assert kept is not None
        self.encoder[:, :, row] = kept


class Recurrent(TranslationModel):
    """The same methods as the Transformer's, for the paper's RNN baselines."""

    def __init__(self, config: Config, source_size: int, target_size: int) -> None:
        super().__init__(config)
        model = config.model
        width = model.width
        self.scale = width**0.5  # as in the Transformer: what is small for a logit is large here
        self.source_embedding = nn.Embedding(source_size, width)
        self.target_embedding = nn.Embedding(target_size, width)
        self.encoder, self.decoder = (
            nn.LSTM(width, width, n, batch_first=True, dropout=model.dropout if n > 1 else 0.0)
            for n in (model.encoder_layers, model.decoder_layers)
        )
        heads = (model.decoder_heads or model.heads) if self.policy.every_head else 1
        self.cross = MonotonicAttention(
            model, config.policy, self.policy, heads, selects=self.policy.learned
        )
        self.combine = Linear(2 * width, width)
        self.dropout = nn.Dropout(model.dropout)
        self.output = Linear(width, target_size, bias=False)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=width**-0.5)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        for name, parameter in self.named_parameters():
            for gate in parameter.detach().chunk(4) if "coder.weight" in name else ():
                (nn.init.orthogonal_ if "_hh" in name else nn.init.xavier_uniform_)(gate)
        self.tie(model.tie, self.source_embedding, self.target_embedding)
        self.join_source_keys()

    def forward(self, batch: Batch) -> ModelOutput:
        # right padding is the future of a unidirectional LSTM: nothing to pack
        memory, _ = self.encoder(self.dropout(self.scale * self.source_embedding(batch.source)))
        memory = self.dropout(memory)
        inputs = F.pad(batch.target[:, :-1], (1, 0), value=BOS)
        x, _ = self.decoder(self.dropout(self.scale * self.target_embedding(inputs)))
        x = self.dropout(x)
        stops, chance = self.fixed_stops(batch), self.chance(batch)
        if stops is not None:
            context, delays = self.cross.forward_fixed(x, memory, stops), None
        else:
            context, alpha = self.cross(x, memory, batch.source_lengths, None, chance)
            delays = self.expected_delays([alpha])
        hidden = self.dropout(self.look_at(0, x, context))
        return ModelOutput(hidden, delays, chance.hard, chance.shift)

    def repeated_parts(self) -> list[nn.Module]:
        return []  # the LSTMs are library kernels already

    def cross_attentions(self) -> list[MonotonicAttention]:
        return [self.cross]

    # --- streams ---

    def memory(self, rows: int) -> RecurrentMemory:
        return RecurrentMemory(
            self._zeros(self.encoder, rows),
            self._zeros(self.decoder, rows),
            self._zeros(self.decoder, rows),
        )

    def _zeros(self, lstm: nn.LSTM, rows: int) -> Tensor:
        return self.output.weight.new_zeros(2, lstm.num_layers, rows, lstm.hidden_size)

    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: list[int],
        starts: list[int],
        state: State,
    ) -> Tensor:
        encoder = cast("RecurrentMemory", state.memory).encoder
        packed = pack_padded_sequence(
            self.scale * self.source_embedding(tokens),
            torch.tensor(list(counts)),
            batch_first=True,
            enforce_sorted=False,
        )
        encoded, after = self.encoder(packed, tuple(encoder[:, :, rows]))
        encoder[:, :, rows] = torch.stack(after)
        memory: Tensor = pad_packed_sequence(
            encoded, batch_first=True, total_length=tokens.shape[1]
        )[0]
        return memory

    def begin(self, tokens: list[int], rows: list[int], state: State) -> Tensor:
        memory = cast("RecurrentMemory", state.memory)
        ids = torch.tensor(tokens, device=self.output.weight.device)[:, None]
        x, after = self.decoder(
            self.scale * self.target_embedding(ids), tuple(memory.decoder[:, :, rows])
        )
        memory.following[:, :, rows] = torch.stack(after)
        return x[:, 0]

    def look_back(self, layer: int, x: Tensor, rows: list[int], state: State) -> Tensor:
        return x

    def queries(self, layer: int, x: Tensor) -> Tensor:
        return self.cross.queries(x)

    def look_at(self, layer: int, x: Tensor, found: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([self.cross.output(found), x], -1)))

    def end(self, x: Tensor) -> Tensor:
        return x
