"""What honest streams feel while one client attacks: python benchmarks/attacks.py [--model de-en]

Honest streams speak all the while, at 2.5 words a second. One attack after the other runs beside
them, in a process and from an address of its own (127.0.0.2). For each: the honest p95 from a word
to the write that needed it, its ratio to the baseline of the same run, and the server's memory
before and after. All of it stays on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import serving

ATTACKER = "127.0.0.2"
RATIO = 2.0  # of the baseline's p95: the most that is wanted
GROWTH = 1.10  # of the memory
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
START = '{"type":"start","seq":0}'
EMOJI = "\U0001f600"
EACH = 10.0  # seconds of each attack, when all come in turn


# --- the attacker's process ---


class Line:
    """A raw connection that reads in a thread, or not at all."""

    def __init__(self, port: int, reads: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10, (ATTACKER, 0))
        self.reads, self.answered = reads, threading.Event()
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.settimeout(None)
            while self.socket.recv(1 << 16):
                self.answered.set()
        self.answered.set()  # there will be none

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, text: str) -> None:
        self.send(frame(text))

    def open_websocket(self, start: bool = True) -> Line:
        """A frame that comes before the server has said 101 is not heard."""
        self.send(UPGRADE)
        if self.reads:
            self.answered.wait(10)
        else:
            self.socket.recv(1 << 16)
        if start:
            self.say(START)
        return self


def frame(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size < 126:
        head = bytes([0x81, 0x80 | size])
    elif size < 65536:
        head = b"\x81\xfe" + struct.pack(">H", size)
    else:
        head = b"\x81\xff" + struct.pack(">Q", size)
    return head + b"\0\0\0\0" + data  # masked with nothing


def counted(kind: str, **fields: object) -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield frame(json.dumps({"type": kind, "seq": number, **fields}, ensure_ascii=False))


def flood(port: int, until: float, messages: Iterator[bytes], start: bool = True) -> None:
    """As fast as they are taken; again when it is cut off."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            line = Line(port).open_websocket(start)
            line.socket.settimeout(1.0)
            while time.monotonic() < until:
                line.send(b"".join(next(messages) for _ in range(50)))
        time.sleep(0.05)


def same(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


def flood_messages(kind: str, **fields: object) -> Callable[[int, float], None]:
    def run(port: int, until: float) -> None:
        while time.monotonic() < until:  # numbers begin anew with each session
            flood(port, min(until, time.monotonic() + 5), counted(kind, **fields))

    return run


def repeat(port: int, until: float, data: bytes) -> None:
    """Send this on connections of which each lasts as long as it may."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            line = Line(port)
            line.socket.settimeout(1.0)
            line.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            while time.monotonic() < until:
                line.send(data)
        time.sleep(0.01)


def acknowledge_ahead(port: int, until: float) -> None:
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            line = Line(port).open_websocket()
            line.say(json.dumps({"type": "words", "seq": 1, "text": "Guten Tag, meine Damen."}))
            for number in range(1, 8):
                line.say(json.dumps({"type": "ack", "seq": 0, "ack": number}))
                time.sleep(0.004)
            line.socket.close()


def say_words(text: str, pause: float) -> Callable[[int, float], None]:
    def run(port: int, until: float) -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                line = Line(port).open_websocket()
                line.socket.settimeout(1.0)
                for number in range(1, 10**9):
                    words = json.dumps({"type": "words", "seq": number, "text": text},
                                       ensure_ascii=False)  # fmt: skip
                    line.say(words)
                    time.sleep(pause)
                    if time.monotonic() > until:
                        return
            time.sleep(0.05)

    return run


def post(leave: bool) -> Callable[[int, float], None]:
    text = serving.TALK.read_text("utf-8") * 40
    body = json.dumps({"text": text[:50_000]}, ensure_ascii=False).encode()[:60_000]
    head = b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"

    def run(port: int, until: float) -> None:
        kept = []
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                line = Line(port)
                line.send(head % len(body) + body)
                time.sleep(0.05)
                if leave:
                    line.socket.close()
                else:
                    kept.append(line)
            time.sleep(0.05 if leave else 0.5)

    return run


def hold(opening: bytes, reads: bool = True, say: str = "") -> Callable[[int, float], None]:
    """As many connections as there can be, each with half of something."""

    def run(port: int, until: float) -> None:
        kept: list[Line] = []
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                line = Line(port, reads)
                if opening == UPGRADE:
                    line.open_websocket().say(say)
                else:
                    line.send(opening)
                kept.append(line)
            time.sleep(0.005)

    return run


def come_and_go(port: int, until: float) -> None:
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            line = Line(port).open_websocket()
            line.say('{"type":"words","seq":1,"text":"Guten"}')
            line.socket.close()
        time.sleep(0.01)


BOOK = json.dumps({"type": "words", "seq": 1, "text": " ".join(["Haus"] * 9_000)})
PING = b"\x89\x80\0\0\0\0"
ATTACKS: dict[str, Callable[[int, float], None]] = {
    "acknowledgements ahead": acknowledge_ahead,
    "combining marks": say_words("a" + "\u0300" * 15_900 + "\u0323" * 14_000, 0.05),
    "endless header": lambda port, until: repeat(port, until, b"a" * 65536),
    "websocket pings": lambda port, until: flood(port, until, same(PING * 40)),
    "pings before start": lambda port, until: flood(port, until, same(PING * 40), start=False),
    "ping messages": lambda port, until: flood(port, until, same(frame('{"type":"ping","seq":0}'))),
    "ack messages": lambda port, until: flood(
        port, until, same(frame('{"type":"ack","seq":0,"ack":0}'))
    ),
    "decoding messages": flood_messages("decoding", value="threshold=0.5"),
    "empty words": flood_messages("words", text=""),
    "long words": say_words(EMOJI * 200, 0.1),
    "huge words": say_words(" ".join(["x" * 199 + EMOJI] * 60), 0.02),
    "texts, and gone": post(leave=True),
    "texts": post(leave=False),
    "connections": hold(UPGRADE, say='{"type":"words","seq":1,"text":"Guten Morgen"}'),
    "half requests": hold(b"GET / HTTP/1.1\r\nHost: 127"),
    "followers": hold(b"GET /v1/follow/some-channel HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    "slow readers": hold(UPGRADE, reads=False, say=BOOK),
    "come and go": come_and_go,
}


def attack(name: str, port: int, seconds: float) -> None:
    """One of them, or all in turn."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for each in ATTACKS if name == "all" else [name]:
            ATTACKS[each](port, min(until, time.monotonic() + (EACH if name == "all" else seconds)))


def start_attack(name: str, port: int, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--attack", name, "--port", str(port)]
    return subprocess.Popen([*command, "--seconds", str(seconds)])


# --- what is measured ---


def in_window(load: serving.Load, begin: float, end: float) -> list[float]:
    return [wait for wait, at in zip(load.waits, load.times, strict=True) if begin <= at < end]


async def measure(server: serving.Server, options: argparse.Namespace) -> list[dict[str, object]]:
    load = serving.Load()
    names = [name for name in ATTACKS if not options.only or options.only in name]
    each = options.seconds + options.rest
    begin = time.monotonic() + 3
    until = begin + options.baseline + each * len(names) + 5
    streams = [
        asyncio.create_task(serving.speak(server.url, options, seed, begin, until, load))
        for seed in range(options.streams)
    ]
    await asyncio.sleep(3 + options.baseline)
    quiet = in_window(load, begin, time.monotonic())
    base = serving.p95(quiet)
    print(
        f"{options.streams} streams, baseline: {len(quiet)} writes, p95 {base * 1e3:.0f} ms,"
        f" {server.memory_mib():.0f} MiB, {os.getloadavg()[0]:.1f} load",
        flush=True,
    )
    start, found = server.memory_mib(), []
    for name in names:
        before, errors = server.memory_mib(), len(load.errors)
        attacker = start_attack(name, server.port, options.seconds)
        opened = time.monotonic()
        await asyncio.sleep(options.seconds)
        closed = time.monotonic()
        during = server.memory_mib()
        attacker.kill()
        attacker.wait()
        await asyncio.sleep(options.rest)
        waits = in_window(load, opened, closed)
        worst = serving.p95(waits) if len(waits) > 20 else math.inf
        row = {
            "attack": name, "writes": len(waits), "p95": worst, "ratio": worst / base,
            "before": before, "during": during, "after": server.memory_mib(),
            "errors": len(load.errors) - errors,
        }  # fmt: skip
        found.append(row)
        print(
            f"  {name:24s} {len(waits):5d} writes  p95 {worst * 1e3:7.0f} ms  x {row['ratio']:5.2f}"
            f"  {before:6.0f} -> {during:6.0f} -> {row['after']:6.0f} MiB  errors {row['errors']}",
            flush=True,
        )
    await asyncio.gather(*streams)
    await asyncio.sleep(2)
    end = server.memory_mib()
    late = [str(row["attack"]) for row in found if float(str(row["ratio"])) > RATIO]
    print(f"memory {start:.0f} -> {end:.0f} MiB ({100 * (end / start - 1):+.1f}%, wanted <= 10)")
    print(f"over {RATIO:g} times the baseline: {', '.join(late) or 'none'}")
    if late or end > GROWTH * start or load.errors:
        print(f"FAILED ({len(load.errors)} errors of honest streams)")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="", help=f"a folder, a name, or {serving.RANDOM!r}")
    parser.add_argument("--text", type=Path, help="its source text, a sentence to a line")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--streams", type=int, default=8, help="honest ones")
    parser.add_argument("--baseline", type=float, default=20.0, help="seconds without an attack")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack")
    parser.add_argument("--rest", type=float, default=2.0, help="seconds after each attack")
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.port, options.seconds)
        return
    options.most, options.decoding = 32, "default"  # as a server has by default
    options.attacker = False
    serving.choose_model(options)
    server = serving.Server(options, batching=True, public=True)
    try:
        found = asyncio.run(measure(server, options))
    finally:
        server.stop()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
