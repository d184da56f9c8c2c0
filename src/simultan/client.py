"""A client of a live server: words in, writes out; a lost connection is taken up again by itself.

async for write in simultan.client.translate("ws://127.0.0.1:8000/ws", words):
    print(write.text, write.delay)
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from simultan.server.protocol import (
    Ack,
    End,
    Error,
    Finish,
    Finished,
    GoingAway,
    Limits,
    Read,
    Resume,
    Start,
    Started,
    Threshold,
    Words,
    Write,
    encode,
    parse_server,
)

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

ACK_EVERY = 64  # messages, when there is nothing else to say


class ServerError(ValueError):
    """The session is over; `code` is one of docs/protocol.md, or "lost" or "going-away"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class Stream:
    """One session: send() words, iterate over Read, Write, End and at last Finished."""

    def __init__(
        self,
        url: str,
        *,
        threshold: float | None = None,
        pair: str | None = None,
        token: str | None = None,
        channel: str | None = None,
    ) -> None:
        """`channel`: a name under which others can follow, on /overlay?channel=NAME."""
        self.url, self._token = url, token
        self._start = Start(threshold=threshold, pair=pair, token=token, channel=channel)
        self.session = ""
        self.limits: Limits | None = None
        self.resumed = 0  # how often
        self._kept: deque[Words | Threshold | Finish] = deque()  # not acknowledged
        self._number = self._acked = self._sent = 0  # made; taken by the server; sent
        self._words = self._heard = 0
        self._seen = self._taken = self._told = 0  # came in; given to our user; acknowledged
        self._inbox: deque[Read | Write | End | Finished] = deque()
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()  # of the sender
        self._failure: Exception | None = None
        self._done = False
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            self._socket = await self._open()
        except WebSocketException as error:
            raise ServerError("lost", f"{self.url}: no simultan server answers there") from error
        self._task = asyncio.create_task(self._run(self._socket))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._socket is not None:
            await self._socket.close(1000)

    # --- what a user calls ---

    async def send(self, text: str) -> None:
        """Whole words; waits while the server has too many of ours in its queue."""
        assert self.limits is not None, "use it in `async with`"
        room = (self.limits.message - 400) // 6  # JSON may need six bytes for one of ours
        part: list[str] = []
        size = 0
        for word in text.split():
            word = word.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
            length = len(word.encode()) + 1
            if part and (size + length > room or len(part) >= self.limits.queue):
                await self._send_words(part)
                part, size = [], 0
            part.append(word)
            size += length
        if part:
            await self._send_words(part)

    async def _send_words(self, words: list[str]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._room(len(words)))
        self._check()
        self._words += len(words)
        self._add(Words(self._number + 1, " ".join(words)))

    async def set_threshold(self, value: float) -> None:
        self._check()
        self._add(Threshold(self._number + 1, value))

    async def finish(self) -> None:
        """The source is over."""
        self._check()
        self._add(Finish(self._number + 1))

    async def __aiter__(self) -> AsyncIterator[Read | Write | End | Finished]:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._inbox or self._failure)
            if not self._inbox:
                self._check()
            message = self._inbox.popleft()
            self._taken = message.seq
            if self._taken - self._told >= ACK_EVERY:
                self._wake.set()
            yield message
            if isinstance(message, Finished):
                return

    async def abort(self, error: Exception) -> None:
        """End with this error: who iterates gets it."""
        self._failure = error
        async with self._changed:
            self._changed.notify_all()

    # --- one connection after the other ---

    def _room(self, words: int) -> bool:
        assert self.limits is not None
        waiting = self._words + words - self._heard
        return waiting <= self.limits.queue or self._failure is not None

    def _add(self, message: Words | Threshold | Finish) -> None:
        self._number = message.seq
        self._kept.append(message)
        self._wake.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _open(self) -> ClientConnection:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        socket = await connect(
            self.url, additional_headers=headers, compression=None, max_size=None, open_timeout=10
        )
        start = self._start
        if self.session:
            start = Start(token=self._token, resume=Resume(self.session, self._seen))
        await socket.send(encode(start))
        message = parse_server(str(await socket.recv()))
        if not isinstance(message, Started):
            await socket.close()
            if isinstance(message, Error):
                raise ServerError(message.code, message.message)
            raise ServerError("going-away", "the server stops")
        self.session, self.limits = message.session, message.limits
        self.resumed += message.resumed
        self._drop(message.ack)
        self._sent = message.ack  # the rest is sent again
        return socket

    async def _run(self, socket: ClientConnection) -> None:
        try:
            while not self._done:
                sender = asyncio.create_task(self._send(socket))
                try:
                    await self._receive(socket)
                finally:
                    sender.cancel()
                    await asyncio.gather(sender, return_exceptions=True)
                if not self._done:
                    socket = self._socket = await self._open_again()
        except (OSError, WebSocketException, ServerError) as error:
            await self.abort(error)

    async def _open_again(self) -> ClientConnection:
        assert self.limits is not None
        delay, waited = 0.05, 0.0
        while True:
            try:
                return await self._open()
            except (OSError, WebSocketException) as error:
                if waited > self.limits.resume_seconds:
                    raise ServerError("lost", "the server cannot be reached") from error
            await asyncio.sleep(delay)
            waited, delay = waited + delay, min(2.0, 2 * delay)

    async def _send(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the receiver sees it, too
            while True:
                self._wake.clear()
                for message in [m for m in self._kept if m.seq > self._sent]:
                    await socket.send(encode(message, self._taken))
                    self._sent, self._told = message.seq, self._taken
                if self._taken - self._told >= ACK_EVERY:
                    await socket.send(encode(Ack(self._taken)))
                    self._told = self._taken
                await self._wake.wait()

    async def _receive(self, socket: ClientConnection) -> None:
        """Until the connection is lost, or all is done."""
        try:
            async for frame in socket:
                message = parse_server(str(frame))
                match message:
                    case Error(code, text, fatal):
                        if fatal or code == "replaced":
                            raise ServerError(code, text)
                        return
                    case GoingAway():
                        raise ServerError("going-away", "the server stops")
                    case Read() | Write() | End() | Finished():
                        self._drop(message.ack)
                        await self._note(message)
                        if self._done:
                            return
                    case _:
                        if message is not None:
                            self._drop(message.ack or 0)
        except ConnectionClosed:
            return

    async def _note(self, message: Read | Write | End | Finished) -> None:
        if message.seq <= self._seen:
            return
        self._seen = message.seq
        match message:
            case Read(words) | End(words):
                self._heard = max(self._heard, words)
            case Write(delay=delay):
                self._heard = max(self._heard, delay)
            case Finished():
                self._done = True
        self._inbox.append(message)
        async with self._changed:
            self._changed.notify_all()

    def _drop(self, ack: int) -> None:
        while self._kept and self._kept[0].seq <= ack:
            self._kept.popleft()


async def translate(
    url: str,
    words: Iterable[str] | AsyncIterable[str],
    *,
    threshold: float | None = None,
    pair: str | None = None,
    token: str | None = None,
) -> AsyncIterator[Write]:
    """The translation of these words, or texts, while they come."""
    async with Stream(url, threshold=threshold, pair=pair, token=token) as stream:

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
    url: str, words: Iterable[str], *, threshold: float | None = None, token: str | None = None
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

        async with Stream(url, threshold=threshold, token=token) as stream:
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
