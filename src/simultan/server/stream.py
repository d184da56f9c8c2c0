"""A session as the protocol sees it: numbers, acknowledgements and what can be sent again."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from simultan.server.protocol import (
    Ack,
    Finish,
    Finished,
    Numbered,
    Ping,
    ProtocolError,
    Threshold,
    Words,
)

__all__ = ["Lane", "Stream"]


class Lane(Protocol):
    """What a stream needs of the batcher."""

    heard: int

    def push(self, words: list[str]) -> None: ...
    def set_threshold(self, value: float) -> None: ...
    def finish(self) -> None: ...
    def acknowledge(self, number: int) -> None: ...


class Stream:
    """Both directions of one session, over any number of connections; no input or output."""

    def __init__(
        self, lane: Lane, split: Callable[[str], list[str]], queue: int, threshold: float
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.lane, self.split, self.queue, self.threshold = lane, split, queue, threshold
        self.received = 0  # the client's last number
        self.words = 0  # taken
        self.finishing = False
        self.done = False
        self.outbox: deque[Numbered] = deque()  # not acknowledged
        self.produced = self.acked = 0

    def receive(self, message: Words | Threshold | Finish | Ack | Ping) -> bool:
        """Take a message; False: it was here before. ProtocolError: it is refused."""
        if message.ack is not None:
            self.acknowledge(message.ack)
        if isinstance(message, Ack | Ping):
            return True
        if message.seq <= self.received:
            return False
        if message.seq > self.received + 1:
            raise ProtocolError("out-of-order", f"number {self.received + 1} was left out")
        if self.finishing:
            raise ProtocolError("malformed", "nothing can follow finish")
        match message:
            case Words():
                words = self.split(message.text)
                if self.words + len(words) - self.lane.heard > self.queue:
                    raise ProtocolError(
                        "too-fast", f"more than {self.queue} words wait: resume, and send slower"
                    )
                self.words += len(words)
                if words:
                    self.lane.push(words)
            case Threshold():
                self.threshold = message.value
                self.lane.set_threshold(message.value)
            case Finish():
                self.finishing = True
                self.lane.finish()
        self.received = message.seq
        return True

    def add(self, message: Numbered) -> None:
        """Keep a message for the client until it is acknowledged."""
        if message.seq != self.produced + 1:
            raise AssertionError(f"message {message.seq} after {self.produced}")
        self.produced = message.seq
        self.outbox.append(message)
        self.done = isinstance(message, Finished)

    def acknowledge(self, number: int) -> None:
        """The client has everything up to this number."""
        if number > self.produced:
            raise ProtocolError("malformed", "ack is a number that was never sent")
        if number > self.acked:
            self.acked = number
            while self.outbox and self.outbox[0].seq <= number:
                self.outbox.popleft()
            self.lane.acknowledge(number)

    def resume(self, last: int) -> None:
        """Go on after this number."""
        if not self.acked <= last <= self.produced:
            raise ProtocolError("cannot-resume", "last is no number this session can go on from")
        self.acknowledge(last)

    def after(self, number: int) -> list[Numbered]:
        """What is to be sent when everything up to `number` has been."""
        return list(islice(self.outbox, max(0, number - self.acked), None))
