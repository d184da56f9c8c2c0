"""The web app: the page, the websocket, whole texts over HTTP, health and metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from simultan.server.channels import Follower
from simultan.server.live import Job, Live
from simultan.server.protocol import (
    End,
    Finished,
    ProtocolError,
    Read,
    Write,
    check_channel,
    encode,
)
from simultan.server.settings import Settings
from simultan.streaming.translator import Translator

__all__ = ["create_app"]

STATIC = Path(__file__).parent / "static"
STATUS = {
    "unauthorized": 401,
    "forbidden-origin": 403,
    "no-channels": 404,
    "idle": 408,
    "too-large": 413,
    "busy": 503,
}


class Text(BaseModel):
    """A whole text."""

    text: str = Field(description="Sentences; a sentence end closes a segment.")
    threshold: float | None = Field(None, gt=0, lt=1, description="Lower is faster.")
    pair: str | None = Field(None, description="Refused if the server has another.")


class WriteModel(BaseModel):
    """Words, and the source words it took to write them."""

    text: str
    delay: int
    heads: list[list[int]]
    segment: int
    at: int = Field(description="Milliseconds since the start.")


class StatsModel(BaseModel):
    words: int
    written: int
    segments: int
    seconds: float


class Translated(BaseModel):
    """A translated text."""

    pair: str
    text: str = Field(description="A segment to a line.")
    writes: list[WriteModel]
    stats: StatsModel


class Problem(BaseModel):
    """What went wrong; the codes are those of docs/protocol.md."""

    code: str
    message: str


def create_app(translator: Translator, settings: Settings | None = None) -> FastAPI:
    """The app of one model. `app.state.live.drain()` before it is stopped lets clients know."""
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
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )

    @app.websocket("/ws")
    async def websocket(socket: WebSocket) -> None:
        await live.serve(socket)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.get("/overlay", include_in_schema=False)
    async def overlay() -> Response:
        return _file("overlay.html")

    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")

    @app.get("/healthz", summary="Whether the server can translate")
    async def health() -> Response:
        """200 `ok`; 503 while it stops, or if the model's thread has died."""
        fine = live.batcher.alive and not live.draining
        return Response("ok\n" if fine else "stopping\n", 200 if fine else 503)

    @app.get("/metrics", summary="Counts and times, for Prometheus")
    async def metrics() -> Response:
        return Response(live.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_docs_page(app.openapi()))

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
        try:
            live.check_origin(request.headers)
            live.check_token(request.headers)
            text = await _read_text(request, settings.max_message, settings.start_seconds)
            if text.pair and text.pair != live.pair:
                raise ProtocolError("unknown-pair", f"this server translates {live.pair}")
            job = Job(live, live.split(text.text), text.threshold)
        except ProtocolError as error:
            return refuse(error)
        if "text/event-stream" in accept:
            return _Events(job)
        return await _as_json(job, live.pair)

    @app.get(
        "/v1/follow/{channel}",
        summary="Follow a stream that has named a channel",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}},
            **{code: {"model": Problem} for code in (401, 403, 404, 422, 503)},
        },
    )
    async def follow(
        request: Request,
        channel: str,
        token: str | None = None,
        last_event_id: Annotated[str, Header()] = "",
    ) -> Response:
        """Server-sent events: docs/protocol.md. Empty until the channel starts, then live."""
        try:
            live.check_origin(request.headers)
            live.check_token(request.headers, token)
            if not live.followable:
                raise ProtocolError("no-channels", "streams of a cluster cannot be followed")
            number = last_event_id[:16]
            last = int(number) if number.isascii() and number.isdigit() else None
            follower = live.channels.follow(check_channel(channel), last)
        except ProtocolError as error:
            return refuse(error)
        return _Following(live, channel, follower)

    def refuse(error: ProtocolError) -> Response:
        live.metrics.errors.labels(error.code).inc()
        problem = {"code": error.code, "message": str(error)}
        return JSONResponse(problem, STATUS.get(error.code, 422))

    return app


async def _read_text(request: Request, most: int, seconds: float) -> Text:
    """The body, as long as it is short enough."""
    body = b""
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise ProtocolError("too-large", f"a text has at most {most} bytes")
    except TimeoutError:
        raise ProtocolError("idle", "the text did not come") from None
    try:
        return Text.model_validate_json(body)
    except ValidationError as error:
        places = [".".join(map(str, problem["loc"])) or "the body" for problem in error.errors()]
        raise ProtocolError("malformed", f"not as it should be: {', '.join(places)}") from None


class _Events(StreamingResponse):
    """A stream that gives its row back, whatever becomes of it."""

    def __init__(self, job: Job) -> None:
        super().__init__(_as_events(job), media_type="text/event-stream")
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.close()


class _Following(StreamingResponse):
    """A follower that leaves, whatever becomes of it."""

    def __init__(self, live: Live, channel: str, follower: Follower) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(aiter(follower), media_type="text/event-stream", headers=headers)
        self.live, self.channel, self.follower = live, channel, follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.live.metrics.followers.inc()
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if self.follower.over is None:  # else it was cut off, for it did not read
                raise
        finally:
            self.live.metrics.followers.dec()
            self.live.channels.leave(self.channel, self.follower)


async def _as_events(job: Job) -> AsyncIterator[str]:
    try:
        async for message in job:
            yield f"event: {message.type}\ndata: {encode(message)}\n\n"
    except ProtocolError as error:
        data = json.dumps({"code": error.code, "message": str(error)})
        yield f"event: error\ndata: {data}\n\n"


async def _as_json(job: Job, pair: str) -> Response:
    lines: list[list[str]] = [[]]
    writes: list[dict[str, Any]] = []
    stats: dict[str, Any] = {}
    try:
        async for message in job:
            match message:
                case Write(text, delay, heads, segment, at):
                    lines[-1].append(text)
                    writes.append(
                        {"text": text, "delay": delay, "heads": heads, "segment": segment, "at": at}
                    )
                case End():
                    lines.append([])
                case Finished(found):
                    stats = vars(found)
                case Read():
                    pass
    except ProtocolError as error:
        return JSONResponse({"code": error.code, "message": str(error)}, 500)
    finally:
        job.close()
    text = "\n".join(" ".join(line) for line in lines if line)
    return JSONResponse({"pair": pair, "text": text, "writes": writes, "stats": stats})


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
