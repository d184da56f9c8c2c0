"""The project's 100 sentences: what a model makes of them, and blind judgement of it.

    python recipes/de-en/judge.py translate models/de-en --out recipes/de-en/judged/first.json
    python recipes/de-en/judge.py sheet OUTPUTS.json ... --seed 1 --out judge1.tsv
    python recipes/de-en/judge.py count judge1.tsv judge2.tsv

translate: outputs at the default and at a lag of 5 words, int8, as a stream; --check compares them
with what the file already has. sheet: one judge's sheet, source and output alone, in its own
order; equal outputs for one source are judged once. What each row stands for is written beside it
(.key.json) and is not for the judge. The judge fills in the column `verdict` with ok or wrong:
wrong is what would mislead a reader, or leave out what matters; clumsy English is ok. count: wrong
outputs for each judge, model and kind of sentence.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import simultan
from simultan.streaming.decoding import DEFAULT
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator

SENTENCES = Path(__file__).with_name("sentences.json")
SETTINGS = ("default", "lag=5")
COLUMNS = ("row", "source", "output", "verdict", "note")
VERDICTS = ("ok", "wrong")
Origin = tuple[str, str, int]  # a model's name, a setting, the number of the sentence


def read_sentences(path: Path = SENTENCES) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return entries


def stream(translator: Translator, text: str, setting: str) -> str:
    """A sentence as a live stream is translated, sentence ends found by the model."""
    session = translator.session(DEFAULT if setting == "default" else setting)
    events = [event for word in text.split() for event in session.feed(word)]
    events += session.finish()
    return " ".join(" ".join(e.text for e in events if isinstance(e, Write)).split())


def translate(
    translator: Translator, sentences: Iterable[dict[str, str]], settings: Sequence[str]
) -> dict[str, list[str]]:
    sources = [entry["source"] for entry in sentences]
    return {name: [stream(translator, text, name) for text in sources] for name in settings}


def differences(pinned: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Where outputs are no longer what they were."""
    found = []
    for setting, outputs in pinned.items():
        for number, (old, new) in enumerate(zip(outputs, now[setting], strict=True), 1):
            if old != new:
                found.append(f"{setting}, sentence {number}: {old!r} is now {new!r}")
    return found


def draw_sheet(
    sentences: Sequence[dict[str, str]], outputs: dict[str, dict[str, list[str]]], seed: int
) -> list[tuple[str, str, list[Origin]]]:
    """Source, output and whose it is, in an order that tells nothing."""
    rows: dict[tuple[str, str], list[Origin]] = {}
    for model, settings in outputs.items():
        for setting, texts in settings.items():
            for number, (entry, text) in enumerate(zip(sentences, texts, strict=True)):
                rows.setdefault((entry["source"], text), []).append((model, setting, number))
    order = sorted(rows)
    random.Random(seed).shuffle(order)
    return [(*row, rows[row]) for row in order]


def write_sheet(path: Path, rows: Sequence[tuple[str, str, list[Origin]]]) -> None:
    """The judge's table, and beside it the key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, (source, output, _) in enumerate(rows, 1):
            writer.writerow([number, source, output, "", ""])
    key = [origins for _, _, origins in rows]
    path.with_suffix(".key.json").write_text(json.dumps(key) + "\n", encoding="utf-8")


def read_verdicts(path: Path) -> list[tuple[bool, list[Origin]]]:
    """For each row whether it is wrong, and whose it is."""
    key = json.loads(path.with_suffix(".key.json").read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if len(rows) != len(key):
        raise ValueError(f"{path}: {len(rows)} rows, and the sheet had {len(key)}")
    found = []
    by_number = sorted(rows, key=lambda row: int(row["row"]))  # a judge may have sorted them
    for row, origins in zip(by_number, key, strict=True):
        verdict = (row["verdict"] or "").strip().lower()
        if verdict not in VERDICTS:
            raise ValueError(f"{path}, row {row['row']}: {verdict!r} is neither ok nor wrong")
        found.append((verdict == "wrong", [tuple(origin) for origin in origins]))
    return found


def count(
    sheets: Sequence[Path], sentences: Sequence[dict[str, str]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """By model and setting: wrong outputs for each judge, by kind, and those all judges call so."""
    wrong: dict[tuple[str, str], list[set[int]]] = defaultdict(lambda: [set() for _ in sheets])
    for judge, sheet in enumerate(sheets):
        for is_wrong, origins in read_verdicts(sheet):
            for model, setting, number in origins:
                found = wrong[model, setting][judge]
                if is_wrong:
                    found.add(number)
    result = {}
    for name, judged in wrong.items():
        both, either = set.intersection(*judged), set.union(*judged)
        kinds: dict[str, list[int]] = {}
        for kind in dict.fromkeys(entry["kind"] for entry in sentences):
            own = {n for n, entry in enumerate(sentences) if entry["kind"] == kind}
            kinds[kind] = [len(found & own) for found in judged]
        result[name] = {
            "wrong": [len(found) for found in judged],
            "by all": sorted(n + 1 for n in both),
            "by some": sorted(n + 1 for n in either - both),
            "kinds": kinds,
        }
    return result


def show(counted: dict[tuple[str, str], dict[str, Any]], total: int) -> str:
    lines = ["| model | at | wrong, by judge | by all | kinds |", "| --- | --- | --- | --- | --- |"]
    for (model, setting), found in sorted(counted.items()):
        numbers = " / ".join(map(str, found["wrong"]))
        kinds = ", ".join(f"{k} {'/'.join(map(str, v))}" for k, v in found["kinds"].items())
        cells = model, setting, f"{numbers} of {total}", len(found["by all"]), kinds
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("translate")
    one.add_argument("model")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--at", nargs="+", default=list(SETTINGS))
    one.add_argument("--check", action="store_true", help="compare, and write nothing")
    two = verbs.add_parser("sheet")
    two.add_argument("outputs", type=Path, nargs="+", help="files of `translate`")
    two.add_argument("--seed", type=int, default=1)
    two.add_argument("--out", type=Path, required=True)
    three = verbs.add_parser("count")
    three.add_argument("sheets", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    sentences = read_sentences()
    if options.verb == "translate":
        now = translate(simultan.load(options.model, quantize="int8"), sentences, options.at)
        if options.check:
            changed = differences(json.loads(options.out.read_text(encoding="utf-8")), now)
            sys.exit("\n".join(changed) or None)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(now, indent=1, ensure_ascii=False)
        options.out.write_text(text + "\n", encoding="utf-8")
    elif options.verb == "sheet":
        outputs = {path.stem: json.loads(path.read_text("utf-8")) for path in options.outputs}
        write_sheet(options.out, draw_sheet(sentences, outputs, options.seed))
    else:
        print(show(count(options.sheets, sentences), len(sentences)))


if __name__ == "__main__":
    main()
