"""The wire protocol of /ws: messages, their JSON, and what is refused.

One JSON object to a text frame, `type` and `seq` in each; docs/protocol.md says what each means.
A client sends `start`, then what is spoken; the server answers `started`, then what it reads and
writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args

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
NO_TYPE = "type must be a message's that docs/protocol.md names"
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


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Message:
    """What derives from it is a frozen dataclass, and names its `type` behind its base."""

    type: ClassVar[str]

    def __init_subclass__(cls, type: str = "") -> None:
        cls.type = type
        dataclass(frozen=True)(cls)


@dataclass(frozen=True)
class Resume:
    """The session to resume, and the last number seen of it."""

    session: str
    last: Count


# --- client to server; `ack` is the last number received in order ---


class _AboutConnection(_Message):
    seq: Zero = field(default=0, kw_only=True)
    ack: Count | None = field(default=None, kw_only=True)


class _Counted(_Message):
    seq: Number  # 1, 2, 3, ... over the whole session
    ack: Count | None = field(default=None, kw_only=True)


class Start(_AboutConnection, type="start"):
    decoding: str | None = None
    threshold: Between | None = None  # the old form of decoding="threshold=..."
    pair: str | None = None
    token: str | None = field(default=None, repr=False)
    resume: Resume | None = None
    channel: str | None = field(default=None, repr=False)  # its secret


class Words(_Counted, type="words"):
    text: str


class EndSentence(_Counted, type="end-sentence"):
    pass


class DecodingChange(_Counted, type="decoding"):
    value: str


class Threshold(_Counted, type="threshold"):
    """The old form of a `decoding` message."""

    value: Between


class Finish(_Counted, type="finish"):
    pass


class Ack(_Message, type="ack"):
    ack: Count
    seq: Zero = 0


class Ping(_AboutConnection, type="ping"):
    pass


Spoken = Words | EndSentence | DecodingChange | Threshold | Finish  # counted
ClientMessage = Start | Spoken | Ack | Ping

# --- server to client ---


class _FromServer(_Message):
    # 1, 2, 3, ... for Numbered, over the whole session; 0: about the connection
    seq: int = field(default=0, kw_only=True)
    ack: int = field(default=0, kw_only=True)


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


class Started(_FromServer, type="started"):
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


class Read(_FromServer, type="read"):
    words: int  # heard so far


class Write(_FromServer, type="write"):
    text: str
    delay: int
    heads: list[list[int]]
    segment: int
    at: int  # milliseconds since the start


class End(_FromServer, type="end"):
    words: int  # the segment ends with this source word
    segment: int


class Finished(_FromServer, type="finished"):
    stats: Stats


class Error(_FromServer, type="error"):
    code: str
    message: str
    fatal: bool


class Pong(_FromServer, type="pong"):
    pass


class GoingAway(_FromServer, type="going-away"):
    pass


Numbered = Read | Write | End | Finished
ServerMessage = Started | Numbered | Error | Pong | GoingAway

Message = TypeVar("Message")
_CLIENT: dict[str, TypeAdapter[ClientMessage]]
_CLIENT = {kind.type: TypeAdapter(kind) for kind in get_args(ClientMessage)}
_SERVER: dict[str, TypeAdapter[ServerMessage]]
_SERVER = {kind.type: TypeAdapter(kind) for kind in get_args(ServerMessage)}


def encode(message: ClientMessage | ServerMessage, ack: int | None = None) -> str:
    """The frame, with this `ack` if one is given; fields that say nothing (None) are left out."""
    fields: dict[str, Any] = {"type": message.type}
    fields |= {name: value for name, value in vars(message).items() if value is not None}
    if ack is not None:
        fields["ack"] = ack
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=vars)


def parse_client(frame: str) -> ClientMessage:
    """A client's frame; ProtocolError("malformed") for anything else; unknown fields pass."""
    message = _parse(frame, _CLIENT)
    if message is None:
        raise ProtocolError("malformed", NO_TYPE)
    return message


def parse_server(frame: str) -> ServerMessage | None:
    """A server's frame, for clients; None: a type that this version does not know."""
    return _parse(frame, _SERVER)


def _parse(frame: str, known: Mapping[str, TypeAdapter[Message]]) -> Message | None:
    """Of what was sent, an error repeats only the names of fields, which are ours."""
    try:
        fields = json.loads(frame, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # ValueError: also a number of too many digits
        fields = None
    if not isinstance(fields, dict):
        raise ProtocolError("malformed", "a message is one JSON object")
    if not isinstance(fields.get("type"), str):
        raise ProtocolError("malformed", NO_TYPE)
    adapter = known.get(fields["type"])
    try:
        return None if adapter is None else adapter.validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ProtocolError("malformed", f"{place}: {first['msg']}") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON
