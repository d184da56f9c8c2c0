"""A client of a live server: words in, writes out; a lost connection is taken up again by itself.

async for write in simultan.client.translate("ws://127.0.0.1:8000/ws", words):
    print(write.text, write.delay)
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from simultan.client.stream import ServerError, Stream
from simultan.server.protocol import End, Finished, Numbered, Read, Write

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
    """The translation of these words, or texts, while they come; "\\n" ends a sentence."""
    stream = Stream(url, decoding=decoding, pair=pair, token=token, timeout=timeout)
    texts = words if isinstance(words, AsyncIterable) else _each(words)
    async with aclosing(_exchange(stream, texts)) as messages:
        async for message in messages:
            if isinstance(message, Write):
                yield message


async def _each(words: Iterable[str]) -> AsyncIterator[str]:
    for text in words:
        yield text
        await asyncio.sleep(0)


async def _exchange(stream: Stream, texts: AsyncIterable[str]) -> AsyncGenerator[Numbered]:
    """Send texts while they come; yield what the server says meanwhile."""

    async def feed() -> None:
        try:
            async for text in texts:
                await (stream.end_sentence() if text == "\n" else stream.send(text))
            await stream.finish()
        except Exception as error:
            await stream.abort(error)

    async with stream:
        feeding = asyncio.create_task(feed())
        try:
            async for message in stream:
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
    in_turn: bool = False,
) -> Iterator[str | Numbered]:
    """For programs without an event loop: words as they are sent, messages as they come.

    "\\n" ends a sentence. `words` may block; it is read in a thread of its own. `in_turn`: what
    follows a "\\n" is not asked for before the caller has had the translation up to there.
    """
    stream = Stream(url, decoding=decoding, token=token, timeout=timeout)
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether a line is to follow
    out: queue.SimpleQueue[str | Numbered | Exception | None] = queue.SimpleQueue()

    async def read() -> AsyncIterator[str]:
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[str | Exception | None](100)

        def put(item: str | Exception | None) -> bool:
            putting = texts.put(item)
            with suppress(RuntimeError, CancelledError):  # the loop is over: nobody wants more
                asyncio.run_coroutine_threadsafe(putting, loop).result()
                return True
            putting.close()
            return False

        def put_all() -> None:
            try:
                for word in words:
                    if not put(word) or (in_turn and word == "\n" and not turns.get()):
                        return
                put(None)
            except Exception as error:
                put(error)

        threading.Thread(target=put_all, daemon=True).start()
        while (text := await texts.get()) is not None:
            if isinstance(text, Exception):
                raise text
            yield text
            out.put(text)  # it has been sent

    async def run() -> None:
        async for message in _exchange(stream, read()):
            out.put(message)

    def work() -> None:
        try:
            asyncio.run(run())
        except Exception as error:
            out.put(error)
        out.put(None)

    threading.Thread(target=work, daemon=True).start()
    waits, ended = False, 0
    try:
        while (item := out.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
            waits |= in_turn and item == "\n"
            ended = item.words if isinstance(item, End) else ended
            if waits and ended >= stream.words:
                turns.put(True)
                waits = False
    finally:
        turns.put(False)
