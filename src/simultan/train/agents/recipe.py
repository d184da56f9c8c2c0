"""The recipe of an agent: what it is rewarded for, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from simultan.config import Amount, Bound, Count, CountOrNone, Sections, Share


@dataclass(frozen=True)
class DataPart:
    """The prepared corpus whose training sentences are played."""

    folder: str = ""  # what `simultan prepare` wrote, with the model's vocabularies
    max_length: Count = 60  # longer sentences are left out; in tokens, for each side


@dataclass(frozen=True)
class AgentPart:
    """The agent."""

    name: Literal["reinforced", "predict"] = "reinforced"  # predict: it guesses source words, too
    width: Count = 128  # of the policy's memory
    start: Amount = (
        2.0  # it begins as a soft wait-k: this many words behind it writes half the time
    )
    slope: Amount = 1.0  # how much one word more or less changes that; 0: it begins without a rule


@dataclass(frozen=True)
class RewardPart:
    """BLEU as it is gained, minus what delays cost."""

    average_proportion: Share = 0.7  # a sentence may read this share of its source on average
    average_proportion_weight: Amount = 1.0  # what exceeding it costs
    consecutive_wait: Count = 8  # words to read in a row that are free
    consecutive_wait_weight: Amount = 0.025  # what one more costs
    guess: Amount = 0.5  # predict: what counts more of the BLEU gained with a guess in view
    lag: Amount = 0.0  # what each word costs that its tokens are behind on average; ours


@dataclass(frozen=True)
class TrainPart:
    """REINFORCE with a learned baseline."""

    updates: Count = 400  # steps of the optimiser
    sentences: Count = 16  # of each update
    samples: Annotated[int, Bound(2)] = 4  # episodes of each sentence
    lr: Amount = 4e-3  # it falls to 0 at the last update
    entropy: Amount = 0.02  # what undecided policies are given; falls to 0, too
    clip: Amount = 1.0  # largest norm of the gradients
    seed: int = 1  # of weights, sentences and actions
    log_every: Count = 10  # updates between two reports
    save_every: Count = 50  # updates between two that can be resumed from
    validate_every: CountOrNone = 0  # updates between two validations; 0: never
    validate_sentences: Count = 200  # translated in each, as the agent decides live


@dataclass(frozen=True)
class SourcePart:
    """predict: the language model of the source that guesses."""

    width: Count = 192  # of its embeddings and its memory
    updates: CountOrNone = 600  # before the first episode
    sentences: Count = 128  # of each of them
    positions: Count = 1024  # of these sentences, at most so many are predicted
    lr: Amount = 3e-3  # it falls to 0


@dataclass(frozen=True)
class AgentRecipe(Sections):
    """A whole run."""

    data: DataPart = field(default_factory=DataPart)
    agent: AgentPart = field(default_factory=AgentPart)
    reward: RewardPart = field(default_factory=RewardPart)
    train: TrainPart = field(default_factory=TrainPart)
    source: SourcePart = field(default_factory=SourcePart)
