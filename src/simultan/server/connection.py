"""One websocket: what comes in, at a bounded rate, and what goes out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect

from simultan.server.protocol import (
    CLOSE,
    FATAL,
    ClientMessage,
    Error,
    GoingAway,
    Pong,
    ProtocolError,
    Start,
    encode,
    parse_client,
)
from simultan.server.rates import Bucket
from simultan.server.session import Session

if TYPE_CHECKING:
    from simultan.server.live import Live

logger = logging.getLogger(__name__)
MOST_PONGS = 16  # answers that may wait; a client that floods with pings misses some
BYTES_PER_SECOND = 64 * 1024  # read from one connection; a burst may have ten times as much


class Connection:
    """`end` gives it its last message; it is sent after what is on its way."""

    def __init__(self, socket: WebSocket, live: Live) -> None:
        self.socket, self.live = socket, live
        self.address = socket.client.host if socket.client else ""
        self.session: Session | None = None
        rate = live.settings.messages_per_second
        self.messages = Bucket(rate, 2 * rate)
        self.bytes = Bucket(BYTES_PER_SECOND, 10 * BYTES_PER_SECOND)
        self.pongs = 0
        self.last: Error | GoingAway | None = None
        self.gone = False
        self.wake = asyncio.Event()
        self.task = asyncio.current_task()
        self.deadline: asyncio.TimerHandle | None = None

    def end(self, last: Error | GoingAway) -> None:
        """Say this and close. A client that does not read has a while to see it."""
        if self.last is None:
            self.last = last
            if self.session is not None and self.session.connection is self:
                self.live.lose(self.session)
            self.session = None
            if self.task is not None:
                seconds = self.live.settings.slow_seconds
                loop = asyncio.get_running_loop()
                self.deadline = loop.call_later(seconds, self.task.cancel)
        self.wake.set()

    def fail(self, code: str, message: str) -> None:
        """End with an error; if it is fatal, the session is over, too."""
        if self.last is None:
            self.live.metrics.errors.labels(code).inc()
            session = self.session
            self.end(Error(code, message, code in FATAL, ack=self.received))
            if session is not None and code in FATAL:
                self.live.forget(session, code)

    def answer_ping(self) -> None:
        self.pongs = min(self.pongs + 1, MOST_PONGS)
        self.wake.set()

    @property
    def received(self) -> int:
        return self.session.received if self.session is not None else 0

    async def send(self) -> None:
        """Send what there is to send, until the last message."""
        while not self.gone:
            self.wake.clear()
            while self.pongs:
                self.pongs -= 1
                await self.socket.send_text(encode(Pong(), self.received))
            if self.last is not None:
                await self.socket.send_text(encode(self.last))
                await self._close(
                    1001 if isinstance(self.last, GoingAway) else CLOSE[self.last.code]
                )
                return
            if self.session is not None and await self._send_messages(self.session):
                await self._close(1000)
                return
            await self.wake.wait()

    async def _send_messages(self, session: Session) -> bool:
        """Send what was produced; True: that was all, for good."""
        while batch := session.unsent():
            for message in batch:
                if self.session is not session or self.gone:
                    return False
                session.note_sent(message)  # first: an answer may come before send_text returns
                await self.socket.send_text(encode(message, session.received))
        return session.done and self.session is session

    async def _close(self, code: int) -> None:
        self.gone = True  # what comes now is the echo of our own close
        await self.socket.close(code)

    async def receive(self) -> None:
        """Take what comes, until the client goes or does something wrong."""
        try:
            while self.last is None:
                message = await self.next()
                if message is None:
                    return
                self.live.take(self, message)
        except ProtocolError as error:
            self.fail(error.code, str(error))
        finally:
            self.wake.set()

    async def next(self) -> ClientMessage | None:
        """The next message, not before its time: what comes faster waits in the client's socket."""
        frame = await self.socket.receive()
        if frame["type"] == "websocket.disconnect":
            if frame.get("code") == 1000 and self.session is not None and not self.gone:
                self.live.forget(self.session, "left")
            self.gone = True
            return None
        text = frame.get("text")
        if text is None:
            raise ProtocolError("malformed", "binary frames have no meaning here")
        most = self.live.settings.max_message
        if len(text) > most or len(text.encode("utf-8", "replace")) > most:
            raise ProtocolError("too-large", f"a message has at most {most} bytes")
        wait = max(self.messages.take(), self.bytes.take(len(text)))
        if wait:
            self.live.metrics.slowed.inc()
            await asyncio.sleep(wait)
        return parse_client(text)


async def serve(socket: WebSocket, live: Live) -> None:
    """A connection from its first message to its last."""
    await socket.accept()
    connection = Connection(socket, live)
    live.connections.add(connection)
    live.metrics.connections.inc()
    reader: asyncio.Task[None] | None = None
    try:
        await _begin(connection, live)
        reader = asyncio.create_task(connection.receive())
        await connection.send()
    except (WebSocketDisconnect, asyncio.CancelledError):
        pass  # the session stays; a task is cancelled only when its client does not read
    except Exception as error:  # its text may repeat what a client sent
        logger.error("%s: a connection failed: %s", connection.address, type(error).__name__)
        logger.debug("a connection failed", exc_info=True)
    finally:
        if reader is not None:
            reader.cancel()
            with suppress(asyncio.CancelledError, RuntimeError, WebSocketDisconnect):
                await reader
        session = connection.session
        if session is not None and session.connection is connection:
            live.lose(session)
        live.connections.discard(connection)
        live.metrics.connections.dec()
        if connection.deadline is not None:
            connection.deadline.cancel()


async def _begin(connection: Connection, live: Live) -> None:
    """The first message; whatever is wrong with it, the connection says so and ends."""
    try:
        live.access.check_origin(connection.socket.headers)
        try:
            async with asyncio.timeout(live.settings.start_seconds):
                start = await connection.next()
        except TimeoutError:
            raise ProtocolError("idle", "the first message did not come") from None
        if start is None:
            return
        if not isinstance(start, Start):
            raise ProtocolError("malformed", "the first message is start")
        resume, caller = start.resume, (connection.socket.headers, start.token, connection.address)
        token = await live.access.check("translate", *caller)
        if live.publishes(resume.session) if resume else start.channel is not None:
            token = await live.access.check("publish", *caller)
        if live.stopping or (live.draining and resume is None):
            connection.end(GoingAway())
            return
        if resume is None:
            session = live.open(start, connection.address)
        else:
            session = live.resume(resume.session, resume.last)
    except ProtocolError as error:
        connection.fail(error.code, str(error))
        return
    session.connection, connection.session = connection, session
    started = live.describe(session, resume is not None, token)
    await connection.socket.send_text(encode(started, session.received))
