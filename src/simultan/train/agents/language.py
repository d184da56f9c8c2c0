"""The language model of the source that an agent guesses with, trained on the same text."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from simultan.data.codec import Codec
from simultan.data.vocabulary import BOS, PAD
from simultan.streaming.agents.predict import SourceModel
from simultan.train.agents.episodes import Sentences
from simultan.train.agents.recipe import SourcePart
from simultan.train.loop import seed


def make_source_model(codec: Codec, width: int) -> SourceModel:
    """With fresh weights, for a codec's source vocabulary."""
    vocabulary = codec.source_vocabulary
    ends = torch.tensor([vocabulary.ends_word(token) for token in range(len(vocabulary))])
    return SourceModel(ends, width)


class SourceTrainer:
    """Cross-entropy of the next token; of long batches some positions only, drawn at random."""

    def __init__(
        self, model: SourceModel, part: SourcePart, sentences: Sentences, number: int
    ) -> None:
        self.model, self.part, self.sentences, self.number = model, part, sentences, number
        self.optimizer = torch.optim.Adam(model.parameters(), lr=part.lr)
        self.update = 0

    def step(self) -> dict[str, float]:
        part, device = self.part, self.model.output.weight.device
        self.update += 1
        seed(self.number, -self.update, 0)
        generator = torch.Generator().manual_seed(torch.initial_seed() % 2**63)
        numbers = self.sentences.draw(part.sentences, generator, alike=False)
        tokens = [torch.tensor([BOS, *self.sentences.source(n)]) for n in numbers]
        batch = pad_sequence(tokens, batch_first=True, padding_value=PAD)
        wanted = (batch[:, 1:] != PAD).flatten().nonzero().squeeze(1)
        if len(wanted) > part.positions:
            drawn = torch.randperm(len(wanted), generator=generator)[: part.positions]
            wanted = wanted[drawn]
        batch, wanted = batch.to(device), wanted.to(device)
        hidden, _ = self.model(batch[:, :-1])
        logits = self.model.project(hidden.flatten(0, 1)[wanted])
        following = batch[:, 1:].flatten()[wanted]
        loss = F.cross_entropy(logits, following)
        for group in self.optimizer.param_groups:
            group["lr"] = part.lr * (1 - (self.update - 1) / max(1, part.updates))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        right = (logits.argmax(1) == following).float().mean()
        return {"nll": float(loss.detach()), "accuracy": float(right)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update = state["update"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
