"""The web app: the page, the websocket, whole texts over HTTP, health and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response, WebSocket
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from simultan.server import answers
from simultan.server.access import check_channel
from simultan.server.answers import Events, Problem, Text, Translated
from simultan.server.boundary import Boundary, Gzip
from simultan.server.connection import serve
from simultan.server.live import Live
from simultan.server.protocol import ProtocolError
from simultan.server.settings import Settings
from simultan.server.texts import TextJob
from simultan.streaming.translator import Translator

STATIC = Path(__file__).parent / "static"
READ = ["GET", "HEAD"]


def create_app(translator: Translator, settings: Settings | None = None) -> FastAPI:
    """The app of one model. `app.state.live.finish()` before it is stopped lets clients know."""
    settings = settings or Settings()
    live = Live(translator, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        live.start()
        yield
        await live.stop()

    app = FastAPI(
        title="simultan",
        description="Simultaneous machine translation. The websocket /ws: docs/protocol.md.",
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.live = live
    app.add_middleware(Gzip, minimum_size=1000)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    app.add_middleware(Boundary, access=live.access)  # the outermost
    _add_pages(app, live)
    _add_api(app, live)

    @app.exception_handler(ProtocolError)
    async def refuse(_: Request, error: ProtocolError) -> Response:
        live.metrics.errors.labels(error.code).inc()
        return answers.refuse(error)

    @app.websocket("/ws")
    async def websocket(socket: WebSocket) -> None:
        await serve(socket, live)

    return app


def _add_pages(app: FastAPI, live: Live) -> None:
    """What people and their monitors look at."""

    @app.api_route("/", methods=READ, include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.api_route("/overlay", methods=READ, include_in_schema=False)
    async def overlay() -> Response:
        return _file("overlay.html")

    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")

    async def health() -> Response:
        """200 `ok`; 503 until the model is warm, while it stops, or if its thread has died."""
        told = live.condition
        return PlainTextResponse(f"{told}\n", 200 if told == "ok" else 503)

    async def metrics(request: Request) -> Response:
        """If the server has tokens: for one with the right `metrics`."""
        await live.access.check("metrics", request.headers, None, _address(request))
        return Response(live.metrics.text(), media_type="text/plain; version=0.0.4")

    for path, route, summary in (
        ("/healthz", health, "Whether the server can translate"),
        ("/metrics", metrics, "Counts and times, for Prometheus"),
    ):
        app.add_api_route(path, route, methods=["GET"], summary=summary)
        app.add_api_route(path, route, methods=["HEAD"], include_in_schema=False)

    @app.api_route("/docs", methods=READ, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_docs_page(app.openapi()))


def _add_api(app: FastAPI, live: Live) -> None:
    """What programs call."""

    @app.post(
        "/v1/translate",
        summary="Translate a whole text",
        response_model=Translated,
        responses={
            200: {"content": {"text/event-stream": {}}},
            **{code: {"model": Problem} for code in (401, 403, 413, 422, 503)},
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": Text.model_json_schema()}},
            }
        },
    )
    async def translate(request: Request, accept: Annotated[str, Header()] = "") -> Response:
        """With `Accept: text/event-stream`, the messages of docs/protocol.md while they come."""
        live.access.check_origin(request.headers)
        await live.access.check("translate", request.headers, None, _address(request))
        limits = live.settings
        text = await answers.read_text(request, limits.max_message, limits.start_seconds)
        decoding = live.choose_for(text)
        job = TextJob(live, live.split(text.text), decoding, _address(request))
        if "text/event-stream" in accept:
            return Events(answers.tell(job), job.close)
        return await answers.answer(request, job, live.pair)

    @app.get(
        "/v1/follow/{channel}",
        summary="Follow a stream that writes a channel",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}},
            **{code: {"model": Problem} for code in (401, 403, 422, 503)},
        },
    )
    async def follow(
        request: Request,
        channel: str,
        token: str | None = None,
        last_event_id: Annotated[str, Header()] = "",
    ) -> Response:
        """Server-sent events: docs/protocol.md. Empty until the channel starts, then live."""
        address = _address(request)
        live.access.check_origin(request.headers)
        check_channel(channel)
        await live.access.check("follow", request.headers, token, address, channel)
        number = last_event_id[:16]
        last = int(number) if number.isascii() and number.isdigit() else None
        follower = live.channels.follow(channel, last, address)
        leave = partial(live.channels.leave, channel, follower)
        return Events(aiter(follower), leave, lambda: follower.over is not None)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _file(name: str) -> Response:
    path = STATIC / name
    if not path.is_file():
        return Response("this server has no page; its websocket is /ws\n", 404)
    return FileResponse(path)


def _docs_page(schema: dict[str, Any]) -> str:
    """The API as a page that needs no script."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{escape(schema['info']['title'])}</title>"]
    parts.append(f"<h1>simultan</h1><p>{escape(schema['info']['description'])}")
    parts.append('<p>All of it for machines: <a href="/openapi.json">openapi.json</a>')
    for path, methods in schema["paths"].items():
        for method, entry in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(entry.get('summary', ''))}. ")
            parts.append(escape(entry.get("description", "")))
            body = entry.get("requestBody", {}).get("content", {}).get("application/json", {})
            for name, field in body.get("schema", {}).get("properties", {}).items():
                text = escape(field.get("description", ""))
                parts.append(f"<li><code>{escape(name)}</code> {text}")
    return "\n".join(parts)
