"""Serving on two cores: how many live streams a server holds, with batching and without.

    python benchmarks/serving.py [--model NAME] [--int8] [--decoding beam=1] [--seconds S]
                                 [--most N] [--json FILE]
    python benchmarks/serving.py --soak 600 [--streams N]

Each stream says 2.5 words a second. Streams are added until the 95th percentile of the time from a
word sent to the words received that waited for it passes 300 ms; the server runs in a process of
its own, as `simultan serve` does on two cores (one thread computes), once with batching and once
taking one row at a time. The load comes from this process, which needs a tenth of a core.
The model: --model, a folder or a name; else the one called de-en, if this installation has it;
else, and with --model random, 6+6 layers, width 512, with random weights but for what makes the run
realistic (benchmarks/streaming.py). --soak holds 80% of what batching holds, or --streams, for so
many seconds and watches memory and errors. The last line is the ratio, or the verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import websockets

RATE = 2.5  # words a second
MOST_SECONDS = 0.3
SENTENCE = 24  # words
START = '{"type":"start","seq":0}'
RANDOM = "random"
BOXED = "de-en"
TALK = Path(__file__).parents[1] / "src" / "simultan" / "talk.de.txt"
GROWTH = 1.02  # of the memory, from the first quarter of a soak to the last


# --- the server's process ---


def run_server(options: argparse.Namespace) -> None:
    import torch

    import simultan
    from simultan.server.run import serve
    from simultan.server.settings import Settings
    from simultan.streaming.translator import Translator

    torch.set_num_threads(1)
    kind = "int8" if options.int8 else None
    if options.model != RANDOM:
        translator = simultan.load(options.model, quantize=kind)
    else:
        from streaming import SHAPE, diagonal_model, make_codec

        from simultan.config import Config, PolicyConfig

        model = diagonal_model(SHAPE, 30).prepare_inference(kind)
        config = Config(model=SHAPE, policy=PolicyConfig(name="mma-il"))
        translator = Translator(model, config, make_codec())
    limits = {} if options.public else {"per_address": 0, "max_connections": 10_000}
    settings = Settings(
        rows=options.most,
        batching=options.server == "on",
        decoding=options.decoding,
        drain_seconds=0.0,
        **limits,
    )
    serve(translator, settings, "127.0.0.1", options.port)


class Server:
    """The other process."""

    def __init__(
        self, options: argparse.Namespace, batching: bool, *, public: bool = False
    ) -> None:
        """`public`: with the limits that a server has by default on what one address may do."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = self.port = probe.getsockname()[1]
        command = [sys.executable, __file__, "--server", "on" if batching else "off"]
        command += ["--port", str(port), "--most", str(options.most)]
        command += ["--model", options.model] + ["--int8"] * options.int8
        command += ["--decoding", options.decoding]
        command += ["--public"] * public
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"ws://127.0.0.1:{port}/ws"
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the server did not start") from None
                time.sleep(0.2)

    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


# --- the load ---


@dataclass
class Load:
    """What a number of streams have seen."""

    waits: list[float] = field(default_factory=list)  # seconds, for each write
    times: list[float] = field(default_factory=list)  # when it came
    errors: list[str] = field(default_factory=list)
    busy: float = 0.0  # cores the server used
    others: float = 0.0  # cores that neither it nor this process used

    @property
    def p95(self) -> float:
        return p95(self.waits)


def p95(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=20)[-1] if len(waits) > 20 else 0.0


def source_words(options: argparse.Namespace, seed: int) -> list[str]:
    """A sentence, its last word with a full stop."""
    if options.text:
        lines = options.text.read_text("utf-8").splitlines()
        words = lines[seed % len(lines)].split()
        return [*words[:-1], words[-1].rstrip(".") + "."] if words else ["."]
    generator = random.Random(seed)
    words = [f"w{generator.randrange(7_000)}" for _ in range(SENTENCE)]
    return [*words[:-1], words[-1] + "."]


async def speak(
    url: str, options: argparse.Namespace, seed: int, begin: float, until: float, load: Load
) -> None:
    """One stream: a word every 0.4 s, at times of its own; waits count from `begin`."""
    try:
        # beside an attacker the server counts by address: each stream is a client of its own
        own = (f"127.0.1.{seed % 250 + 1}", 0) if options.attacker else None
        async with websockets.connect(url, compression=None, local_addr=own) as connection:
            await connection.send(START)
            await connection.recv()
            sent: list[float] = [0.0]
            last = 0

            async def listen() -> None:
                nonlocal last
                async for frame in connection:
                    now = time.monotonic()
                    message = json.loads(frame)
                    last = message["seq"] or last
                    if message["type"] == "write" and sent[message["delay"]] > begin:
                        load.waits.append(now - sent[message["delay"]])
                        load.times.append(now)
                    elif message["type"] in ("error", "going-away"):
                        load.errors.append(message.get("code", "going-away"))

            listening = asyncio.create_task(listen())
            start = time.monotonic() + random.Random(seed).random() / RATE
            number = 0
            sentence = seed
            words: list[str] = []
            while time.monotonic() < until:
                await asyncio.sleep(max(0.0, start + number / RATE - time.monotonic()))
                if not words:
                    words = source_words(options, sentence)
                    sentence += 1_000
                number += 1
                text = {"type": "words", "seq": number, "ack": last, "text": words.pop(0)}
                sent.append(time.monotonic())
                await connection.send(json.dumps(text))
            await asyncio.sleep(1.0)  # the rest of what was written
            listening.cancel()
    except (OSError, websockets.WebSocketException) as error:
        load.errors.append(type(error).__name__)


async def run_load(
    server: Server,
    options: argparse.Namespace,
    streams: int,
    seconds: float,
    load: Load,
) -> None:
    """So many streams; they come in over the time of a sentence, all at different places."""
    coming = SENTENCE / RATE
    begin = time.monotonic() + coming + 1
    tasks = []
    for seed in range(streams):
        tasks.append(
            asyncio.create_task(speak(server.url, options, seed, begin, begin + seconds, load))
        )
        await asyncio.sleep(coming / streams)
    await asyncio.sleep(max(0.0, begin - time.monotonic()))
    before = all_seconds(), server.processor_seconds(), time.process_time()
    await asyncio.sleep(seconds)
    after = all_seconds(), server.processor_seconds(), time.process_time()
    everyone, load.busy, ours = ((b - a) / seconds for a, b in zip(before, after, strict=True))
    load.others = max(0.0, everyone - load.busy - ours)
    await asyncio.gather(*tasks)


def all_seconds() -> float:
    """What all processes of the machine have used."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def holds(server: Server, options: argparse.Namespace, streams: int, label: str) -> bool:
    """Whether it holds so many; what fails is tried once more, for it may have been the machine."""
    return any(attempt(server, options, streams, label) for _ in range(2))


def attempt(server: Server, options: argparse.Namespace, streams: int, label: str) -> bool:
    load = Load()
    asyncio.run(run_load(server, options, streams, options.seconds, load))
    fine = load.p95 <= MOST_SECONDS and not load.errors and len(load.waits) > 0
    print(
        f"  {label}: {streams:4d} streams  p95 {load.p95 * 1e3:7.1f} ms"
        f"  median {statistics.median(load.waits or [0.0]) * 1e3:6.1f} ms"
        f"  {len(load.waits) / options.seconds:6.1f} writes/s  {load.busy:.2f} cores"
        f"  others {load.others:.2f}  errors {len(load.errors)}{'' if fine else '  too many'}",
        flush=True,
    )
    return fine


def count_held(server: Server, options: argparse.Namespace, begin: int, label: str) -> int:
    """The most streams the server holds, to 6%."""
    low, high = 0, begin
    while high <= options.most and holds(server, options, high, label):
        low, high = high, 2 * high
    high = min(high, options.most + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        if holds(server, options, middle, label):
            low = middle
        else:
            high = middle
    return low


def soak(server: Server, options: argparse.Namespace, streams: int) -> dict[str, object]:
    """Hold so many streams; memory, waits and errors over time, and whether all is well."""
    load = Load()
    sizes: list[tuple[float, float]] = []

    async def watch() -> None:
        told = time.monotonic()
        while True:
            now = time.monotonic()
            sizes.append((now, server.memory_mib()))
            if now - told >= max(10.0, options.soak / 10):
                recent = [w for w, t in zip(load.waits, load.times, strict=True) if t > told]
                print(
                    f"  {now - sizes[0][0]:5.0f} s  memory {sizes[-1][1]:8.1f} MiB"
                    f"  p95 {p95(recent) * 1e3:6.1f} ms  errors {len(load.errors)}",
                    flush=True,
                )
                told = now
            await asyncio.sleep(2)

    async def run() -> None:
        watching = asyncio.create_task(watch())
        await run_load(server, options, streams, options.soak, load)
        watching.cancel()

    print(f"soak: {options.soak:g} s with {streams} streams", flush=True)
    asyncio.run(run())
    # all are there, caches have grown, and every attack has run once
    begin = sizes[0][0] + SENTENCE / RATE + 1 + max(options.soak / 10, options.attacking)
    steady = [size for now, size in sizes if now >= begin] or [sizes[-1][1]]
    quarter = max(1, len(steady) // 4)
    first, last = statistics.mean(steady[:quarter]), statistics.mean(steady[-quarter:])
    wrong = [f"{len(load.errors)} errors ({', '.join(sorted(set(load.errors)))})"] * bool(
        load.errors
    )
    wrong += ["memory grows"] * (last > GROWTH * first) + ["nothing was written"] * (not load.waits)
    print(
        f"soak: p95 {load.p95 * 1e3:.1f} ms, {len(load.waits)} writes, {len(load.errors)} errors,"
        f" memory {first:.1f} MiB in the first quarter, {last:.1f} in the last"
        f" ({100 * (last / first - 1):+.2f}%)  others {load.others:.2f} cores"
    )
    print(f"soak: {'FAILED: ' + '; '.join(wrong) if wrong else 'held: no error, memory is flat'}")
    return {
        "streams": streams, "seconds": options.soak, "errors": len(load.errors), "p95": load.p95,
        "first_mib": first, "last_mib": last, "mib": [size for _, size in sizes], "held": not wrong,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="", help=f"a folder, a name, or {RANDOM!r}")
    parser.add_argument("--text", type=Path, help="its source text, a sentence to a line")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--decoding", default="default", help="the server's, such as beam=1")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--begin", type=int, default=32, help="streams to begin with")
    parser.add_argument("--most", type=int, default=320, help="streams, and rows of the server")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds")
    parser.add_argument("--streams", type=int, default=0, help="soak with so many, nothing else")
    parser.add_argument("--attacker", action="store_true", help="soak beside all attacks in turn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--server", choices=["on", "off"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--public", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        run_server(options)
        return
    choose_model(options)
    figures: dict[str, object] = {"model": options.model, "int8": options.int8}
    held = {True: 0, False: 0}
    attacker: subprocess.Popen[bytes] | None = None
    for batching in (True, False):
        server = Server(options, batching, public=options.attacker)
        try:
            if not options.streams:
                label = "batching" if batching else "one row at a time"
                begin = options.begin if batching else max(1, held[True] // 4)
                held[batching] = count_held(server, options, begin, label)
            options.attacking = 0.0
            if batching and options.soak:
                streams = options.streams or max(1, int(0.8 * held[True]))
                if options.attacker:
                    from attacks import ATTACKS, EACH, start_attack

                    options.attacking = EACH * len(ATTACKS)
                    attacker = start_attack("all", server.port, options.soak + 30)
                figures["soak"] = soak(server, options, streams)
        finally:
            if attacker is not None:
                attacker.kill()
            server.stop()
        if options.soak:
            break
    if not options.soak:
        ratio = held[True] / max(1, held[False])
        figures |= {"batching": held[True], "one row at a time": held[False], "ratio": ratio}
        print(f"streams held: {held[True]} with batching, {held[False]} one row at a time")
        print(f"ratio {ratio:.2f}   wanted >= 3")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    verdict = figures.get("soak")
    if isinstance(verdict, dict) and not verdict["held"]:
        raise SystemExit(1)


def choose_model(options: argparse.Namespace) -> None:
    """The model in the box and its talk, unless another is given."""
    options.model = options.model or default_model()
    if options.model == BOXED and not options.text:
        options.text = TALK
    if options.model != RANDOM and not options.text:
        raise SystemExit("--model needs --text: sentences of its source language")
    print(f"model {options.model}, {'int8' if options.int8 else 'float32'}", flush=True)


def default_model() -> str:
    from simultan import boxed

    try:
        boxed.resolve(BOXED)
    except FileNotFoundError:
        return RANDOM
    return BOXED


if __name__ == "__main__":
    main()
