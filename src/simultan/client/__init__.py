"""A client of a live server: words in, writes out; a lost connection is taken up again by itself.

async for write in simultan.client.translate("ws://127.0.0.1:8000/ws", words):
    print(write.text, write.delay)
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING

from simultan.client.stream import ServerError, Stream
from simultan.server.protocol import End, Finished, Read, Write

if TYPE_CHECKING:
    from simultan.streaming.decoding import Decoding

__all__ = [
    "End",
    "Finished",
    "Read",
    "ServerError",
    "Stream",
    "Write",
    "iterate",
    "translate",
]


async def translate(
    url: str,
    words: Iterable[str] | AsyncIterable[str],
    *,
    decoding: Decoding | str | None = None,
    pair: str | None = None,
    token: str | None = None,
    timeout: float = 60.0,
) -> AsyncIterator[Write]:
    """The translation of these words, or texts, while they come."""
    stream = Stream(url, decoding=decoding, pair=pair, token=token, timeout=timeout)
    async with stream:

        async def feed() -> None:
            try:
                if isinstance(words, AsyncIterable):
                    async for text in words:
                        await stream.send(text)
                else:
                    for text in words:
                        await stream.send(text)
                        await asyncio.sleep(0)
                await stream.finish()
            except Exception as error:
                await stream.abort(error)

        feeding = asyncio.create_task(feed())
        try:
            async for message in stream:
                if isinstance(message, Write):
                    yield message
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


def iterate(
    url: str,
    words: Iterable[str],
    *,
    decoding: Decoding | str | None = None,
    token: str | None = None,
    timeout: float = 60.0,
) -> Iterator[str | Read | Write | End | Finished]:
    """For programs without an event loop: words as they are sent, messages as they come.

    `words` may block; it is read in a thread of its own.
    """
    out: queue.SimpleQueue[str | Read | Write | End | Finished | Exception | None]
    out = queue.SimpleQueue()

    async def run() -> None:
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[str | Exception | None](100)

        def put(item: str | Exception | None) -> bool:
            with suppress(RuntimeError, CancelledError):  # the loop is over: nobody wants more
                asyncio.run_coroutine_threadsafe(texts.put(item), loop).result()
                return True
            return False

        def read() -> None:
            try:
                if all(put(word) for word in words):
                    put(None)
            except Exception as error:
                put(error)

        async def feed(stream: Stream) -> None:
            try:
                while (text := await texts.get()) is not None:
                    if isinstance(text, Exception):
                        raise text
                    await stream.send(text)
                    out.put(text)
                await stream.finish()
            except Exception as error:
                await stream.abort(error)

        async with Stream(url, decoding=decoding, token=token, timeout=timeout) as stream:
            threading.Thread(target=read, daemon=True).start()
            feeding = asyncio.create_task(feed(stream))
            try:
                async for message in stream:
                    out.put(message)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    def work() -> None:
        try:
            asyncio.run(run())
        except Exception as error:
            out.put(error)
        out.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (item := out.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item
