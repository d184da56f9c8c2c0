"""A unidirectional LSTM encoder and an LSTM decoder with one attention on top.

    s_i = LSTM(y_{i-1}, s_{i-1}),  c_i = attention(s_i, m),  h_i = tanh(W [c_i; s_i])
Without input feeding, so that training is parallel over time (Luong et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simultan.config import Config
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS
from simultan.model.attention import MonotonicAttention
from simultan.model.maps import Make, Map, Plain
from simultan.model.state import DecoderState, EncoderState
from simultan.model.translation import ModelOutput, TranslationModel


class Recurrent(TranslationModel):
    """The same methods as the Transformer's, for the paper's RNN baselines."""

    combine_map: Map

    def __init__(self, config: Config, source_size: int, target_size: int) -> None:
        super().__init__(config)
        model = config.model
        width = model.width
        self.scale = width**0.5  # as in the Transformer: what is small for a logit is large here
        self.source_embedding = nn.Embedding(source_size, width)
        self.target_embedding = nn.Embedding(target_size, width)
        self.encoder = nn.LSTM(
            width,
            width,
            model.encoder_layers,
            batch_first=True,
            dropout=model.dropout if model.encoder_layers > 1 else 0.0,
        )
        self.decoder = nn.LSTM(
            width,
            width,
            model.decoder_layers,
            batch_first=True,
            dropout=model.dropout if model.decoder_layers > 1 else 0.0,
        )
        heads = (model.decoder_heads or model.heads) if self.policy.every_head else 1
        self.cross = MonotonicAttention(
            model, config.policy, self.policy, heads, selects=self.policy.learned
        )
        self.combine = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(model.dropout)
        self.output = nn.Linear(width, target_size, bias=False)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=width**-0.5)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        for name, parameter in self.named_parameters():
            for gate in parameter.detach().chunk(4) if "coder.weight" in name else ():
                (nn.init.orthogonal_ if "_hh" in name else nn.init.xavier_uniform_)(gate)
        self.tie(model.tie, self.source_embedding, self.target_embedding)
        self.lay_out(Plain)

    def lay_out(self, make: Make) -> None:
        super().lay_out(make)
        self.combine_map = make(self.combine)

    def forward(self, batch: Batch) -> ModelOutput:
        # right padding is the future of a unidirectional LSTM: nothing to pack
        memory, _ = self.encoder(self.dropout(self.scale * self.source_embedding(batch.source)))
        memory = self.dropout(memory)
        inputs = F.pad(batch.target[:, :-1], (1, 0), value=BOS)
        x, _ = self.decoder(self.dropout(self.scale * self.target_embedding(inputs)))
        x = self.dropout(x)
        stops = self.fixed_stops(batch)
        if stops is not None:
            context, delays = self.cross.forward_fixed(x, memory, stops), None
        else:
            chance = self.chance(batch)
            context, alpha = self.cross(x, memory, batch.source_lengths, None, chance)
            delays = self.expected_delays([alpha])
        hidden = torch.tanh(self.combine(torch.cat([context, x], -1)))
        return ModelOutput(self.dropout(hidden), delays)

    def repeated_parts(self) -> list[nn.Module]:
        return []  # the LSTMs are library kernels already

    def cross_attentions(self) -> list[MonotonicAttention]:
        return [self.cross]

    # streams

    def zeros(self, layers: int, rows: int) -> tuple[Tensor, Tensor]:
        weight = self.output.weight
        return weight.new_zeros(layers, rows, weight.shape[1]), weight.new_zeros(
            layers, rows, weight.shape[1]
        )

    def encoder_state(self, rows: int) -> EncoderState:
        return EncoderState([0] * rows, recurrent=self.zeros(self.encoder.num_layers, rows))

    def prepare_target(self, rows: int, state: DecoderState) -> None:
        state.recurrent = self.zeros(self.decoder.num_layers, rows)
        state.recurrent_next = self.zeros(self.decoder.num_layers, rows)

    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: Sequence[int],
        starts: Sequence[int],
        state: EncoderState,
        last: bool,
    ) -> Tensor:
        assert state.recurrent is not None
        index = list(rows)
        before = (state.recurrent[0][:, index], state.recurrent[1][:, index])
        packed = pack_padded_sequence(
            self.scale * self.source_embedding(tokens),
            torch.tensor(list(counts)),
            batch_first=True,
            enforce_sorted=False,
        )
        encoded, (h, c) = self.encoder(packed, before)
        state.recurrent[0][:, index] = h
        state.recurrent[1][:, index] = c
        memory: Tensor = pad_packed_sequence(
            encoded, batch_first=True, total_length=tokens.shape[1]
        )[0]
        return memory

    def begin(self, tokens: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        assert state.recurrent is not None
        assert state.recurrent_next is not None
        before = (state.recurrent[0][:, rows], state.recurrent[1][:, rows])
        x, (h, c) = self.decoder(self.scale * self.target_embedding(tokens)[:, None], before)
        state.recurrent_next[0][:, rows] = h
        state.recurrent_next[1][:, rows] = c
        return x[:, 0]

    def before_source(self, index: int, x: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        return x

    def source_query(self, index: int, x: Tensor, state: DecoderState) -> Tensor:
        return x

    def after_source(self, index: int, x: Tensor, context: Tensor, state: DecoderState) -> Tensor:
        context = self.cross.output_map(context)
        return torch.tanh(self.combine_map(torch.cat([context, x], -1)))

    def end(self, x: Tensor) -> Tensor:
        return x
