"""What a session with an agent needs of an offline model: read more, score the next token, commit.

A model that keeps what it has computed is incremental, as ours is; another may encode the visible
part of the source, and decode what is written, again for every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from simultan.model.policy import Policy
from simultan.streaming.agents.protocol import Scores


class Backend(Protocol):
    """An offline model and what it remembers of some rows."""

    attention_layers: int = 0
    """Decoder layers whose attention over the source it can show; 0: it shows none."""
    tries: bool = False
    """Whether it has keep() and restore(), to try what it would write."""
    rewinds: bool = False
    """Whether it has mark() and rewind(), for agents that guess source words."""

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        """More source tokens of these rows; where the source has ended, the last is the end."""
        ...

    def score(self, rows: Sequence[int], visible: Sequence[int], attention: bool) -> Scores:
        """The next target token of each row, given its first visible[i] source tokens."""
        ...

    def commit(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        """These target tokens are written, given what was visible when they were last scored."""
        ...

    def reset(self, row: int) -> None:
        """The row begins a new sentence."""
        ...

    def keep(self, rows: Sequence[int]) -> Any:
        """What these rows have written so far, for restore()."""
        raise NotImplementedError

    def restore(self, rows: Sequence[int], kept: Any) -> None:
        """Take back what these rows have committed since."""
        raise NotImplementedError

    def mark(self, row: int) -> Any:
        """Where the row stands now."""
        raise NotImplementedError

    def rewind(self, row: int, mark: Any) -> None:
        """Forget the source tokens that the row has read since; what is written stays."""
        raise NotImplementedError


class OfflineModel(Protocol):
    """A model that is not ours and translates whole sentences."""

    policy: Policy = Policy("offline", learned=False, lookback=None, every_head=False)
    agent: str = "agreement:2"
    """Who decides if nobody else is chosen."""

    def backend(self, rows: int) -> Backend:
        """The same weights with room for so many rows."""
        ...
