"""Offline models live: agreement over CTranslate2, transformers and our own, beside MMA.

    python benchmarks/backends.py [--text FILE] [--rounds N] [--only WORD,...]

One thread, one stream, greedy. Every contestant hears the same German sentences: the talk of
`simultan demo`, unless a file is given. MMA is the model in the box, de-en, and "ours" is de-en as
an offline model, without the projections that its heads select by. The engines of others get models
of random weights in two shapes, de-en's (6+3 layers, width 512, feed-forward 2048, 16,000 pieces)
and OPUS-MT's (6+6 layers, 58,101 pieces). They compute every step in full; then the token that
de-en would have chosen takes the place of theirs. So the time is theirs, and words, lengths and
delays are those of a model that translates. What de-en would choose is looked up before the clock
runs. Contestants take turns; a figure is the median of the rounds, in processor time, which on an
idle machine is the time on the clock. AL and al_ca, which counts computing, are in words of a
speaker who says 2.5 words in a second.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import simultan
from simultan import boxed, checkpoint
from simultan.data.codec import Codec
from simultan.data.languages import ends_sentence
from simultan.data.vocabulary import BOS, EOS, PAD, SPECIAL
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.scores import Scores
from simultan.model import TranslationModel, build
from simultan.streaming import agents
from simultan.streaming.backends.ctranslate import AHEAD, CTranslate2
from simultan.streaming.backends.huggingface import HuggingFace
from simultan.streaming.backends.incremental import Incremental
from simultan.streaming.backends.rereading import Frame, View
from simultan.streaming.translator import Translator

BOX = "de-en"
SHAPES = {"de-en's shape": (6, 3, 16_000), "OPUS-MT's shape": (6, 6, 58_101)}
AGENT = "agreement:2"
LONGEST = 60  # tokens that the script says of one sentence
FRAME = Frame((), (EOS,), (BOS,), offset=0)  # of engines that read de-en's own pieces


class Script:
    """What de-en says after a source and a target, up to its end; looked up once."""

    def __init__(self, model: TranslationModel) -> None:
        self.backend = Incremental(model, 1)
        self.known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}

    def __call__(self, view: View) -> tuple[int, ...]:
        key = view.source, tuple(id for id in view.target if id != BOS)
        if key not in self.known:
            source, target = key
            said = self._continue(source, target)
            for i in range(len(said)):  # it would go on like this after each of them, too
                self.known.setdefault((source, target + said[:i]), said[i:])
        return self.known[key]

    @torch.inference_mode()
    def _continue(self, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
        self.backend.reset(0)
        self.backend.read([0], [list(source)], [True])
        said: list[int] = []
        while len(said) < len(target) + LONGEST and said[-1:] != [EOS]:
            (best,) = self.backend.score([0], [len(source)], False).best
            said.append(target[len(said)] if len(said) < len(target) else best)
            self.backend.commit([0], said[-1:])
        return tuple(said[len(target) :])


class SteeredCTranslate2(CTranslate2):
    """Decodes in full, as many tokens as the script has, and says what the script says."""

    script: Script

    def _go_on(self, views: list[View]) -> list[tuple[int, ...]]:
        said = [self.script(view)[:AHEAD] for view in views]
        length = max(len(view.target) + len(new) for view, new in zip(views, said, strict=True))
        self._translate(views, min_decoding_length=length, max_decoding_length=length)
        return [(*view.target, *new) for view, new in zip(views, said, strict=True)]


class SteeredHuggingFace(HuggingFace):
    """Computes the logits, and says what the script says."""

    script: Script

    def score(self, views: list[View], attention: bool) -> agents.Scores:
        scores = super().score(views, attention)
        for row, view in zip(scores.logits, views, strict=True):
            row[self.script(view)[0]] = 1e9
        return scores


def offline() -> TranslationModel:
    """De-en, looking at all that was read."""
    folder = boxed.resolve(BOX)
    config = checkpoint.load_config(folder)
    config = dataclasses.replace(config, policy=dataclasses.replace(config.policy, name="offline"))
    codec = Codec.load(folder)
    model = build(config, len(codec.source_vocabulary), len(codec.target_vocabulary))
    found = model.load_state_dict(checkpoint.load_weights(folder), strict=False)
    tied = {"target_embedding.tokens.weight", "output.weight"}  # the source's, in de-en
    assert set(found.missing_keys) <= tied, found.missing_keys
    return model.eval()


def marian(shape: str, folder: str) -> Any:
    """A Marian of this shape with random weights, and the same for CTranslate2 in a folder."""
    from transformers import MarianConfig, MarianMTModel

    encoder, decoder, pieces = SHAPES[shape]
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=pieces, d_model=512, encoder_layers=encoder, decoder_layers=decoder,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8,
        decoder_attention_heads=8, max_position_embeddings=512, scale_embedding=True,
        activation_function="swish", pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS,
        decoder_start_token_id=PAD, forced_eos_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    _convert(model, pieces, folder)
    return model


def _convert(model: Any, pieces: int, folder: str) -> None:
    from ctranslate2.converters.transformers import MarianMTLoader

    class Loader(MarianMTLoader):  # type: ignore[misc]
        def _remove_pad_weights(self, spec: Any) -> None:
            """Here padding is not the last piece."""

    spec = Loader().get_model_spec(model)
    spec.register_source_vocabulary(_names(pieces))
    spec.register_target_vocabulary(_names(pieces))
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.decoder_start_token = "</s>"
    spec.validate()
    spec.optimize(quantization=None)
    Path(folder).mkdir()
    spec.save(folder)


def contestants(folder: str) -> dict[str, Translator]:
    import ctranslate2

    box = boxed.resolve(BOX)
    config, codec = checkpoint.load_config(box), Codec.load(box)
    script = Script(offline().prepare_inference())
    found: dict[str, Translator] = {}
    for kind in (None, "int8"):
        found[f"MMA {kind or 'float32'}"] = simultan.load(BOX, quantize=kind)
        found[f"ours {kind or 'float32'}"] = Translator(
            offline().prepare_inference(kind), config, codec
        )
    for shape, (_, _, pieces) in SHAPES.items():
        place = f"{folder}/{shape.split()[0]}"
        theirs = SteeredHuggingFace(marian(shape, place), codec, FRAME, None)
        theirs.script = script
        found[f"transformers float32, {shape}"] = Translator(theirs, config, codec)
        names = _names(pieces)
        for kind in ("float32", "int8"):
            engine = ctranslate2.Translator(place, compute_type=kind, intra_threads=1)
            frame = dataclasses.replace(FRAME, begin=())  # it begins by itself
            steered = SteeredCTranslate2(engine, codec, frame, (names, names), None)
            steered.script = script
            found[f"CTranslate2 {kind}, {shape}"] = Translator(steered, config, codec)
    return found


def _names(pieces: int) -> list[str]:
    return [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), pieces))]


def read_sentences(path: Path) -> list[str]:
    """Sentences of a text, one by one."""
    sentences: list[list[str]] = [[]]
    for word in path.read_text(encoding="utf-8").split():
        sentences[-1].append(word)
        if ends_sentence(word, "de"):
            sentences.append([])
    return [" ".join(words) for words in sentences if words]


def measure(translator: Translator, sentences: list[str], name: str) -> Scores:
    decoding = "" if name.startswith("MMA") else AGENT
    return evaluate(translator, sentences, sentences, decoding=decoding, rows=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--text", type=Path, default=Path(simultan.__file__).with_name("talk.de.txt")
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="those whose names hold one of these words")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    sentences = read_sentences(arguments.text)
    words = sum(len(sentence.split()) for sentence in sentences)
    print(
        f"{len(sentences)} sentences, {words} source words, {arguments.rounds} rounds, one thread"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = contestants(folder)
        wanted = arguments.only.split(",")
        found = {name: one for name, one in found.items() if any(part in name for part in wanted)}
        results: dict[str, list[Scores]] = {name: [] for name in found}
        for turn in range(arguments.rounds + 1):
            for name, translator in found.items():
                scores = measure(translator, sentences, name)
                if turn:  # the first round warms up, and looks the script up
                    results[name].append(scores)
    head = f"{'':38}{'ms/source word':>15}{'words/s':>9}{'AL':>7}{'al_ca':>7}"
    print(head)
    for name, runs in results.items():
        print(f"{name:38}{_row(runs)}")
    _compare(results)


def _row(runs: list[Scores]) -> str:
    def middle(value: Callable[[Scores], float | None]) -> float:
        return statistics.median(value(run) or 0.0 for run in runs)

    milliseconds = 1000 * middle(lambda run: run.seconds_per_source_word)
    rate = 1 / middle(lambda run: run.seconds_per_target_word)
    lag, aware = middle(lambda run: run.latency["al"]), middle(lambda run: run.al_ca)
    return f"{milliseconds:15.1f}{rate:9.1f}{lag:7.2f}{aware:7.2f}"


def _compare(results: dict[str, list[Scores]]) -> None:
    """The ratio that decides: what MMA saves."""
    base = next((runs for name, runs in results.items() if name == "MMA int8"), None)
    if base is None:
        return
    for name, runs in results.items():
        times = [
            statistics.median(r.seconds_per_source_word or 0 for r in some) for some in (runs, base)
        ]
        print(f"{name} takes {times[0] / times[1]:.1f} times as long as MMA int8")


if __name__ == "__main__":
    main()
