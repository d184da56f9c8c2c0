"""From the texts of texts.toml to what the stages of the second edition read.

    python recipes/de-en/second/prepare.py pairs $DATA --out work/de-en/pairs
    python recipes/de-en/second/prepare.py pairs $DATA --out work/de-en/speech \
        --like work/de-en/pairs --made work/made --speech
    python recipes/de-en/second/prepare.py swap work/de-en/pairs --out work/de-en/swapped
    python recipes/de-en/second/prepare.py decode work/de-en/taught --out work/made

pairs: shards of the parallel text. --speech joins sentences, takes case and punctuation away and
speaks numbers, for the models that stream. --made names what models wrote: NAME.back.de (English
translated back) and NAME.forward.en (German translated by the teacher), plain or .xz. Evaluation
lines are left out of all of it.
swap: the same shards with the sides exchanged, for the model that translates back.
decode: the shards as text again, NAME.de and NAME.en, for a teacher to translate.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from compose import compose
from numpy.typing import NDArray

from simultan.data.codec import Codec
from simultan.data.corpus import Prepared, prepare
from simultan.data.formats import read_pairs
from simultan.data.shards import Corpus
from simultan.data.sources import Skips, TextPair, read_lines
from simultan.data.text import Pipeline, normalise
from simultan.data.vocabulary import Vocabulary

TEXTS = Path(__file__).with_name("texts.toml")
NAMES = "names.json"  # of the texts of a prepared folder, in its order
SENTENCES = TEXTS.parents[1] / "sentences.json"
COMPOSED = 20_000  # pairs of compose.py
FORWARD = 7  # of ten lines that the teacher translated, so many replace what people wrote
GERMAN = 1.5  # its words count more for the vocabulary: compounds need more pieces
SAMPLED = 3  # the vocabulary is learnt from every third line
LONGEST = 192  # tokens
DECODED = 10_000  # sentences at a time
CHECKS: dict[str, Any] = {
    "deduplicate": True,
    "max_ratio": 3.0,
    "check_languages": True,
    "drop": r"\\",
    "max_length": LONGEST,
}
SPEECH: dict[str, Any] = {"join": 0.4, "longest_run": 8, "asr": 0.3, "spell_numbers": 0.3}


@dataclass(frozen=True)
class Sources:
    """What texts.toml says, and where the text is."""

    data: Path
    table: dict[str, Any]
    place: Path  # of texts.toml

    @classmethod
    def read(cls, data: Path, path: Path = TEXTS) -> Sources:
        return cls(data, tomllib.loads(path.read_text(encoding="utf-8")), path.parent)

    def evaluation(self) -> list[Path]:
        """Every file of which no line may be trained on."""
        sets = self.table["evaluation"]
        names = [sets["valid"], sets["test"], *sets["others"]]
        return [self.data / f"{name}.{side}.xz" for name in names for side in ("de", "en")]

    def write_sentences(self, path: Path) -> Path:
        """The project's own sentences, whose translations people judge: not trained on either."""
        entries = json.loads(SENTENCES.read_text(encoding="utf-8"))
        lines = [entry[key] + "\n" for key in ("source", "meaning") for entry in entries]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def held_out(self, name: str) -> TextPair:
        stem = self.table["evaluation"][name]
        return TextPair(self.data / f"{stem}.de.xz", self.data / f"{stem}.en.xz")

    def parallel(self, compare: bool = False) -> dict[str, TextPair]:
        """The texts of the box; compare: all of them."""
        found = {}
        for text in self.table["text"]:
            if text["use"] != "box" and not compare:
                continue
            folder = self.data / text["folder"]
            documents = folder / text["documents"] if "documents" in text else None
            sides = folder / "train.de.xz", folder / "train.en.xz"
            found[text["name"]] = TextPair(
                *sides, weight=text["weight"], documents=documents, document_columns=2
            )
        return found

    def written(self, out: Path, weight: float | None = None) -> dict[str, TextPair]:
        """What was written for this project, both sides or English for lines of a corpus."""
        out.mkdir(parents=True, exist_ok=True)
        found = {}
        for text in self.table.get("written", []):
            german: list[str] = []
            if "german" in text:
                german = list(read_lines(self.data / text["german"], "replace"))
            pairs: list[tuple[str, str]] = []
            for path in (self.place / name for name in text["files"]):
                if german:
                    pairs += _of_lines(german, path)
                else:
                    read = read_pairs(TextPair(path, path), Skips(strict=True))
                    pairs += [(source, target) for _, source, target in read]
            sides = out / f"{text['name']}.de", out / f"{text['name']}.en"
            for side, lines in zip(sides, zip(*pairs, strict=True), strict=True):
                side.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            chosen = text["weight"] if weight is None else weight
            found[text["name"]] = TextPair(*sides, chosen)
        return found

    def mono(self, language: str) -> dict[str, tuple[Path, float]]:
        """Text of one language alone, with its weight."""
        return {
            mono["name"]: (self.data / mono["file"], mono["weight"])
            for mono in self.table["mono"]
            if f".{language}." in mono["file"]
        }


def _of_lines(german: list[str], translations: Path) -> Iterator[tuple[str, str]]:
    """Lines of a corpus with their translations: number, checksum and English of each."""
    for line in read_lines(translations):
        number, checksum, english = line.split("\t")
        source = german[int(number) - 1] if int(number) <= len(german) else ""
        if zlib.crc32(source.encode()) != int(checksum, 16):
            raise ValueError(
                f"{translations}: line {number} of the corpus is another one than was translated:"
                " is it a newer release?"
            )
        yield source, english


def with_made(sources: Sources, pairs: dict[str, TextPair], made: Path) -> dict[str, TextPair]:
    """Parallel text, and beside it what models wrote."""
    result = {}
    for name, pair in pairs.items():
        forward, german, english = (
            _written(made / f"{name}.{kind}") for kind in ("forward.en", "de", "en")
        )
        if forward is not None and german is not None and english is not None:
            mixed = mix(forward, english, made / f"{name}.mixed.en")
            pair = TextPair(german, mixed, pair.weight)  # lines of the shards, not of the files
        result[name] = pair
    for name, (english, weight) in sources.mono("en").items():
        if (back := _written(made / f"{name}.back.de")) is not None:
            english = _first_lines(english, back, made / f"{name}.begun.en")
            result[f"{name}.back"] = TextPair(back, english, weight, tag=sources.table["tag"])
    for name, (german, weight) in sources.mono("de").items():
        if (forward := _written(made / f"{name}.forward.en")) is not None:
            german = _first_lines(german, forward, made / f"{name}.begun.de")
            result[f"{name}.forward"] = TextPair(german, forward, weight)
    return result


def _written(path: Path) -> Path | None:
    """A file, plain or .xz, if it is there and has a line."""
    packed = path.with_name(path.name + ".xz")
    return next((p for p in (path, packed) if p.is_file() and p.stat().st_size), None)


def _first_lines(text: Path, translated: Path, begun: Path) -> Path:
    """The text, or as many of its lines as a model had the time to translate."""
    count = sum(1 for _ in read_lines(translated, "replace"))
    lines = list(islice(read_lines(text, "replace"), count + 1))
    if len(lines) == count:
        return text
    begun.write_text("".join(line + "\n" for line in lines[:count]), encoding="utf-8")
    return begun


def mix(forward: Path, references: Path, out: Path) -> Path:
    """Of ten lines seven as the teacher wrote them, three as people did; also what it left out."""
    written = list(read_lines(forward, "replace"))
    with out.open("w", encoding="utf-8") as file:
        for number, reference in enumerate(read_lines(references, "replace")):
            taught = written[number] if number % 10 < FORWARD and number < len(written) else ""
            file.write((taught or reference) + "\n")
    return out


def learn_vocabulary(sources: Sources, pairs: dict[str, TextPair], size: int) -> Codec:
    """One vocabulary for all models, also of text that is not yet translated."""
    counts: Counter[str] = Counter()
    texts: list[tuple[Path, float]] = []
    for pair in pairs.values():
        texts += [(pair.source, GERMAN * pair.weight), (pair.target, pair.weight)]
    texts += sources.mono("en").values()
    texts += [(path, GERMAN * weight) for path, weight in sources.mono("de").values()]
    for path, weight in texts:
        own: Counter[str] = Counter()
        for line in islice(read_lines(path, "replace"), 0, None, SAMPLED):
            own.update(line.split())
        for word, count in own.items():
            counts[normalise(word)] += max(1, round(weight * count))
    del counts[""]
    if tag := sources.table["tag"]:
        counts[tag] = max(counts.values())  # one piece, though no text has it now
    learnt = Vocabulary.learn_bpe(counts, size)
    return Codec(Pipeline("bpe", "de", "en"), learnt, learnt)


def make_pairs(options: argparse.Namespace) -> Prepared:
    """Shards of the parallel text and of what models wrote."""
    sources = Sources.read(options.data, options.texts)
    composed = options.out.with_name(options.out.name + ".composed")
    compose(composed, options.composed)
    pairs = sources.parallel(options.compare)
    pairs["composed"] = TextPair(composed / "train.de", composed / "train.en")
    if options.written != 0:
        pairs |= sources.written(composed / "written", options.written)
    size = options.vocabulary or sources.table["vocabulary"]
    without = *sources.evaluation(), sources.write_sentences(composed / "sentences.txt")
    codec = Codec.load(options.like) if options.like else learn_vocabulary(sources, pairs, size)
    if options.made:
        pairs = with_made(sources, pairs, options.made)
    prepared = prepare(
        options.out,
        list(pairs.values()),
        sources.held_out("valid"),
        sources.held_out("test"),
        codec=codec,
        without=without,
        overwrite=True,
        note_begins=not options.speech,
        progress=lambda what, done: print(f"\r{what:<40}", end="", flush=True),
        **CHECKS,
        **(SPEECH if options.speech else {}),
    )
    (options.out / NAMES).write_text(json.dumps(list(pairs)) + "\n", encoding="utf-8")
    return prepared


def swap(folder: Path, out: Path) -> None:
    """A prepared folder with its sides exchanged; large files are linked, not copied."""
    out.mkdir(parents=True)
    for path in folder.iterdir():
        parts = path.name.split(".")
        other = {"source": "target", "target": "source"}
        name = ".".join(other.get(part, part) for part in parts)
        if path.suffix == ".npy":
            os.link(path, out / name)
        else:
            shutil.copyfile(path, out / name)
    pipeline = json.loads((out / "pipeline.json").read_text(encoding="utf-8"))
    prepared = json.loads((out / "prepared.json").read_text(encoding="utf-8"))
    for table in (pipeline, prepared["settings"]["pipeline"]):
        one, two = table["source_language"], table["target_language"]
        table["source_language"], table["target_language"] = two, one
    for key in ("tokens", "unknown"):
        prepared[key] = {split: pair[::-1] for split, pair in prepared[key].items()}
    prepared["vocabulary"] = prepared["vocabulary"][::-1]
    for source in prepared["sources"]:
        source["source"], source["target"] = source["target"], source["source"]
    (out / "pipeline.json").write_text(json.dumps(pipeline, indent=1) + "\n", encoding="utf-8")
    text = json.dumps(prepared, indent=1, ensure_ascii=False)
    (out / "prepared.json").write_text(text + "\n", encoding="utf-8")


def decode(folder: Path, out: Path) -> dict[str, int]:
    """Write both sides of each text of a prepared folder, those that are tagged excepted."""
    corpus, codec = Corpus(folder), Codec.load(folder)
    names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
    counts = {}
    out.mkdir(parents=True, exist_ok=True)
    sides = (
        (corpus.source, codec.source_vocabulary, codec.source_language),
        (corpus.target, codec.target_vocabulary, codec.target_language),
    )
    for side, vocabulary, language in sides:
        begin = 0
        for name, source in zip(names, corpus.prepared["sources"], strict=True):
            end = begin + source["pairs"]
            if not source["tag"]:
                counts[name] = source["pairs"]
                with (out / f"{name}.{language}").open("w", encoding="utf-8") as file:
                    for first in range(begin, end, DECODED):
                        numbers = np.arange(first, min(first + DECODED, end))
                        file.writelines(read_rows(side, vocabulary, numbers))
            begin = end
    return counts


def read_rows(side: Any, vocabulary: Vocabulary, numbers: NDArray[Any]) -> Iterator[str]:
    """Sentences of a side of a corpus as lines of text."""
    lengths = side.lengths()[numbers]
    for row, length in zip(side.rows(numbers, int(lengths.max())), lengths, strict=True):
        yield " ".join(vocabulary.decode(row[:length].tolist())) + "\n"


def describe(prepared: Prepared) -> Iterator[str]:
    """What was kept and what was left out, in lines."""
    for split, count in prepared.pairs.items():
        yield f"{split}: {count:,} pairs, tokens {prepared.tokens[split]}"
    for source in prepared.sources:
        yield f"  {source['source']} {source['target']}: {source['pairs']:,} x {source['weight']:g}"
    for reason, skip in prepared.skipped.items():
        yield f"left out: {skip['count']:,}, {reason}"
    yield f"like speech: {prepared.speech}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["pairs", "swap", "decode"])
    parser.add_argument("data", type=Path, help="the corpora's folder; or a prepared folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, default=TEXTS)
    parser.add_argument("--compare", action="store_true", help="with the texts that stay out")
    parser.add_argument("--like", type=Path, help="the vocabulary of this folder")
    parser.add_argument("--vocabulary", type=int, default=0, help="pieces, instead of those named")
    parser.add_argument("--composed", type=int, default=COMPOSED, help="pairs of compose.py")
    parser.add_argument("--written", type=float, help="a weight for all of what was; 0: without")
    parser.add_argument("--made", type=Path, help="the folder with what models wrote")
    parser.add_argument("--speech", action="store_true", help="for models that stream")
    options = parser.parse_args(arguments)
    if options.what == "swap":
        swap(options.data, options.out)
    elif options.what == "decode":
        for name, count in decode(options.data, options.out).items():
            print(f"{name}: {count:,} lines")
    else:
        print(*describe(make_pairs(options)), sep="\n")


if __name__ == "__main__":
    main()
