"""simultan serve: live translation for many listeners."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simultan.config import Bound
from simultan.verbs.options import Decode, Machine, Model, default_model

if TYPE_CHECKING:
    from simultan.server.settings import Settings

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
        int | None, Bound(1), "Open at most this many sessions; as many as rows by default.", "<N>"
    ] = None,
    token: Annotated[
        str | None, "Let in only clients that know this token.", "$SIMULTAN_TOKEN", "<TOKEN>"
    ] = None,
    origin: Annotated[
        tuple[str, ...], "Let pages of this site connect, too; can be repeated.", "<URL>"
    ] = (),
    max_message: Annotated[
        int, Bound(1024), "Refuse messages of more bytes than this.", "<BYTES>"
    ] = 65_536,
    words_per_second: Annotated[
        float, "Read at most this many words a second from a stream; others wait.", "<WORDS>"
    ] = 100.0,
    idle_seconds: Annotated[float, "End a session after this long a silence.", "<SECONDS>"] = 600.0,
    batching: Annotated[
        bool, "Step all streams through the model together, or one after another."
    ] = True,
    ray: Annotated[bool, "Run replicas under Ray Serve, on one or more machines."] = False,
    replicas: Annotated[
        str, "Run as many replicas as the load needs, with --ray.", "<MIN:MAX>"
    ] = "",
) -> None:
    """Translate live, for many at once: a page, a websocket and an HTTP API."""
    try:
        from simultan.server.run import serve as run
        from simultan.server.settings import Settings
    except ImportError as error:
        raise ValueError(
            f"the server needs more packages: pip install 'simultan[serve]' ({error})"
        ) from error

    decoding = decode.decoding()
    if int8:
        machine = dataclasses.replace(machine, quantize="int8")
    threshold = 0.5 if decoding.threshold is None else decoding.threshold
    if decoding.lag is not None:
        from simultan import boxed
        from simultan.streaming.lags import Lags

        threshold = Lags.load(boxed.resolve(model or default_model())).threshold(decoding.lag)
    settings = Settings(
        threshold=threshold,
        rows=rows,
        max_sessions=max_sessions,
        token=token,
        origins=origin,
        local=host in ("127.0.0.1", "localhost", "::1"),
        max_message=max_message,
        words_per_second=words_per_second,
        idle_seconds=idle_seconds,
        batching=batching,
        k=decoding.k,
        rule=decoding.agent,
    )
    if ray:
        _serve_replicas(model or default_model(), settings, host, port, replicas, machine)
        return
    if replicas:
        raise ValueError("--replicas goes with --ray")
    run(machine.load(model), settings, host, port)


def _serve_replicas(
    model: str, settings: Settings, host: str, port: int, replicas: str, machine: Machine
) -> None:
    import simultan

    try:
        from simultan.server.cluster import Cluster, serve_cluster
    except ImportError as error:
        raise ValueError(
            f"--ray needs more packages: pip install 'simultan[serve,cluster]' ({error})"
        ) from error

    least, _, most = (replicas or "1:1").partition(":")
    if not (least.isdecimal() and (most or least).isdecimal()):
        raise ValueError(f"--replicas {replicas}: MIN:MAX, such as 2:8")
    if Path(model).is_dir():
        model = str(Path(model).resolve())  # replicas start elsewhere
    simultan.load(model)  # what is wrong with it is told here, not by each replica
    bounds = int(least), int(most or least)
    quantize = machine.quantize is not None
    cluster = Cluster(model, settings, bounds, machine.device, machine.threads or 1, quantize)
    serve_cluster(cluster, host, port)
