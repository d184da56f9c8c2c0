"""Run the app under uvicorn until it is told to stop, and let clients know."""

from __future__ import annotations

import logging
import socket
import sys

import uvicorn

from simultan import memory
from simultan.server.app import create_app
from simultan.server.live import Live
from simultan.server.settings import Settings
from simultan.streaming.translator import Translator

__all__ = ["Server", "keep_discreet", "make_server", "serve"]


class Server(uvicorn.Server):
    """uvicorn, but clients hear of the end before their connections are closed."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self.live = live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        if not self.force_exit:
            await self.live.drain()
        await super().shutdown(sockets)


def make_server(
    translator: Translator, settings: Settings, host: str, port: int, level: str = "warning"
) -> Server:
    """Port 0 takes a free one. At the default level nothing a client sends is logged."""
    app = create_app(translator, settings)
    if level != "debug":
        keep_discreet("uvicorn.error", "simultan")
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=level,
        access_log=level == "debug",
        ws_max_size=max(1 << 20, 2 * settings.max_message),
        ws_per_message_deflate=False,  # frames are short
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        timeout_graceful_shutdown=2,
        server_header=False,
        proxy_headers=False,
    )
    return Server(config, app.state.live)


def keep_discreet(*names: str) -> None:
    """Let these loggers tell what kind of error there was, and no more."""
    for logger in map(logging.getLogger, names):
        if not any(isinstance(f, _Discreet) for f in logger.filters):
            logger.addFilter(_Discreet())


class _Discreet(logging.Filter):
    """A traceback may end in what a client sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg, record.args = f"{record.msg} {kind.__name__ if kind else ''}", ()
            record.exc_info = record.exc_text = None
        return True


def serve(translator: Translator, settings: Settings, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    memory.keep()
    # The model's thread lets go of the interpreter at every operation; so need the other, which
    # has short bursts to send, not be made to. With 5 ms both lose time in passing it on.
    sys.setswitchinterval(0.05)
    server = make_server(translator, settings, host, port)
    print(f"simultan: http://{host}:{port} (Ctrl-C stops it)", flush=True)
    server.run()
