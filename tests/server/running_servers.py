"""Servers of a small random model, in a thread or in a process of their own, and plain clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from simultan.config import Config
from simultan.server.run import Server, make_server
from simultan.server.settings import Settings
from simultan.streaming.session import Session, Write
from simultan.streaming.translator import Translator

sys.path.append(str(Path(__file__).parents[1] / "streaming"))
from small import CODEC, make, sentence

MODEL = make("mma-il", "transformer", seed=3)
TRANSLATOR = Translator(MODEL, Config(), CODEC)
PATIENCE = 300.0  # seconds until what hangs is called so; a busy machine takes long, too


def text_of(seed: int, sentences: int = 3, words: int = 6) -> str:
    return " ".join(sentence(words, 10 * seed + i, closing="!") for i in range(sentences))


def expected(text: str, decoding: str = "threshold=0.5") -> list[tuple[str, int]]:
    """What a session that nobody disturbs writes: text and delay."""
    session = Session(MODEL, CODEC, decoding, segment=True)
    events = session.feed(text) + session.finish()
    return [(e.text, e.delay) for e in events if isinstance(e, Write)]


class Running:
    """A server in a thread."""

    def __init__(self, settings: Settings, cold: bool = False) -> None:
        self.server: Server = make_server(TRANSLATOR, settings, "127.0.0.1", 0)
        self.live = self.server.live
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        until = time.monotonic() + PATIENCE
        while not (self.server.started and (cold or self.live.healthy)):
            assert time.monotonic() < until
            time.sleep(0.005)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/ws"
        self.http = f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        torch.set_num_threads(1)
        self.server.run()

    def change(self, **settings: Any) -> None:
        """Other settings from now on: a clock is slow until what it must not hit is over."""
        live = self.live
        changed = replace(live.settings, **settings)
        live.settings = live.batcher.settings = self.server.config.settings = changed

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Client:
    """The protocol by hand, one message at a time."""

    def __init__(self, url: str, begin: bool = True, **options: Any) -> None:
        start = {name: options.pop(name) for name in ("decoding", "threshold", "pair", "token",
                 "resume", "channel") if name in options}  # fmt: skip
        waits = {"open_timeout": PATIENCE, "ping_interval": None, "compression": None}
        self.socket: ClientConnection = connect(url, **{**waits, **options}).__enter__()
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


def heed_interrupts() -> None:
    """As in a terminal: background jobs of a shell do not, nor do tests that such a job runs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """`simultan serve` as people start it; ready when it says where it is."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "simultan.cli", "serve", str(folder), "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=heed_interrupts,
        )
        self.output = ""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        wait_until(lambda: self._address() is not None or not self.reader.is_alive())
        address = self._address()
        assert address is not None, self.output
        self.port = int(address[1])
        self.url = f"ws://127.0.0.1:{self.port}/ws"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def _address(self) -> re.Match[str] | None:
        return re.search(r"^simultan: http://.*:(\d+) \(", self.output, re.MULTILINE)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Exit status and all it has said."""
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return self.process.returncode, self.output

    def end(self) -> None:
        self.process.kill()
        self.wait()
