"""The wire protocol of /ws: messages, their JSON, and what is refused.

One JSON object to a text frame, `type` and `seq` in each. docs/protocol.md says all; in short:

    client                                      server
    start {threshold? pair? token? channel?  -> started {session pair threshold layers heads limits
           resume?}                                      resumed learned channel lags}
    words {text}                             -> write {text delay heads segment at}
                                                read {words}         nothing more before more comes
                                                end {words segment}  a source segment is translated
    threshold {value}
    finish                                   -> finished {stats}, and the connection is closed
    ack {ack}, ping                          -> pong
                                                error {code message fatal}: the last message
                                                going-away: the last message

Numbers: `words`, `threshold` and `finish` are 1, 2, 3, ... over the whole session, and so are
`read`, `write`, `end` and `finished`; all else is about the connection and has the number 0. `ack`,
in every server message and optional in every client message, is the last number received in order.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = [
    "CLOSE",
    "FATAL",
    "Ack",
    "ClientMessage",
    "End",
    "Error",
    "Finish",
    "Finished",
    "GoingAway",
    "Limits",
    "Numbered",
    "Ping",
    "Pong",
    "ProtocolError",
    "Read",
    "Resume",
    "ServerMessage",
    "Start",
    "Started",
    "Stats",
    "Threshold",
    "Words",
    "Write",
    "check_channel",
    "encode",
    "parse_client",
    "parse_server",
]

_CHANNEL = re.compile("[A-Za-z0-9_-]{1,64}")
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
FATAL = CLOSE.keys() - {"replaced", "too-fast", "slow-reader"}  # after these the session goes on


class ProtocolError(Exception):
    """What a client did wrong; its message never repeats what the client sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Resume:
    """The session to go on with, and the last number seen of it."""

    session: str
    last: int


# --- client to server ---


@dataclass(frozen=True)
class Start:
    type: ClassVar[str] = "start"
    seq: int = 0
    ack: int | None = None
    threshold: float | None = None
    pair: str | None = None
    token: str | None = field(default=None, repr=False)
    resume: Resume | None = None
    channel: str | None = None


@dataclass(frozen=True)
class Words:
    type: ClassVar[str] = "words"
    seq: int
    text: str
    ack: int | None = None


@dataclass(frozen=True)
class Threshold:
    type: ClassVar[str] = "threshold"
    seq: int
    value: float
    ack: int | None = None


@dataclass(frozen=True)
class Finish:
    type: ClassVar[str] = "finish"
    seq: int
    ack: int | None = None


@dataclass(frozen=True)
class Ack:
    type: ClassVar[str] = "ack"
    ack: int
    seq: int = 0


@dataclass(frozen=True)
class Ping:
    type: ClassVar[str] = "ping"
    seq: int = 0
    ack: int | None = None


ClientMessage = Start | Words | Threshold | Finish | Ack | Ping

# --- server to client ---


@dataclass(frozen=True)
class Limits:
    """What the server allows this session."""

    message: int  # bytes in a message
    queue: int  # words sent and not yet heard
    words_per_second: float  # heard at most
    window: int  # messages of the server that are not acknowledged
    idle_seconds: float  # without words, threshold or finish
    resume_seconds: float  # without a connection


@dataclass(frozen=True)
class Stats:
    """A finished session."""

    words: int  # heard
    written: int  # words written
    segments: int
    seconds: float  # since the start


@dataclass(frozen=True)
class Started:
    type: ClassVar[str] = "started"
    session: str
    pair: str
    threshold: float
    layers: int
    heads: int
    limits: Limits
    resumed: bool
    learned: bool = True  # whether a threshold changes anything
    channel: str = ""  # where it can be followed
    lags: tuple[tuple[float, float], ...] = ()  # thresholds and the words behind, if measured
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class Read:
    type: ClassVar[str] = "read"
    words: int  # heard so far
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class Write:
    type: ClassVar[str] = "write"
    text: str
    delay: int  # source words it took
    heads: list[list[int]]  # [L, H] the source word each head stands on, from 1
    segment: int  # from 0
    at: int  # milliseconds since the session's start
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class End:
    type: ClassVar[str] = "end"
    words: int  # of the source so far
    segment: int
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class Finished:
    type: ClassVar[str] = "finished"
    stats: Stats
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class Error:
    type: ClassVar[str] = "error"
    code: str
    message: str
    fatal: bool
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class Pong:
    type: ClassVar[str] = "pong"
    seq: int = 0
    ack: int = 0


@dataclass(frozen=True)
class GoingAway:
    type: ClassVar[str] = "going-away"
    seq: int = 0
    ack: int = 0


Numbered = Read | Write | End | Finished
ServerMessage = Started | Numbered | Error | Pong | GoingAway

_CLIENT = {kind.type: kind for kind in (Start, Words, Threshold, Finish, Ack, Ping)}
_SERVER = {
    kind.type: kind for kind in (Started, Read, Write, End, Finished, Error, Pong, GoingAway)
}
_NUMBERED = ("words", "threshold", "finish")


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
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _CLIENT:
        raise _malformed(f"type must be one of {', '.join(_CLIENT)}")
    seq = _number(fields, "seq")
    if (kind in _NUMBERED) != (seq > 0):
        raise _malformed("seq counts words, threshold and finish from 1, and is 0 for all else")
    ack = _number(fields, "ack") if fields.get("ack") is not None else None
    match kind:
        case "words":
            return Words(seq, _text(fields, "text"), ack)
        case "threshold":
            return Threshold(seq, _threshold(fields, "value"), ack)
        case "finish":
            return Finish(seq, ack)
        case "ping":
            return Ping(seq, ack)
        case "ack":
            return Ack(_number(fields, "ack"))
    given = {
        name
        for name in ("threshold", "pair", "token", "resume", "channel")
        if fields.get(name) is not None
    }
    resume = None
    if "resume" in given:
        if not isinstance(fields["resume"], dict):
            raise _malformed("resume must be an object with session and last")
        resume = Resume(_text(fields["resume"], "session"), _number(fields["resume"], "last"))
    return Start(
        seq,
        ack,
        _threshold(fields, "threshold") if "threshold" in given else None,
        _text(fields, "pair") if "pair" in given else None,
        _text(fields, "token") if "token" in given else None,
        resume,
        check_channel(fields["channel"]) if "channel" in given else None,
    )


def parse_server(frame: str) -> ServerMessage | None:
    """A server's frame, for clients, which trust it; None: a type this version does not know."""
    fields = _load(frame)
    kind = _SERVER.get(fields.pop("type", ""))
    if kind is None:
        return None
    known = {entry.name for entry in dataclasses.fields(kind)}
    fields = {name: value for name, value in fields.items() if name in known}
    if kind is Started:
        names = {entry.name for entry in dataclasses.fields(Limits)}
        fields["limits"] = Limits(**{k: v for k, v in fields["limits"].items() if k in names})
        fields["lags"] = tuple((threshold, lag) for threshold, lag in fields.get("lags", ()))
    if kind is Finished:
        names = {entry.name for entry in dataclasses.fields(Stats)}
        fields["stats"] = Stats(**{k: v for k, v in fields["stats"].items() if k in names})
    message: ServerMessage = kind(**fields)
    return message


def check_channel(name: object) -> str:
    """The name, if it can be that of a channel."""
    if not isinstance(name, str) or not _CHANNEL.fullmatch(name):
        raise _malformed(
            "channel must be 1 to 64 of the letters a to z and A to Z, digits, - and _"
        )
    return name


def _load(frame: str) -> dict[str, Any]:
    try:
        fields = json.loads(frame, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # ValueError: also a number of too many digits
        raise _malformed("a message is one JSON object") from None
    if not isinstance(fields, dict):
        raise _malformed("a message is one JSON object")
    return fields


def _no_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _malformed(message: str) -> ProtocolError:
    return ProtocolError("malformed", message)


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= GREATEST:
        raise _malformed(f"{name} must be a whole number, 0 or more")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _malformed(f"{name} must be text")
    return value


def _threshold(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise _malformed(f"{name} must be a number between 0 and 1")
    return float(value)
