"""Train what finds sentence ends in text without punctuation (streaming/ends.py)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from simultan.data.codec import Codec
from simultan.data.languages import ends_sentence
from simultan.data.speech import as_recognised
from simultan.streaming.ends import CUT, LOOK, EndNetwork

ROWS, LENGTH = 64, 80  # of a batch; tokens
SPEECH = (True, True), (True, False), (False, True), (False, False)  # lower case, no marks
SHARES = 0.6, 0.1, 0.1, 0.2
RATE, CLIP = 2e-3, 1.0


@dataclass(frozen=True)
class EndScores:
    """How many of the ends that were found are ends, and how many of the ends were found."""

    precision: float
    recall: float


def sentences_of(line: str, language: str) -> list[str]:
    """The sentences of a line, by their punctuation."""
    found: list[list[str]] = [[]]
    for word in line.split():
        found[-1].append(word)
        if ends_sentence(word, language):
            found.append([])
    return [" ".join(words) for words in found if words]


Token = tuple[int, ...]  # whether it is the last of its word; whether this one ends, or one before


def _run(
    texts: Sequence[Sequence[str]], codec: Codec, chance: random.Random, shares: Sequence[float]
) -> list[Token]:
    """Sentences that follow one another: neighbours of one text, or lines from anywhere in it.

    A talk hangs together, a list of examples does not. Most runs look as a recogniser writes.
    """
    lines = chance.choices(texts, [len(lines) for lines in texts])[0]
    at, neighbours = chance.randrange(len(lines)), chance.random() < 0.5
    lower, silent = chance.choices(SPEECH, shares)[0]
    found: list[Token] = []
    ended = [0] * (LOOK + 1)  # of this word and those before it
    while len(found) < LENGTH:
        for sentence in sentences_of(lines[at % len(lines)], codec.source_language):
            words = as_recognised(sentence, lower, silent).split()
            for left, word in zip(range(len(words))[::-1], words, strict=True):
                ended = [int(not left), *ended[:LOOK]]
                tokens = codec.encode_source_word(word)
                found += [(token, 0, *ended) for token in tokens[:-1]]
                found += [(token, 1, *ended) for token in tokens[-1:]]
        at = at + 1 if neighbours else chance.randrange(len(lines))
    return found[:LENGTH]


def _batches(
    texts: Sequence[Sequence[str]], codec: Codec, seed: int, shares: Sequence[float] = SHARES
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens [B, T], which of them are the last of a word, and what is true [B, T, 1 + LOOK]."""
    chance = random.Random(seed)
    while True:
        runs = torch.tensor([_run(texts, codec, chance, shares) for _ in range(ROWS)])
        yield runs[..., 0], runs[..., 1].bool(), runs[..., 2:].float()


def train_ends(
    texts: Sequence[Sequence[str]],
    codec: Codec,
    updates: int,
    *,
    seed: int = 1,
    progress: Callable[[int, float], None] | None = None,
) -> EndNetwork:
    """Train on lines of punctuated text; each list of them is a text.

    The rate falls to zero along a cosine. `progress` is told updates and loss.
    """
    torch.manual_seed(seed)
    network = EndNetwork(len(codec.source_vocabulary))
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    batches = _batches(texts, codec, seed)
    for update in range(1, updates + 1):
        tokens, last, truth = next(batches)
        odds, _ = network(tokens)
        loss = binary_cross_entropy_with_logits(odds[last], truth[last])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(update, float(loss.detach()))
    return network.eval().requires_grad_(False)


@torch.inference_mode()
def measure_ends(
    network: EndNetwork, texts: Sequence[Sequence[str]], codec: Codec, batches: int = 40
) -> EndScores:
    """Ends, one word later, in text without case and punctuation."""
    found = true = both = 0
    source = _batches(texts, codec, 0, (1, 0, 0, 0))
    for _ in range(batches):
        tokens, last, truth = next(source)
        odds, _ = network(tokens)
        said = odds[..., 1][last].sigmoid() >= CUT
        is_end = truth[..., 1][last].bool()
        found += int(said.sum())
        true += int(is_end.sum())
        both += int((said & is_end).sum())
    return EndScores(both / max(1, found), both / max(1, true))
