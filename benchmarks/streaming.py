"""Streaming on one CPU thread: sessions, the published way of decoding, and CTranslate2.

    python benchmarks/streaming.py [--only one-row,batch,long-sentence,stream] [--rounds N]
                                   [--words N] [--json FILE]
    python benchmarks/streaming.py --only agreement --text FILE
    python benchmarks/streaming.py --only agents --model FOLDER --text FILE [--agents "NAME:N ..."]

Two models. One has 6+6 layers, width 512, feed-forward 1024, 4 heads, 8,000 pieces, policy mma-il;
its weights are random but for what makes the run realistic: heads follow the diagonal, 1 to 3
tokens ahead of the target and not all alike, so that a step may have to wait in two layers; and the
token written tells its position, so that every sentence has the length it should have. The other is
the model in the box, de-en. CTranslate2 gets the weights of both, without the projections that
heads select by, and writes as many tokens.
Contestants take turns; figures are medians of the processor time of all their threads, which is
one thread's: on an idle machine that is the time on the clock, on a busy one it still compares.
The last lines are the ratios that decide. `agreement` counts the lines of a file that de-en
translates otherwise, in words or delays, at 16 rows, at one row and word by word. `agents` is the
cost of a target token under each agent over an offline model, on one row, beside that of the random
model above whose heads decide; passes are those through the whole decoder. `undecided` is that of
heads that attend as in training (mass=0.7), beside a threshold's; `beams` that of two and four
beams which look ahead, beside the best token's.
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
from functools import partial
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan import boxed, checkpoint, memory
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import BOS, EOS, SPECIAL, Vocabulary
from simultan.model import Transformer
from simultan.model.attention import split_heads
from simultan.model.transformer import DecoderLayer, Embedding, sinusoids
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.session import Session, Write
from simultan.streaming.translator import Translator, load

VOCABULARY = 8_000
SHAPE = ModelConfig(tie="none", dropout=0.0)  # 6+6 layers, width 512, feed-forward 1024, 4 heads
WINDOWED = ModelConfig(
    tie="none", dropout=0.0, width=128, ffn=256, heads=2, encoder_layers=1, decoder_layers=2,
    window=32,
)  # fmt: skip
KINDS = ("float32", "int8")
ROWS = 32
FIRST = len(SPECIAL)
AGENTS = (
    "wait-k:3 static:4,2 wait-if-worse:3,1 wait-if-diff:4,2 agreement:2 hold:3 align-att:2"
    " ed-att:0.3,2"
)
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
    vocabulary = Vocabulary([*SPECIAL, *(word(i) for i in range(VOCABULARY - FIRST))])
    return Codec(Pipeline("words"), vocabulary, vocabulary)


def word(number: int) -> str:
    """A word without digits: a session looks after numbers, which is not measured here."""
    return "w" + f"{number:04d}".translate(str.maketrans("0123456789", "abcdefghij"))


def sentences(count: int, words: int) -> list[list[str]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY - FIRST, (count, words), generator=generator)
    return [[word(i) for i in row] for row in ids.tolist()]


TEXT = (
    "Der Bericht, den die Kommission im März vorgelegt hat, ist leider nicht vollständig,"
    " und meine Schwester, die seit drei Jahren in Spanien lebt, hat mir davon geschrieben."
)
CLAUSES = [
    "Wir müssen diese Frage noch vor dem Sommer gemeinsam beantworten",
    "der Bericht, den die Kommission im März vorgelegt hat, ist leider nicht vollständig",
    "niemand hätte gedacht, dass das Spiel so ausgehen würde",
    "Ich habe gestern ein gutes Buch gelesen",
    "meine Schwester lebt seit drei Jahren in Spanien",
    "der nächste Zug nach Hamburg fährt erst am Abend",
    "die Abgeordneten haben dem Vorschlag mit großer Mehrheit zugestimmt",
    "das Wetter wird morgen besser",
    "viele Menschen arbeiten heute von zu Hause aus",
    "in der Stadt gibt es ein neues Museum für moderne Kunst",
    "die Preise für Lebensmittel sind im letzten Jahr stark gestiegen",
    "unsere Nachbarn haben drei Hunde und eine Katze",
]


def german() -> list[str]:
    """128 sentences of two clauses, 15 to 40 pieces."""
    pairs = [(a, b) for a in CLAUSES for b in CLAUSES if a is not b]
    return [f"{a[0].upper()}{a[1:]}, und {b[0].lower()}{b[1:]}." for a, b in pairs[:128]]


# --- the contestants ---


def stream(
    translator: Translator, words: Sequence[str], decoding: Decoding | str = DEFAULT
) -> list[int]:
    """Our session, word by word."""
    session = translator.session(decoding, segment=False)
    tokens: list[int] = []
    session.on_token = lambda choice: tokens.append(choice.token)
    for word in words:
        session.feed(word)
    session.finish()
    return tokens


def live_translation(
    translator: Translator, line: str, decoding: str
) -> tuple[list[str], list[int]]:
    """Words and delays of a session that hears one word after the other."""
    session = translator.session(decoding, segment=False)
    events = [event for word in line.split() for event in session.feed(word)]
    writes = [event for event in [*events, *session.finish()] if isinstance(event, Write)]
    words = [word for write in writes for word in write.text.split()]
    return words, [write.delay for write in writes for _ in write.text.split()]


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
        cross = layer.cross
        x = layer.look_back(x)
        y = layer.cross_residual.norm(x)
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
        x = layer.look_at(x, context.transpose(1, 2).flatten(2))
    return int(model.project(model.decoder_norm(x[:, -1])).argmax()), stops


def ctranslate2_model(model: Transformer, folder: str) -> None:
    """The same network for CTranslate2, offline: without the projections that heads select by."""
    import numpy as np
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    def fill(linear, *modules: nn.Linear) -> None:  # type: ignore[no-untyped-def]
        weights = [m.weight.detach().numpy() for m in modules]
        biases = [np.zeros(len(w), w.dtype) if m.bias is None else m.bias.detach().numpy()
                  for m, w in zip(modules, weights, strict=True)]  # fmt: skip
        linear.weight, linear.bias = np.concatenate(weights), np.concatenate(biases)

    def fill_norm(spec, norm: nn.Module) -> None:  # type: ignore[no-untyped-def]
        assert isinstance(norm, nn.LayerNorm)
        spec.gamma, spec.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()

    def fill_embedding(embedding, encodings, ours: Embedding) -> None:  # type: ignore[no-untyped-def]
        embedding.weight = ours.tokens.weight.detach().numpy()
        embedding.multiply_by_sqrt_depth = True
        encodings.encodings = ours.table.numpy()

    spec = TransformerSpec(
        TransformerEncoderSpec(len(model.encoder), model.heads, pre_norm=True),
        TransformerDecoderSpec(len(model.decoder), model.decoder_heads, pre_norm=True),
    )
    encoder, decoder = spec.encoder, spec.decoder
    for theirs, ours in [
        *zip(encoder.layer, model.encoder_layers, strict=True),
        *zip(decoder.layer, model.decoder_layers, strict=True),
    ]:
        fill_norm(theirs.self_attention.layer_norm, ours.attention_residual.norm)
        fill(theirs.self_attention.linear[0], ours.attention.qkv)
        fill(theirs.self_attention.linear[1], ours.attention.output)
        if isinstance(ours, DecoderLayer):
            cross = ours.cross
            fill_norm(theirs.attention.layer_norm, ours.cross_residual.norm)
            fill(theirs.attention.linear[0], cross.query)
            fill(theirs.attention.linear[1], cross.key, cross.value)
            fill(theirs.attention.linear[2], cross.output)
        fill_norm(theirs.ffn.layer_norm, ours.ffn_residual.norm)
        fill(theirs.ffn.linear_0, ours.ffn.inner)
        fill(theirs.ffn.linear_1, ours.ffn.outer)
    fill_norm(encoder.layer_norm, model.encoder_norm)
    fill_norm(decoder.layer_norm, model.decoder_norm)
    fill_embedding(encoder.embeddings[0], encoder.position_encodings, model.source_embedding)
    fill_embedding(decoder.embeddings, decoder.position_encodings, model.target_embedding)
    fill(decoder.projection, model.output)
    pieces = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), model.output.out_features))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.validate()
    spec.save(folder)


class Engine:
    """CTranslate2: offline, greedy, on one thread."""

    def __init__(self, folder: str, kind: str) -> None:
        import ctranslate2

        self.engine = ctranslate2.Translator(
            folder, device="cpu", compute_type=kind, inter_threads=1, intra_threads=1
        )

    def __call__(self, batch: Sequence[Sequence[int]], length: int) -> None:
        """Sources as ids; so many target tokens each, end-of-sequence included."""
        sources = [[*(f"w{i}" for i in ids[:-1]), "</s>"] for ids in batch]
        results = self.engine.translate_batch(
            sources,
            max_batch_size=ROWS,
            beam_size=1,
            min_decoding_length=length,
            max_decoding_length=length,
        )
        assert all(len(result.hypotheses[0]) == length for result in results)


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


class Subject:
    """One model for ours and CTranslate2, in both types, and the words it translates."""

    def __init__(self, name: str, config: Config, codec: Codec, load: Callable[[], Transformer]):
        self.name, self.config, self.codec, self.load = name, config, codec, load
        self.plain = load()  # as trained: the published way
        self.ours = {kind: self.translator(kind) for kind in KINDS}
        with tempfile.TemporaryDirectory() as folder:
            ctranslate2_model(self.plain, folder)
            self.theirs = {kind: Engine(folder, kind) for kind in KINDS}

    def translator(self, kind: str) -> Translator:
        model = self.load().prepare_inference(None if kind == "float32" else kind)
        return Translator(model, self.config, self.codec)

    def ids(self, text: str) -> list[int]:
        return self.codec.encode_source(text)


def random_subject(length: int) -> Subject:
    """The random model, which writes `length` tokens whatever it reads."""
    config = Config(model=SHAPE, policy=PolicyConfig(name="mma-il"))
    return Subject("random", config, make_codec(), lambda: diagonal_model(SHAPE, length))


def random_translator(length: int) -> Translator:
    """The random model alone."""
    config = Config(model=SHAPE, policy=PolicyConfig(name="mma-il"))
    return Translator(diagonal_model(SHAPE, length).prepare_inference(), config, make_codec())


def shipped_subject() -> Subject:
    """The model in the box."""
    folder = boxed.resolve("de-en")
    _, config, codec = checkpoint.load_model(folder)

    def load() -> Transformer:
        model = checkpoint.load_model(folder)[0].eval()
        assert isinstance(model, Transformer)
        return model

    return Subject("de-en", config, codec, load)


class Benchmark:
    def __init__(self, rounds: int, words: int, text: Path | None) -> None:
        self.rounds, self.words, self.text = rounds, words, text
        self.figures: dict[str, float] = {}
        self.ratios: list[tuple[str, float, str]] = []

    def note(self, name: str, value: float, unit: str) -> None:
        self.figures[f"{name}, {unit}"] = value
        print(f"  {name:42s} {value:9.3f} {unit}", flush=True)

    def one_row(self, subject: Subject, text: str, published: bool) -> dict[str, float]:
        """Milliseconds a target token, encoder included; tokens count end-of-sequence."""
        ids = subject.ids(text)
        written = {kind: stream(subject.ours[kind], text.split()) for kind in KINDS}
        lengths = {kind: len(tokens) + 1 for kind, tokens in written.items()}
        print(f"{subject.name}, one row: {len(ids)} source, {lengths['float32']} target tokens")
        ways: dict[str, Callable[[], object]] = {}
        for kind in KINDS:
            ours, theirs, length = subject.ours[kind], subject.theirs[kind], lengths[kind]
            ways[f"session, {kind}"] = partial(stream, ours, text.split())
            ways[f"CTranslate2, {kind}"] = partial(theirs, [ids], length)
        if published:
            assert stream_published(subject.plain, ids) == written["float32"]
            ways["the published way, float32"] = partial(stream_published, subject.plain, ids)
        times = take_turns(ways, self.rounds)
        for name, seconds in times.items():
            tokens = lengths["int8" if "int8" in name else "float32"]
            self.note(f"{subject.name}, one row, {name}", seconds / tokens * 1e3, "ms/token")
        return times

    def compare(self, subject: Subject, where: str, times: dict[str, float], most: str) -> None:
        for kind, bound in zip(KINDS, most.split(), strict=True):
            ratio = times[f"session, {kind}"] / times[f"CTranslate2, {kind}"]
            name = f"{subject.name}, {where}, {kind}: session / CTranslate2"
            self.ratios.append((name, ratio, f"<= {bound}"))

    def sentence(self) -> None:
        words = sentences(1, 24)[0]
        for subject, text in ((random_subject(30), " ".join(words)), (shipped_subject(), TEXT)):
            self.compare(subject, "one row", self.one_row(subject, text, False), "1.05 1.6")

    def long_sentence(self) -> None:
        text = " ".join(sentences(1, 60)[0])
        times = self.one_row(random_subject(61), text, True)
        ratio = times["the published way, float32"] / times["session, float32"]
        self.ratios.append(("60 words: the published way / session", ratio, ">= 8"))

    def batch(self) -> None:
        texts = [" ".join(words) for words in sentences(256, 24)]
        for subject, lines in ((random_subject(30), texts), (shipped_subject(), german())):
            self.many_rows(subject, lines)

    def many_rows(self, subject: Subject, texts: list[str]) -> None:
        """CTranslate2 gets batches of like lengths, each as long as our translations on average."""
        print(f"{subject.name}, {ROWS} rows, {len(texts)} sentences")
        texts = sorted(texts, key=lambda text: len(subject.ids(text)))
        groups = [texts[i : i + ROWS] for i in range(0, len(texts), ROWS)]
        times: dict[str, float] = {}
        ways: dict[str, Callable[[], object]] = {}
        tokens: dict[str, int] = {}
        for kind in KINDS:
            ours, theirs = subject.ours[kind], subject.theirs[kind]
            written = [[len(r.tokens) + 1 for r in ours.translate(g, rows=ROWS)] for g in groups]
            lengths = [round(statistics.mean(group)) for group in written]
            sources = [[subject.ids(text) for text in group] for group in groups]

            def run(engine: Engine = theirs, batches: object = (sources, lengths)) -> None:
                for ids, length in zip(*batches, strict=True):  # type: ignore[misc]
                    engine(ids, length)

            ways[f"session, {kind}"] = partial(ours.translate, texts, rows=ROWS)
            ways[f"CTranslate2, {kind}"] = run
            tokens[f"session, {kind}"] = sum(map(sum, written))
            tokens[f"CTranslate2, {kind}"] = sum(
                n * len(group) for n, group in zip(lengths, groups, strict=True)
            )
        for name, seconds in take_turns(ways, max(3, self.rounds // 3)).items():
            times[name] = seconds / tokens[name]
            self.note(f"{subject.name}, {ROWS} rows, {name}", 1 / times[name], "target tokens/s")
        self.compare(subject, f"{ROWS} rows", times, "1.1 1.5")

    def agreement(self) -> None:
        assert self.text is not None, "--text FILE: lines to translate"
        lines = self.text.read_text(encoding="utf-8").splitlines()
        subject = shipped_subject()
        for kind, decoding in product(KINDS, ("threshold=0.5", "threshold=0.5,beam=2")):
            ours = subject.ours[kind]
            many, one = (
                [(t.words, t.delays) for t in ours.translate(lines, decoding, rows=rows)]
                for rows in (16, 1)
            )
            live = [live_translation(ours, line, decoding) for line in lines]
            for name, others in (("one row", one), ("word by word", live)):
                differ = sum(a != b for a, b in zip(many, others, strict=True))
                print(
                    f"  {kind}, {decoding}: {differ} of {len(lines)} differ between 16 rows"
                    f" and {name}"
                )

    def agents(self, folder: str, agents: Sequence[str]) -> None:
        """Milliseconds and decoder passes a target token of each agent, on one row."""
        assert self.text is not None, "--text FILE: lines to translate"
        lines = self.text.read_text(encoding="utf-8").splitlines()
        ours = load(folder)
        learned = random_translator(30)
        texts = [" ".join(words) for words in sentences(len(lines), 24)]
        runs = {"MMA, heads decide": (learned, texts, DEFAULT)}
        runs |= {agent: (ours, lines, Decoding.parse(agent)) for agent in agents}
        for name, (translator, sources, decoding) in runs.items():
            session = translator.session(decoding, segment=False)
            tokens: list[int] = []  # words are not counted: copied numbers cost nothing
            session.on_token = lambda choice, tokens=tokens: tokens.append(choice.token)
            begin = time.process_time()
            for source in sources:
                session.reset()
                session.push(source)
                session.finish()
            seconds, count = time.process_time() - begin, len(tokens)
            state = session.decider.backend.state  # type: ignore[union-attr]
            layers = translator.config.model.decoder_layers
            self.note(f"{name}, one row", seconds / count * 1e3, "ms/token")
            self.note(f"{name}, one row", state.evaluations / layers / count, "passes/token")

    def undecided(self) -> None:
        """A target token of de-en whose heads stay undecided, beside a threshold; one row."""
        for kind in KINDS:
            translator = load("de-en", quantize=None if kind == "float32" else kind)
            costs = self.one_row_decoded(
                translator, kind, "threshold=0.5,beam=1", "mass=0.7,beam=1"
            )
            self.ratios.append((f"de-en, {kind}: mass / threshold", costs[1] / costs[0], "~ 1"))

    def beams(self) -> None:
        """A target token of de-en when beams look ahead, beside the best token each time."""
        for kind in KINDS:
            translator = load("de-en", quantize=None if kind == "float32" else kind)
            decodings = ["beam=1", "beam=2", "beam=4"]
            decodings = [f"threshold=0.5,{beam}" for beam in decodings]
            greedy, two, four = self.one_row_decoded(translator, kind, *decodings)
            self.ratios.append((f"de-en, one row, {kind}: 2 beams / greedy", two / greedy, "-"))
            self.ratios.append((f"de-en, one row, {kind}: 4 beams / greedy", four / greedy, "-"))
            run = {d: partial(translator.translate, german(), d, rows=ROWS) for d in decodings[:2]}
            tokens = {d: sum(len(r.tokens) + 1 for r in one()) for d, one in run.items()}
            times = take_turns(dict(run), max(3, self.rounds // 3))
            greedy, two = (times[decoding] / tokens[decoding] for decoding in run)
            for decoding, cost in zip(run, (greedy, two), strict=True):
                self.note(f"de-en, {ROWS} rows, {decoding}, {kind}", 1 / cost, "target tokens/s")
            self.ratios.append((f"de-en, {ROWS} rows, {kind}: 2 beams / greedy", two / greedy, "-"))

    def one_row_decoded(self, translator: Translator, kind: str, *decodings: str) -> list[float]:
        """Seconds a target token of de-en, end-of-sequence included, one row."""
        run = {decoding: partial(stream, translator, TEXT.split(), decoding)
               for decoding in decodings}  # fmt: skip
        tokens = {decoding: len(one()) + 1 for decoding, one in run.items()}
        times = take_turns(dict(run), self.rounds)
        costs = [times[decoding] / tokens[decoding] for decoding in decodings]
        for decoding, cost in zip(decodings, costs, strict=True):
            self.note(f"de-en, one row, {decoding}, {kind}", cost * 1e3, "ms/token")
        return costs

    def stream(self) -> None:
        """A windowed model that never stops: cost of a word, memory and cache at both ends."""
        print(f"a stream of {self.words:,} words (window {WINDOWED.window}, small model)")
        config = Config(model=WINDOWED, policy=PolicyConfig(name="mma-il"))
        model = diagonal_model(WINDOWED, None).prepare_inference()
        session = Translator(model, config, make_codec()).session(segment=False)
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
    return sum(session.decider.backend.state.slots())  # type: ignore[union-attr]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="one-row,batch,long-sentence,stream")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--words", type=int, default=100_000, help="length of the long stream")
    parser.add_argument("--text", type=Path, help="agreement, agents: a file of source sentences")
    parser.add_argument("--model", default="", help="agents: folder of an offline model")
    parser.add_argument("--agents", default=AGENTS, help="agents: which, between spaces")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    memory.keep()  # as the verb evaluate does
    benchmark = Benchmark(arguments.rounds, arguments.words, arguments.text)
    parts = {
        "one-row": benchmark.sentence,
        "batch": benchmark.batch,
        "long-sentence": benchmark.long_sentence,
        "stream": benchmark.stream,
        "agreement": benchmark.agreement,
        "undecided": benchmark.undecided,
        "beams": benchmark.beams,
        "agents": partial(benchmark.agents, arguments.model, arguments.agents.split()),
    }
    for name in arguments.only.split(","):
        parts[name]()
    print("ratios")
    for name, ratio, wanted in benchmark.ratios:
        print(f"  {name:52s} {ratio:6.2f}   wanted {wanted}")
    if arguments.json:
        ratios = {name: ratio for name, ratio, _ in benchmark.ratios}
        arguments.json.write_text(
            json.dumps({"figures": benchmark.figures, "ratios": ratios}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
