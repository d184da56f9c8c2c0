"""Servers of a small random model, in a thread or in a process of their own, and plain clients."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from simultan import checkpoint
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.server.live import LONGEST_SEGMENT
from simultan.server.run import Server, make_server
from simultan.server.settings import Settings
from simultan.streaming.session import Session, Write
from simultan.streaming.translator import Translator

sys.path.append(str(Path(__file__).parents[1] / "streaming"))
from small import CODEC, make, sentence

MODEL = make("mma-il", "transformer", seed=3)
TRANSLATOR = Translator(MODEL, Config(), CODEC)
PATIENCE = 60.0  # seconds; nothing here takes as long, a busy machine may


def text_of(seed: int, sentences: int = 3, words: int = 6) -> str:
    return " ".join(sentence(words, 10 * seed + i, closing="!") for i in range(sentences))


def expected(text: str, decoding: str = "threshold=0.5") -> list[tuple[str, int]]:
    """What a session that nobody disturbs writes: text and delay."""
    session = Session(MODEL, CODEC, decoding, segment=True, longest=LONGEST_SEGMENT)
    events = session.feed(text) + session.finish()
    return [(e.text, e.delay) for e in events if isinstance(e, Write)]


class Running:
    """A server in a thread."""

    def __init__(self, settings: Settings) -> None:
        self.server: Server = make_server(TRANSLATOR, settings, "127.0.0.1", 0)
        self.live = self.server.live
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        until = time.monotonic() + PATIENCE
        while not self.server.started:
            assert time.monotonic() < until
            time.sleep(0.005)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/ws"
        self.http = f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        torch.set_num_threads(1)
        self.server.run()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """start(**settings) -> a running server."""
    servers: list[Running] = []

    def begin(**settings: Any) -> Running:
        quick = {"tick_seconds": 0.02, "rows": 8, "wrong_token_seconds": 0.0, "drain_seconds": 0.1,
                 "connections_per_second": 1e6}  # fmt: skip
        servers.append(Running(Settings(**{**quick, **settings})))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


class Client:
    """The protocol by hand, one message at a time."""

    def __init__(self, url: str, begin: bool = True, **options: Any) -> None:
        start = {name: options.pop(name) for name in ("decoding", "threshold", "pair", "token",
                 "resume", "channel") if name in options}  # fmt: skip
        self.socket: ClientConnection = connect(url, compression=None, **options).__enter__()
        self.number = self.last = 0
        self.messages: list[dict[str, Any]] = []  # numbered ones
        if begin:
            self.started = self.begin(**start)

    def begin(self, **start: Any) -> dict[str, Any]:
        self.send({"type": "start", "seq": 0, **start})
        self.last = start.get("resume", {}).get("last", 0)
        return self.receive()

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def say(self, text: str, **more: Any) -> None:
        self.number += 1
        self.send({"type": "words", "seq": self.number, "text": text, "ack": self.last, **more})

    def finish(self) -> None:
        self.post("finish")

    def post(self, kind: str, **fields: Any) -> None:
        """A counted message."""
        self.number += 1
        self.send({"type": kind, "seq": self.number, "ack": self.last, **fields})

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(PATIENCE))
        if message["seq"]:
            assert message["seq"] == self.last + 1
            self.last = message["seq"]
            self.messages.append(message)
        return message

    def until(self, kind: str, acknowledge: bool = True) -> dict[str, Any]:
        while (message := self.receive())["type"] != kind:
            assert message["type"] not in ("error", "going-away"), message
            if acknowledge and message["seq"] and message["seq"] % 4 == 0:
                with contextlib.suppress(ConnectionClosed):  # it may be over already
                    self.send({"type": "ack", "seq": 0, "ack": self.last})
        return message

    def written(self) -> list[tuple[str, int]]:
        return [(m["text"], m["delay"]) for m in self.messages if m["type"] == "write"]

    def translate(self, text: str) -> list[tuple[str, int]]:
        """A whole session, word by word."""
        for word in text.split():
            self.say(word)
        self.finish()
        self.until("finished")
        return self.written()

    def error(self) -> tuple[str, int]:
        """The next message must be an error: its code and the close code that follows."""
        message = self.receive()
        assert message["type"] == "error", message
        return message["code"], self.close_code()

    def close_code(self) -> int:
        with contextlib.suppress(Exception):
            self.socket.recv(PATIENCE)
        assert self.socket.protocol.close_rcvd is not None
        return int(self.socket.protocol.close_rcvd.code)

    def cut(self) -> None:
        """The cable is pulled: no closing handshake."""
        with contextlib.suppress(OSError):
            self.socket.socket.shutdown(socket.SHUT_RDWR)
        self.socket.socket.close()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


class Process:
    """`simultan serve` as people start it."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        if not port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        self.port, self.url = port, f"ws://127.0.0.1:{port}/ws"
        command = [sys.executable, "-m", "simultan.cli", "serve", str(folder), "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.stdout and self.process.stdout.read()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Exit status and all it has said."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a folder."""
    path = tmp_path_factory.mktemp("served") / "model"

    config = Config(
        model=ModelConfig(
            architecture="transformer", width=16, ffn=24, heads=2, encoder_layers=1,
            decoder_layers=2, dropout=0.0,
        ),
        policy=PolicyConfig(name="mma-il", chunk=2, k=(2,), energy_bias=-0.2),
    )  # fmt: skip
    checkpoint.save(path, checkpoint.weights_of(MODEL), config, CODEC)
    return path


@pytest.fixture
def launch(folder: Path) -> Iterator[Callable[..., Process]]:
    """launch(*options) -> `simultan serve` in a process."""
    processes: list[Process] = []

    def begin(*options: str, port: int = 0) -> Process:
        processes.append(Process(folder, *options, port=port))
        return processes[-1]

    yield begin
    for process in processes:
        process.process.kill()
        process.process.communicate()
