"""What an operator can set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from simultan.server.protocol import Limits
from simultan.streaming.decoding import Decoding

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The defaults suit one machine and its owner."""

    decoding: Decoding | str = "default"  # unless a client chooses another
    rows: int = 32  # streams that are translated side by side
    max_sessions: int | None = None  # streams that are open at once; None: four for each row
    batching: bool = True  # False: one row at a time

    # who may come in
    token: str | None = field(default=None, repr=False)  # has all rights
    tokens_file: Path | None = None  # more of them, with their rights
    origins: tuple[str, ...] = ()  # pages that may connect, besides the server's own
    allowed_hosts: tuple[str, ...] = ()  # names of this server, besides addresses and its own
    proxies: tuple[str, ...] = ()  # whose X-Forwarded-For is believed
    max_connections: int = 1000
    per_address: int = 64  # connections, sessions and followers of one address; 0: no limit
    max_followers: int = 256  # of all channels

    # one stream
    max_message: int = 64 * 1024  # bytes
    messages_per_second: float = 100.0  # read from one connection; more wait in its socket
    queue: int = 10_000  # words
    queue_characters: int = 256 * 1024
    words_per_second: float = 100.0
    window: int = 1024  # messages that are not acknowledged

    # seconds
    start_seconds: float = 10.0  # until a request, or a stream's first message, is complete
    idle_seconds: float = 600.0
    resume_seconds: float = 60.0
    unused_seconds: float = 5.0  # instead of resume_seconds, if nothing was said
    slow_seconds: float = 10.0  # with a full window
    heartbeat_seconds: float = 15.0  # to a follower when nothing is written
    hold_seconds: float = 5.0  # a row in mid-sentence, while others wait for one
    drain_seconds: float = 10.0  # for open sentences, after SIGTERM
    flush_seconds: float = 3.0  # to write what is left, when the server stops
    wrong_token_seconds: float = 1.0  # until the answer to a wrong token
    tick_seconds: float = 0.5  # how often these clocks are looked at

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoding", Decoding.parse(self.decoding))
        for name in ("rows", "max_message", "queue", "queue_characters", "words_per_second",
                     "messages_per_second", "max_connections"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: it must be above 0")
        if self.max_sessions is not None and self.max_sessions < 1:
            raise ValueError(f"max_sessions = {self.max_sessions}: it must be at least 1")
        if self.token == "":
            raise ValueError("token: an empty one would keep nobody out")
        if self.window < 16:
            raise ValueError(f"window = {self.window}: one turn may need 4 messages; 16 or more")

    @property
    def sessions(self) -> int:
        return self.max_sessions or 4 * self.rows

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_message,
            self.queue,
            self.queue_characters,
            self.words_per_second,
            self.messages_per_second,
            self.window,
            self.idle_seconds,
            self.resume_seconds,
        )
