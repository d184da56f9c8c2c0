"""Shards by many processes: text is cut into pieces, each is prepared alone, all are put together.

    python recipes/de-en/second/pieces.py speak PAIRS --out PIECES
    python recipes/de-en/second/pieces.py english DATA --out FILE
    python recipes/de-en/second/pieces.py made DATA --made MADE --like PAIRS --out PIECES
    python recipes/de-en/second/pieces.py join PAIRS --pieces PIECES --out FOLDER
    python recipes/de-en/second/pieces.py slim PAIRS --out FOLDER
    python recipes/de-en/second/pieces.py restore FOLDER

speak: the pairs of a prepared folder made like speech (prepare.py --speech), from its own shards.
english: all English to translate in one file, the smallest text first; FILE.json has their lines.
made: English and what was translated back from it, checked as at home and made like speech.
join: a prepared folder of all pieces, with the vocabulary and the held-out sets of PAIRS.
slim: PAIRS without what need not travel; restore: makes that again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from prepare import CHECKS, LONGEST, NAMES, SPEECH, TEXTS, Sources, read_rows

from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.shards import Corpus
from simultan.data.sources import TextPair, read_lines
from simultan.data.vocabulary import EOS

PIECE = 40_000  # pairs


@dataclass(frozen=True)
class Piece:
    """Some pairs of one text."""

    place: int  # of the text among all texts
    name: str  # of the text
    number: int
    pairs: Path  # the prepared folder whose vocabulary is taken
    out: Path
    weight: float
    begin: int = 0  # rows of that folder; none: the text lies beside
    end: int = 0
    tag: str = ""
    without: tuple[Path, ...] = ()  # evaluation text

    @property
    def folder(self) -> Path:
        return self.out / f"{self.place:02}.{self.name}.{self.number:03}"

    def file(self, kind: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{kind}")


@lru_cache(maxsize=1)
def _open(folder: Path) -> tuple[Corpus, Codec]:
    return Corpus(folder), Codec.load(folder)


def speak(piece: Piece) -> int:
    """Prepare one piece; returns its pairs. A piece that is there is kept, a bad one left out."""
    try:
        if not piece.folder.exists():
            _speak(piece)
        prepared = json.loads((piece.folder / "prepared.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        print(f"{piece.folder.name}: {error}", flush=True)
        return 0
    for kind in ("de", "en", "documents"):
        piece.file(kind).unlink(missing_ok=True)
    return int(prepared["pairs"]["train"])


def _speak(piece: Piece) -> None:
    corpus, codec = _open(piece.pairs)
    documents, checks = None, CHECKS
    if piece.end:  # rows of the folder: they were checked when it was made
        documents, checks = _decode(piece, corpus, codec), {"max_length": LONGEST}
    pair = TextPair(
        piece.file("de"), piece.file("en"), piece.weight, documents=documents, tag=piece.tag
    )
    seed = 1000 * piece.place + piece.number  # equal ones would draw alike
    more = {"without": piece.without, "seed": seed, **checks, **SPEECH}
    prepare(piece.folder, [pair], codec=codec, **more)


def _decode(piece: Piece, corpus: Corpus, codec: Codec) -> Path:
    """Write rows of a corpus as text; returns the file that tells their documents."""
    numbers = np.arange(piece.begin, piece.end)
    sides = (corpus.source, codec.source_vocabulary), (corpus.target, codec.target_vocabulary)
    for kind, (side, vocabulary) in zip(("de", "en"), sides, strict=True):
        with piece.file(kind).open("w", encoding="utf-8") as file:
            file.writelines(read_rows(side, vocabulary, numbers))
    begins = np.load(corpus.folder / "train.begins.npy", mmap_mode="r")
    documents = np.cumsum(begins[piece.begin : piece.end])
    piece.file("documents").write_text("".join(f"{n}\n" for n in documents))
    return piece.file("documents")


def of_pairs(pairs: Path, out: Path) -> Iterator[Piece]:
    """The pieces of a prepared folder."""
    names = json.loads((pairs / NAMES).read_text(encoding="utf-8"))
    prepared = json.loads((pairs / "prepared.json").read_text(encoding="utf-8"))
    begin = 0
    for place, (name, source) in enumerate(zip(names, prepared["sources"], strict=True)):
        end = begin + source["pairs"]
        for number, first in enumerate(range(begin, end, PIECE)):
            last = min(first + PIECE, end)
            yield Piece(place, name, number, pairs, out, source["weight"], first, last)
        begin = end


def gather(sources: Sources, out: Path) -> dict[str, int]:
    """All English in one file; returns the lines of each text."""
    counts = {}
    texts = sources.mono("en").items()
    with out.open("w", encoding="utf-8") as file:
        for name, (text, _) in sorted(texts, key=lambda item: item[1][0].stat().st_size):
            lines = [line + "\n" for line in read_lines(text, "replace")]
            file.writelines(lines)
            counts[name] = len(lines)
    out.with_name(f"{out.name}.json").write_text(json.dumps(counts) + "\n", encoding="utf-8")
    return counts


def of_made(sources: Sources, made: Path, pairs: Path, out: Path) -> Iterator[Piece]:
    """The pieces of what was translated back; their text is written beside them."""
    out.mkdir(parents=True, exist_ok=True)
    without = (*sources.evaluation(), sources.write_sentences(out / "sentences.txt"))
    for place, (name, (english, weight)) in enumerate(sources.mono("en").items(), 50):
        back = made / f"{name}.back.de"
        if not back.exists():
            continue
        # the shorter ends it: time may have been up
        found = list(zip(read_lines(back, "replace"), read_lines(english, "replace"), strict=False))
        for number, first in enumerate(range(0, len(found), PIECE)):
            piece = Piece(
                place,
                f"{name}.back",
                number,
                pairs,
                out,
                weight,
                tag=sources.table["tag"],
                without=without,
            )
            for kind, side in (("de", 0), ("en", 1)):
                some = found[first : first + PIECE]
                piece.file(kind).write_text("".join(pair[side] + "\n" for pair in some), "utf-8")
            yield piece


def slim(folder: Path, out: Path) -> None:
    """Links to a prepared folder's files, without those that restore() makes again."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if not path.match("train.*.offsets.npy"):
            os.link(path, out / path.name)


def restore(folder: Path) -> None:
    """Where the sentences of a slim folder begin."""
    for side in ("source", "target"):
        tokens = np.load(folder / f"train.{side}.tokens.npy", mmap_mode="r")
        ends = np.flatnonzero(tokens == EOS) + 1
        np.save(folder / f"train.{side}.offsets.npy", np.concatenate([np.zeros(1, int), ends]))


def join(pairs: Path, pieces: Sequence[Path], out: Path) -> dict[str, Any]:
    """One prepared folder of many, in this order; returns what stands in its prepared.json."""
    found = [json.loads((p / "prepared.json").read_text(encoding="utf-8")) for p in pieces]
    if not found:
        raise FileNotFoundError("no pieces to join")
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for side in ("source", "target"):
        tokens = [np.load(p / f"train.{side}.tokens.npy", mmap_mode="r") for p in pieces]
        offsets = [np.load(p / f"train.{side}.offsets.npy") for p in pieces]
        lengths = np.concatenate([np.diff(some) for some in offsets])
        np.save(partial / f"train.{side}.tokens.npy", np.concatenate(tokens))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        np.save(partial / f"train.{side}.offsets.npy", starts)
    texts: dict[str, dict[str, Any]] = {}
    skipped: Counter[str] = Counter()
    speech: Counter[str] = Counter()
    for path, prepared in zip(pieces, found, strict=True):
        name = path.name.split(".", 1)[1].rsplit(".", 1)[0]
        (own,) = prepared["sources"]
        known = texts.setdefault(name, {**own, "source": name, "target": name, "pairs": 0})
        known["pairs"] += own["pairs"]
        skipped.update({reason: skip["count"] for reason, skip in prepared["skipped"].items()})
        speech.update(prepared["speech"])
    base = json.loads((pairs / "prepared.json").read_text(encoding="utf-8"))
    tokens_of = np.array([prepared["tokens"]["train"] for prepared in found]).sum(0)
    result = {
        **base,
        "pairs": {**base["pairs"], "train": sum(text["pairs"] for text in texts.values())},
        "tokens": {**base["tokens"], "train": tokens_of.tolist()},
        "sources": list(texts.values()),
        "skipped": {reason: {"count": n, "first": []} for reason, n in skipped.items()},
        "speech": dict(speech),
        "settings": {**base["settings"], **SPEECH},
    }
    for path in pairs.iterdir():  # vocabulary, pipeline, valid and test
        if not path.name.startswith(("train.", "prepared.", NAMES)):
            shutil.copyfile(path, partial / path.name)
    (partial / NAMES).write_text(json.dumps(list(texts)) + "\n", encoding="utf-8")
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (partial / "prepared.json").write_text(text + "\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["slim", "restore", "speak", "english", "made", "join"])
    parser.add_argument("folder", type=Path, help="a prepared folder; english, made: the corpora's")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--texts", type=Path, default=TEXTS)
    parser.add_argument("--like", type=Path, help="made: the vocabulary of this folder")
    parser.add_argument("--made", type=Path, help="made: the folder with NAME.back.de")
    parser.add_argument("--pieces", type=Path, help="join: their folder")
    parser.add_argument("--without-made", action="store_true", help="join: the pairs alone")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.what == "slim":
        slim(options.folder, options.out)
    elif options.what == "restore":
        restore(options.folder)
    elif options.what == "english":
        print(gather(Sources.read(options.folder, options.texts), options.out))
    elif options.what == "join":
        found = sorted(path.parent for path in options.pieces.glob("*/prepared.json"))
        if options.without_made:
            found = [path for path in found if ".back." not in path.name]
        result = join(options.folder, found, options.out)
        shown = {name: result[name] for name in ("pairs", "tokens", "skipped", "speech")}
        print(json.dumps(shown, indent=1))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.what == "speak":
            pieces = of_pairs(options.folder, options.out)
        else:
            sources = Sources.read(options.folder, options.texts)
            pieces = of_made(sources, options.made, options.like, options.out)
        with ProcessPoolExecutor(options.workers) as pool:
            counts = list(pool.map(speak, pieces))
        print(f"{len(counts)} pieces, {sum(counts):,} pairs")


if __name__ == "__main__":
    main()
