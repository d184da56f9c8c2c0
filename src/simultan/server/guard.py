"""Before the app: limits on connections, on the time of a request and on frames, for uvicorn.

uvicorn keeps a connection as long as it likes whose request never ends, and answers every ping.
"""

from __future__ import annotations

import asyncio
import logging
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from simultan.server.rates import Arrivals, Bucket, Places
from simultan.server.settings import Settings

LONGEST_HEADER = 16 * 1024  # bytes, all of a request's headers together
SLICE = 2048  # bytes of frames that are looked at before others have their turn
UNSENT = 64 * 1024  # bytes of answers that the kernel keeps for a client; by itself, megabytes
MOST_LATE = 16 * 1024  # bytes that are still read when we have closed
CONTROLS = 10.0, 100.0  # pings, pongs and fragments: a second, and at once
access_log = logging.getLogger("simultan.access")


class GuardedConfig(uvicorn.Config):
    """uvicorn's, with what both protocols below have to know."""

    def __init__(self, app: Any, settings: Settings, **options: Any) -> None:
        super().__init__(
            app,
            http=GuardedHttp,
            ws=GuardedWebSocket,
            h11_max_incomplete_event_size=LONGEST_HEADER,
            ws_max_size=max(1 << 20, 2 * settings.max_message),
            ws_per_message_deflate=False,  # frames are short
            ws_ping_interval=20.0,
            ws_ping_timeout=20.0,
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            **options,
        )
        self.settings = settings
        self.places = Places("connection", settings.max_connections, settings.per_address)
        rate = settings.connections_per_second
        self.arrivals = Arrivals(rate, max(rate, 2 * settings.per_address))

    def enter(self, address: str) -> bool:
        """Whether one more connection of this address may come. A proxy's come from many."""
        trusted = address in self.settings.proxies
        if len(self.places) >= self.places.total or not (trusted or self.places.has_room(address)):
            access_log.info("%s refused: too many connections", address)
            return False
        limited = self.settings.per_address and not trusted
        if limited and not self.arrivals.admit(address):
            access_log.info("%s refused: it connects too often", address)
            return False
        self.places.taken[address] += 1
        return True


class GuardedHttp(H11Protocol):
    """A request has a while to be complete, as has the next one on the same connection.

    So has an answer to be taken: who does not read it could keep it, and a place, for ever.
    """

    config: GuardedConfig
    entered = False
    deadline: asyncio.TimerHandle | None = None
    left = 0  # bytes of answers that were not taken when the clock was set

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.entered = self.config.enter(self.address)
        if self.entered:
            # what nobody reads is seen soon, and not after hundreds of answers
            transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, UNSENT)
            self._watch()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()
        if self.entered:
            self.entered = False
            self.config.places.give_back(self.address)

    def data_received(self, data: bytes) -> None:
        if self.entered:
            super().data_received(data)
            if self.cycle is not None and any(n == b"transfer-encoding" for n, _ in self.headers):
                self.cycle.keep_alive = False  # where it ends may be told in two ways
            self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._unwatch()
        self.entered = False  # the websocket's protocol gives the place back
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        access_log.info("%s 400: no HTTP request", self.address)
        super().send_400_response(msg)

    def _watch(self) -> None:
        """While the app works on a request and its answer is taken, the clock stands still."""
        full = self.flow.write_paused
        working = self.cycle is not None and not self.cycle.response_complete and not full
        if working or not self.entered:
            self._unwatch()
        elif self.deadline is None:
            settings = self.config.settings
            seconds = settings.slow_seconds if full else settings.start_seconds
            self.left = self.transport.get_write_buffer_size()
            self.deadline = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Time is up; who has taken some of its answer meanwhile is only slow."""
        self.deadline = None
        if self.transport.get_write_buffer_size() < self.left:
            self._watch()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unwatch()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _unwatch(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """Frames are parsed as fast as the app takes them; a client that floods is cut off."""

    config: GuardedConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pending = bytearray()
        self.late = 0  # bytes that came after our close
        self.close_timeout = self.config.settings.slow_seconds
        self.controls = Bucket(*CONTROLS)

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.config.places.give_back(self.address)

    def data_received(self, data: bytes) -> None:
        if self.close_sent:  # the other side may still be sending, but not for long
            self.late += len(data)
            if self.late > MOST_LATE:
                self.transport.pause_reading()  # it can still read our last message
                return
        self.pending += data
        self._parse()

    async def send(self, message: Any) -> None:
        if self.close_sent:  # not by the app: the client broke the protocol, or was silent too long
            raise ClientDisconnected
        await super().send(message)

    async def receive(self) -> Any:
        message = await super().receive()
        self._parse()
        return message

    def _parse(self) -> None:
        """Until a message is there. The socket is not read meanwhile (read_paused)."""
        if self.close_sent:  # of what came before, only the end can be the other side's close
            del self.pending[:-MOST_LATE]
        while self.pending and not self.read_paused and not self.transport.is_closing():
            part = bytes(self.pending[:SLICE])
            del self.pending[:SLICE]
            super().data_received(part)

    def handle_ping(self) -> None:
        self._count()
        super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        self._count()
        super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        self._count()
        super().handle_cont(event)

    def _count(self) -> None:
        if self.controls.take() and not self.transport.is_closing():
            access_log.info("%s cut off: too many control frames", self.address)
            self.transport.abort()
