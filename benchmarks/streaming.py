"""Streaming on one CPU thread: sessions, the published way of decoding, and CTranslate2.

    python benchmarks/streaming.py [--only one-row,batch,long-sentence,stream] [--rounds N]
                                   [--words N] [--json FILE]

One model, 6+6 layers, width 512, feed-forward 1024, 4 heads, 8,000 pieces, policy mma-il. Its
weights are random but for what makes the run realistic: heads follow the diagonal, 1 to 3 tokens
ahead of the target and not all alike, so that a step may have to wait in two layers; and the
token written tells its position, so that every sentence has the length it should have.
Contestants take turns; figures are medians of the processor time of all their threads, which is
one thread's: on an idle machine that is the time on the clock, on a busy one it still compares.
The last lines are the ratios that decide.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import BOS, EOS, SPECIAL, Vocabulary
from simultan.model import Transformer, memory
from simultan.model.attention import split_heads
from simultan.model.transformer import sinusoids
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator

VOCABULARY = 8_000
SHAPE = ModelConfig(tie="none", dropout=0.0)  # 6+6 layers, width 512, feed-forward 1024, 4 heads
WINDOWED = ModelConfig(
    tie="none", dropout=0.0, width=128, ffn=256, heads=2, encoder_layers=1, decoder_layers=2,
    window=32,
)  # fmt: skip
FIRST = len(SPECIAL)
FAST = 0.3  # rates above this tell neighbouring positions apart


# --- the model and its words ---


def diagonal_model(shape: ModelConfig, length: int | None, seed: int = 0) -> Transformer:
    """Heads on the diagonal; `length` target tokens, end-of-sequence included, or no end."""
    torch.manual_seed(seed)
    config = Config(model=shape, policy=PolicyConfig(name="mma-il", energy_bias=0.0))
    model = Transformer(config, VOCABULARY, VOCABULARY).eval()
    width, heads = shape.width, shape.heads
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # positions dominate what layers see
            if "embedding" in name:
                parameter *= 0.1
            elif "output.weight" in name or "outer.weight" in name:
                parameter *= 0.05
        half = width // 2
        rates = torch.exp(-math.log(10_000.0) / (half - 1) * torch.arange(half))
        one = int((rates - 0.5).abs().argmin())
        waves, rate = fit(model, one), float(rates[one])
        for index, layer in enumerate(model.decoder_layers):
            cross = layer.cross
            cross.select_key.weight.zero_()
            for head in range(heads):
                # sin(rate (j - i - lag + 3/2)) > 0 from j = i + lag - 1 on
                lag = 1 + head % 2 + (index >= len(model.decoder) // 2 and head == heads - 1)
                shift = rate * (lag - 1.5)
                rows = slice(head * width // heads, head * width // heads + 2)
                cross.select_key.weight[rows] = waves
                turn = torch.tensor(
                    [[-math.sin(shift), math.cos(shift)], [-math.cos(shift), -math.sin(shift)]]
                )
                cross.select_query.weight[rows] = 1e3 * turn @ waves
        seen = torch.cat([rates > FAST, rates > FAST])
        table = F.layer_norm(sinusoids(torch.arange(200), width) * seen, (width,)) * seen
        model.output.weight.zero_()
        model.output.weight[FIRST : FIRST + 200] = table - table.mean(1, keepdim=True)
        if length is not None:
            model.output.weight[EOS] = model.output.weight[FIRST + length - 1]
            model.output.weight[FIRST + length - 1] = 0
    return model


def fit(model: Transformer, one: int) -> Tensor:
    """The linear map from normalised states to sin and cos of one rate [2, D]."""
    half = model.output.in_features // 2
    positions = torch.cat([torch.arange(2_000), torch.randint(10**6, (8_000,))])
    waves = sinusoids(positions, 2 * half)
    noise = model.source_embedding.tokens.weight[torch.randint(VOCABULARY, (10_000,))]
    states = F.layer_norm(waves + noise * model.source_embedding.scale, (2 * half,)).double()
    wanted = waves[:, [one, half + one]].double()
    squares = states.T @ states + torch.eye(2 * half) * 1e-3 * len(states)
    return torch.linalg.solve(squares, states.T @ wanted).T.float()


def make_codec() -> Codec:
    vocabulary = Vocabulary([*SPECIAL, *(f"w{i}" for i in range(VOCABULARY - FIRST))])
    return Codec(Pipeline("words"), vocabulary, vocabulary)


def sentences(count: int, words: int) -> list[list[str]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY - FIRST, (count, words), generator=generator)
    return [[f"w{i}" for i in row] for row in ids.tolist()]


# --- the contestants ---


def stream(translator: Translator, words: Sequence[str]) -> list[int]:
    """Our session, word by word."""
    session = translator.session(segment=False)
    tokens: list[int] = []
    session.on_token = lambda choice: tokens.append(choice.token)
    for word in words:
        session.feed(word)
    session.finish()
    return tokens


@torch.inference_mode()
def stream_published(model: Transformer, words: Sequence[int]) -> list[int]:
    """Encode the prefix again at each READ; a whole decoder pass for each attempt."""
    target, read = [BOS], 1
    past: list[list[list[int]]] = []  # where each written token's heads stopped [T, L, H]
    memory = model.encode(torch.tensor([words[:read]]))
    while True:
        standing = past[-1] if past else [[0] * model.decoder_heads] * len(model.decoder)
        result = attempt(model, target, memory, past, standing, read == len(words))
        if result is None:
            read += 1
            memory = model.encode(torch.tensor([words[:read]]))
            continue
        token, stops = result
        if token == EOS:
            return target[1:]
        target.append(token)
        past.append(stops)


def attempt(
    model: Transformer,
    target: list[int],
    memory: Tensor,
    past: list[list[list[int]]],
    standing: list[list[int]],
    finished: bool,
) -> tuple[int, list[list[int]]] | None:
    """The next token and where its heads stop; None: some head wants more source."""
    x = model.target_embedding(torch.tensor([target]))
    positions = torch.arange(memory.shape[1])
    stops: list[list[int]] = []
    for index, layer in enumerate(model.decoder_layers):
        residual, cross = layer.attention_residual, layer.cross
        x = residual.after(x, layer.attention(residual.before(x)))
        y = layer.cross_residual.before(x)
        query = split_heads(cross.select_query(y[:, -1:]), cross.heads)
        energy = cross.energy(query, split_heads(cross.select_key(memory), cross.heads))[0, :, 0]
        stops.append([])
        for first, values in zip(standing[index], energy.tolist(), strict=True):
            found = [j for j in range(first, len(values)) if values[j] > 0]
            if not found and not finished:
                return None
            stops[index].append(found[0] if found else len(values) - 1)
        limits = torch.tensor([[heads[index] for heads in past] + [stops[index]]])  # [1, T, H]
        context = F.scaled_dot_product_attention(
            split_heads(cross.query(y), cross.heads),
            split_heads(cross.key(memory), cross.heads),
            split_heads(cross.value(memory), cross.heads),
            attn_mask=positions <= limits.transpose(1, 2)[..., None],
        )
        x = layer.finish(x, cross.output(context.transpose(1, 2).flatten(2)))
    return int(model.project(model.decoder_norm(x[:, -1])).argmax()), stops


def ctranslate2_model(folder: str) -> None:
    """An offline Transformer of the same sizes, random weights."""
    import numpy as np
    from ctranslate2.specs import TransformerSpec

    random, width, ffn = np.random.default_rng(0), SHAPE.width, SHAPE.ffn

    def fill(linear, outputs: int, inputs: int) -> None:  # type: ignore[no-untyped-def]
        linear.weight = (random.standard_normal((outputs, inputs)) * 0.04).astype(np.float32)
        linear.bias = np.zeros(outputs, np.float32)

    def fill_norm(norm) -> None:  # type: ignore[no-untyped-def]
        norm.gamma, norm.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    spec = TransformerSpec.from_config(
        (SHAPE.encoder_layers, SHAPE.decoder_layers), SHAPE.heads, pre_norm=True
    )
    for side in (spec.encoder, spec.decoder):
        fill_norm(side.layer_norm)
        for layer in side.layer:
            attentions = [layer.self_attention]
            attentions += [layer.attention] if side is spec.decoder else []
            for attention in attentions:
                fill_norm(attention.layer_norm)
            fill(layer.self_attention.linear[0], 3 * width, width)
            fill(layer.self_attention.linear[1], width, width)
            if side is spec.decoder:
                for linear, size in zip(layer.attention.linear, (1, 2, 1), strict=True):
                    fill(linear, size * width, width)
            fill_norm(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, ffn, width)
            fill(layer.ffn.linear_1, width, ffn)
    embeddings = spec.encoder.embeddings
    for embedding in (
        embeddings[0] if isinstance(embeddings, list) else embeddings, spec.decoder.embeddings
    ):  # fmt: skip
        embedding.weight = (random.standard_normal((VOCABULARY, width)) * 0.04).astype(np.float32)
        embedding.multiply_by_sqrt_depth = True
    fill(spec.decoder.projection, VOCABULARY, width)
    pieces = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(VOCABULARY - 3))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.validate()
    spec.save(folder)


def ctranslate2_runs(folder: str) -> dict[str, Callable[[list[list[str]], int], None]]:
    """(sentences, target tokens) -> offline greedy search, for each type of weights."""
    import ctranslate2

    def runner(kind: str) -> Callable[[list[list[str]], int], None]:
        engine = ctranslate2.Translator(
            folder, device="cpu", compute_type=kind, inter_threads=1, intra_threads=1
        )

        def run(batch: list[list[str]], length: int) -> None:
            sources = [[*words, "</s>"] for words in batch]
            results = engine.translate_batch(
                sources,
                max_batch_size=32,
                beam_size=1,
                min_decoding_length=length,
                max_decoding_length=length,
            )
            assert all(len(result.hypotheses[0]) == length for result in results)

        return run

    return {kind: runner(kind) for kind in ("float32", "int8")}


# --- measuring ---


def take_turns(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor seconds; they take turns, so that a busy machine is busy for all."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            if turn:  # the first round warms up
                times[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def memory_mib() -> float:
    """What the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def ids_of(codec: Codec, words: Sequence[str]) -> list[int]:
    return [*codec.source_vocabulary.encode(words), EOS]


class Benchmark:
    def __init__(self, rounds: int, words: int) -> None:
        self.rounds, self.words = rounds, words
        self.codec = make_codec()
        self.figures: dict[str, float] = {}
        self.ratios: list[tuple[str, float, str]] = []
        self.folder = tempfile.TemporaryDirectory()
        ctranslate2_model(self.folder.name)
        self.engines = ctranslate2_runs(self.folder.name)

    def note(self, name: str, value: float, unit: str) -> None:
        self.figures[f"{name}, {unit}"] = value
        print(f"  {name:42s} {value:9.3f} {unit}", flush=True)

    def translator(self, model: Transformer, quantize: str | None = None) -> Translator:
        config = Config(model=SHAPE, policy=PolicyConfig(name="mma-il"))
        return Translator(model.prepare_inference(quantize), config, self.codec)

    def one_row(self, source: int, target: int, published: bool, label: str) -> dict[str, float]:
        """Milliseconds a target token, encoder included; tokens count end-of-sequence."""
        print(f"{label}: {source} source and {target} target tokens")
        words = sentences(1, source - 1)[0]
        plain = diagonal_model(SHAPE, target)
        ours = self.translator(diagonal_model(SHAPE, target))
        int8 = self.translator(diagonal_model(SHAPE, target), "int8")
        ids = ids_of(self.codec, words)
        expected = stream_published(plain, ids)
        assert len(expected) == target - 1, len(expected)
        assert stream(ours, words) == expected == stream(int8, words)
        ways: dict[str, Callable[[], object]] = {
            "session, float32": lambda: stream(ours, words),
            "session, int8": lambda: stream(int8, words),
            "CTranslate2 offline, float32": lambda: self.engines["float32"]([words], target),
            "CTranslate2 offline, int8": lambda: self.engines["int8"]([words], target),
        }
        if published:
            ways["the published way, float32"] = lambda: stream_published(plain, ids)
        times = take_turns(ways, self.rounds)
        for name, seconds in times.items():
            self.note(name, seconds / target * 1e3, "ms per target token")
        return times

    def sentence(self) -> None:
        times = self.one_row(25, 30, True, "one row, word by word")
        for kind, most in (("float32", 1.2), ("int8", 2.0)):
            ratio = times[f"session, {kind}"] / times[f"CTranslate2 offline, {kind}"]
            self.ratios.append((f"one row, {kind}: session / CTranslate2", ratio, f"<= {most}"))

    def long_sentence(self) -> None:
        times = self.one_row(61, 61, True, "a sentence of 60 words")
        ratio = times["the published way, float32"] / times["session, float32"]
        self.ratios.append(("60 words: the published way / session", ratio, ">= 5"))

    def batch(self) -> None:
        print("32 rows, 256 sentences of 25 source and 30 target tokens")
        ours = self.translator(diagonal_model(SHAPE, 30))
        int8 = self.translator(diagonal_model(SHAPE, 30), "int8")
        words = sentences(256, 24)
        texts = [" ".join(row) for row in words]
        assert all(len(result.tokens) == 29 for result in ours.translate(texts, rows=32))
        times = take_turns(
            {
                "translate, float32": lambda: ours.translate(texts, rows=32),
                "translate, int8": lambda: int8.translate(texts, rows=32),
                "CTranslate2 offline, float32": lambda: self.engines["float32"](words, 30),
                "CTranslate2 offline, int8": lambda: self.engines["int8"](words, 30),
            },
            max(3, self.rounds // 3),
        )
        for name, seconds in times.items():
            self.note(f"32 rows, {name}", 256 * 30 / seconds, "target tokens/s")
        ratio = times["CTranslate2 offline, float32"] / times["translate, float32"]
        self.ratios.append(("32 rows, float32: throughput / CTranslate2", ratio, ">= 1"))

    def stream(self) -> None:
        """A windowed model that never stops: cost of a word, memory and cache at both ends."""
        print(f"a stream of {self.words:,} words (window {WINDOWED.window}, small model)")
        session = self.translator(diagonal_model(WINDOWED, None)).session(segment=False)
        words = [word for row in sentences(50, 20) for word in row]
        marks = {min(1_000, self.words // 2): 0.0, self.words: 0.0}
        costs: list[float] = []
        span, sizes = 1_000, []
        for count in range(1, self.words + 1):
            begin = time.process_time()
            session.feed(words[count % len(words)])
            costs.append(time.process_time() - begin)
            if len(costs) > span:
                costs.pop(0)
            if count in marks:
                marks[count] = statistics.median(costs)
                sizes.append(memory_mib())
                self.note(f"cost of a word before word {count:,}", marks[count] * 1e3, "ms")
                self.note(f"memory at word {count:,}", sizes[-1], "MiB")
                self.note(f"cache slots at word {count:,}", slots(session), "positions")
        first, last = marks.values()
        self.ratios.append(
            (f"word {self.words:,} / word {min(marks):,}: cost", last / first, "~ 1")
        )
        self.ratios.append(("the same: memory", sizes[1] / sizes[0], "~ 1"))
        assert session.decider.backend.state.length[0] > 0.99 * self.words


def slots(session: Session) -> int:
    state = session.decider.backend.state
    decoder, encoder = state.decoder, state.encoder
    caches = (encoder.cache, decoder.source, decoder.selection, decoder.target)
    return sum(cache.capacity for cache in caches if cache is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="one-row,batch,long-sentence,stream")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--words", type=int, default=100_000, help="length of the long stream")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    memory.keep()  # as the verb evaluate does
    benchmark = Benchmark(arguments.rounds, arguments.words)
    parts = {
        "one-row": benchmark.sentence,
        "batch": benchmark.batch,
        "long-sentence": benchmark.long_sentence,
        "stream": benchmark.stream,
    }
    for name in arguments.only.split(","):
        parts[name]()
    print("ratios")
    for name, ratio, wanted in benchmark.ratios:
        print(f"  {name:48s} {ratio:6.2f}   wanted {wanted}")
    if arguments.json:
        ratios = {name: ratio for name, ratio, _ in benchmark.ratios}
        arguments.json.write_text(
            json.dumps({"figures": benchmark.figures, "ratios": ratios}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
