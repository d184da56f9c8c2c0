"""A client that does anything, in any order, on a real server: the event loop lives through it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from running_servers import PATIENCE, Client, Running, expected, text_of, wait_until
from websockets.exceptions import ConnectionClosed

from simultan.server.protocol import CLOSE, FATAL
from simultan.server.settings import Settings

numbers = st.integers(0, 12)
texts = st.sampled_from(
    [
        "",
        "ab",
        "ab cd!",
        "ef fe dc",
        "a" + "\u0300" * 3000,
        "\U0001f600" * 300,
        "x" * 3000,
        "ab " * 60,
    ]
)


class Watchdog:
    """Whether the event loop still takes its turns."""

    def __init__(self, server: Running) -> None:
        loop = server.live.batcher._loop
        assert loop is not None
        self.loop = loop

    def check(self) -> None:
        turned = threading.Event()
        self.loop.call_soon_threadsafe(turned.set)
        assert turned.wait(PATIENCE), "the event loop stands still"


class Hostile(RuleBasedStateMachine):
    """Several connections at once, each in a state of its own."""

    server: Running
    watchdog: Watchdog

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Client] = []
        self.sessions: list[str] = []
        self.next: dict[int, int] = {}

    # --- what a client can do ---

    def send(self, index: int, message: Any) -> None:
        if not self.lines:
            return
        line = self.lines[index % len(self.lines)]
        with contextlib.suppress(ConnectionClosed, OSError):
            line.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))

    @rule(start=st.booleans())
    def connect(self, start: bool) -> None:
        if len(self.lines) < 6:
            line = Client(self.server.url, begin=False)
            self.lines.append(line)
            if start:
                with contextlib.suppress(ConnectionClosed):
                    started = line.begin()
                    self.sessions.append(started.get("session", ""))

    @rule(index=numbers, which=numbers, last=numbers)
    def resume(self, index: int, which: int, last: int) -> None:
        if self.sessions:
            session = self.sessions[which % len(self.sessions)]
            resume = {"session": session, "last": last}
            self.send(index, {"type": "start", "seq": 0, "resume": resume})

    @rule(index=numbers, text=texts, gap=st.sampled_from([1, 1, 1, 1, 0, 2]))
    def say(self, index: int, text: str, gap: int) -> None:
        number = self.next[index] = self.next.get(index, 0) + gap
        self.send(index, {"type": "words", "seq": number, "text": text})

    @rule(
        index=numbers,
        kind=st.sampled_from(["end-sentence", "finish", "decoding", "threshold"]),
        value=st.sampled_from(["threshold=0.2", "lag=4", "beam=9", 0.3, None]),
    )
    def change(self, index: int, kind: str, value: Any) -> None:
        number = self.next[index] = self.next.get(index, 0) + 1
        self.send(index, {"type": kind, "seq": number, "value": value})

    @rule(index=numbers, number=numbers)
    def acknowledge(self, index: int, number: int) -> None:
        self.send(index, {"type": "ack", "seq": 0, "ack": number})

    @rule(index=numbers, times=st.sampled_from([1, 30]))
    def ping(self, index: int, times: int) -> None:
        for _ in range(times):
            self.send(index, {"type": "ping", "seq": 0})

    @rule(index=numbers, junk=st.text(max_size=20) | st.binary(max_size=20))
    def talk_nonsense(self, index: int, junk: str | bytes) -> None:
        self.send(index, junk.encode("utf-8", "replace") if isinstance(junk, str) else junk)

    @rule(index=numbers, frames=st.sampled_from([b"\x89\x80\0\0\0\0", b"\x81\x85ab", b"\xff\xff"]))
    def send_raw_frames(self, index: int, frames: bytes) -> None:
        if self.lines:
            with contextlib.suppress(OSError):
                self.lines[index % len(self.lines)].socket.socket.sendall(frames * 20)

    @rule(index=numbers, code=st.sampled_from([None, 1000, 1001]))
    def leave(self, index: int, code: int | None) -> None:
        if self.lines:
            line = self.lines.pop(index % len(self.lines))
            if code is None:
                line.cut()
            else:
                line.socket.close_timeout = 0.05
                line.socket.close(code)

    @rule(index=numbers)
    def read(self, index: int) -> None:
        """What came is of the protocol; an error is the last message and has its close code."""
        if not self.lines:
            return
        line = self.lines[index % len(self.lines)]
        with contextlib.suppress(ConnectionClosed, TimeoutError, OSError):
            while True:
                message = json.loads(line.socket.recv(0.01))
                if message["type"] == "error":
                    assert message["code"] != "internal"
                    assert message["fatal"] == (message["code"] in FATAL)
                    assert line.close_code() == CLOSE[message["code"]]

    @rule(path=st.sampled_from(["/", "/v1/follow/x", "/v1/translate", "/ws", "/metrics", "/../"]))
    def send_half_a_request(self, path: str) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as line:
            line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Len".encode())

    # --- what holds all the while ---

    @invariant()
    def the_event_loop_lives(self) -> None:
        self.watchdog.check()
        assert self.server.live.batcher.alive
        for session in list(self.server.live.sessions.values()):
            assert session.acked <= session.produced
            assert session.characters <= self.server.live.settings.queue_characters

    def teardown(self) -> None:
        for line in self.lines:
            line.cut()
        wait_until(lambda: not self.server.live.sessions)
        assert len(self.server.live.sessions_of) == 0
        text = text_of(1)
        assert Client(self.server.url).translate(text) == expected(text)
        wait_until(lambda: len(self.server.live.batcher.rows.free) == 2)


def test_a_hostile_client() -> None:
    running = Running(
        Settings(
            rows=2, tick_seconds=0.02, resume_seconds=0.05, start_seconds=0.5, window=16,
            slow_seconds=0.3, hold_seconds=0.01, queue=200, queue_characters=5000, per_address=0,
            drain_seconds=0.1,
        )
    )  # fmt: skip
    Hostile.server, Hostile.watchdog = running, Watchdog(running)
    machine = Hostile.TestCase
    machine.settings = settings(
        max_examples=25,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    try:
        machine("runTest").runTest()
    finally:
        running.stop()
