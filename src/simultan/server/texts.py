"""A whole text on a row of its own, for POST /v1/translate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from simultan.server.protocol import Finished, Numbered, ProtocolError
from simultan.streaming.decoding import Decoding

if TYPE_CHECKING:
    from simultan.server.live import Live


class TextJob:
    """Iterate over its messages as they come; close() it, whatever becomes of it."""

    def __init__(self, live: Live, words: list[str], decoding: Decoding, address: str) -> None:
        self.live, self.address = live, address
        live.take_place(address)
        self.messages: asyncio.Queue[Numbered | ProtocolError] = asyncio.Queue()
        self.queue = live.batcher.open(
            self.messages.put_nowait, decoding, is_text=True, address=address
        )
        self.task = asyncio.current_task()
        live.jobs.add(self)
        live.metrics.heard.inc(len(words))
        self.queue.push(words)
        self.queue.finish()

    async def __aiter__(self) -> AsyncIterator[Numbered]:
        while True:
            message = await self.messages.get()
            if isinstance(message, ProtocolError):
                raise message
            self.queue.acknowledge(message.seq)
            yield message
            if isinstance(message, Finished):
                return

    def stop(self) -> None:
        """The server stops: iterating raises `busy`."""
        self.messages.put_nowait(ProtocolError("busy", "the server stops; try again"))

    def look(self, now: float, slow: float) -> None:
        """Give up if the client has not read for too long."""
        if self.queue.seconds_full(now) > slow and self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        if self in self.live.jobs:
            self.live.jobs.discard(self)
            self.queue.close()
            self.live.sessions_of.give_back(self.address)
