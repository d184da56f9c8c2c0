"""One stream of words to a server, over one connection after the other."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from simultan.data.text import normalise
from simultan.data.words import split_words
from simultan.server.protocol import (
    Ack,
    DecodingChange,
    End,
    EndSentence,
    Error,
    Finish,
    Finished,
    GoingAway,
    Limits,
    Numbered,
    Ping,
    ProtocolError,
    Read,
    Resume,
    ServerMessage,
    Spoken,
    Start,
    Started,
    Words,
    Write,
    encode,
    parse_server,
)

if TYPE_CHECKING:
    from simultan.streaming.decoding import Decoding

ACK_EVERY = 64  # messages, or a quarter of the server's window, when there is nothing else to say
MOST_REFUSED = 10  # times in a row: then the server and we do not understand each other


class ServerError(ValueError):
    """The session is over; `code` is one of docs/protocol.md, or "lost" or "going-away"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class NoServerError(ServerError, ConnectionError):
    """Nothing answers at the address; programs may catch it as any OSError of a connection."""


class Stream:
    """One session: send() words, iterate over Read, Write, End and at last Finished."""

    def __init__(
        self,
        url: str,
        *,
        decoding: Decoding | str | None = None,
        pair: str | None = None,
        token: str | None = None,
        channel: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """`decoding`: such as "lag=4". `channel`: a secret; others can follow `self.channel`, on
        /overlay?channel=... `timeout`: a connection is lost if the server is silent for half of it,
        and the stream ends with an error if for so many seconds there can be no other one."""
        self.url, self._token, self._patience = url, token, timeout
        self._silence = self._answer = timeout / 4  # seconds until we ask; until it has to answer
        wanted = None if decoding is None else str(decoding)
        self._start = Start(decoding=wanted, pair=pair, token=token, channel=channel)
        self.session = self.pair = ""  # given by the server
        self.channel = self.follow = ""  # what followers need: the channel, and their token
        self.limits: Limits | None = None
        self.resumed = 0  # how often
        self._refused = 0  # times in a row, without anything being taken
        self._kept: deque[Spoken] = deque()  # not acknowledged
        self._number = self._sent = 0  # made; sent
        self.words = self._heard = 0  # sent, as the server counts them; heard
        self._lengths: deque[int] = deque()  # characters of the words that were not heard yet
        self._seen = self._taken = self._told = 0  # came in; given to our user; acknowledged
        self._inbox: deque[Numbered] = deque()
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()  # of the sender
        self._failure: Exception | None = None
        self._done = False
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            self._socket = await self._open()
        except ServerError:
            raise
        except (WebSocketException, OSError, ValueError) as error:  # the last: no address at all
            raise NoServerError("lost", f"{self.url}: no simultan server answers there") from error
        self._task = asyncio.create_task(self._run(self._socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._socket is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._socket.close(1000), self._answer)

    # --- what a user calls ---

    async def send(self, text: str) -> None:
        """Whole words; waits while the server has too many of ours in its queue."""
        assert self.limits is not None, "use it in `async with`"
        room = (self.limits.message - 400) // 6  # JSON may need six bytes for one of ours
        room = min(room, self.limits.queue_characters)
        part: list[str] = []
        size = 0
        for word in split_words(normalise(text), self.pair.partition("-")[0]):
            word = word.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
            length = len(word.encode()) + 1
            if part and (size + length > room or len(part) >= min(100, self.limits.queue)):
                await self._send_words(part)
                part, size = [], 0
            part.append(word)
            size += length
        if part:
            await self._send_words(part)

    async def _send_words(self, words: list[str]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(words))
        self._add(Words, " ".join(words))
        self.words += len(words)
        self._lengths.extend(map(len, words))

    async def end_sentence(self) -> None:
        """End the sentence here: it is written to its end, and the stream stays open."""
        self._add(EndSentence)

    async def set_decoding(self, decoding: Decoding | str) -> None:
        self._add(DecodingChange, str(decoding))

    async def finish(self) -> None:
        """The source is over."""
        self._add(Finish)

    async def __aiter__(self) -> AsyncIterator[Numbered]:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._inbox or self._failure)
            if not self._inbox:
                self._check()
            message = self._inbox.popleft()
            self._taken = message.seq
            if self._owes_an_ack():
                self._wake.set()
            yield message
            if isinstance(message, Finished):
                return

    async def abort(self, error: Exception) -> None:
        """End with this error, which iterating then raises."""
        self._failure = error
        async with self._changed:
            self._changed.notify_all()

    # --- one connection after the other ---

    def _has_room(self, words: list[str]) -> bool:
        """Whether the server's queue can take these words; it takes anything when it is empty."""
        assert self.limits is not None
        while self._lengths and self.words - len(self._lengths) < self._heard:
            self._lengths.popleft()
        count = len(self._lengths) + len(words)
        size = sum(self._lengths) + sum(map(len, words))
        room = count <= self.limits.queue and size <= self.limits.queue_characters
        return room or not self._lengths or self._failure is not None

    def _owes_an_ack(self) -> bool:
        """Before the window is full: the server would wait for us, and we for room in its queue."""
        window = ACK_EVERY if self.limits is None else self.limits.window // 4
        return self._taken - self._told >= min(ACK_EVERY, window)

    def _add(self, kind: Callable[..., Spoken], *values: str) -> None:
        self._check()
        self._number += 1
        self._kept.append(kind(self._number, *values))
        self._wake.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _open(self) -> ClientConnection:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        socket = await connect(
            websocket(self.url),
            additional_headers=headers,
            compression=None,
            max_size=None,
            open_timeout=self._answer,
            close_timeout=min(10.0, self._answer),
            ping_interval=None,  # _receive sees to it
        )
        start = self._start
        if self.session:
            start = Start(token=self._token, resume=Resume(self.session, self._seen))
        try:
            async with asyncio.timeout(self._answer):
                await socket.send(encode(start))
                message = _parse(await socket.recv())
        except BaseException:
            socket.transport.abort()
            raise
        if not isinstance(message, Started):
            await socket.close()
            if isinstance(message, Error):
                raise ServerError(message.code, message.message)
            raise ServerError("going-away", "the server stops")
        self.session, self.limits, self.pair = message.session, message.limits, message.pair
        self.channel, self.follow = message.channel, message.follow
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
                    socket.transport.abort()
                    socket = self._socket = await self._open_again()
        except Exception as error:  # whatever it is: somebody waits for messages
            await self.abort(error)

    async def _open_again(self) -> ClientConnection:
        delay, until = 0.05, time.monotonic() + self._patience  # and one more try
        while True:
            try:
                return await self._open()
            except (OSError, WebSocketException) as error:  # a TimeoutError is an OSError
                if time.monotonic() > until:
                    raise ServerError("lost", "the server cannot be reached") from error
            await asyncio.sleep(delay)
            delay = min(2.0, 2 * delay)

    async def _send(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the receiver sees it, too
            while True:
                self._wake.clear()
                for message in [m for m in self._kept if m.seq > self._sent]:
                    await socket.send(encode(message, self._taken))
                    self._sent, self._told = message.seq, self._taken
                if self._owes_an_ack():
                    await socket.send(encode(Ack(self._taken)))
                    self._told = self._taken
                await self._wake.wait()

    async def _next(self, socket: ClientConnection) -> ServerMessage | None:
        """The next message. When none comes we ask, and a server that does not answer is gone."""
        try:
            async with asyncio.timeout(self._silence):
                return _parse(await socket.recv())
        except TimeoutError:
            async with asyncio.timeout(self._answer):
                with suppress(ConnectionClosed):  # what came before that is still to be read
                    await socket.send(encode(Ping()))
                return _parse(await socket.recv())

    async def _receive(self, socket: ClientConnection) -> None:
        """Until the connection is lost, or all is done."""
        while not self._done:
            try:
                message = await self._next(socket)
            except (ConnectionClosed, TimeoutError):
                return
            match message:
                case Error(code, text, fatal):
                    self._refused += 1
                    if fatal or code == "replaced" or self._refused > MOST_REFUSED:
                        raise ServerError(code, text)
                    await asyncio.sleep(0.1 * self._refused)
                    return
                case GoingAway():
                    raise ServerError("going-away", "the server stops")
                case Read() | Write() | End() | Finished():
                    self._drop(message.ack)
                    await self._note(message)
                case _:
                    if message is not None:
                        self._drop(message.ack or 0)

    async def _note(self, message: Numbered) -> None:
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
            self._refused = 0


def websocket(url: str) -> str:
    """Where streams go, if this is the address of a server: that of its page, or of its host.

    A page may lie below a path. An address that says ws:// and has a path is taken as it stands.
    """
    parts = urlsplit(url if re.match(r"\w+://", url) else f"http://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if scheme == parts.scheme and path:
        path = parts.path
    elif not path.endswith("/ws"):
        path += "/ws"
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def _parse(frame: str | bytes) -> ServerMessage | None:
    try:
        return parse_server(str(frame))
    except ProtocolError as error:
        raise ServerError("malformed", f"the server sent what cannot be read: {error}") from None
