"""A policy is three choices: who selects, how far a stop looks back, and who decides.

p_choose = sigmoid(energy + noise),   p_choose = 1 at the last token of the source
with a spread c: sigmoid(c tanh(energy / c) + shift + noise), shift in [-c, c] for each sentence
fixed lag k: target token i stops at source token min(i + k - 1, |x|)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from simultan.config import Config


@dataclass(frozen=True)
class Policy:
    """One row of the table."""

    name: str
    learned: bool  # heads select where to stop; else the lag is fixed
    lookback: int | None  # tokens a stop can see; None: all
    every_head: bool  # every head of every layer selects; else one head does for all
    lags: tuple[int, ...] = ()  # wait-k's k, one drawn for each batch; none: the whole source
    undecided: bool = False  # streams as it was trained, unless it is told to take a threshold


def policy_of(config: Config) -> Policy:
    """The table of the design, read at the configured name."""
    chunk, k = config.policy.chunk, config.policy.k
    soft = config.policy.hard == 0  # what a head sees is spread over several tokens
    table = {
        "hard": Policy("hard", learned=True, lookback=1, every_head=False),
        "mocha": Policy("mocha", learned=True, lookback=chunk, every_head=False),
        "milk": Policy("milk", learned=True, lookback=None, every_head=False),
        "mma-h": Policy("mma-h", learned=True, lookback=1, every_head=True, undecided=soft),
        "mma-il": Policy("mma-il", learned=True, lookback=None, every_head=True),
        "wait-k": Policy("wait-k", learned=False, lookback=None, every_head=False, lags=k),
        "offline": Policy("offline", learned=False, lookback=None, every_head=False),
    }
    row = table[config.policy.name]
    window = config.model.window
    if window and (row.lookback is None or row.lookback > window):
        return replace(row, lookback=window)
    return row


class Chance(NamedTuple):
    """What training leaves to chance for each sentence [B], the same in all its heads."""

    hard: Tensor | None = None  # decide as a stream does: p is 0 or 1
    shift: Tensor | None = None  # of the energies, as if for another threshold


NO_CHANCE = Chance()


def p_choose(
    energy: Tensor,
    source_lengths: Tensor,
    noise: float,
    spread: float = 0.0,
    chance: Chance = NO_CHANCE,
) -> Tensor:
    """Selection probabilities for training [B, H, T, S]; noise 0 and no chance outside of it.

    In hard rows nothing is left to noise; gradients go through p as through the sigmoid.
    """
    energy = energy if energy.dtype == torch.float64 else energy.float()
    if spread:
        energy = spread * torch.tanh(energy / spread)
    if chance.shift is not None:
        energy = energy + chance.shift[:, None, None, None]
    p = torch.sigmoid(energy + noise * torch.randn_like(energy) if noise else energy)
    if chance.hard is not None:
        soft = torch.sigmoid(energy)
        stop = (energy > 0) + (soft - soft.detach())
        p = torch.where(chance.hard[:, None, None, None], stop, p)
    # the paper's mass preservation, here and in streams: a head at the end has stopped
    positions = torch.arange(energy.shape[-1], device=energy.device)
    last = positions == (source_lengths - 1)[:, None]  # [B, S]
    return torch.where(last[:, None, None, :], 1.0, p)


def energy_limit(threshold: float, spread: float) -> float:
    """What an energy must exceed for its p to exceed the threshold."""
    limit = math.log(threshold / (1 - threshold))
    if not spread:
        return limit
    return math.copysign(math.inf, limit) if abs(limit) >= spread else spread * math.atanh(
        limit / spread
    )  # fmt: skip


def fixed_stops(target: int, source_lengths: Tensor, lag: Tensor | None) -> Tensor:
    """Where target tokens stop under a fixed lag [B, T]; without one, at the source's end."""
    last = (source_lengths - 1)[:, None]
    if lag is None:
        return last.expand(-1, target)
    return torch.minimum(torch.arange(target, device=last.device) + lag - 1, last)


def visible(stops: Tensor, source: int, lookback: int | None) -> Tensor:
    """What a stop can see: a mask [..., S] of the `lookback` tokens that end there."""
    positions = torch.arange(source, device=stops.device)
    mask = positions <= stops[..., None]
    return mask if lookback is None else mask & (positions > stops[..., None] - lookback)


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """The same mask as 0 or -inf, to be added to scores."""
    return torch.where(mask, 0.0, -torch.inf).to(like.dtype)


def lookback_start(stop: int, lookback: int | None) -> int:
    """The first token a stop can see."""
    return 0 if lookback is None else max(0, stop - lookback + 1)
