"""What an operator can set; a setting with a help text is an option of `simultan serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from simultan.config import Bound, check_bounds
from simultan.server.protocol import Limits
from simultan.streaming.decoding import Decoding

Positive = Annotated[float, Bound(0, above=True)]


@dataclass(frozen=True)
class Settings:
    """The defaults suit one machine and its owner."""

    decoding: Decoding | str = "default"  # unless a client chooses another
    rows: Annotated[int, Bound(1), "Translate this many streams side by side."] = 32
    max_sessions: Annotated[
        int | None, Bound(1), "Open at most this many sessions; four for each row by default."
    ] = None
    batching: Annotated[
        bool, "Step all streams through the model together, or one after another."
    ] = True

    # who may come in
    token: Annotated[
        str | None, "Let in only clients that know this token.", "$SIMULTAN_TOKEN", "<TOKEN>"
    ] = field(default=None, repr=False)
    tokens_file: Annotated[
        Path | None, "Read tokens and their rights from this file, again when it changes."
    ] = None
    origins: Annotated[
        tuple[str, ...],
        "Let pages of this site connect, too; can be repeated.",
        "--origin",
        "<URL>",
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], "Answer to this name, too; can be repeated.", "--allowed-host", "<NAME>"
    ] = ()
    proxies: Annotated[
        tuple[str, ...],
        "Believe what this proxy says about addresses of clients; can be repeated.",
        "--proxy",
        "<ADDRESS>",
    ] = ()
    max_connections: Annotated[int, Bound(1)] = 1000
    per_address: Annotated[
        int, Bound(0), "Allow one address this many connections, sessions and followers; 0: any."
    ] = 64
    connections_per_second: Positive = 20.0  # new ones of one address, after a burst
    max_followers: int = 256  # of all channels

    # one stream
    max_message: Annotated[
        int, Bound(1024), "Refuse messages of more bytes than this.", "<BYTES>"
    ] = 65_536
    messages_per_second: Positive = 100.0  # read from one connection; more wait in its socket
    queue: Annotated[int, Bound(1)] = 10_000  # words
    queue_characters: Annotated[int, Bound(1)] = 256 * 1024
    words_per_second: Annotated[
        Positive, "Read at most this many words a second from a stream; others wait.", "<WORDS>"
    ] = 100.0
    window: Annotated[int, Bound(16)] = 1024  # messages that are not acknowledged; a turn needs 4

    # seconds
    start_seconds: float = 10.0  # until a request, or a stream's first message, is complete
    idle_seconds: Annotated[float, "End a session after this long a silence.", "<SECONDS>"] = 600.0
    resume_seconds: float = 60.0
    unused_seconds: float = 5.0  # instead of resume_seconds, if nothing was said
    slow_seconds: float = 10.0  # with a full window
    heartbeat_seconds: float = 15.0  # to a follower when nothing is written
    hold_seconds: float = 5.0  # a silent stream its row in mid-sentence, while others wait for one
    wait_seconds: float = 1.0  # for a row, until that of a stream that speaks is taken
    turn_seconds: float = 2.0  # that stream has had it by then
    drain_seconds: Annotated[
        float, "After SIGTERM, wait this long for open sentences to end.", "<SECONDS>"
    ] = 10.0
    flush_seconds: float = 3.0  # to write what is left, when the server stops
    wrong_token_seconds: float = 1.0  # until the answer to a wrong token
    tick_seconds: float = 0.5  # how often these clocks are looked at

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoding", Decoding.parse(self.decoding))
        check_bounds(self)
        if self.token == "":
            raise ValueError("token: an empty one would keep nobody out")

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
