"""Parallel text -> a prepared folder: vocabularies, memory-mapped shards, what was left out.

A word's pieces depend on that word alone, so each side is read once into word numbers, every
distinct word is encoded once, and the rest is array lookups.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from simultan import atomic
from simultan.data.codec import Codec
from simultan.data.filters import Filters
from simultan.data.index import END, Index, Split, keep, read_split, select
from simultan.data.overlap import Overlap
from simultan.data.ragged import Ragged
from simultan.data.shards import smallest, write_side
from simultan.data.sources import Progress, Skips, TextPair, language_of
from simultan.data.speech import LONGEST, Speech, read_documents
from simultan.data.text import Pipeline, PipelineName, normalise
from simultan.data.vocabulary import EOS, SMALLEST_BPE, Vocabulary

__all__ = ["Prepared", "prepare"]

_SIZES = {"bpe": 8_000, "moses-bpe": 32_000}
# what a careless reader might take for the end of a line inside one
_SEPARATORS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


@dataclass(frozen=True)
class Prepared:
    """What stands in prepared.json."""

    pairs: dict[str, int]  # by split
    tokens: dict[str, tuple[int, int]]  # by split: source and target, end-of-sequence counted
    vocabulary: tuple[int, int]  # sizes
    sources: list[dict[str, Any]]  # training text: names, pairs, weight, in the order of the shard
    skipped: dict[str, dict[str, Any]]  # by reason: count and first places
    unknown: dict[str, tuple[float, float]]  # by split: share of words that are unknown
    settings: dict[str, Any]
    speech: dict[str, int]  # training pairs that were joined or made like a recogniser's
    notes: list[str] = field(default_factory=list)  # what looks wrong with the training text


def prepare(
    out: str | Path,
    train: Sequence[TextPair],
    valid: TextPair | None = None,
    test: TextPair | None = None,
    *,
    pipeline: Annotated[
        PipelineName, "Split text into whole words, Moses tokens and BPE, or BPE alone."
    ] = "bpe",
    vocabulary: Annotated[
        int | None,
        "Learn this many pieces. bpe: 8000 by default, moses-bpe: 32000, words: no limit.",
    ] = None,
    joint: Annotated[
        bool | None,
        "Learn one vocabulary or two. words: two by default, others: one.",
        "--joint/--separate",
    ] = None,
    min_count: Annotated[int, "Treat rarer words as unknown. For words only."] = 5,
    bpe_dropout: Annotated[float, "Leave out each BPE merge with this chance.", "<P>"] = 0.0,
    samples: Annotated[int, "Keep this many segmentations of a word with dropout."] = 8,
    max_length: Annotated[int, "Leave out training pairs of more tokens."] = 1024,
    source_language: Annotated[
        str, "Name the source language, if its file's name does not.", "<CODE>"
    ] = "",
    target_language: Annotated[
        str, "Name the target language, if its file's name does not.", "<CODE>"
    ] = "",
    join: Annotated[
        float, "Join this share of the pairs, two or more of one document.", "<SHARE>"
    ] = 0.0,
    longest_run: Annotated[int, "Join at most this many pairs.", "<PAIRS>"] = LONGEST,
    asr: Annotated[
        float, "Take case, punctuation or both from this share of the sources.", "<SHARE>"
    ] = 0.0,
    spell_numbers: Annotated[
        float, "Spell the numbers of this share of the sources, as they are spoken.", "<SHARE>"
    ] = 0.0,
    seed: Annotated[int, "Draw BPE-dropout, --join and --asr from this seed."] = 1,
    columns: Annotated[
        str,
        "Take the text from these columns of a .tsv (1,2) or keys of a .jsonl (de,en).",
        "<A,B>",
    ] = "",
    max_ratio: Annotated[
        float,
        "Leave out training pairs of which one side has this many times the words of the other.",
        "<N>",
    ] = 0.0,
    deduplicate: Annotated[bool, "Leave out training pairs that were there before."] = False,
    without: Annotated[
        tuple[Path, ...],
        "Leave out training pairs of which a side is a line of this evaluation text; can be"
        " repeated.",
        "<FILE>",
    ] = (),
    drop: Annotated[
        str, "Leave out training pairs in which this regular expression is found.", "<REGEX>"
    ] = "",
    check_languages: Annotated[
        bool, "Leave out training pairs that are not translated or in the other language."
    ] = False,
    strict: Annotated[bool, "Stop at the first bad training pair."] = False,
    allow_undecodable: Annotated[
        bool, "Continue even if more than 5% of the pairs are not valid UTF-8."
    ] = False,
    codec: Codec | None = None,
    note_begins: bool = False,
    overwrite: Annotated[bool, "Replace a prepared folder."] = False,
    progress: Progress | None = None,
) -> Prepared:
    """Read parallel text, learn vocabularies (or take those of `codec`), write the folder.

    Training pairs with an empty side, invalid UTF-8 or more than max_length tokens are
    skipped, counted and reported; with `strict`, and always in valid and test, an empty side
    or invalid UTF-8 is an error. `join` of the training pairs become runs of two or more pairs
    of one document, `asr` of the sources lose case or punctuation (see data/speech.py).
    `note_begins` writes train.begins.npy, by which pairs can be joined later: whether a training
    pair does not follow the one before it in its document.
    """
    out = Path(out).resolve()  # what a link names is replaced, not the link; "." has a name
    if out.is_mount():
        raise ValueError(f"{out}: a disk is mounted there; name a folder on it")
    subword = (pipeline if codec is None else codec.pipeline.name) != "words"
    if not train:
        raise ValueError("no training text: name it with --source and --target")
    if not 0 <= bpe_dropout < 1 or (bpe_dropout and samples < 2):
        raise ValueError("BPE-dropout lies in [0, 1) and needs at least two samples")
    if bpe_dropout and not subword:
        raise ValueError("BPE-dropout needs a subword pipeline: bpe or moses-bpe")
    if codec is None and subword and vocabulary is not None and vocabulary < SMALLEST_BPE:
        raise ValueError(
            f"a vocabulary of {vocabulary} pieces: one of subwords has at least {SMALLEST_BPE}, of"
            " which 256 are bytes"
        )
    if any(not pair.weight > 0 for pair in train):
        raise ValueError("a weight must be more than 0")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ValueError(f"{out} is not empty: choose another folder or say --overwrite")
    if out.exists() and any(out.iterdir()) and not (out / "prepared.json").exists():
        raise ValueError(f"{out} is no prepared folder: it will not be overwritten")
    report = progress or (lambda what, fraction: None)
    named = language_of(train[0].source), language_of(train[0].target)
    languages = source_language or named[0], target_language or named[1]
    chosen = Pipeline(pipeline, *languages) if codec is None else codec.pipeline
    spoken = chosen.source_language, chosen.target_language
    skips = Skips(strict)
    speech = Speech(join, asr, seed, longest_run, spell_numbers, spoken[0])
    checked = spoken if check_languages else ("", "")
    filters = Filters(max_ratio, deduplicate, Overlap(without), drop, checked)
    read = functools.partial(read_split, report=report, columns=columns, languages=spoken)
    splits = {"train": read(train, skips, speech=speech, filters=filters)}
    if not allow_undecodable:
        skips.check_encoding()
    for name, pair in (("valid", valid), ("test", test)):
        if pair is not None:
            splits[name] = read([pair], Skips(strict=True), keep_text=True)
    sides = {
        "source": _tokenise(splits, "source", chosen.tokens, report),
        "target": _tokenise(splits, "target", chosen.target_tokens, report),
    }
    if codec is None:
        report("learning vocabularies", 0.0)
        counted = [_weighted(splits["train"], side, sides[side]) for side in sides]
        size = vocabulary or _SIZES.get(pipeline)
        if subword if joint is None else joint:
            counted = [counted[0] + counted[1]]
        learnt = [_learn(counts, size, min_count, subword) for counts in counted]
        codec = Codec(chosen, learnt[0], learnt[-1])
    vocabularies = codec.source_vocabulary, codec.target_vocabulary

    with atomic.place(out) as partial:
        partial.mkdir(parents=True)
        codec.save(partial)
        pairs, tokens, unknown = {}, {}, {}
        for name, split in splits.items():
            drawn = samples if bpe_dropout and name == "train" else 1
            tables = []
            for side, known in zip(sides, vocabularies, strict=True):
                report(f"encoding {name}.{side}", 0.0)
                index = split.side(side)
                entries = _encode(sides[side], index, known, bpe_dropout, drawn, f"{seed}{side}")
                tables.append(Ragged.of(entries, smallest(len(known))))
            kept = keep(split, tables, drawn, max_length if name == "train" else None, skips)
            counts = []
            for number, (side, table) in enumerate(zip(sides, tables, strict=True)):
                report(f"writing {name}.{side}", 0.0)
                words, offsets = select(split.side(side), kept)
                prefix = partial / f"{name}.{side}"
                counts.append(write_side(prefix, words, offsets, table, drawn, 2 * seed + number))
            pairs[name] = int(kept.sum())
            tokens[name] = (counts[0], counts[1])
            unknown[name] = _unknown_share(vocabularies, sides, split)
            if split.text:
                _write_text(partial, name, split.text)
            if name == "train":
                ranges = _ranges(split, kept)
                if note_begins:
                    np.save(partial / "train.begins.npy", _begins(split, kept))
        settings = {
            "pipeline": asdict(chosen),
            "joint": vocabularies[0] is vocabularies[1],
            "min_count": None if subword else min_count,
            "bpe_dropout": bpe_dropout,
            "samples": samples if bpe_dropout else 1,
            "max_length": max_length,
            "join": join,
            "asr": asr,
            "max_ratio": max_ratio,
            "deduplicate": deduplicate,
            "longest_run": longest_run,
            "spell_numbers": spell_numbers,
            "without": [f"{path.parent.name}/{path.name}" for path in without],
            "drop": drop,
            "check_languages": check_languages,
            "seed": seed,
        }
        skipped = {
            reason: {"count": count, "first": skips.places[reason]}
            for reason, count in skips.counts.items()
        }
        sizes = len(vocabularies[0]), len(vocabularies[1])
        noticed = speech.counts, filters.finish()
        result = Prepared(pairs, tokens, sizes, ranges, skipped, unknown, settings, *noticed)
        text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
        (partial / "prepared.json").write_text(text + "\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
    return result


def _tokenise(
    splits: dict[str, Split],
    side: str,
    tokens: Callable[[str], list[str]],
    report: Progress,
) -> dict[str, list[str]]:
    """For each distinct raw word, the words of the vocabulary that it holds.

    A word of invisible characters holds none.
    """
    report(f"tokenising {side}", 0.0)
    table: dict[str, list[str]] = {}
    for split in splits.values():
        for word in split.side(side).numbers:
            if word not in table:
                plain = normalise(word)
                table[word] = tokens(plain) if plain else []
    return table


def _weighted(split: Split, side: str, table: dict[str, list[str]]) -> Counter[str]:
    """How often the vocabulary's words stand in the training text, sources weighted."""
    index, begin = split.side(side), 0
    total = np.zeros(len(index.numbers))
    for pair, numbers in split.places:
        total += index.counts(begin, begin + len(numbers)) * pair.weight
        begin += len(numbers)
    counts: Counter[str] = Counter()
    for word, count in zip(index.numbers, np.ceil(total).astype(int).tolist(), strict=True):
        for token in table[word]:
            counts[token] += count
    return counts


def _learn(counts: Counter[str], size: int | None, min_count: int, subword: bool) -> Vocabulary:
    if subword:
        return Vocabulary.learn_bpe(counts, size or _SIZES["bpe"])
    return Vocabulary.learn_words(counts, min_count, size)


def _encode(
    table: dict[str, list[str]],
    index: Index,
    vocabulary: Vocabulary,
    dropout: float,
    samples: int,
    seed: str,
) -> list[list[int]]:
    """Ids of each distinct word, `samples` entries a word; word 0 is end-of-sequence."""
    entries: list[list[int]] = []
    draw = random.Random(seed)
    for word in index.numbers:
        if word == END:
            entries += [[EOS]] * samples
        elif samples == 1:
            entries.append(vocabulary.encode(table[word]))
        else:
            for _ in range(samples):
                tokens = table[word]
                drawn = (vocabulary.sample_word(token, dropout, draw) for token in tokens)
                entries.append([id for ids in drawn for id in ids])
    return entries


def _ranges(split: Split, kept: NDArray[Any]) -> list[dict[str, Any]]:
    """The training files in the order of the shard."""
    result, begin = [], 0
    for pair, numbers in split.places:
        count = int(kept[begin : begin + len(numbers)].sum())
        begin += len(numbers)
        names = {"source": pair.source.name, "target": pair.target.name, "tag": pair.tag}
        result.append({**names, "pairs": count, "weight": pair.weight})
    return result


def _begins(split: Split, kept: NDArray[Any]) -> NDArray[Any]:
    """Where a document begins, or a pair was left out before: nothing is to be joined there."""
    result, first = [], 0
    for pair, numbers in split.places:
        lines = np.array(numbers)[kept[first : first + len(numbers)]]
        first += len(numbers)
        begins = np.ones(len(lines), bool)
        begins[1:] = np.diff(lines) != 1
        documents = read_documents(pair)
        if documents is not None:
            begins[1:] |= np.diff(np.array(documents)[lines - 1]) != 0
        result.append(begins)
    return np.concatenate(result)


def _unknown_share(
    vocabularies: Sequence[Vocabulary], sides: dict[str, dict[str, list[str]]], split: Split
) -> tuple[float, float]:
    if vocabularies[0].is_subword:
        return 0.0, 0.0
    shares = []
    for side, vocabulary in zip(sides, vocabularies, strict=True):
        known, index = set(vocabulary.pieces), split.side(side)
        counts = index.counts()[1:]
        words = list(index.numbers)[1:]
        flags = np.array([any(t not in known for t in sides[side][w]) for w in words], bool)
        shares.append(float(counts[flags].sum() / max(1, counts.sum())))
    return shares[0], shares[1]


def _write_text(folder: Path, name: str, text: list[tuple[str, str]]) -> None:
    """Raw sentences for scoring, one a line."""
    for side, sentences in zip(("source", "target"), zip(*text, strict=True), strict=True):
        lines = [sentence.translate(_SEPARATORS) + "\n" for sentence in sentences]
        (folder / f"{name}.{side}.txt").write_text("".join(lines), encoding="utf-8", newline="\n")
