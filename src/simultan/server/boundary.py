"""Around the app: security headers, names of the server, and one line of log for each request."""

from __future__ import annotations

import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simultan.server.access import Access
from simultan.server.protocol import ProtocolError

access_log = logging.getLogger("simultan.access")
POLICY = (  # the page is all our own; a caption window may be transparent, never framed
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    " blob:; font-src 'self'; media-src 'self' blob:; connect-src 'self' ws: wss:; manifest-src"
    " 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


REFUSES_GZIP = re.compile(r"\bgzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


class Gzip(GZipMiddleware):
    """Starlette's, but for who names gzip only to say that he does not want it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = Headers(scope=scope).get("accept-encoding", "") if "headers" in scope else ""
        app = self.app if REFUSES_GZIP.search(wanted) else super().__call__
        await app(scope, receive, send)


class Boundary:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = size = 0

        async def note(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache")  # ask whether it has changed
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        app: ASGIApp = self.app
        try:
            self.access.check_host(Headers(scope=scope))
        except ProtocolError as error:
            app = PlainTextResponse(f"{error}\n", 421)
        try:
            await app(scope, receive, note)
        finally:
            client = scope.get("client") or ("", 0)
            access_log.info(
                "%s %s %s %d: %d bytes, %.3f s",
                client[0], scope["method"], _path(scope["path"]), status, size,
                time.monotonic() - began,
            )  # fmt: skip


def _path(path: str) -> str:
    """Without the name of a channel, and without anything that could write a line of its own."""
    for known in ("/v1/follow/", "/static/"):
        if path.startswith(known):
            return f"{known}..."
    if path in ("/", "/overlay", "/healthz", "/metrics", "/docs", "/openapi.json", "/v1/translate"):
        return path
    return "elsewhere"
