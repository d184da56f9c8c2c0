"""Sentence ends that nobody wrote: where to close a segment of text without punctuation.

A small recurrent network reads the words as they come. At each it says how likely a sentence ends
there, and, which is easier, ended one word ago or two. So a word that may be the last of a sentence
is held back until that is clear; most words are read at once. `ends.safetensors` in a model's
folder holds the network; `simultan ends` trains it.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from simultan.checkpoint import ENDS
from simultan.data.languages import ends_sentence

LOOK = 2  # words that may be awaited
HOLD = 0.1  # likelier than this: an end is possible
SURE = 0.9  # likelier than this: there is one
CUT = 0.5  # the same once nothing more is awaited
MARKS = (".", ",", ";", ":")  # whoever writes these writes ends, too


class EndNetwork(nn.Module):
    """Source tokens in; out, for each, the log-odds that a sentence ends with its word, with the
    word before it, and so on. They mean something at the last token of a word."""

    def __init__(self, vocabulary: int, embedding: int = 128, hidden: int = 320) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.recurrent = nn.GRU(embedding, hidden, batch_first=True)
        self.output = nn.Linear(hidden, LOOK + 1)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, T] tokens -> [B, T, 1 + LOOK] log-odds, and the state [1, B, hidden] after them."""
        hidden, state = self.recurrent(self.embedding(tokens), state)
        return self.output(hidden), state


def save_ends(network: EndNetwork, folder: str | Path) -> None:
    sizes = {
        "vocabulary": network.embedding.num_embeddings,
        "embedding": network.embedding.embedding_dim,
        "hidden": network.recurrent.hidden_size,
    }
    weights = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    path = Path(folder) / ENDS
    save_file(weights, path, {"sizes": json.dumps(sizes)})
    shutil.copymode(Path(folder) / "pipeline.json", path)  # safetensors writes it for us alone


def load_ends(folder: str | Path, vocabulary: int) -> EndNetwork | None:
    """The network of a model folder, if it has one."""
    path = Path(folder) / ENDS
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as stored:
            sizes = json.loads(stored.metadata()["sizes"])
            if sizes["vocabulary"] != vocabulary:
                raise ValueError(f"made for {sizes['vocabulary']} pieces, not for {vocabulary}")
            network = EndNetwork(**{name: int(size) for name, size in sizes.items()})
            network.load_state_dict({n: stored.get_tensor(n) for n in network.state_dict()})
    except (SafetensorError, KeyError, TypeError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: not sentence ends ({reason}); train them again") from error
    return network.float().eval().requires_grad_(False)


class Taken(NamedTuple):
    """A word to read now."""

    word: str
    ends: bool = False  # a sentence ends with it
    late: int = 0  # words that were awaited


@dataclass
class Pending:
    """A word that was heard and not yet read."""

    word: str
    chance: float  # that a sentence ends with it
    settled: bool = False  # its own marks say so: the network is not asked
    later: int = 0  # words heard since


class EndFinder:
    """Takes the words of one segment from a queue, one by one, and finds its end.

    It knows nothing of what was before, so a segment that is read again ends where it did.
    """

    def __init__(
        self, network: EndNetwork | None, encode: Callable[[str], list[int]], language: str = ""
    ) -> None:
        self.network, self.encode, self.language = network, encode, language
        self.state: Tensor | None = None
        self.pending: deque[Pending] = deque()

    def take(self, queue: deque[str], closed: bool) -> Taken | None:
        """The next word to read; None: wait for more. `closed`: no more will come."""
        if self.network is None:
            return Taken(queue.popleft()) if queue else None
        while True:
            if self.pending:
                first = self.pending[0]
                clear = not HOLD <= first.chance < SURE
                if clear or first.later == LOOK or (closed and not queue):
                    self.pending.popleft()
                    return Taken(first.word, first.chance >= CUT, first.later)
            if not queue:
                return None
            self._hear(queue.popleft())

    def _hear(self, word: str) -> None:
        """Hear one word more, and think again about those before it."""
        assert self.network is not None
        for pending in self.pending:
            pending.later += 1
        written = ends_sentence(word, self.language)
        # "15." and "Dr." end nothing, though a full stop makes an end look likely
        settled = written or word[-1:] in MARKS
        self.pending.append(Pending(word, float(written), settled))
        tokens = self.encode(word)
        if tokens:
            odds, self.state = self.network(torch.tensor([tokens]), self.state)
            chances = odds[0, -1].sigmoid().tolist()
            for pending in self.pending:
                if not pending.settled:
                    pending.chance = chances[pending.later]
