"""Run the app under uvicorn until it is told to stop, and let clients know."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType

import uvicorn

from simultan import memory
from simultan.server.access import SHORTEST_TOKEN
from simultan.server.app import create_app
from simultan.server.guard import GuardedConfig
from simultan.server.live import Live
from simultan.server.settings import Settings
from simultan.streaming.translator import Translator


class Server(uvicorn.Server):
    """uvicorn, but open sentences may end before it stops, and clients are told."""

    def __init__(self, config: GuardedConfig, live: Live, announce: bool = False) -> None:
        super().__init__(config)
        self.live, self.announce = live, announce
        self.patient = True  # a Ctrl-C does not wait for sentences
        self.failure: OSError | None = None  # why it ended

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.announce and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            try:
                print(f"simultan: http://{shown}:{port} (Ctrl-C stops it)", flush=True)
            except OSError as error:  # raised here, it would leave the model's thread running
                self.failure, self.should_exit = error, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT:
            self.patient = False
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        seconds = self.live.settings.drain_seconds if self.patient else 0.0
        await self._run_while(self.live.drain(seconds), lambda: self.patient)
        await self._run_while(self.live.finish(), lambda: True)
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn leaves the app as it is, and the app complains of it
            self.live.stopping = True
            await self.lifespan.shutdown()

    async def _run_while(
        self, work: Coroutine[None, None, None], wanted: Callable[[], bool]
    ) -> None:
        """To its end, or until it is no longer wanted: a second Ctrl-C waits for nothing."""
        task = asyncio.create_task(work)
        while not task.done() and wanted() and not self.force_exit:
            await asyncio.sleep(0.02)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def make_server(
    translator: Translator,
    settings: Settings,
    host: str,
    port: int,
    level: str = "warning",
    announce: bool = False,
) -> Server:
    """Port 0 takes a free one. Below the level debug nothing that a client says is logged."""
    app = create_app(translator, settings)
    if level != "debug":
        keep_discreet("uvicorn.error", "simultan")
    config = GuardedConfig(
        app,
        settings,
        host=host,
        port=port,
        log_level=level if level in ("error", "debug") else "warning",
        access_log=False,  # ours says more, and less: uvicorn's has addresses with their query
        timeout_graceful_shutdown=2,
    )
    return Server(config, app.state.live, announce)


def keep_discreet(*names: str) -> None:
    """Let these loggers tell what kind of error there was, and no more."""
    for logger in map(logging.getLogger, names):
        if not any(isinstance(f, _Discreet) for f in logger.filters):
            logger.addFilter(_Discreet())


class _Discreet(logging.Filter):
    """A traceback may end in what a client sent. What is no request is in the access log."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == "Invalid HTTP request received.":
            return False
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg, record.args = f"{record.msg} {kind.__name__ if kind else ''}", ()
            record.exc_info = record.exc_text = None
        return True


def serve(
    translator: Translator, settings: Settings, host: str, port: int, level: str = "warning"
) -> None:
    """Until SIGTERM or SIGINT."""
    memory.keep()
    # The model's thread releases the interpreter at every operation, so the event loop need not
    # force it to. With the default of 5 ms, both lose time in switching.
    sys.setswitchinterval(0.05)
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    server = make_server(translator, settings, host, port, level, announce=True)
    if server.live.access.is_open and not _is_local(host):
        _warn(
            f"everybody who reaches {host} can use this server: it has no token"
            " (--token, --tokens-file)"
        )
    if settings.token is not None and len(settings.token) < SHORTEST_TOKEN:
        _warn(
            f"a token of fewer than {SHORTEST_TOKEN} characters can be guessed; `openssl rand"
            " -hex 16` makes a good one"
        )
    _never_wait_for_a_log()
    server.run()
    if server.failure is not None:
        raise ValueError(f"standard output: {server.failure.strerror}")


def _never_wait_for_a_log() -> None:
    """If nobody reads the pipe that the log goes to, lines are lost, and the server goes on."""
    with suppress(OSError, ValueError):  # no file at all, in a test
        number = sys.stderr.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            os.set_blocking(number, False)
            logging.raiseExceptions = False


def check_address(host: str, port: int) -> None:
    """Refuse an address at which nobody can listen, in words that say what to do."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
            probe.bind((host, port))  # without listening: nobody shall take this for the server
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            told = "something listens there already, perhaps another server; choose another --port"
        else:
            number = error.errno or 0  # a name that has no address has a number below 0
            reason = os.strerror(number) if number > 0 else str(error.strerror)
            told = f"{reason.lower()}; choose another --host or --port"
        raise ValueError(f"cannot listen at {host}, port {port}: {told}") from error


def _warn(text: str) -> None:
    print(f"simultan: warning: {text}", file=sys.stderr, flush=True)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
