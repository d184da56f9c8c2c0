"""Answers over HTTP: a text's translation, at once or as events, and what followers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from simultan.data.words import join_words
from simultan.server.protocol import End, Finished, ProtocolError, Read, Stats, Write, encode
from simultan.server.texts import TextJob

STATUS = {
    "unauthorized": 401,
    "forbidden-origin": 403,
    "idle": 408,
    "too-large": 413,
    "internal": 500,
    "busy": 503,
}
STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}  # nginx would hold it back
RETRY_SECONDS = "5"


class Text(BaseModel):
    """A whole text."""

    text: str = Field(description="Sentences; a sentence end closes a segment.")
    decoding: str | None = Field(None, description='Such as "lag=4" or "threshold=0.5".')
    threshold: float | None = Field(None, gt=0, lt=1, description="The old form of decoding.")
    pair: str | None = Field(None, description="Refused if the server has another.")


class WriteModel(BaseModel):
    """Words, and the source words it took to write them."""

    text: str
    delay: int
    heads: list[list[int]]
    segment: int
    at: int = Field(description="Milliseconds since the start.")


class Translated(BaseModel):
    """A translated text."""

    pair: str
    text: str = Field(description="A segment to a line.")
    writes: list[WriteModel]
    stats: Stats


class Problem(BaseModel):
    """What went wrong; the codes are those of docs/protocol.md."""

    code: str
    message: str


def refuse(error: ProtocolError) -> Response:
    status = STATUS.get(error.code, 422)
    headers = {"retry-after": RETRY_SECONDS} if status == 503 else {}
    return JSONResponse({"code": error.code, "message": str(error)}, status, headers)


async def read_text(request: Request, most: int, seconds: float) -> Text:
    """The body, as long as it is short enough and comes soon enough."""
    body = b""
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise ProtocolError("too-large", f"a text has at most {most} bytes")
    except (TimeoutError, ClientDisconnect):
        raise ProtocolError("idle", "the text did not come") from None
    try:
        return Text.model_validate_json(body)
    except ValidationError as error:
        places = [".".join(map(str, problem["loc"])) or "the body" for problem in error.errors()]
        wrong = f"not as it should be: {', '.join(places)}"
        raise ProtocolError("malformed", wrong + '; send JSON such as {"text": "..."}') from None


async def answer(request: Request, job: TextJob, pair: str) -> Response:
    """The whole translation; a client that leaves is not waited for."""
    working = asyncio.create_task(_collect(job, pair))
    leaving = asyncio.create_task(_wait_until_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=499)  # nobody will read it
        return working.result()
    finally:
        job.close()
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _collect(job: TextJob, pair: str) -> Response:
    lines: list[list[str]] = [[]]
    writes: list[dict[str, Any]] = []
    stats: dict[str, Any] = {}
    async for message in job:
        match message:
            case Write():
                lines[-1] += message.text.split()
                writes.append({name: getattr(message, name) for name in WriteModel.model_fields})
            case End():
                lines.append([])
            case Finished(found):
                stats = vars(found)
            case Read():
                pass
    language = pair.partition("-")[2]
    text = "\n".join(join_words(line, language) for line in lines if line)
    return JSONResponse({"pair": pair, "text": text, "writes": writes, "stats": stats})


async def tell(job: TextJob) -> AsyncIterator[str]:
    """A text's messages as they come."""
    try:
        async for message in job:
            yield f"event: {message.type}\ndata: {encode(message)}\n\n"
    except ProtocolError as error:
        data = json.dumps({"code": error.code, "message": str(error)})
        yield f"event: error\ndata: {data}\n\n"


class Events(StreamingResponse):
    """Server-sent events. `close` is called at their end, whatever becomes of them."""

    def __init__(
        self,
        events: AsyncIterator[str],
        close: Callable[[], None],
        is_cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(events, media_type="text/event-stream", headers=STREAM)
        self.close, self.is_cut_off = close, is_cut_off

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self.is_cut_off():
                raise
        finally:
            self.close()
