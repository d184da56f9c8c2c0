"""Writes MODEL_CARD.md from what recipes/de-en/measure.py measured: no number is typed by hand.

python recipes/de-en/card.py MEASURED --model models/de-en --failures recipes/de-en/failures.json
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import simultan
from simultan import checkpoint
from simultan.streaming.translator import Translator

SEARCH = ("beam", "quantize")  # how it was decoded; without them greedily, in float32
WITH = {"beam": 2, "quantize": "int8"}  # as it decodes by default
NAMES = {
    "newstest2013": "WMT newstest2013, on which settings are chosen",
    "newstest2015": "WMT newstest2015",
    "europarl": "Europarl, held-out sittings",
    "tatoeba": "Tatoeba, held out",
    "covost2": "CoVoST 2, validation",
}
KEYS = ("system", "stored", "set", "spoken", "every", "threshold", "k", "agent", *SEARCH)
COMPARED, SPOKEN = ("newstest2015", "europarl"), "newstest2015"
OTHERS = ("newstest2013", "tatoeba", "covost2")
HEAD = """# de-en: German to English, live

A monotonic multihead attention model (mma-il) that translates German into English while the words
come. It reads raw text, cased and punctuated or as a speech recogniser gives it, and writes
detokenised text. `simultan.load("de-en")`, or `simultan translate` with nothing else; with
`--lag 3` it stays about three words behind instead of four, with `--lag 6` about six.

It was trained on parliament, everyday sentences, dialogues, web and software texts, and on English
Wikipedia that a model of its own translated back. It is for live captions that a person can
check, for trying simultaneous translation out and for measuring against. It makes mistakes, some of
them fluent: do not rely on it where a mistake does harm. Offline models that others publish have,
on the same newstest2015, NLLB-600M 27.2, Argos 30.8, Firefox's 17 MB model 33.4, OPUS-MT 34.0,
Google 37.9, Microsoft 38.6 BLEU.
"""
DATA = """## Data and terms

| text | pairs | weight | terms |
|---|---|---|---|
{rows}

Europarl is from Multilingual-Parallel-Direct-Europarl (Amponsah-Kaakyire et al. 2021). Why each
text is in, and which were left out for their terms, is in recipes/de-en/second/texts.toml. The
weights are under the Apache License 2.0, as the code is.

Of all training pairs {joined:.0%} are joined with their neighbours, two to eight to a source, and
{asr:.0%} of the sources are without case, punctuation, or both. newstest2013 selected; no test set
was trained on: lines of every evaluation set were removed from the text.

A second, small network (`ends.safetensors`) finds sentence ends in text without punctuation. It
learned from the German side of Europarl and Tatoeba and from sentences of Common Voice (CC0).
"""
BEAMS = """By default two beams look ahead wherever the best token is not sure: the likeliest
continuation from what has been heard decides which word is written, and no word comes later
(docs/streaming.md). Greedily (`--beam 1`), both calculated in int8 (`--quantize int8`):
"""
TEXTS = Path(__file__).with_name("second") / "texts.toml"  # their terms
OWN = "made for this project"
BACK = "its German is by a model trained on the texts above"


class Measured:
    """The lines of a folder; the last of equal ones counts."""

    def __init__(self, folder: Path) -> None:
        self.records: dict[tuple, dict[str, Any]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self.records[tuple(record.get(key) for key in KEYS)] = record
        if not self.records:
            raise FileNotFoundError(f"{folder}: nothing was measured")
        self.training = [json.loads(p.read_text()) for p in sorted(folder.glob("*.training.json"))]

    def find(self, **wanted: Any) -> list[dict[str, Any]]:
        """Runs over whole sets, the fastest first; greedy and in float32 unless it is said."""
        wanted = dict.fromkeys(SEARCH) | wanted
        found = [
            record
            for record in self.records.values()
            if record["every"] == 1 and all(record.get(k) == v for k, v in wanted.items())
        ]
        return sorted(found, key=lambda record: record["al"] or 0.0)


def table(head: str, rows: Iterable[Sequence[Any]]) -> str:
    columns = head.split(" | ")
    shown = [[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    if not shown:
        return "(not measured)\n"
    lines = [columns, ["---"] * len(columns), *shown]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def interpolate(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """On the line between the two points around a lag; None outside of them."""
    points = sorted(points)
    for (one, low), (two, high) in pairwise(points):
        if one <= at <= two:
            return low if one == two else low + (high - low) * (at - one) / (two - one)
    return None


def tradeoff(measured: Measured, name: str, stored: str) -> str:
    """The model between the offline model and wait-k, on one set."""
    offline = measured.find(system="offline", set=name, spoken=False)[:1]
    fixed = measured.find(system="wait-k", set=name, spoken=False)
    points = [(record["al"], record["bleu"]) for record in fixed if record["al"] is not None]
    rows: list[list[Any]] = []
    for record in measured.find(system="mma-il", stored=stored, set=name, spoken=False):
        row = [f"mma-il, threshold {record['threshold']}"]
        row += [record[key] for key in ("bleu", "chrf", "al", "laal", "dal")]
        row.append(f"{record['bleu'] / max(offline[0]['bleu'], 1e-9):.1%}" if offline else "-")
        equal = interpolate(points, record["al"])
        row += ["-", "-"] if equal is None else [equal, f"{record['bleu'] - equal:+.2f}"]
        rows.append(row)
    for record in measured.find(system="mma-il", stored=stored, set=name, spoken=False, **WITH):
        shown = f"mma-il, threshold {record['threshold']}, {record['beam']} beams"
        row = [shown, *(record[key] for key in ("bleu", "chrf", "al", "laal", "dal"))]
        rows.append([*row, "-", "-", "-"])  # the others are greedy
    for record in offline:
        row = ["offline, same size, greedy", record["bleu"], record["chrf"], record["al"]]
        rows.append([*row, record["laal"], record["dal"], "100.0%", "-", "-"])
    head = "system | BLEU | chrF | AL | LAAL | DAL | of offline | wait-k at this AL | difference"
    waits = ", ".join(
        f"{r.get('agent') or 'k = {}'.format(r['k'])}: {r['al']:.2f} / {r['bleu']:.2f}"
        for r in fixed
    )
    rule = " as a rule over the offline model" if any(r.get("agent") for r in fixed) else ""
    below = f"\nwait-k{rule}, AL / BLEU: {waits}.\n" if fixed else ""
    return f"### {NAMES[name]}\n\n{table(head, rows)}{below}"


def compared(measured: Measured) -> str:
    kinds = {(r["system"], r["stored"]) for r in measured.find() if r["system"] != "mma-il"}
    return ", ".join(f"{system} (weights in {stored})" for system, stored in sorted(kinds))


def precision(measured: Measured, stored: str) -> str:
    rows = []
    for record in measured.find(system="mma-il", stored="float32", spoken=False):
        same = {"set": record["set"], "threshold": record["threshold"], "spoken": False}
        for other in measured.find(system="mma-il", stored=stored, **same):
            change = f"{other['bleu'] - record['bleu']:+.2f}"
            row = [
                NAMES[record["set"]],
                str(record["threshold"]),
                record["bleu"],
                other["bleu"],
                change,
            ]
            rows.append([*row, record["al"], other["al"]])
    if not rows:
        return ""
    head = f"set | threshold | BLEU float32 | BLEU {stored} | change | AL float32 | AL {stored}"
    return table(head, rows)


def beams(measured: Measured, stored: str) -> str:
    """What live beams bring, both ways calculated alike."""
    rows = []
    for name in NAMES:
        same = {"system": "mma-il", "stored": stored, "set": name, "spoken": False}
        for record in measured.find(**same, **WITH):
            greedy = {"threshold": record["threshold"], "quantize": record["quantize"]}
            for other in measured.find(**same, **greedy):
                row = [NAMES[name], str(record["threshold"]), other["bleu"], record["bleu"]]
                row.append(f"{record['bleu'] - other['bleu']:+.2f}")
                row += [measure[key] for key in ("al", "dal") for measure in (other, record)]
                rows.append(row)
    head = "set | threshold | greedy | with beams | change | AL greedy | AL with beams"
    return table(f"{head} | DAL greedy | DAL with beams", rows) if rows else ""


def spoken(measured: Measured, stored: str) -> str:
    rows = []
    alike = {"system": "mma-il", "stored": stored}
    for same in ({**alike, **WITH}, alike, {"system": "offline"}):
        same = {**same, "set": SPOKEN}
        for record in measured.find(spoken=False, **same):
            setting = {"threshold": record.get("threshold"), "stored": record["stored"]}
            for other in measured.find(spoken=True, **(same | setting)):
                shown = f"{record['system']} {record.get('threshold') or ''}".strip()
                shown += f", {record['beam']} beams" if "beam" in same else ""
                change = f"{other['bleu_bare'] - record['bleu_bare']:+.2f}"
                row = [shown, record["bleu_bare"], other["bleu_bare"], change]
                rows.append([*row, record["al"], other["al"]])
    return table(
        "system | BLEU as it is | BLEU as recognised | change | AL | AL as recognised", rows
    )


def failures(path: Path, translator: Translator) -> str:
    """What goes wrong, in the model's own words: a list of {source, meaning, reason} is given."""
    parts = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        written = translator.translate([entry["source"]])[0].text
        parts.append(
            f"- *{entry['source']}*\n  **{written}**\n"
            f"  Meant: {entry['meaning']} {entry['reason']}\n"
        )
    return "".join(parts) or "(none chosen yet)\n"


def data(folder: Path) -> str:
    """The table of texts, from a prepared folder and its names.json."""
    prepared = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
    names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    terms = {text["name"]: text["terms"] for text in texts["text"]}
    terms |= {f"{mono['name']}.back": f"{mono['terms']}; {BACK}" for mono in texts["mono"]}
    rows = "\n".join(
        f"| {name} | {source['pairs']:,} | {source['weight']:g} | {terms.get(name, OWN)} |"
        for name, source in zip(names, prepared["sources"], strict=True)
    )
    speech, pairs = prepared["speech"], prepared["pairs"]["train"]
    before = pairs - speech["runs"] + speech["pairs_in_runs"]
    changed = speech["lower_cased"] + speech["unpunctuated"] + speech["both"]
    return DATA.format(rows=rows, joined=speech["pairs_in_runs"] / before, asr=changed / pairs)


def write(measured: Measured, model: Path, prepared: Path, chosen: Path) -> str:
    from measure import stored_as

    translator, stored = simultan.load(model), stored_as(model)
    weights = checkpoint.load_weights(model)
    size = sum(p.stat().st_size for p in model.iterdir() if p.name != "MODEL_CARD.md") / 2**20
    shape = translator.config.model
    count = sum(value.numel() for value in weights.values()) / 1e6
    vocabulary = len(translator.codec.source_vocabulary)
    training = [
        [t["system"], *(f"{t['training'][k]:,.0f}" for k in ("updates", "epochs")),
         f"{t['training']['tokens_per_second']:,.0f}",
         "-" if t["training"]["minutes"] is None else f"{t['training']['minutes']:.1f}"]
        for t in measured.training
    ]  # fmt: skip
    parts = [
        HEAD,
        f"{count:.1f} million parameters, stored as {stored}: {size:.1f} MiB. Transformer, width"
        f" {shape.width}, feed-forward {shape.ffn}, {shape.encoder_layers} unidirectional encoder"
        f" and {shape.decoder_layers} decoder layers, joint vocabulary of {vocabulary:,} pieces.\n",
        "## Quality and latency\n\nMeasured with recipes/de-en/measure.py, which runs `simultan"
        " evaluate`'s code on these weights; sacrebleu, latency in words. Where no beams are named"
        " it is greedy, as are those that it is compared with:"
        f" {compared(measured)}. The lines of measurement are in recipes/de-en/measured.\n",
        *(tradeoff(measured, name, stored) for name in COMPARED),
        *(tradeoff(measured, name, stored) for name in OTHERS),
        *(
            [f"## Stored as {stored}\n\n{rounded}"]
            if (rounded := precision(measured, stored))
            else []
        ),
        *([f"## Beams\n\n{BEAMS}\n{searched}"] if (searched := beams(measured, stored)) else []),
        "## As a recogniser gives it\n\nnewstest2015 in small letters and without punctuation;"
        f" scored without case and punctuation on both sides, also for the text as it is.\n\n"
        f"{spoken(measured, stored)}",
        "## Failures\n\n" + failures(chosen, translator),
        data(prepared),
        "## Training\n\nThe commands are in recipes/de-en/README.md. On one NVIDIA H200;"
        " the others start from the offline model:\n\n"
        + table("run | updates | epochs | target tokens/s | minutes", training),
    ]
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("measured", type=Path)
    parser.add_argument("--model", type=Path, default=Path("models/de-en"))
    parser.add_argument(
        "--prepared", type=Path, default=Path(__file__).with_name("measured") / "data"
    )
    parser.add_argument("--failures", type=Path, default=Path(__file__).with_name("failures.json"))
    options = parser.parse_args(arguments)
    text = write(Measured(options.measured), options.model, options.prepared, options.failures)
    (options.model / "MODEL_CARD.md").write_text(text, encoding="utf-8")
    print(options.model / "MODEL_CARD.md")


if __name__ == "__main__":
    main()
