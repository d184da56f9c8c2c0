"""A session as its client sees it: numbers, acknowledgements and what can be sent again."""

from __future__ import annotations

import secrets
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from simultan.server.protocol import (
    Ack,
    DecodingChange,
    EndSentence,
    Finish,
    Finished,
    Numbered,
    Ping,
    ProtocolError,
    Spoken,
    Threshold,
    Words,
)
from simultan.server.queue import Queue
from simultan.streaming.decoding import Decoding

if TYPE_CHECKING:
    from simultan.server.connection import Connection
    from simultan.server.live import Live


class Session:
    """Both directions of one stream, over any number of connections, one after the other.

    Of the server's messages, `acked` <= `sent` <= `produced`: the client has confirmed, was sent on
    the connection it has now, and there are so many. Of the client's, `received` are here.
    """

    def __init__(self, live: Live, queue: Queue, decoding: Decoding, address: str = "") -> None:
        self.id = live.tag + secrets.token_urlsafe(16)
        self.live, self.queue, self.decoding, self.address = live, queue, decoding, address
        self.received = 0
        self.lengths: deque[int] = deque()  # characters of the words that were not heard yet
        self.words = self.characters = 0  # taken; characters of those that wait
        self.finishing = self.done = False
        self.outbox: deque[Numbered] = deque()  # not acknowledged
        self.produced = self.sent = self.acked = 0
        self.most_sent = 0  # on any connection
        self.connection: Connection | None = None
        self.started = self.spoken = self.lost = time.monotonic()
        self.channel = ""

    # --- from the client ---

    def receive(self, message: Spoken | Ack | Ping) -> bool:
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
                self._take_words(message.text)
            case EndSentence():
                self.queue.end_sentence()
            case DecodingChange():
                self._set_decoding(self.live.choose(message.value))
            case Threshold():
                with suppress(ProtocolError):  # models without a threshold used to ignore it
                    self._set_decoding(self.live.choose(f"threshold={message.value!r}"))
            case Finish():
                self.finishing = True
                self.queue.finish()
        self.received = message.seq
        self.spoken = time.monotonic()
        return True

    def _take_words(self, text: str) -> None:
        words, limits = self.live.split(text), self.live.settings.limits
        while self.lengths and self.words - len(self.lengths) < self.queue.heard:
            self.characters -= self.lengths.popleft()
        length = sum(map(len, words))
        if (
            len(self.lengths) + len(words) > limits.queue
            or self.characters + length > limits.queue_characters
        ):
            most = f"{limits.queue} words or {limits.queue_characters} characters"
            raise ProtocolError("too-fast", f"more than {most} wait: resume, and send slower")
        self.words += len(words)
        self.characters += length
        self.lengths.extend(map(len, words))
        if words:
            self.queue.push(words)

    def _set_decoding(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self.queue.set_decoding(decoding)

    # --- to the client ---

    def add(self, message: Numbered) -> None:
        """Keep a message for the client until it is acknowledged."""
        if message.seq != self.produced + 1:
            raise AssertionError(f"message {message.seq} after {self.produced}")
        self.outbox.append(message)
        self.done = isinstance(message, Finished)
        self._move(produced=message.seq)

    def unsent(self) -> list[Numbered]:
        return list(islice(self.outbox, self.sent - self.acked, None))

    def note_sent(self, message: Numbered) -> None:
        self._move(sent=message.seq)

    def acknowledge(self, number: int) -> None:
        """The client has everything up to this number."""
        if number > self.sent:
            raise ProtocolError("malformed", "ack is a number that was never sent")
        if number > self.acked:
            self._move(acked=number)
            self.queue.acknowledge(number)

    def resume(self, last: int) -> None:
        """Another connection continues after this number."""
        if not self.acked <= last <= self.most_sent:
            raise ProtocolError("cannot-resume", "last is no number this session can continue from")
        self._move(sent=last)
        self.acknowledge(last)

    def _move(
        self, *, produced: int | None = None, sent: int | None = None, acked: int | None = None
    ) -> None:
        """The only place where these numbers change."""
        self.produced = self.produced if produced is None else produced
        self.sent = self.sent if sent is None else sent
        self.acked = self.acked if acked is None else acked
        self.most_sent = max(self.most_sent, self.sent)
        while self.outbox and self.outbox[0].seq <= self.acked:
            self.outbox.popleft()
        if not self.acked <= self.sent <= self.produced:
            raise AssertionError(f"{self.acked} <= {self.sent} <= {self.produced} does not hold")
