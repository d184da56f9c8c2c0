"""Guards of a live stream: what a model repeats or makes up comes to an end."""

from __future__ import annotations


class Guard:
    """Ends what goes nowhere: too much written for what was read, or the same words again.

    Each source token allows two target tokens more; what is not used is kept, up to `most`.
    """

    def __init__(self, extra: int = 30, most: int = 600, times: int = 4, longest: int = 4) -> None:
        self.allowed, self.most = extra, most
        self.times, self.longest = times, longest
        self.position = -1
        self.recent: list[int] = []

    def stuck(self, token: int, position: int) -> bool:
        """Whether writing this token, at this source position, would be going nowhere."""
        if self.allowed + 2 * (position - self.position) <= 0:
            return True
        recent = [*self.recent, token]
        for size in range(1, self.longest + 1):
            times = self.times if size > 1 else 2 * self.times
            tail = recent[-size * times :]
            if len(tail) == size * times and tail == tail[-size:] * times:
                return True
        return False

    def note(self, token: int, position: int) -> None:
        """The token was written."""
        self.allowed = min(self.most, self.allowed + 2 * (position - self.position)) - 1
        self.position = position
        self.recent = [*self.recent, token][-self.times * max(2, self.longest) :]

    def moved(self) -> None:
        """The heads have moved on: what was repeated no longer counts."""
        self.recent = []
