"""Whole sentences in many rows against sessions: target words and tokens a second.

    python benchmarks/generation.py                       # random weights: d512, 6 + 3 layers
    python benchmarks/generation.py --profile             # and where the time of a GPU goes
    python benchmarks/generation.py --model M --source T  # a model folder and a text, file to file
    python benchmarks/generation.py --text                # only the text: what Python does beside
On a CPU a tiny model shows the same table; only its ratios mean something.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import simultan
from simultan import boxed
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.sources import read_lines
from simultan.data.text import Pipeline
from simultan.data.vocabulary import EOS, SPECIAL, Vocabulary
from simultan.model import build
from simultan.streaming.decoding import Sampling
from simultan.streaming.distill import count_workers, distill
from simultan.streaming.generation import Generator
from simultan.streaming.lines import LineText, LineWorkers
from simultan.streaming.row import Choice
from simultan.streaming.search import Search
from simultan.streaming.translator import Translator, play

TOKENS_PER_WORD = 1.35  # of English text in 16,000 pieces, about
SEARCHES = {
    "greedy": Search(),
    "sampling": Search(sampling=Sampling()),
    "sampling, top 10": Search(sampling=Sampling(top_k=10)),
    "beam 4": Search(beam=4),
}


def random_translator(device: str) -> Translator:
    """Random weights, and whole words as a vocabulary."""
    if device == "cuda":
        shape, size = ModelConfig(encoder_layers=6, decoder_layers=3), 16_000
    else:
        shape = ModelConfig(width=64, ffn=128, heads=4, encoder_layers=2, decoder_layers=2)
        size = 1_000
    torch.manual_seed(0)
    model = build(Config(model=shape, policy=PolicyConfig(name="offline")), size, size)
    words = Vocabulary([*SPECIAL, *(f"w{i}" for i in range(size - len(SPECIAL)))])
    codec = Codec(Pipeline("words", "de", "en"), words, words)
    return Translator(model.to(device).prepare_inference(), Config(), codec)


def sentences(count: int, size: int, seed: int = 0) -> tuple[list[list[int]], list[int]]:
    """Sources of realistic lengths, 30 tokens on average, and how many tokens to write for each."""
    chance = random.Random(seed)
    lengths = [min(150, max(3, round(chance.lognormvariate(3.25, 0.55)))) for _ in range(count)]
    sources = [[chance.randrange(4, size) for _ in range(n)] + [EOS] for n in lengths]
    return sources, [max(1, round(n * chance.uniform(0.8, 1.2))) for n in lengths]


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure_old(translator: Translator, rows: int, seconds: float) -> float:
    """Tokens a second of a session with many rows, which is how it was done before."""
    size = len(translator.codec.source_vocabulary)
    lines = [
        " ".join(translator.codec.source_vocabulary.pieces[id] for id in source[:-1])
        for source in sentences(4 * rows, size, 1)[0]
    ]
    tokens, began = 0, 0.0
    for _, event, _ in play(translator.session(rows=rows, segment=False), lines):
        if isinstance(event, Choice):
            began = began or time.perf_counter()  # after the first batch was read
            tokens += 1
            if tokens % 1024 == 0 and time.perf_counter() - began > seconds:
                break
    return tokens / (time.perf_counter() - began)


def measure_new(
    translator: Translator, search: Search, rows: int, count: int, device: str, record: bool
) -> tuple[float, float, Generator]:
    """Tokens a second, seconds until all shapes are recorded."""
    size = len(translator.codec.source_vocabulary)
    generator = Generator(translator.model, search, rows=rows, record=record)  # type: ignore[arg-type]
    began = time.perf_counter()
    sources, limits = sentences(count // 2, size, 2)
    generator.generate(sources, limits=limits)
    synchronize(device)
    warmup = time.perf_counter() - began
    sources, limits = sentences(count, size, 3)
    began = time.perf_counter()
    found = generator.generate(sources, limits=limits)
    seconds = time.perf_counter() - began
    tokens = int(found.best().lengths.sum()) + count  # each with its end
    return tokens / seconds, warmup, generator


def busy_share(generator: Generator, count: int, size: int, table: bool) -> float:
    """The share of the time in which the GPU computes; kernels one after the other."""
    sources, limits = sentences(count, size, 4)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    began = time.perf_counter()
    with torch.profiler.profile(activities=activities) as profiler:
        generator.generate(sources, limits=limits)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    averages = profiler.key_averages()
    if table:
        print(averages.table(sort_by="self_cuda_time_total", row_limit=30))
    return sum(event.self_device_time_total for event in averages) / 1e6 / seconds


def measure_text(lines: list[str], workers: int) -> None:
    """Words a second of what is done for each line beside the GPU."""
    codec = Codec.load(boxed.resolve(boxed.default()))
    words = sum(len(line.split()) for line in lines)
    for careful in (True, False):
        rates = {}
        text = LineText(codec, careful)
        began = time.perf_counter()
        encoded = [text.encode(line) for line in lines]
        rates["encode"] = words / (time.perf_counter() - began)
        # what the source says stands in for a translation: as many tokens, of as many words
        written = [
            [t for t in tokens[:-1] if t < len(codec.target_vocabulary)] for tokens in encoded
        ]
        began = time.perf_counter()
        found = [text.decode(line, one) for line, one in zip(lines, written, strict=True)]
        rates["decode"] = sum(len(one.words) for one in found) / (time.perf_counter() - began)
        began = time.perf_counter()
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
        "".join(text.join(found[i].words) + "\n" for i in order).encode()
        rates["sort, join"] = words / (time.perf_counter() - began)
        rates["together"] = 1 / sum(1 / rate for rate in rates.values())
        what = "greedy or drawn" if careful else "beams"
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        print(f"text, one core, {what}: {shown} words/s", flush=True)
    chunks = [lines[i : i + 1024] for i in range(0, len(lines), 1024)]
    with LineWorkers(codec, True, workers) as pool:
        for chunk in [pool.encode(chunks[0]) for _ in range(2 * workers)]:
            chunk.result()  # processes are started
        began = time.perf_counter()
        futures = [pool.encode(chunk) for chunk in chunks]
        back = [
            pool.decode(chunk, future.result(), np.ones(len(chunk), bool), ".gz")
            for chunk, future in zip(chunks, futures, strict=True)
        ]
        total = sum(future.result()[1] for future in back)
        seconds = time.perf_counter() - began
    print(f"text, {workers} processes, there and back, to .gz: {total / seconds:,.0f} words/s")


def measure_files(model: str, source: Path, device: str, rows: int | None, count: int) -> None:
    """`simultan distill` from file to file; the first lines twice, to see what starting costs."""
    translator = simultan.load(model, device=device)
    lines = [line for line, _ in zip(read_lines(source, "replace"), range(count), strict=False)]
    for decoding in ("default", "sample=1", "sample=1,10", "beam=4"):
        for attempt in ("first", "again"):
            words = 0

            def add(_: int, new: int) -> None:
                nonlocal words
                words += new

            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                workers = count_workers() if device == "cuda" else 0
                out = Path(folder) / "out.gz"
                distill(translator, lines, out, decoding, rows=rows, workers=workers, progress=add)
                seconds = time.perf_counter() - began
            print(f"{decoding:12} {attempt}: {words / seconds:10,.0f} words/s from file to file")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--rows", type=int, action="append", help="side by side; several times")
    parser.add_argument("--sentences", type=int, default=40_000 if device == "cuda" else 200)
    parser.add_argument("--old-rows", type=int, default=1024 if device == "cuda" else 32)
    parser.add_argument("--seconds", type=float, default=8.0, help="for the sessions")
    parser.add_argument("--search", action="append", choices=list(SEARCHES))
    parser.add_argument("--eager", action="store_true", help="without recorded steps")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--text", action="store_true", help="only the text")
    parser.add_argument("--model", help="a model folder instead of random weights")
    parser.add_argument("--source", type=Path, help="with --model or --text, translate this text")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.text:
        talk = Path(simultan.__file__).parent / "talk.de.txt"
        found = read_lines(options.source or talk, "replace")
        lines = [line for line, _ in zip(found, range(options.sentences), strict=False)]
        lines = (lines * (options.sentences // len(lines) + 1))[: options.sentences]
        measure_text(lines, count_workers() or 1)
        return
    if options.model:
        rows = options.rows[0] if options.rows else None
        measure_files(options.model, options.source, device, rows, options.sentences)
        return
    translator = random_translator(device)
    size = len(translator.codec.source_vocabulary)
    print(f"{device}, {os.cpu_count()} cores, PyTorch {torch.__version__}", flush=True)
    old = measure_old(translator, options.old_rows, options.seconds)
    words = old / TOKENS_PER_WORD
    print(f"{'sessions, greedy':18} {options.old_rows:6} rows {words:12,.0f} words/s"
          f" {old:12,.0f} tokens/s", flush=True)  # fmt: skip
    best = 0.0
    for name in options.search or SEARCHES:
        for rows in options.rows or ([2048, 4096] if device == "cuda" else [32]):
            count = options.sentences // (4 if SEARCHES[name].beam else 1)
            rate, warmup, generator = measure_new(
                translator, SEARCHES[name], rows, count, device, not options.eager
            )
            share = ""
            if device == "cuda":
                busy = busy_share(generator, count // 4, size, options.profile)
                share = (
                    f", GPU busy {busy:.0%}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
                )
                torch.cuda.reset_peak_memory_stats()
            print(f"{name:18} {rows:6} rows {rate / TOKENS_PER_WORD:12,.0f} words/s {rate:12,.0f}"
                  f" tokens/s  {rate / old:6.1f} of sessions (set-up {warmup:.1f} s{share})",
                  flush=True)  # fmt: skip
            best = max(best, rate if name == "greedy" else 0.0)
            del generator
    if best:
        print(
            f"greedy, words of {TOKENS_PER_WORD} tokens: {best / old:.1f} times as fast as sessions"
        )


if __name__ == "__main__":
    main()
