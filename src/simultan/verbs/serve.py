"""simultan serve: live translation for many listeners."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Literal

from simultan.config import Bound
from simultan.verbs.options import Decode, Machine, Model

__all__ = ["serve"]


def serve(
    model: Model = "",
    *,
    host: Annotated[
        str, "Listen at this address; 0.0.0.0 lets other machines in.", "<ADDRESS>"
    ] = "127.0.0.1",
    port: Annotated[
        int, Bound(0, 65535), "Listen at this port; 0 takes a free one.", "<PORT>"
    ] = 8000,
    decode: Decode = Decode(),
    machine: Machine = Machine(threads=max(1, (os.cpu_count() or 2) - 1)),
    int8: Annotated[bool, "Round the weights to int8, as --quantize int8 does."] = False,
    rows: Annotated[int, Bound(1), "Translate this many streams side by side.", "<N>"] = 32,
    max_sessions: Annotated[
        int | None,
        Bound(1),
        "Open at most this many sessions; four for each row by default.",
        "<N>",
    ] = None,
    token: Annotated[
        str | None, "Let in only clients that know this token.", "$SIMULTAN_TOKEN", "<TOKEN>"
    ] = None,
    tokens_file: Annotated[
        Path | None, "Read tokens and their rights from this file, again when it changes.", "<FILE>"
    ] = None,
    origin: Annotated[
        tuple[str, ...], "Let pages of this site connect, too; can be repeated.", "<URL>"
    ] = (),
    allowed_host: Annotated[
        tuple[str, ...], "Answer to this name, too; can be repeated.", "<NAME>"
    ] = (),
    proxy: Annotated[
        tuple[str, ...],
        "Believe what this proxy says about addresses of clients; can be repeated.",
        "<ADDRESS>",
    ] = (),
    per_address: Annotated[
        int, Bound(0), "Allow one address this many connections and sessions; 0: any.", "<N>"
    ] = 64,
    max_message: Annotated[
        int, Bound(1024), "Refuse messages of more bytes than this.", "<BYTES>"
    ] = 65_536,
    words_per_second: Annotated[
        float, "Read at most this many words a second from a stream; others wait.", "<WORDS>"
    ] = 100.0,
    idle_seconds: Annotated[float, "End a session after this long a silence.", "<SECONDS>"] = 600.0,
    drain_seconds: Annotated[
        float, "After SIGTERM, wait this long for open sentences to end.", "<SECONDS>"
    ] = 10.0,
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        "Log this and worse; info has a line for each request, debug may have what people say.",
    ] = "warning",
    batching: Annotated[
        bool, "Step all streams through the model together, or one after another."
    ] = True,
) -> None:
    """Translate live, for many at once: a page, a websocket and an HTTP API."""
    try:
        from simultan.server.run import serve as run
        from simultan.server.settings import Settings
    except ImportError as error:
        raise ValueError(
            f"the server needs more packages: pip install 'simultan[serve]' ({error})"
        ) from error

    if int8:
        machine = dataclasses.replace(machine, quantize="int8")
    settings = Settings(
        decoding=decode.decoding(),
        rows=rows,
        max_sessions=max_sessions,
        token=token,
        tokens_file=tokens_file,
        origins=origin,
        allowed_hosts=allowed_host,
        proxies=proxy,
        per_address=per_address,
        max_message=max_message,
        words_per_second=words_per_second,
        idle_seconds=idle_seconds,
        drain_seconds=drain_seconds,
        batching=batching,
    )
    run(machine.load(model), settings, host, port, log_level)
