"""The app on several machines: python contrib/ray/cluster.py --help

Replicas under Ray Serve, each with the model and its rows.

A websocket stays on the replica it has reached. Session ids begin with the tag of their replica: a
resume that reaches another one is relayed, frame by frame, to the replica that has the session.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

import simultan
from simultan import boxed
from simultan.server.app import create_app
from simultan.server.protocol import ProtocolError, Start, parse_client
from simultan.server.run import keep_discreet
from simultan.server.settings import Settings

OWN = not os.environ.get("RAY_ADDRESS")  # no cluster to join: one of our own, on this machine
if "ray" not in sys.modules:  # it looks at these when it is imported; a replica has them already
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would call home
    if OWN:  # listen on loopback, not everywhere; and a key for this run, or it keeps one in ~/.ray
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import ray  # noqa: E402
from ray import serve  # noqa: E402

__all__ = ["Cluster", "Replica", "serve_cluster"]

NAME = "simultan"  # of the app, and of our names in Ray's store
TAG = 8  # characters
SECRET = "x-simultan-relay"  # header between replicas
QUIET: dict[str, Any] = {"log_level": "WARNING", "enable_access_log": False}
STORE_BYTES = 80 * 2**20  # of Ray's object store, which nothing here uses; about the least it takes


@dataclass(frozen=True)
class Cluster:
    """What each replica is made of, and how many there may be."""

    model: str
    settings: Settings
    replicas: tuple[int, int] = (1, 1)  # least and most
    device: str = "cpu"
    threads: int = 1
    quantize: bool = False
    drain_seconds: float = 600.0  # for the streams of a replica that is one too many

    def __post_init__(self) -> None:
        least, most = self.replicas
        if not 1 <= least <= most:
            raise ValueError(f"replicas = {least}:{most}: MIN:MAX, with 1 <= MIN <= MAX")


# --- what all replicas can look up ---


@ray.remote(num_cpus=0)
class Registry:
    """Where each replica can be reached, and whether all of it stops."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def put(self, name: str, value: str) -> None:
        self.values[name] = value

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def delete(self, name: str) -> None:
        self.values.pop(name, None)

    def replicas(self) -> list[str]:
        return [name for name in self.values if name.startswith("replica:")]


def _registry() -> Any:
    """The one of this cluster."""
    return Registry.options(name=NAME, namespace=NAME, get_if_exists=True,
                            lifetime="detached").remote()  # fmt: skip


def _put(name: str, value: str) -> None:
    ray.get(_registry().put.remote(name, value))


def _get(name: str) -> str | None:
    value: str | None = ray.get(_registry().get.remote(name), timeout=5)
    return value


def _delete(name: str) -> None:
    ray.get(_registry().delete.remote(name), timeout=5)


def _replicas() -> list[str]:
    """Names of the replicas that have not said goodbye."""
    names: list[str] = ray.get(_registry().replicas.remote(), timeout=5)
    return names


# --- a replica ---


class _Listener(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are Ray's


class Replica:
    """The app (ASGI) with a door to the other replicas."""

    def __init__(self, cluster: Cluster) -> None:
        quantize = "int8" if cluster.quantize else None
        translator = simultan.load(cluster.model, device=cluster.device, quantize=quantize)
        if cluster.device == "cpu":
            torch.set_num_threads(cluster.threads)
        keep_discreet("uvicorn.error", "simultan", "ray.serve")
        self.app = create_app(translator, cluster.settings)
        self.live = self.app.state.live
        self.live.followable = False  # a follower could come to another replica
        self.most = cluster.settings.max_message
        self.tag = self.live.tag = secrets.token_urlsafe(TAG)[:TAG]
        self.secret = secrets.token_urlsafe(16)
        self.socket = socket.create_server((ray.util.get_node_ip_address(), 0))
        config = uvicorn.Config(
            self._other_replica,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            ws_max_size=max(1 << 20, 2 * self.most),
            ws_per_message_deflate=False,
        )
        self.listener = _Listener(config)
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def healthy(self) -> bool:
        return self.live.batcher.alive and not self.tasks[0].done()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["path"].startswith("/v1/follow/"):
            text = "streams of a cluster cannot be followed\n"
            await PlainTextResponse(text, 404)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """From the first to the last day: `send` says when the app is ready, or over."""
        name = f"replica:{self.tag}"

        async def note(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                host, port = self.socket.getsockname()[:2]
                await asyncio.to_thread(_put, name, f"{self.secret} {host} {port}")
                self.tasks = [
                    asyncio.create_task(self.listener.serve([self.socket])),
                    asyncio.create_task(self._watch(name)),
                ]
            await send(message)

        await self.app(scope, receive, note)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.to_thread(_delete, name)

    async def _watch(self, name: str) -> None:
        """Whether the whole cluster stops: then clients hear of it, while they can."""
        stopping = False
        while not stopping:
            await asyncio.sleep(0.5)
            with suppress(Exception):  # Ray's store may be away for a while: streams go on
                stopping = await asyncio.to_thread(_get, "stopping") is not None
        await self.live.finish()
        await asyncio.to_thread(_delete, name)

    async def _other_replica(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A connection that another replica hands on; nobody else knows the secret."""
        given = Headers(scope=scope).get(SECRET, "")
        if secrets.compare_digest(given.encode(), self.secret.encode()):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await PlainTextResponse("for replicas only\n", 403)(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ours, unless its first message resumes a session of another replica."""
        first: str | None = None
        owner: ClientConnection | None = None

        async def look() -> Message:
            nonlocal first, owner
            message = await receive()
            if first is None and message["type"] == "websocket.receive":
                first = message.get("text") or ""
                owner = await self._owner(first, Headers(scope=scope))
                if owner is not None:  # our own app is done with it, without a word
                    return {"type": "websocket.disconnect", "code": 1001}
            return message

        await self.app(scope, look, send)
        if owner is not None and first is not None:
            await _relay(first, owner, receive, send)

    async def _owner(self, first: str, headers: Headers) -> ClientConnection | None:
        """A connection to the replica of the session to resume; None: we, or nobody."""
        try:
            start = parse_client(first) if len(first) <= self.most else None
        except ProtocolError:
            return None
        if not isinstance(start, Start) or start.resume is None:
            return None
        tag = start.resume.session[:TAG]
        if tag == self.tag:
            return None
        address = await asyncio.to_thread(_get, f"replica:{tag}")
        if address is None:
            return None
        secret, host, port = address.split()
        own = {"authorization": headers["authorization"]} if "authorization" in headers else {}
        try:
            return await connect(
                f"ws://[{host}]:{port}/ws" if ":" in host else f"ws://{host}:{port}/ws",
                additional_headers={SECRET: secret, **own},
                compression=None,
                max_size=None,
                open_timeout=3,
                proxy=None,
            )
        except ConnectionRefusedError:  # it is dead, and its sessions with it
            await asyncio.to_thread(_delete, f"replica:{tag}")
        except (OSError, WebSocketException):  # its machine cannot be reached
            pass
        return None


async def _relay(first: str, owner: ClientConnection, receive: Receive, send: Send) -> None:
    """Frames in both directions until one side closes; then the other is closed alike."""
    gone = False

    async def upwards() -> None:
        nonlocal gone
        with suppress(ConnectionClosed):
            await owner.send(first)
            while (message := await receive())["type"] == "websocket.receive":
                text = message.get("text")
                await owner.send(message["bytes"] if text is None else text)
            gone = True
            # 1000 ends the session, all else leaves it for a while
            await owner.close(1000 if message.get("code") == 1000 else 1001)

    task = asyncio.create_task(upwards())
    try:
        with suppress(ConnectionClosed):
            async for frame in owner:
                if not gone:
                    await send({"type": "websocket.send", "text": str(frame)})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await owner.close()
    if not gone:
        code = owner.close_code or 1011
        await send({"type": "websocket.close", "code": 1011 if code in (1005, 1006) else code})


class Translation:
    """What Ray Serve makes a replica of."""

    def __init__(self, cluster: Cluster) -> None:
        self.replica = Replica(cluster)

    def __serve_build_asgi_app__(self) -> Replica:
        return self.replica

    def check_health(self) -> None:
        if not self.replica.healthy:
            raise RuntimeError("the model's thread, or the listener, has died")


# --- all of them ---


def application(cluster: Cluster) -> Any:
    """The Ray Serve application: serve.run(application(cluster))."""
    rows = cluster.settings.sessions
    least, most = cluster.replicas
    load: dict[str, Any] = {"num_replicas": least}
    if most > least:
        load = {
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                "target_ongoing_requests": max(1.0, 0.7 * rows),
                "upscale_delay_s": 5.0,
                "downscale_delay_s": 600.0,
            }
        }
    deployment = serve.deployment(
        # over its rows: who is one too many is told so, and the page still loads
        max_ongoing_requests=rows + max(8, rows // 4),
        max_queued_requests=256,
        graceful_shutdown_timeout_s=cluster.drain_seconds,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        ray_actor_options={
            "num_cpus": cluster.threads,
            "num_gpus": 1 if cluster.device.startswith("cuda") else 0,
        },
        logging_config=QUIET,
        **load,
    )
    return deployment(serve.ingress()(Translation)).bind(cluster)


def serve_cluster(cluster: Cluster, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT; on the Ray cluster of RAY_ADDRESS, or on one of our own."""
    if not port:
        raise ValueError("a cluster needs a --port: all machines have the same")
    local = host in ("127.0.0.1", "localhost", "::1")
    _join(cluster)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        _delete("stopping")
        serve.start(
            proxy_location="HeadOnly" if local else "EveryNode",
            http_options={"host": host, "port": port},
            logging_config=QUIET,
        )
        serve.run(application(cluster), name=NAME, route_prefix="/", logging_config=QUIET)
        print(f"simultan: http://{host}:{port} (Ctrl-C stops it)", flush=True)
        over.wait()
        _put("stopping", "1")
        until = time.monotonic() + cluster.settings.flush_seconds + 3
        while _replicas() and time.monotonic() < until:
            time.sleep(0.1)
        if OWN:
            serve.shutdown()
        else:
            serve.delete(NAME)  # others may have apps there, too
        for name in _replicas():  # of those that were killed
            _delete(name)
    finally:
        ray.shutdown()


def _join(cluster: Cluster) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if not OWN:
        ray.init(**quiet)
    else:
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, cluster.threads * cluster.replicas[1]),
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            **quiet,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[2])
    parser.add_argument("model", nargs="?", default="de-en", help="a model's folder or name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replicas", default="1:1", metavar="MIN:MAX", help="as the load needs")
    parser.add_argument("--rows", type=int, default=32, help="streams side by side, of a replica")
    parser.add_argument("--decoding", default="default", help='such as "lag=4"')
    parser.add_argument("--token", default=os.environ.get("SIMULTAN_TOKEN"))
    parser.add_argument("--origin", action="append", default=[])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="cores of a replica")
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    least, _, most = options.replicas.partition(":")
    if not (least.isdecimal() and (most or least).isdecimal()):
        parser.error(f"--replicas {options.replicas}: MIN:MAX, such as 2:8")
    try:
        folder = boxed.resolve(options.model)  # replicas load it; nobody else does
        settings = Settings(
            decoding=options.decoding, rows=options.rows, token=options.token,
            origins=tuple(options.origin), per_address=0,
        )  # fmt: skip
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    cluster = Cluster(
        str(Path(folder).resolve()), settings, (int(least), int(most or least)),
        options.device, options.threads, options.int8,
    )  # fmt: skip
    serve_cluster(cluster, options.host, options.port)


if __name__ == "__main__":
    main()
