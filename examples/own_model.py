"""The two operations in a model of your own: a head that learns where to stop, in one short file.

    python examples/own_model.py

The task: each target token is the source token two places further on. A monotonic head has to
read two tokens ahead of what it writes, and no further: the loss on its expected delay sees to it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simultan import expected_alignment, expected_attention

VOCABULARY, LENGTH, AHEAD = 12, 10, 2


class Reader(nn.Module):
    """One monotonic head with infinite lookback between two embeddings and an output."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(LENGTH, width)  # of source and target alike
        self.select_query, self.select_key = nn.Linear(width, width), nn.Linear(width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.tensor(-2.0))  # a fresh head reads on: it sees something
        self.output = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] and expected delays [B, T], in tokens."""
        places = self.place(torch.arange(LENGTH)).expand(len(tokens), -1, -1)
        keys = self.source(tokens) + places
        scale = keys.shape[-1] ** -0.5
        lengths = torch.full((len(tokens),), LENGTH)
        choose = self.select_query(places) @ self.select_key(keys).mT * scale + self.bias
        if self.training:
            choose = choose + torch.randn_like(choose)  # so that it learns to be sure
        p_choose = torch.sigmoid(choose)[:, None].clone()  # [B, H=1, T, S]
        p_choose[..., -1] = 1.0  # whoever has read everything stops
        energy = (self.query(places) @ self.key(keys).mT * scale)[:, None]
        alpha = expected_alignment(p_choose, lengths)  # where the head stops
        beta = expected_attention(alpha, energy, lengths, lookback=None)  # what it looks at
        delays = (alpha * torch.arange(1, LENGTH + 1)).sum(-1)[:, 0]
        return self.output(beta[:, 0] @ self.source(tokens)), delays


def train(updates: int = 400, latency: float = 0.05, seed: int = 1) -> tuple[float, list[float]]:
    """Accuracy at the end, and the mean delay of each target token."""
    torch.manual_seed(seed)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(updates):
        tokens = torch.randint(VOCABULARY, (64, LENGTH))
        logits, delays = model(tokens)
        targets = tokens[:, AHEAD:]
        loss = nn.functional.cross_entropy(logits[:, :-AHEAD].flatten(0, 1), targets.flatten())
        weight = latency * min(1.0, max(0.0, 2 * update / updates - 0.5))  # quality first
        (loss + weight * delays[:, :-AHEAD].mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        tokens = torch.randint(VOCABULARY, (256, LENGTH))
        logits, delays = model(tokens)
    right = (logits[:, :-AHEAD].argmax(-1) == tokens[:, AHEAD:]).float().mean().item()
    return right, delays[:, :-AHEAD].mean(0).tolist()


if __name__ == "__main__":
    torch.set_num_threads(1)
    accuracy, delays = train()
    print(f"right: {accuracy:.1%}")
    print("source tokens read before each target token:", " ".join(f"{d:.1f}" for d in delays))
    print("needed:                                     ", *range(AHEAD + 1, LENGTH + 1), sep="  ")
