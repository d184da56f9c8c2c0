"""A trained model learns a person's own text: W = keep W_before + (1 - keep) W_after.

Fine-tuning on a few thousand pairs gains much on such text and loses elsewhere; the mean of the
weights from before and after keeps most of both (Wortsman et al. 2022).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import simultan
from simultan import atomic, checkpoint
from simultan import config as configuration
from simultan.config import Config, TrainConfig
from simultan.data.batching import Batches
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.formats import read_pairs
from simultan.data.shards import Corpus
from simultan.data.sources import Skips, TextPair
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.scores import Scores
from simultan.evaluation.scoring import Scoring
from simultan.train.loop import fit

SMALLEST = 100  # pairs from which anything can be learnt, and measured
HELD_OUT = 200  # of them at most, a tenth of them at most
RATE = 2e-4


@dataclass(frozen=True)
class Adapted:
    """What came of it, on pairs that were not learnt."""

    pairs: int
    held_out: int
    updates: int
    before: Scores
    after: Scores


def adapt(
    start: str | Path,
    texts: Sequence[TextPair],
    out: str | Path,
    *,
    keep: float = 0.25,
    epochs: float = 5.0,
    changes: Sequence[str] = (),
    minutes: float = 0.0,
    device: str | None = None,
    say: Callable[[str], None] = print,
) -> Adapted | None:
    """Fine-tune the model in `start` on pairs of text and write the mean of both to `out`.

    Its own recipe but for data and rates, with sentences joined and made like a recogniser's, so
    that it stays a model for speech; `changes` are those of a recipe. None: told to stop, and the
    same call continues.
    """
    start, out = Path(start), Path(out)
    if not 0 <= keep <= 1:
        raise ValueError(f"keep {keep:g}: the share of the old weights lies between 0 and 1")
    if not (start / checkpoint.WEIGHTS).exists():
        raise ValueError(f"{start} is no model of ours: `simultan import` makes one of it")
    if out.exists():
        raise FileExistsError(f"{out}: already there; remove it or choose another name")
    work = out.with_name(f"{out.name}.unfinished")
    learnt, held = _hold_out(_read(texts, say))
    corpus = _prepare(work, start, learnt, held, say)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    config = _recipe(start, corpus, epochs, device, changes)
    say(f"{len(learnt):,} pairs, {len(held)} more to measure; {config.train.updates} updates")
    outcome = fit(config, work / "run", tensorboard=False, minutes=minutes, device=device)
    if not outcome.finished:
        return None
    lags = start / checkpoint.LAGS
    checkpoint.export(
        [start, outcome.folder],
        out,
        checkpoint.stored_as(start),
        shares=(keep, 1 - keep),
        lags=lags if lags.is_file() else None,  # on the same text they hardly change
    )
    scores = [_measure(folder, held, device) for folder in (start, out)]
    shutil.rmtree(work)
    return Adapted(len(learnt), len(held), outcome.update, *scores)


def _read(texts: Sequence[TextPair], say: Callable[[str], None]) -> list[tuple[str, str]]:
    """All pairs, each once."""
    skips = Skips()
    found = [(source, target) for text in texts for _, source, target in read_pairs(text, skips)]
    skips.check_encoding()
    for reason, count in skips.counts.items():
        say(f"left out: {count:,} pairs, {reason} ({', '.join(skips.places[reason])}, ...)")
    pairs = list(dict.fromkeys(found))
    if len(pairs) < SMALLEST:
        raise ValueError(f"{len(pairs)} different pairs: {SMALLEST} are the least to learn from")
    return pairs


def _hold_out(
    pairs: Sequence[tuple[str, str]],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is learnt, and what is kept to measure: lines all through the text."""
    every = max(10, len(pairs) // HELD_OUT)
    held = list(pairs[every // 2 :: every])[:HELD_OUT]
    seen = [{pair[side] for pair in held} for side in (0, 1)]
    return [pair for pair in pairs if pair[0] not in seen[0] and pair[1] not in seen[1]], held


def _prepare(
    work: Path,
    start: Path,
    learnt: Sequence[tuple[str, str]],
    held: Sequence[tuple[str, str]],
    say: Callable[[str], None],
) -> Path:
    """The prepared corpus, or the one that a call before this one has made."""
    corpus, mark = work / "corpus", work / "text"
    lines = (f"{source}\n{target}\n" for source, target in [*learnt, *held])
    digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    if mark.exists():
        if mark.read_text(encoding="ascii") != digest:
            raise ValueError(
                f"{work} is an unfinished adaptation to other text: remove it, or choose another"
                " name"
            )
        return corpus
    work.mkdir(parents=True, exist_ok=True)
    text = TextPair(work / "train.source", work / "train.target")
    for number, file in enumerate((text.source, text.target)):
        file.write_text("".join(f"{pair[number]}\n" for pair in learnt), encoding="utf-8")
    prepared = prepare(
        corpus,
        [text],
        codec=Codec.load(start),
        join=0.3,
        asr=0.25,
        overwrite=True,
    )
    for note in prepared.notes:
        say(f"note: {note}")
    atomic.write_text(mark, digest)
    return corpus


def _recipe(
    start: Path, corpus: Path, epochs: float, device: str, changes: Sequence[str]
) -> Config:
    """The model's own, for as many epochs of little text."""
    config = checkpoint.load_config(start)
    tokens = 2_000 if device == "cpu" else 8_000
    data = replace(config.data, folder=str(corpus), batch_tokens=tokens)
    plan = Batches(Corpus(corpus), data, prefetch=0).plan(0)
    updates = max(1, round(epochs * len(plan.batches)))
    train = TrainConfig(
        updates=updates,
        lr=RATE,
        warmup=max(1, updates // 8),
        cooldown=updates * 5 // 8,
        clip=1.0,
        average=1,
        keep=1,
        precision="bfloat16" if device != "cpu" or _computes_bfloat16() else "float32",
        init_from=str(start),
        log_every=max(1, updates // 10),
        save_every=max(1, updates // 4),
        validate_every=0,
    )
    # its latency weights count from the start: it has long learnt to be that fast
    own = replace(config, data=data, loss=replace(config.loss, ramp=0), train=train)
    return configuration.parse(configuration.dump(own), list(changes))


def _computes_bfloat16() -> bool:
    """Whether this CPU has instructions for it: then they are twice as fast."""
    known = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in known)


def _measure(folder: Path, held: Sequence[tuple[str, str]], device: str) -> Scores:
    """As it streams by default."""
    quantize = "int8" if device == "cpu" and checkpoint.stored_as(folder) == "int8" else None
    translator = simultan.load(folder, device=device, quantize=quantize)
    sources, references = (list(side) for side in zip(*held, strict=True))
    scoring = Scoring(tokenized=translator.codec.pipeline.name == "words")
    return evaluate(translator, sources, references, scoring=scoring)
