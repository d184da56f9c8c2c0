"""simultan serve: live translation for many listeners."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated, Literal

from simultan.config import Bound
from simultan.server.settings import Settings
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Machine, Model


def serve(
    model: Model = "",
    *,
    host: Annotated[
        str, "Listen at this address; 0.0.0.0 lets other machines in.", "<ADDRESS>"
    ] = "127.0.0.1",
    port: Annotated[
        int, Bound(0, 65535), "Listen at this port; 0 takes a free one.", "<PORT>"
    ] = 8000,
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(threads=max(1, (os.cpu_count() or 2) - 1)),
    int8: Annotated[bool, "Round the weights to int8, as --quantize int8 does."] = False,
    settings: Settings = Settings(),
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        "Log this and worse; info has a line for each request, debug may have what people say.",
    ] = "warning",
) -> None:
    """Translate live, for many at once: a page, a websocket and an HTTP API."""
    from simultan.server.run import check_address
    from simultan.server.run import serve as run

    check_address(host, port)  # before the model is loaded, which takes a while
    if int8:
        machine = dataclasses.replace(machine, quantize="int8")
    settings = dataclasses.replace(settings, decoding=decoding)
    run(machine.load(model), settings, host, port, log_level)
