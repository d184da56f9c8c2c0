"""Experiment: trains the runs of a plan one after another while processes measure those before.

A run with a result is skipped; where nothing is trained, new points of the plan are added to it. A
run that was cut off is continued, a run that fails is noted and the others follow. All runs share a
process, so that what is compiled and recorded for one serves the next.
"""

from __future__ import annotations

import gc
import json
import re
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.harness import record
from experiments.harness.corpora import prepared_folder
from experiments.harness.measure import Losses, Measured, Score, Share, write_predictions
from experiments.harness.options import Options, Summary
from experiments.harness.plan import Plan, PlannedRun, label
from experiments.harness.workers import open_workers
from simultan import boxed, checkpoint
from simultan import config as configuration
from simultan import model as models
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.train import artifacts
from simultan.train.folder import RunFolder
from simultan.train.loop import fit, seed
from simultan.train.step import StepPool

__all__ = ["TINY", "Experiment", "Options", "Summary"]

TINY = (  # every run in a second or two: shows that it loads, trains and translates
    "model.width=32", "model.ffn=32", "model.encoder_layers=1", "model.dropout=0.1",
    "train.updates=2", "train.warmup=1", "train.compile=false", "train.precision=float32",
    "train.average=1", "data.batch_tokens=600", "data.max_length=40",
)  # fmt: skip
VALIDATED = 500  # sentences of the validation set that choose among checkpoints
SHARES = 5  # of a set: the more, the sooner the last run is measured
SMALL = 200  # sentences of a set that is no more than one share


class Experiment:
    """One call: run() it once; another call continues where this one stopped."""

    def __init__(self, options: Options, say: Callable[[str], None] = print) -> None:
        self.options, self._say = options, say
        self.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.summary = Summary()
        self.trained: set[str] = set()  # in this call
        self.lock = threading.Lock()
        self.pool = StepPool(2)  # plans hardly go back to an earlier kind, and each holds GiBs
        self.start = time.monotonic()
        self.chosen: list[PlannedRun] = []  # what is to be run, as far as it is known
        self.told = False  # to stop, by a signal
        self.lost = False  # the device, until another process is started
        self.measuring: list[Future[None]] = []
        # each set of heads and each policy is one more version of the same compiled code
        torch._dynamo.config.recompile_limit = 64

    def say(self, text: str) -> None:
        with self.lock:
            self._say(f"[{time.monotonic() - self.start:6.1f} s] {text}")

    def is_over(self) -> bool:
        return self.told or self._past(self.options.minutes)

    def training_is_over(self) -> bool:
        return self.lost or self.is_over() or self._past(self.options.train_minutes)

    def _past(self, minutes: float) -> bool:
        return bool(minutes) and time.monotonic() - self.start >= 60 * minutes

    def run(self, plan: Plan, runs: Iterable[PlannedRun]) -> Summary:
        """Train and measure runs in this order; `runs` is asked for the next one when its turn
        has come."""
        self.plan, jobs = plan, self.options.jobs
        if isinstance(runs, list):
            self.chosen = runs
        if self.options.compiled is not None:
            for file in sorted(self.options.compiled.glob("*")):
                artifacts.load(file)
        measuring = self.measuring
        # few runs at a time: what ends a run would wait behind the shares of all others
        with ThreadPoolExecutor(3) as threads, open_workers(jobs) as self.workers:
            try:
                for run in runs:
                    ready = self._prepare(run)
                    if ready is not None:
                        measuring.append(threads.submit(self._finish, run, *ready))
                    if not jobs:
                        wait(measuring)
                while wait(measuring, timeout=0.5).not_done and not self.is_over():
                    pass
            finally:
                self.workers.shutdown(wait=False, cancel_futures=True)
        return self.summary

    # -- training

    def _prepare(self, run: PlannedRun) -> tuple[Path, dict[str, Any]] | None:
        """The corpus folder and the facts of a trained run; None: it is not to be measured."""
        known = self._result(run)
        again = not self.options.redo and not self._lacks(run)
        if again and not self._is_awaited(run):
            self.say(f"{run.name}: there is a result{self._staleness(run, known)}")
            self.summary.skipped.append(run.name)
            return None
        if self.is_over():
            self._leave(run, "time is over")
            return None
        if run.needs and not self._is_trained(run) and not self._comes(run.needs):
            self._leave(run, f"it needs {run.needs}, which is not trained here")
            return None
        try:
            chosen, where = self.plan.corpora[run.corpus], self.options
            corpus = prepared_folder(chosen, where.data, where.out, self.say, where.wait)
            if run.recipe is None:
                return corpus, {}
            facts = self._train(run, corpus)
            return None if facts is None or again else (corpus, facts)
        except Exception as error:
            self._fail(run, error)
            return None
        finally:
            self._tidy()

    def _tidy(self) -> None:
        """An error here says that the device answers nothing any more: what is trained is
        measured, on the CPU, and the rest is left."""
        try:
            free_memory()
        except RuntimeError as error:
            if not self.lost:
                self.say(f"FAILED: the device is lost, start again once it has ended: {error}")
            self.lost = True

    def _train(self, run: PlannedRun, corpus: Path) -> dict[str, Any] | None:
        """Train a run, or go on with it; None: its time was over."""
        state = self.options.out / "trained" / f"{run.name}.json"
        config = self._config(run, corpus)
        if self._is_trained(run):
            known: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
            return known
        if self.training_is_over():
            self._leave(run, "time for training is over")
            return None
        folder = RunFolder(self.options.out / "runs" / run.name)
        self.say(f"{run.name}: training, {config.train.updates} updates")
        goes_on = folder.config.exists() and not self.options.redo
        if self.options.redo:  # if this is cut off, a call without --redo goes on with it
            self._result(run).unlink(missing_ok=True)
        before = record.read(state).get("seconds", 0.0) if goes_on else 0.0
        start = time.monotonic()
        outcome = fit(
            config,
            folder.path,
            self.options.redo,
            tensorboard=False,
            device=self.device,
            stop=self.training_is_over,
            pool=self.pool,
        )
        seconds = before + time.monotonic() - start
        if self.options.compiled is not None:  # at once: a machine may go without a word
            artifacts.save(self.options.compiled / self.plan.name)
        facts = {
            "config": configuration.dump(self._named(run)),
            "updates": outcome.update,
            "seconds": seconds,
            "finished": outcome.finished,
            "machine": record.machine(self.device),
        }
        record.write(state, facts)
        if not outcome.finished:
            self.told |= not self.training_is_over()
            self._leave(run, f"cut off at update {outcome.update}")
            return None
        for trainer in folder.checkpoints.glob(f"*/{checkpoint.TRAINER}"):
            trainer.unlink()  # three times the size of the weights
        self.trained.add(run.name)
        self.say(f"{run.name}: trained in {seconds:.1f} s")
        return facts

    def _config(self, run: PlannedRun, corpus: Path) -> Config:
        config = self._configured(run, f"data.folder={corpus}")
        if not run.init_from:
            return config
        start = self._model(run.init_from)
        if run.init_parts:
            start = self._transplant(run, start, config)
        text = configuration.dump(config)
        return configuration.parse(text, [f"train.init_from={start}"])

    def _transplant(self, run: PlannedRun, origin: Path, config: Config) -> Path:
        """A start with some weights of another run, the others fresh."""
        place = self.options.out / "starts" / run.name
        if self.options.redo:
            shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            codec = Codec.load(config.data.folder)
            seed(config.train.seed, 0, 0)
            sizes = len(codec.source_vocabulary), len(codec.target_vocabulary)
            weights = checkpoint.weights_of(models.build(config, *sizes))
            taken = {
                name: value
                for name, value in checkpoint.load_weights(origin).items()
                if name.startswith(run.init_parts) and name in weights
            }
            if not taken:
                raise ValueError(f"{run.name}: {origin} has no weights of {run.init_parts}")
            checkpoint.save(place, {**weights, **taken}, config, codec)
        return place

    # -- measuring

    def _finish(self, run: PlannedRun, corpus: Path, facts: dict[str, Any]) -> None:
        """Choose a checkpoint, measure it, write the result."""
        workers = self.workers
        try:
            try:
                result = self._measure(run, corpus, facts)
            except BrokenProcessPool:  # one was killed; the others end with it
                if self.is_over():
                    raise
                self.say(f"{run.name}: a process that measures has died; once more, with others")
                with self.lock:
                    if self.workers is workers:
                        self.workers = open_workers(self.options.jobs)
                result = self._measure(run, corpus, facts)
        except (CancelledError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not self.is_over():
                self._fail(run, error)
                return
            self._leave(run, "trained, not wholly measured")
            return
        except Exception as error:
            self._fail(run, error)
            return
        record.write(self._result(run), result)
        quality = self.plan.quality
        line = record.line(result, self.options.command, quality)
        with self.lock:
            record.append_log(self.options.results / "RUNS.md", line, self.plan.valid, quality)
            self.summary.done.append(run.name)
        self.say(f"{run.name}: {record.headline(result, quality)}")
        shutil.rmtree(RunFolder(self.options.out / "runs" / run.name).checkpoints, True)
        shutil.rmtree(self.options.out / "measured" / run.name, True)

    def _measure(self, run: PlannedRun, corpus: Path, facts: dict[str, Any]) -> dict[str, Any]:
        candidates = self._candidates(run)
        place = self.options.out / "measured" / run.name
        if self.options.redo:
            shutil.rmtree(place, ignore_errors=True)
        validated: dict[str, dict[str, Any]] = {}
        if len(candidates) > 1:  # compared at the run's first point
            logs = place / "candidates"
            shares = {
                name: Share(logs / name, folder, corpus, "valid", run.points[0], VALIDATED)
                for name, folder in candidates.items()
            }
            found = self._all(run, shares)
            validated = {name: measured.scores for name, measured in found.items()}
        chosen, inside = record.choose(validated, run.dal_range) if validated else ("final", True)
        folder = candidates[chosen]
        before = {} if run.recipe or self.options.redo else self._points(run)
        shares = {
            f"{split}@{label(point)}": Share(
                place / split, folder, corpus, split, point, count, quantize=run.quantize
            )
            for point in run.points
            if label(point) not in before
            for split, count in (("valid", run.validated), ("test", 0))
        }
        losses: Future[dict[str, float]] | None = None
        if run.recipe is not None:
            work = Losses(folder, corpus, 20 if self.options.tiny else VALIDATED)
            losses = self.workers.submit(work, self._measures_on())
        found = self._all(run, shares)
        points = []
        for point, name in [(point, label(point)) for point in run.points]:
            if name in before:
                points.append(before[name])
                continue
            valid, test = (found[f"{split}@{name}"] for split in ("valid", "test"))
            scores = {"point": name, "valid": valid.scores, "test": test.scores}
            points.append(scores | record.trained_agent(point))
            if test.heads:
                points[-1]["heads"] = test.heads
            if run.predictions:
                stem = f"{run.name}@{name}" if name else run.name
                file = f"predictions/{re.sub('[:,]', '-', stem)}.jsonl.xz"
                write_predictions(self.options.results / file, test.predictions)
                points[-1]["predictions"] = file
        model = self.plan.run(run.use) if run.use else run
        return {
            "name": run.name,
            "group": run.group.name,
            "labels": dict(run.labels),
            "recipe": None if model.recipe is None else model.recipe.name,
            "settings": list(model.settings),
            "init_from": run.init_from,
            "uses": run.use or run.model,
            "seed": model.seed,
            "scale": self.options.scale,
            "tiny": self.options.tiny,
            "revision": self.options.revision,
            "command": self.options.command,
            "corpus": run.corpus,
            "updates": facts.get("updates", 0),
            "train_seconds": facts.get("seconds", 0.0),
            "machine": facts.get("machine", {}),
            "candidates": validated,
            "chosen": chosen,
            "dal_range": list(run.dal_range),
            "inside_range": inside,
            "validation_losses": {} if losses is None else losses.result(),
            "points": points,
            "config": facts.get("config", ""),
        }

    def _candidates(self, run: PlannedRun) -> dict[str, Path]:
        """The averaged model, and the last checkpoints by their update."""
        if run.model:
            return {"final": boxed.resolve(run.model)}
        folder = RunFolder(self.options.out / "runs" / (run.use or run.name))
        found = {"final": folder.final}
        if run.candidates and not run.use:
            found |= {str(u): folder.checkpoint(u) for u in folder.updates()[-run.candidates :]}
        return found

    def _all(self, run: PlannedRun, shares: dict[str, Share]) -> dict[str, Measured]:
        """Measure sets in shares; what an earlier call has translated is not done again."""
        many = self.options.jobs and not self.options.tiny
        sets: dict[str, tuple[Path, ...]] = {}
        futures: list[Future[None]] = []
        for name, share in shares.items():
            suffix = label(share.decoding).replace(":", "-")
            # a small set is soon done: loading the model would take as long
            count = SHARES if many and not 0 < share.sentences <= SMALL else 1
            logs = tuple(
                share.log.with_name(f"{share.log.name}@{suffix}.{i}.{count}") for i in range(count)
            )
            sets[name] = logs
            limit = 4 if self.options.tiny else share.sentences
            for index, log in enumerate(logs):
                part = replace(share, log=log, sentences=limit, index=index, count=count)
                futures.append(self.workers.submit(part, self._measures_on()))
        for future in futures:
            future.result()
        kind = self.plan.corpora[run.corpus]
        works = {name: Score(logs, kind.tokenized, kind.subwords) for name, logs in sets.items()}
        scores = {name: self.workers.submit(work, "cpu") for name, work in works.items()}
        return {name: future.result() for name, future in scores.items()}

    def _measures_on(self) -> str:
        return "cpu" if self.options.jobs else self.device

    # -- what became of it

    def _model(self, name: str) -> Path:
        """Of a run of the plan, trained or given."""
        given = self.plan.run(name).model
        return boxed.resolve(given) if given else RunFolder(self.options.out / "runs" / name).final

    def _comes(self, name: str) -> bool:
        """Whether a model is there, or is in time: another lane may be training it."""
        latest = time.monotonic() + self.options.wait
        while not (there := self._model(name).exists()):
            if time.monotonic() >= latest or self.training_is_over():
                break
            time.sleep(0.2)
        return there

    def _result(self, run: PlannedRun) -> Path:
        return self.options.results / "results" / f"{run.name}.json"

    def _points(self, run: PlannedRun) -> dict[str, dict[str, Any]]:
        """What has been measured of a run, by the name of the point."""
        return {p["point"]: p for p in record.read(self._result(run)).get("points", ())}

    def _lacks(self, run: PlannedRun) -> bool:
        """A result, or points that can be added to it."""
        if run.recipe is not None:
            return not self._result(run).exists()
        return not {label(point) for point in run.points} <= self._points(run).keys()

    def _is_awaited(self, run: PlannedRun) -> bool:
        """Whether another run needs this one's model, which is gone: then it is only trained."""
        others = [other for other in self.chosen if other.needs == run.name]
        wanted = any(self._lacks(other) or self._is_awaited(other) for other in others)
        return wanted and not self._model(run.name).exists()

    def _is_trained(self, run: PlannedRun) -> bool:
        name = run.use or run.name
        state = self.options.out / "trained" / f"{name}.json"
        if self.options.redo and name not in self.trained:
            return False
        known = record.read(state)
        if not known.get("finished") or not self._model(name).exists():
            return False
        planned = self.plan.run(name)
        if planned.recipe is None:
            return True
        # of other settings, it is not this one: where it lies, training refuses to go on with it
        return self._named(planned) == configuration.parse(known["config"])

    def _named(self, run: PlannedRun) -> Config:
        """What is written down of a run: folders of this machine mean nothing elsewhere."""
        text = configuration.dump(self._configured(run))
        corpus = self.plan.corpora[run.corpus].folder
        names = [f"data.folder={corpus}", f"train.init_from={run.init_from}"]
        return configuration.parse(text, names)

    def _configured(self, run: PlannedRun, *changes: str) -> Config:
        tiny = TINY if self.options.tiny else ()
        return run.config([*changes, *tiny], 1.0 if self.options.tiny else self.options.scale)

    def _staleness(self, run: PlannedRun, file: Path) -> str:
        same = run.recipe is None or record.read(file).get("settings") == list(run.settings)
        return "" if same else " of other settings: --redo runs it again"

    def _leave(self, run: PlannedRun, why: str) -> None:
        self.say(f"{run.name}: left for another call ({why})")
        with self.lock:
            self.summary.left.append(run.name)

    def _fail(self, run: PlannedRun, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        record.write_text(self.options.out / "errors" / f"{run.name}.txt", text)
        self.say(f"{run.name}: FAILED: {error}")
        with self.lock:
            self.summary.failed.append(run.name)


def free_memory() -> None:
    """Of the device, what nobody holds any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
