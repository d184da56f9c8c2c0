"""The wire protocol of /ws: messages, their JSON, and what is refused.

One JSON object to a text frame, `type` and `seq` in each; docs/protocol.md says what each means.
A client sends `start`, then what is spoken; the server answers `started`, then what it reads and
writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

GREATEST = 2**53 - 1  # the largest whole number that every JSON reader keeps exact

CLOSE = {  # error code -> close code of the websocket
    "malformed": 4400,
    "unauthorized": 4401,
    "forbidden-origin": 4403,
    "unknown-session": 4404,
    "unknown-pair": 4406,
    "idle": 4408,
    "replaced": 4409,
    "cannot-resume": 4410,
    "out-of-order": 4412,
    "too-large": 1009,
    "too-fast": 4429,
    "slow-reader": 4430,
    "busy": 4503,
    "internal": 1011,
}
# after these the session can be resumed
FATAL = CLOSE.keys() - {"replaced", "too-fast", "slow-reader", "cannot-resume"}


class ProtocolError(Exception):
    """What a client did wrong; its message never repeats what the client sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


Count = Annotated[int, Field(strict=True, ge=0, le=GREATEST)]
Number = Annotated[int, Field(strict=True, ge=1, le=GREATEST)]  # of a message that is counted
Zero = Annotated[int, Field(strict=True, ge=0, le=0)]  # of one that is not
Between = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class Resume:
    """The session to resume, and the last number seen of it."""

    session: str
    last: Count


# --- client to server; `ack` is the last number received in order ---


@dataclass(frozen=True, kw_only=True)
class _AboutConnection:
    seq: Zero = 0
    ack: Count | None = None


@dataclass(frozen=True)
class _Counted:
    seq: Number  # 1, 2, 3, ... over the whole session
    ack: Count | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Start(_AboutConnection):
    decoding: str | None = None
    threshold: Between | None = None  # the old form of decoding="threshold=..."
    pair: str | None = None
    token: str | None = field(default=None, repr=False)
    resume: Resume | None = None
    channel: str | None = field(default=None, repr=False)  # its secret
    type: Literal["start"] = field(default="start", kw_only=True)


@dataclass(frozen=True)
class Words(_Counted):
    text: str
    type: Literal["words"] = field(default="words", kw_only=True)


@dataclass(frozen=True)
class EndSentence(_Counted):
    type: Literal["end-sentence"] = field(default="end-sentence", kw_only=True)


@dataclass(frozen=True)
class DecodingChange(_Counted):
    value: str
    type: Literal["decoding"] = field(default="decoding", kw_only=True)


@dataclass(frozen=True)
class Threshold(_Counted):
    """The old form of a `decoding` message."""

    value: Between
    type: Literal["threshold"] = field(default="threshold", kw_only=True)


@dataclass(frozen=True)
class Finish(_Counted):
    type: Literal["finish"] = field(default="finish", kw_only=True)


@dataclass(frozen=True)
class Ack:
    ack: Count
    seq: Zero = 0
    type: Literal["ack"] = field(default="ack", kw_only=True)


@dataclass(frozen=True)
class Ping(_AboutConnection):
    type: Literal["ping"] = field(default="ping", kw_only=True)


Spoken = Words | EndSentence | DecodingChange | Threshold | Finish  # counted
ClientMessage = Start | Spoken | Ack | Ping

# --- server to client ---


@dataclass(frozen=True, kw_only=True)
class _FromServer:
    seq: int = 0  # 1, 2, 3, ... for Numbered, over the whole session; 0: about the connection
    ack: int = 0


@dataclass(frozen=True)
class Limits:
    """What the server allows this session."""

    message: int  # bytes in a message
    queue: int  # words sent and not yet heard
    queue_characters: int  # characters of these words
    words_per_second: float  # heard at most
    messages_per_second: float  # read at most
    window: int  # messages of the server that are not acknowledged
    idle_seconds: float  # without a counted message
    resume_seconds: float  # without a connection


@dataclass(frozen=True)
class Stats:
    """A finished session."""

    words: int  # heard
    written: int  # words written
    segments: int
    seconds: float  # since the start


@dataclass(frozen=True)
class Started(_FromServer):
    session: str
    pair: str
    decoding: str  # of this session, such as "lag=4"
    default: str  # what the server's operator has chosen
    layers: int
    heads: int
    limits: Limits
    resumed: bool
    learned: bool = True  # whether a threshold or a lag changes anything
    lag: float | None = None  # words behind, with this decoding, if that was measured
    lags: tuple[tuple[float, float], ...] = ()  # thresholds and the words behind, if measured
    channel: str = ""  # where it can be followed
    follow: str = field(default="", repr=False)  # what followers give as their token
    threshold: float | None = None  # the old form of `decoding`
    type: Literal["started"] = field(default="started", kw_only=True)


@dataclass(frozen=True)
class Read(_FromServer):
    words: int  # heard so far
    type: Literal["read"] = field(default="read", kw_only=True)


@dataclass(frozen=True)
class Write(_FromServer):
    text: str
    delay: int
    heads: list[list[int]]
    segment: int
    at: int  # milliseconds since the start
    type: Literal["write"] = field(default="write", kw_only=True)


@dataclass(frozen=True)
class End(_FromServer):
    words: int  # the segment ends with this source word
    segment: int
    type: Literal["end"] = field(default="end", kw_only=True)


@dataclass(frozen=True)
class Finished(_FromServer):
    stats: Stats
    type: Literal["finished"] = field(default="finished", kw_only=True)


@dataclass(frozen=True)
class Error(_FromServer):
    code: str
    message: str
    fatal: bool
    type: Literal["error"] = field(default="error", kw_only=True)


@dataclass(frozen=True)
class Pong(_FromServer):
    type: Literal["pong"] = field(default="pong", kw_only=True)


@dataclass(frozen=True)
class GoingAway(_FromServer):
    type: Literal["going-away"] = field(default="going-away", kw_only=True)


Numbered = Read | Write | End | Finished
ServerMessage = Started | Numbered | Error | Pong | GoingAway

_CLIENT: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)
_SERVER: TypeAdapter[ServerMessage] = TypeAdapter(
    Annotated[ServerMessage, Field(discriminator="type")]
)


def encode(message: ClientMessage | ServerMessage, ack: int | None = None) -> str:
    """The frame, with this `ack` if one is given; fields that say nothing (None) are left out."""
    fields: dict[str, Any] = {"type": message.type}
    fields |= {name: value for name, value in vars(message).items() if value is not None}
    if ack is not None:
        fields["ack"] = ack
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=vars)


def parse_client(frame: str) -> ClientMessage:
    """A client's frame; ProtocolError("malformed") for anything else; unknown fields pass."""
    fields = _load(frame)
    try:
        return _CLIENT.validate_python(fields)
    except ValidationError as error:
        raise ProtocolError("malformed", _explain(error)) from None


def parse_server(frame: str) -> ServerMessage | None:
    """A server's frame, for clients; None: a type that this version does not know."""
    fields = _load(frame)
    try:
        return _SERVER.validate_python(fields)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return None
        raise ProtocolError("malformed", _explain(error)) from None


def _load(frame: str) -> dict[str, Any]:
    try:
        fields = json.loads(frame, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # ValueError: also a number of too many digits
        raise ProtocolError("malformed", "a message is one JSON object") from None
    if not isinstance(fields, dict):
        raise ProtocolError("malformed", "a message is one JSON object")
    return fields


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _explain(error: ValidationError) -> str:
    """Which field is wrong; of what the client sent, only names that are ours are repeated."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"].startswith("union_tag"):
        return "type must be a message's that docs/protocol.md names"
    place = ".".join(str(part) for part in first["loc"][1:])
    return f"{place}: {first['msg']}"
