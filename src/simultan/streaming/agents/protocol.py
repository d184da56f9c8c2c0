"""What an agent is: given what it may see of some rows, it answers for each READ or WRITE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["READ", "WRITE", "Agent", "Answer", "Guess", "Rest", "Scores", "Seen"]

WRITE, READ = 0, 1  # an answer is the number of words to read before the agent is asked again


@dataclass(frozen=True)
class Guess:
    """An answer: go on as if the next source word were this one, until it is read.

    What is written then stays, right or wrong. One word is guessed at a time: a second guess
    means READ.
    """

    tokens: tuple[int, ...]  # of one source word, or the end of the source


Answer = int | Guess


@dataclass(frozen=True)
class Rest:
    """What the model would still write if it read nothing more, up to its end of sentence."""

    tokens: list[int]
    words: int


@dataclass
class Scores:
    """What the model makes of the source words that it may see."""

    logits: Tensor  # [R, V] of the next target token; what can never be written is -inf
    hidden: Tensor | None = None  # [R, D] the decoder's state behind them
    attention: Tensor | None = None  # [R, L, H, S] over source tokens, if the agent wants it
    context: Tensor | None = None  # [R, D] what the last layer's attention has found
    embed: Callable[[list[int]], Tensor] | None = None  # target tokens as vectors [R, D]

    @cached_property
    def log_probs(self) -> Tensor:
        """[R, V]"""
        return self.logits.log_softmax(-1)

    @cached_property
    def best(self) -> list[int]:
        """The most probable token of each row."""
        if self.logits.is_cuda:
            return self.logits.argmax(-1).tolist()
        tokens: list[int] = self.logits.numpy().argmax(-1).tolist()  # ten times as fast
        return tokens

    @cached_property
    def best_log_probs(self) -> Tensor:
        """[R] of the most probable tokens."""
        return self.logits.amax(-1) - self.logits.logsumexp(-1)

    @cached_property
    def candidates(self) -> Tensor | None:
        """[R, D] the most probable tokens as vectors; None: the model does not show them."""
        return None if self.embed is None else self.embed(self.best)


@dataclass
class Seen:
    """What an agent may see of some rows before their next target token.

    Words are counted from the beginning of the sentence, and its end counts as one word more.
    Nothing is computed before an agent looks at `scores` or `ahead`, or calls a function.
    """

    read: list[int]  # source words that the model sees
    written: list[int]  # target words
    ended: list[bool]  # whether the model sees the end of the source
    memory: list[dict[str, Any]]  # what the agent wants to remember of this row and sentence
    score: Callable[[int], Scores]  # with so many words more than `read`
    lookahead: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)  # target tokens that are written
    source: Callable[[], list[list[int]]] = list  # tokens that the model sees, without a guess
    source_words: Callable[[], list[list[int]]] = list  # the word that each of them belongs to
    guessed: list[int] = field(default_factory=list)  # tokens that it sees as a guess, after them
    go_on: Callable[[Sequence[int]], list[Rest]] | None = None  # of these rows, as numbered here

    @cached_property
    def _views(self) -> list[Scores]:
        # `read` comes last: the token that is committed is the one that was scored last
        *ahead, now = [self.score(words) for words in (*self.lookahead, 0)]
        return [now, *ahead]

    @property
    def scores(self) -> Scores:
        """With what the model sees."""
        return self._views[0]

    @property
    def ahead(self) -> list[Scores]:
        """With as many words more as each number in the agent's `lookahead` says."""
        return self._views[1:]

    def newly_read(self) -> list[int]:
        """Rows that see more than when this was last asked, and not yet the end."""
        new = []
        for row, (read, memory) in enumerate(zip(self.read, self.memory, strict=True)):
            if not self.ended[row] and memory.get("read") != read:
                memory["read"] = read
                new.append(row)
        return new

    def attention(self, layer: int = 0) -> Tensor:
        """[R, W] of the next token over source words, a guess too, the mean of a layer's heads.

        Layers are counted from 1; 0 is the mean of all of them. The agent's `wants_attention`
        must be true.
        """
        found = self.scores.attention
        if found is None:
            raise ValueError("this model does not show its attention over the source")
        found = (found[:, layer - 1] if layer else found.mean(1)).mean(1)  # [R, S]
        guessed = self.guessed or [0] * len(self.read)
        counts = [read + bool(n) for read, n in zip(self.read, guessed, strict=True)]
        places = [
            words + [count] * n
            for words, count, n in zip(self.source_words(), counts, guessed, strict=True)
        ]  # what a row does not see has no weight: word 1 may have it
        padded = [words + [1] * (found.shape[1] - len(words)) for words in places]
        index = found.new_tensor(padded).long() - 1
        return found.new_zeros(len(found), max(counts)).scatter_add(1, index, found)


class Agent(Protocol):
    """Decides over an offline model. Ours are frozen dataclasses of numbers."""

    wants_attention: bool = False
    goes_on: bool = False
    """Whether it needs `Seen.go_on`, which is None with a model that cannot try."""
    closes: bool = False
    """Whether the model is to take what it sees for a whole sentence, where it can.

    Its translation then comes to an end; that of an unfinished sentence runs ahead.
    """
    guesses: bool = False
    """Whether it may answer Guess: then the model reads no word before the agent does."""

    @property
    def lookahead(self) -> tuple[int, ...]:
        """It is asked after so many words more than the model may use; see `Seen.ahead`.

        Negative numbers are contexts of fewer words than the model sees.
        """
        return ()

    def decide(self, seen: Seen) -> Sequence[Answer]:
        """For each row WRITE, READ, a larger number of words to read, or a Guess.

        Where the source has ended, READ means WRITE.
        """
        ...
