"""Limits on how often and how many: a bucket for each connection, a count for each address."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from simultan.server.protocol import ProtocolError


class Bucket:
    """Fills at `rate` a second up to `burst`; who takes from an empty one has to wait."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.level, self.stamp = burst, time.monotonic()

    def take(self, amount: float = 1.0) -> float:
        """Take this much, even if it is not there; seconds until it would have been."""
        now = time.monotonic()
        self.level = min(self.burst, self.level + (now - self.stamp) * self.rate) - amount
        self.stamp = now
        return max(0.0, -self.level / self.rate)

    @property
    def is_full(self) -> bool:
        """Nothing was taken for so long that it might as well be new."""
        return (time.monotonic() - self.stamp) * self.rate + self.level >= self.burst


class Arrivals:
    """How often one address may come: who comes more often is sent away until it has waited."""

    MOST = 1000  # addresses that are remembered before those that have waited are forgotten

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.buckets: dict[str, Bucket] = {}

    def admit(self, address: str) -> bool:
        if len(self.buckets) > self.MOST:
            self.buckets = {a: b for a, b in self.buckets.items() if not b.is_full}
        bucket = self.buckets.setdefault(address, Bucket(self.rate, self.burst))
        if bucket.take() == 0:
            return True
        bucket.level += 1  # to be refused costs nothing: it does not lengthen the wait
        return False


class Places:
    """So many for everybody, so many of them for one address; `tell` hears how many are taken."""

    def __init__(
        self, what: str, total: int, each: int, tell: Callable[[int], None] = lambda taken: None
    ) -> None:
        self.what, self.total, self.each, self.tell = what, total, each or total, tell
        self.taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return self.taken.total()

    def has_room(self, address: str) -> bool:
        return len(self) < self.total and self.taken[address] < self.each

    def take(self, address: str) -> None:
        """A place, or `busy`."""
        if not self.has_room(address):
            whose = "" if len(self) >= self.total else " from your address"
            raise ProtocolError("busy", f"no place for another {self.what}{whose}; try later")
        self.taken[address] += 1
        self.tell(len(self))

    def give_back(self, address: str) -> None:
        self.taken[address] -= 1
        if self.taken[address] <= 0:
            del self.taken[address]
        self.tell(len(self))
