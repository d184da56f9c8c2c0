"""All sessions of a server: who may start one, who is connected, what ends it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.websockets import WebSocket, WebSocketDisconnect

from simultan.server.batcher import Batcher, Fault, Lane
from simultan.server.channels import Channels
from simultan.server.metrics import Metrics
from simultan.server.protocol import (
    CLOSE,
    FATAL,
    ClientMessage,
    Error,
    Finished,
    GoingAway,
    Numbered,
    Ping,
    Pong,
    ProtocolError,
    Start,
    Started,
    Words,
    Write,
    encode,
    parse_client,
)
from simultan.server.settings import Settings
from simultan.server.stream import Stream
from simultan.streaming.decoding import Decoding
from simultan.streaming.translator import Translator

__all__ = ["Job", "Live"]

logger = logging.getLogger(__name__)
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class LiveStream(Stream):
    """A session with the clocks and the connection that the protocol knows nothing of."""

    def __init__(self, lane: Lane, split: Callable[[str], list[str]], settings: Settings) -> None:
        super().__init__(lane, split, settings.queue, settings.threshold)
        self.row = lane
        self.connection: Connection | None = None
        self.spoken = self.lost = time.monotonic()  # the last words; no connection since
        self.full_since: float | None = None  # nothing more could be sent
        self.channel = ""


class Connection:
    """One websocket. `end` gives it its last message; it is sent after what is on its way."""

    def __init__(self, socket: WebSocket, live: Live) -> None:
        self.socket, self.live = socket, live
        self.stream: LiveStream | None = None
        self.sent = 0  # the last number sent
        self.answers: list[Pong] = []
        self.last: Error | GoingAway | None = None
        self.gone = False
        self.wake = asyncio.Event()
        self.task = asyncio.current_task()
        self.deadline: asyncio.TimerHandle | None = None

    def end(self, last: Error | GoingAway) -> None:
        """Say this and close. A client that does not read has a while to see it."""
        if self.last is None:
            self.last = last
            if self.stream is not None and self.stream.connection is self:
                self.live.lose(self.stream)
            self.stream = None
            if self.task is not None:
                seconds = self.live.settings.resume_seconds
                loop = asyncio.get_running_loop()
                self.deadline = loop.call_later(seconds, self.task.cancel)
        self.wake.set()

    def fail(self, code: str, message: str) -> None:
        if self.last is None:
            self.live.metrics.errors.labels(code).inc()
            stream = self.stream
            self.end(Error(code, message, code in FATAL, ack=self._ack))
            if stream is not None and code in FATAL:
                self.live.forget(stream)

    @property
    def _ack(self) -> int:
        return self.stream.received if self.stream is not None else 0

    async def send(self) -> None:
        """Send what there is to send, until the last message."""
        while not self.gone:
            self.wake.clear()
            for pong in self.answers:
                await self.socket.send_text(encode(pong, self._ack))
            self.answers.clear()
            if self.last is not None:
                await self.socket.send_text(encode(self.last))
                await self._close(
                    1001 if isinstance(self.last, GoingAway) else CLOSE[self.last.code]
                )
                return
            stream = self.stream
            if stream is not None:
                for message in stream.after(self.sent):
                    if self.stream is None or self.gone:
                        break
                    await self.socket.send_text(encode(message, stream.received))
                    self.sent = message.seq
                if stream.done and self.sent == stream.produced and self.stream is not None:
                    await self._close(1000)
                    return
                if self.stream is not None and self.sent < stream.produced:
                    continue
            await self.wake.wait()

    async def _close(self, code: int) -> None:
        self.gone = True  # what comes now is the echo of our own close
        await self.socket.close(code)

    async def receive(self) -> None:
        """Take what comes, until the client goes or does something wrong."""
        try:
            while self.last is None:
                message = await self._next()
                if message is None:
                    return
                self.live.take(self, message)
        except ProtocolError as error:
            self.fail(error.code, str(error))
        finally:
            self.wake.set()

    async def _next(self) -> ClientMessage | None:
        frame = await self.socket.receive()
        if frame["type"] == "websocket.disconnect":
            if frame.get("code") == 1000 and self.stream is not None and not self.gone:
                self.live.forget(self.stream)
            self.gone = True
            return None
        text = frame.get("text")
        if text is None:
            raise ProtocolError("malformed", "binary frames have no meaning here")
        most = self.live.settings.max_message
        if len(text) > most or len(text.encode("utf-8", "replace")) > most:
            raise ProtocolError("too-large", f"a message has at most {most} bytes")
        return parse_client(text)


class Job:
    """A whole text on a row of its own: iterate over its messages as they come."""

    def __init__(self, live: Live, words: list[str], threshold: float | None) -> None:
        self.live = live
        self.queue: asyncio.Queue[Numbered | Fault] = asyncio.Queue()
        value = live.settings.threshold if threshold is None else threshold
        self.lane = live.open_lane(self.queue.put_nowait, value)
        self.task = asyncio.current_task()
        self.full_since: float | None = None
        live.jobs.add(self)
        live.metrics.heard.inc(len(words))
        self.lane.push(words)
        self.lane.finish()

    async def __aiter__(self) -> AsyncIterator[Numbered]:
        while True:
            message = await self.queue.get()
            if isinstance(message, Fault):
                raise ProtocolError("internal", "the model failed")
            self.lane.acknowledge(message.seq)
            yield message
            if isinstance(message, Finished):
                return

    def look(self, now: float, slow: float) -> None:
        """Nobody reads: give up."""
        if not self.lane.full:
            self.full_since = None
        elif self.full_since is None:
            self.full_since = now
        elif now - self.full_since > slow and self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        self.live.jobs.discard(self)
        self.live.close_lane(self.lane)


class Live:
    """The sessions of one model."""

    def __init__(self, translator: Translator, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.split = translator.codec.pipeline.split_source
        self.lags = translator.lags.points
        pipeline = translator.codec.pipeline
        languages = (pipeline.source_language, pipeline.target_language)
        self.pair = "-".join(languages) if all(languages) else ""
        learned = translator.model.policy.learned
        threshold = settings.threshold if learned else None
        decoding = Decoding(threshold=threshold, k=settings.k, agent=settings.rule)
        session = translator.session(decoding, rows=settings.rows)
        self.layers, self.heads = session.decider.layers, session.decider.heads
        self.batcher = Batcher(
            session,
            window=settings.window,
            words_per_second=settings.words_per_second,
            batching=settings.batching,
            on_turn=self.metrics.note_turn,
        )
        self.learned = translator.model.policy.learned
        self.channels = Channels(self.pair, settings.max_followers, settings.heartbeat_seconds)
        self.followable = True  # False: followers may come to another process
        self.tag = ""  # session ids begin with it: of a replica among others
        self.streams: dict[str, LiveStream] = {}
        self.connections: set[Connection] = set()
        self.jobs: set[Job] = set()
        self.lanes = 0  # in use; a session that is done has given its own back
        self.draining = False
        self._ticker: asyncio.Task[None] | None = None

    # --- the server's life ---

    def start(self) -> None:
        self.batcher.start(asyncio.get_running_loop())
        self._ticker = asyncio.create_task(self._tick())

    async def drain(self) -> None:
        """Stop: no more words; what was received is written; everybody is told."""
        if self.draining:
            return
        self.draining = True
        until = time.monotonic() + self.settings.drain_seconds
        quiet = 0
        while quiet < 3 and time.monotonic() < until:  # idle, and what was written is sent
            unsent = any(c.stream and c.sent < c.stream.produced for c in self.connections)
            quiet = quiet + 1 if self.batcher.idle and not unsent else 0
            await asyncio.sleep(0.02)
        self.channels.stop()
        for connection in list(self.connections):
            connection.end(GoingAway(ack=connection.stream.received if connection.stream else 0))
        until = time.monotonic() + 1
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.drain()
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker
        await asyncio.to_thread(self.batcher.stop)

    # --- who may come in ---

    def check_origin(self, headers: Headers) -> None:
        """A browser says which page it is; only a page of ours, or of a friend, may connect."""
        origin = headers.get("origin")
        if origin is None or origin in self.settings.origins or "*" in self.settings.origins:
            return
        with suppress(ValueError):  # an address that is none
            page, host = urlsplit(origin), headers.get("host", "")
            if page.netloc == host and (not self.settings.local or page.hostname in LOOPBACK):
                return
        raise ProtocolError("forbidden-origin", "this page may not use this server (--origin)")

    def check_token(self, headers: Headers, given: str | None = None) -> None:
        if self.settings.token is None:
            return
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        candidates = [given or "", bearer if scheme.lower() == "bearer" else ""]
        wanted = self.settings.token.encode()
        fits = [hmac.compare_digest(c.encode("utf-8", "replace"), wanted) for c in candidates]
        if not any(fits):
            raise ProtocolError("unauthorized", "the token is missing or wrong")

    # --- sessions ---

    def open_lane(self, owner: Callable[[Numbered | Fault], None], threshold: float) -> Lane:
        """A row, or `busy`."""
        lane = None
        if self.lanes < self.settings.sessions and not self.draining:
            lane = self.batcher.open(owner, threshold)
        if lane is None:
            raise ProtocolError("busy", "no place for another session; try later")
        self.lanes += 1
        self.metrics.sessions.inc()
        return lane

    def close_lane(self, lane: Lane) -> None:
        if not lane.closed:
            lane.close()
            self.lanes -= 1
            self.metrics.sessions.dec()

    def open(self, start: Start) -> LiveStream:
        if start.pair and start.pair != self.pair:
            raise ProtocolError("unknown-pair", f"this server translates {self.pair or 'one pair'}")
        threshold = self.settings.threshold if start.threshold is None else start.threshold
        lane = self.open_lane(lambda message: self._deliver(stream, message), threshold)
        stream = LiveStream(lane, self.split, self.settings)
        stream.id, stream.threshold = self.tag + stream.id, threshold
        self.streams[stream.id] = stream
        if start.channel is not None and self.followable:
            stream.channel = start.channel
            self.channels.open(stream.channel, stream.id)
        self.metrics.started.inc()
        return stream

    def resume(self, session: str, last: int) -> LiveStream:
        stream = self.streams.get(session)
        if stream is None:
            raise ProtocolError("unknown-session", "there is no such session, or no longer")
        stream.resume(last)
        if stream.connection is not None:
            stream.connection.fail("replaced", "another connection has resumed this session")
        self.metrics.resumed.inc()
        return stream

    def take(self, connection: Connection, message: ClientMessage) -> None:
        """A message of a connection that has started."""
        stream = connection.stream
        if stream is None:
            return
        if isinstance(message, Start):
            raise ProtocolError("malformed", "start comes once, and first")
        if isinstance(message, Ping):
            connection.answers.append(Pong())
            del connection.answers[:-16]  # who floods with pings misses answers
            connection.wake.set()
        elif self.draining and message.seq:
            return
        before = stream.words
        if stream.receive(message) and message.seq:
            stream.spoken = time.monotonic()
            if isinstance(message, Words):
                self.metrics.heard.inc(stream.words - before)

    def lose(self, stream: LiveStream) -> None:
        """The connection is gone, the session stays for a while."""
        stream.connection, stream.lost = None, time.monotonic()

    def forget(self, stream: LiveStream) -> None:
        """The session is over."""
        self.streams.pop(stream.id, None)
        self.close_lane(stream.row)
        self.channels.close(stream.channel, stream.id)

    def _deliver(self, stream: LiveStream, message: Numbered | Fault) -> None:
        if isinstance(message, Fault):
            self._fail(stream, "internal", "the model failed")
            return
        stream.add(message)
        if stream.channel:
            self.channels.publish(stream.channel, stream.id, message)
        if isinstance(message, Write):
            self.metrics.writes.inc()
        if stream.done:
            self.close_lane(stream.row)
        if stream.connection is not None:
            stream.connection.wake.set()

    def _fail(self, stream: LiveStream, code: str, message: str) -> None:
        connection = stream.connection
        if connection is not None:
            connection.fail(code, message)
        self.forget(stream)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.tick_seconds)
            now = time.monotonic()
            for stream in list(self.streams.values()):
                self._look_at(stream, now)
            for job in list(self.jobs):
                job.look(now, self.settings.slow_seconds)
            self.channels.look(now, self.settings.slow_seconds)

    def _look_at(self, stream: LiveStream, now: float) -> None:
        """The clocks of one session."""
        settings = self.settings
        if not stream.row.full:
            stream.full_since = None
        elif stream.full_since is None:
            stream.full_since = now
        if stream.connection is None:
            if now - stream.lost > settings.resume_seconds:
                self.forget(stream)
        elif stream.full_since is not None and now - stream.full_since > settings.slow_seconds:
            message = f"{settings.window} messages were not acknowledged: resume, and read faster"
            stream.connection.fail("slow-reader", message)
        elif now - stream.spoken > settings.idle_seconds and not stream.finishing:
            self._fail(stream, "idle", f"nothing was said for {settings.idle_seconds:g} seconds")

    # --- one websocket ---

    async def serve(self, socket: WebSocket) -> None:
        """A connection from its first message to its last."""
        await socket.accept()
        connection = Connection(socket, self)
        self.connections.add(connection)
        self.metrics.connections.inc()
        reader: asyncio.Task[None] | None = None
        try:
            await self._begin(connection)
            reader = asyncio.create_task(connection.receive())
            await connection.send()
        except (WebSocketDisconnect, asyncio.CancelledError):
            pass  # the session stays; a task is cancelled only when its client does not read
        except Exception as error:  # its text may repeat what a client sent
            logger.error("a connection failed: %s", type(error).__name__)
            logger.debug("a connection failed", exc_info=True)
        finally:
            if reader is not None:
                reader.cancel()
                with suppress(asyncio.CancelledError, RuntimeError, WebSocketDisconnect):
                    await reader
            stream = connection.stream
            if stream is not None and stream.connection is connection:
                self.lose(stream)
            self.connections.discard(connection)
            self.metrics.connections.dec()
            if connection.deadline is not None:
                connection.deadline.cancel()

    async def _begin(self, connection: Connection) -> None:
        """The first message; whatever is wrong with it, the connection says so and ends."""
        socket = connection.socket
        try:
            self.check_origin(socket.headers)
            try:
                start = await asyncio.wait_for(connection._next(), self.settings.start_seconds)
            except TimeoutError:
                raise ProtocolError("idle", "the first message did not come") from None
            if start is None:
                return
            if not isinstance(start, Start):
                raise ProtocolError("malformed", "the first message is start")
            self.check_token(socket.headers, start.token)
            if self.draining:
                connection.end(GoingAway())
                return
            resume = start.resume
            stream = self.resume(resume.session, resume.last) if resume else self.open(start)
        except ProtocolError as error:
            connection.fail(error.code, str(error))
            return
        stream.connection = connection
        connection.stream, connection.sent = stream, resume.last if resume else 0
        started = Started(
            session=stream.id,
            pair=self.pair,
            threshold=stream.threshold,
            layers=self.layers,
            heads=self.heads,
            limits=self.settings.limits,
            resumed=resume is not None,
            learned=self.learned,
            channel=stream.channel,
            lags=self.lags,
        )
        await socket.send_text(encode(started, stream.received))
