"""An agent trained by reinforcement: a recurrent policy over what the decoder is about to write.

    o_t = [numbers n_t; decoder's state; attention's context; candidate]
    h_t = GRU(o_t, h_{t-1}),  pi(a | h_t) = softmax(W h_t + U n_t + rule)
    rule = slope (words read - words written - start) for WRITE, 0 for the others
Gu et al. 2017. Ours are the numbers (how sure the model is, how far behind, whether the candidate
stays the same, where its attention lies), their short way U to the actions, and the rule: W and U
begin at 0, so that an agent begins as a soft wait-k and learns where to differ from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from simultan.data.vocabulary import EOS
from simultan.streaming.agents.protocol import READ, WRITE, Agent, Answer, Seen

NUMBERS = 11  # of an observation, before its three vectors
LAG, LAG_SCALE = 2, 8  # which of them is the lag, and in which unit


class Policy(nn.Module):
    """Observations in, a score of each action out."""

    rule: Tensor

    def __init__(
        self,
        observed: int,
        width: int,
        actions: int,
        start: float = 0.0,
        slope: float = 0.0,
        numbers: int = NUMBERS,
    ) -> None:
        """`numbers`: so many of what is observed come first and have a short way."""
        super().__init__()
        self.register_buffer("rule", torch.tensor([start, slope]))
        self.inputs = nn.Linear(observed, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.actions = nn.Linear(width, actions)
        self.direct = nn.Linear(numbers, actions, bias=False)
        for weight in (self.actions.weight, self.actions.bias, self.direct.weight):
            nn.init.zeros_(weight)  # at first, all actions are alike

    def forward(self, observed: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, T, O] and the states [B, W] before -> scores [B, T, A] and states [B, T, W]."""
        before = None if states is None else states[None]
        after, _ = self.memory(torch.tanh(self.inputs(observed)), before)
        start, slope = self.rule
        rule = slope * (LAG_SCALE * observed[..., LAG] - start)
        scores = self.actions(after) + self.direct(observed[..., : self.direct.in_features])
        return torch.cat([scores[..., :1] + rule[..., None], scores[..., 1:]], -1), after


def observe(seen: Seen) -> Tensor:
    """[R, NUMBERS + 3 D] what the policy sees of each row."""
    scores = seen.scores
    if scores.hidden is None or scores.context is None or scores.candidates is None:
        raise ValueError("a trained agent looks into the decoder: this model does not show it")
    vectors = [
        F.layer_norm(part.float(), part.shape[-1:])
        for part in (scores.hidden, scores.context, scores.candidates)
    ]
    counts = [
        (
            float(token == EOS),
            (read - written) / LAG_SCALE,
            read / 32,
            written / 32,
            float(guessed > 0),
            float(memory.get("candidate") == token),
            float("candidate" not in memory),
        )
        for token, read, written, guessed, memory in zip(
            scores.best, seen.read, seen.written, seen.guessed, seen.memory, strict=True
        )
    ]
    sure = scores.best_log_probs.float()[:, None]
    return torch.cat([sure, sure.new_tensor(counts), attention_ends(seen), *vectors], 1)


def attention_ends(seen: Seen) -> Tensor:
    """[R, 3] attention to the last word, to the last two, and how far back most of it lies.

    The first two are mostly small: they count three times.
    """
    weights = seen.attention().float()  # [R, W]
    pairs = zip(seen.read, seen.guessed, strict=True)
    shown = torch.tensor([read + (n > 0) for read, n in pairs], device=weights.device)[:, None]
    last = weights.gather(1, shown - 1)
    before = weights.gather(1, (shown - 2).clamp(min=0)) * (shown > 1)
    back = shown - 1 - weights.argmax(1, keepdim=True)
    return torch.cat([3 * last, 3 * (last + before), back.clamp(max=LAG_SCALE) / LAG_SCALE], 1)


class Reinforced(Agent):
    """The same weights for all rows; each remembers the policy's state."""

    kinds = 2  # of actions: WRITE, READ
    wants_attention = True

    threshold: float | None = None  # write where the policy finds that more probable than this
    origin = "this agent"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / "weights.safetensors"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: not there; `simultan train-agent` has not saved any yet"
            )
        weights = load_file(path)
        agent = cls.make(weights)
        agent.origin = str(folder)
        if "threshold" in weights:  # at which it writes as often as it did in training
            agent.threshold = float(weights["threshold"])
        return agent

    @classmethod
    def make(cls, weights: Mapping[str, Tensor]) -> Self:
        """The agent of a folder's weights."""
        return cls(make_policy(weights, cls.kinds))

    def decide(self, seen: Seen) -> Sequence[Answer]:
        return [READ if action else WRITE for action in self.choose(seen, observe(seen))]

    def choose(self, seen: Seen, observed: Tensor) -> list[int]:
        """The numbers of the actions."""
        actions = self.pick(seen, observed, self.score(seen, observed))
        for memory, action, token in zip(seen.memory, actions, seen.scores.best, strict=True):
            memory["candidate"] = token
            if action == WRITE:  # the next one is another
                del memory["candidate"]
        return actions

    def score(self, seen: Seen, observed: Tensor) -> Tensor:
        """[R, A] of the actions; the policy remembers what it has seen."""
        if observed.shape[1] != self.policy.inputs.in_features:
            raise ValueError(
                f"{self.origin} was trained with a model of another width: train one with this"
            )
        if self.policy.actions.weight.device != observed.device:
            self.policy.to(observed.device)
        width = self.policy.memory.hidden_size
        none = observed.new_zeros(width)
        states = torch.stack([memory.get("policy", none) for memory in seen.memory])
        scores, after = self.policy(observed[:, None], states)
        for memory, state in zip(seen.memory, after[:, 0], strict=True):
            memory["policy"] = state
        found: Tensor = scores[:, 0]
        return found

    def pick(self, seen: Seen, observed: Tensor, scores: Tensor) -> list[int]:
        """Live, the best action, or WRITE above a threshold; a trainer draws one."""
        best: list[int] = scores.argmax(1).tolist()
        if self.threshold is None:
            return best
        writes = (scores.softmax(1)[:, 0] > self.threshold).tolist()
        others: list[int] = (scores[:, 1:].argmax(1) + 1).tolist()
        return [0 if write else other for write, other in zip(writes, others, strict=True)]


def part_of(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The weights of a module of an agent."""
    return {k.removeprefix(name): v for k, v in weights.items() if k.startswith(name)}


def make_policy(weights: Mapping[str, Tensor], actions: int) -> Policy:
    """The policy of a folder."""
    part = part_of(weights, "policy.")
    if "direct.weight" not in part:
        raise ValueError("this agent was trained by an older simultan: train it again")
    width, observed = part["inputs.weight"].shape
    numbers = part["direct.weight"].shape[1]
    policy = Policy(observed, width, actions, numbers=numbers)
    policy.load_state_dict(part)
    return policy.eval()
