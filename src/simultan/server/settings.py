"""What an operator can set."""

from __future__ import annotations

from dataclasses import dataclass, field

from simultan.server.protocol import Limits

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The defaults suit one machine and its owner."""

    threshold: float = 0.5  # unless a client wants another
    rows: int = 32  # streams that can be translated side by side
    max_sessions: int | None = None  # fewer than there are rows
    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()  # pages that may connect, besides the server's own
    local: bool = True  # the server's own page is at localhost
    max_message: int = 64 * 1024  # bytes
    queue: int = 10_000  # words
    words_per_second: float = 100.0
    idle_seconds: float = 600.0
    resume_seconds: float = 60.0
    window: int = 1024  # messages
    max_followers: int = 64  # of all channels
    heartbeat_seconds: float = 15.0  # to a follower when nothing is written
    slow_seconds: float = 10.0  # with a full window
    start_seconds: float = 10.0  # until the first message
    drain_seconds: float = 3.0  # to write what is left, when the server stops
    tick_seconds: float = 0.5  # how often these clocks are looked at
    batching: bool = True  # False: one row at a time
    k: int | None = None  # of wait-k models
    rule: str | None = None  # of offline models

    def __post_init__(self) -> None:
        for name in ("rows", "max_message", "queue", "words_per_second", "window"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: it must be above 0")
        if self.max_sessions is not None and not 0 < self.max_sessions <= self.rows:
            raise ValueError(
                f"max_sessions = {self.max_sessions}: each session needs a row, and there are"
                f" {self.rows}"
            )
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold = {self.threshold}: it must lie between 0 and 1")
        if self.token == "":
            raise ValueError("token: an empty one would keep nobody out")
        if self.window < 16:
            raise ValueError(f"window = {self.window}: one turn may need 4 messages; 16 or more")

    @property
    def sessions(self) -> int:
        return self.max_sessions or self.rows

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_message,
            self.queue,
            self.words_per_second,
            self.window,
            self.idle_seconds,
            self.resume_seconds,
        )
