"""Measures a model for its card: every number of MODEL_CARD.md is a line that this writes.

    python recipes/de-en/measure.py MODEL --system mma-il --tests TESTS --out MEASURED

TESTS holds NAME.de and NAME.en (plain, .gz or .xz) for newstest2013, newstest2015, europarl,
tatoeba and covost2. For a learned policy the thresholds that give the wanted lags are chosen on
newstest2013 and kept in MEASURED/thresholds.json, which later calls use; lags.json, for the
model's folder, holds the lags of all that were tried. `--training RUN` notes what a run cost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

import simultan
from simultan import boxed
from simultan.data.sources import read_lines
from simultan.data.speech import as_recognised
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.instances import read_log
from simultan.evaluation.quality import measure as quality
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import Decoding
from simultan.streaming.lags import Lags

SELECTION = "newstest2013"
COMPARED = ["newstest2015", "europarl"]  # where wait-k stands beside
SETS = [*COMPARED, "tatoeba", "covost2", SELECTION]
LAGS = (3.0, 3.5, 4.8, 7.0)
GRID = (-9.0, -6.0, -3.0, 0.0, 3.0, 6.0, 9.0, 12.0)  # of energies, to choose from
KS = (1, 2, 3, 4, 5, 7, 9, 11, 13, 15, 18)  # in pieces
SPOKEN = "newstest2015"  # the set that is read without case and punctuation, too


def stored_as(folder: Path) -> str:
    """How a model's matrices are stored."""
    with safe_open(folder / "weights.safetensors", "pt") as file:
        kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return "int8" if "I8" in kinds else "float16" if "F16" in kinds else "float32"


def texts(tests: Path, name: str) -> tuple[list[str], list[str]]:
    sides = []
    for language in ("de", "en"):
        found = [tests / f"{name}.{language}{suffix}" for suffix in ("", ".xz", ".gz")]
        path = next((path for path in found if path.exists()), None)
        if path is None:
            raise FileNotFoundError(f"{found[0]} (or .xz, .gz): not there")
        sides.append(list(read_lines(path)))
    return sides[0], sides[1]


class Measurer:
    """One model on the test sets; a line of MEASURED/SYSTEM.STORED.jsonl for each run."""

    def __init__(
        self,
        model: str,
        system: str,
        tests: Path,
        out: Path,
        device: str,
        rows: int,
        jobs: int = 1,
        beam: int = 1,
        quantize: str | None = None,
    ) -> None:
        folder = boxed.resolve(model)
        self.made_of = (model, system, tests, out, device, rows, 1, beam, quantize)
        self.beam, self.quantize = beam, quantize
        self.jobs = jobs
        self.translator = simultan.load(folder, device=device, quantize=quantize)
        self.system, self.stored = system, stored_as(folder)
        self.tests, self.out, self.rows = tests, out, rows
        out.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, spoken: bool = False, every: int = 1, **setting: Any) -> dict:
        """Translate one set in one setting."""
        if self.beam > 1:
            setting["beam"] = self.beam
        sources, references = texts(self.tests, name)
        sources, references = sources[::every], references[::every]
        if spoken:
            sources = [as_recognised(source) or source for source in sources]
        shown = "-".join(f"{key}{value}" for key, value in setting.items()) or "greedy"
        log = self.out / "logs" / f"{self.system}.{self.stored}.{name}.{shown}{'.asr' * spoken}"
        scores = evaluate(
            self.translator,
            sources,
            references,
            log,
            replace(Decoding(**setting), beam=self.beam),
            rows=self.rows,
            scoring=Scoring(system=self.system),
        )
        record = {"system": self.system, "stored": self.stored, "set": name, "spoken": spoken}
        record |= {"every": every, **setting, **scores.flat()}
        if self.quantize is not None:
            record["quantize"] = self.quantize
        if name == SPOKEN:  # as both would look from a recogniser
            predictions = [as_recognised(i.prediction) for i in read_log(log)]
            bare = quality(predictions, [as_recognised(text) for text in references])
            record["bleu_bare"] = bare.bleu
        with open(self.out / f"{self.system}.{self.stored}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        lag = "-" if record["al"] is None else f"{record['al']:.2f}"
        print(f"{self.system} {self.stored} {name} {shown}: BLEU {scores.bleu:.2f} AL {lag}")
        return record

    def runs(self, tasks: list[dict[str, Any]]) -> list[dict]:
        """All of them, in this order or, with several jobs, begun in this order."""
        if self.jobs == 1:
            return [self.run(**task) for task in tasks]
        spawn = multiprocessing.get_context("spawn")  # threads do not survive a fork
        with spawn.Pool(self.jobs, _take_place, self.made_of) as pool:
            return pool.map(_run, tasks, chunksize=1)

    def threshold(self, energy: float) -> float:
        """The threshold that heads with at least this energy exceed."""
        spread = self.translator.model.spread
        bounded = spread * np.tanh(energy / spread) if spread else energy
        return min(max(round(float(1 / (1 + np.exp(-bounded))), 6), 1e-6), 1 - 1e-6)

    def thresholds(self, every: int) -> list[float]:
        """Those that should give the wanted lags, between the points of a grid, on the selection
        set; the grid's end where it does not reach so far."""
        path = self.out / "thresholds.json"
        if not path.exists():
            common = {"name": SELECTION, "every": every}
            runs = self.runs([{**common, "threshold": self.threshold(e)} for e in GRID])
            points = sorted(
                (run["al"], e) for e, run in zip(GRID, runs, strict=True) if run["al"] is not None
            )
            measured = [(self.threshold(e), round(al, 2)) for al, e in points]
            Lags.of(measured, self.beam if self.beam > 1 else None).save(self.out)
            between = np.interp(LAGS, *zip(*points, strict=True))
            chosen = sorted({self.threshold(energy) for energy in between})
            path.write_text(json.dumps(chosen) + "\n")
        chosen = json.loads(path.read_text())
        return [float(threshold) for threshold in chosen]

    def all(
        self,
        sets: list[str],
        every: int,
        ks: tuple[int, ...],
        thresholds: list[float],
        agents: list[str],
    ) -> None:
        policy = self.translator.model.policy
        settings: list[dict[str, Any]] = [{}]
        if policy.learned:
            chosen = thresholds or self.thresholds(every)
            settings = [{"threshold": threshold} for threshold in chosen]
        elif agents:
            settings = [{"agent": agent} for agent in agents]
        elif policy.name == "wait-k":
            settings = [{"k": k} for k in ks]
        if self.system == "wait-k":
            sets = [name for name in sets if name in COMPARED]
        tasks = []
        for name in sets:
            tasks += [{"name": name, **setting} for setting in settings]
            if name == SPOKEN and self.system != "wait-k":
                tasks += [{"name": name, "spoken": True, **setting} for setting in settings]
        self.runs(tasks)


def _take_place(*made_of: Any) -> None:
    """A process measures with a model of its own."""
    global _measurer
    _measurer = Measurer(*made_of)


def _run(task: dict[str, Any]) -> dict:
    return _measurer.run(**task)


_measurer: Measurer


def note_training(run: Path, system: str, out: Path) -> None:
    """What a run cost, from its own records."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    first, last = ((run / name).stat().st_mtime for name in ("config.toml", "metrics.jsonl"))
    speed = statistics.median(record["tokens_per_second"] for record in steps)
    cost = {"updates": steps[-1]["update"], "epochs": steps[-1]["epoch"] + 1}
    cost |= {"tokens_per_second": speed, "minutes": (last - first) / 60}
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"system": system, "training": cost})
    (out / f"{system}.training.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="", help="a model's folder or name")
    parser.add_argument("--system", required=True, choices=["offline", "mma-il", "wait-k"])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--tests", type=Path, help="the folder with the test sets")
    parser.add_argument("--sets", default=",".join(SETS), help="which of them")
    parser.add_argument("--every", type=int, default=5, help="selection: every n-th sentence")
    parser.add_argument("--thresholds", default="", help="these, instead of the chosen ones")
    parser.add_argument("--ks", default=",".join(map(str, KS)))
    parser.add_argument("--agents", nargs="*", default=[], help="over an offline model: wait-k:3")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--beam", type=int, default=1, help="of a stream, or of whole sentences")
    parser.add_argument("--quantize", choices=["int8"], help="calculate in int8, as live streams")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with its own model")
    parser.add_argument("--training", type=Path, help="a run's folder: note what it cost")
    options = parser.parse_args(arguments)
    if options.training is not None:
        note_training(options.training, options.system, options.out)
    if options.model:
        measurer = Measurer(
            options.model,
            options.system,
            options.tests,
            options.out,
            options.device,
            options.rows,
            options.jobs,
            options.beam,
            options.quantize,
        )
        ks = tuple(int(k) for k in options.ks.split(","))
        sets = [name for name in options.sets.split(",") if name]
        thresholds = [float(t) for t in options.thresholds.split(",") if t]
        measurer.all(sets, options.every, ks, thresholds, options.agents)


if __name__ == "__main__":
    main()
