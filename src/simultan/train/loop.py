"""fit(): the one training loop, for every policy, architecture and number of processes.

Every update is a pure function of the weights, the optimiser, its number and the batches at its
place in the corpus: random numbers are seeded anew for each update. So a run resumed from any
checkpoint equals an unbroken one, whatever validation or a restart drew in between.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from simultan import checkpoint, losses
from simultan import model as models
from simultan.config import Config
from simultan.data.batching import Batch, Batches
from simultan.data.codec import Codec
from simultan.data.prefixes import Prefixes
from simultan.data.shards import Corpus
from simultan.latency import find_metric
from simultan.model import TranslationModel
from simultan.train import artifacts, optim
from simultan.train.calibration import calibrate
from simultan.train.distributed import World, gather, load_optimizer
from simultan.train.folder import RunFolder
from simultan.train.journal import Journal
from simultan.train.step import NEVER, StepPool
from simultan.train.validation import evaluate_model

__all__ = ["NonFiniteLossError", "Outcome", "Validate", "fit", "seed", "termination"]

Validate = Callable[[TranslationModel, Config, Codec], Mapping[str, float]]
FIRST_LOOK = 5  # updates of a run on a CPU until its pace is measured, if there is a deadline
SETTLING = 200  # updates that compile and record: they are no pace


class NonFiniteLossError(ValueError):
    """The loss became infinite or not a number."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    update: int
    finished: bool  # False: told to stop; the same command continues
    folder: Path  # the model to use: final, or the last checkpoint


def fit(
    config: Config,
    out: str | Path,
    overwrite: bool = False,
    validate: Validate | None = None,
    tensorboard: bool = True,
    device: str | None = None,
    minutes: float = 0.0,
    stop: Callable[[], bool] | None = None,
    pool: StepPool | None = None,
    compiled: str | Path | None = None,
) -> Outcome:
    """Train a recipe into a folder; continues where a run with the same recipe stopped.

    With `minutes` the run ends by then, however fast the machine is: the rate begins its fall
    (train.cooldown) early enough to be at 0 in time, and where warm-up and cooldown find no room
    both are shortened. `stop` is asked after each update: once it is
    true, the run saves a checkpoint and ends unfinished. `pool` keeps compiled and recorded code
    for the next run in this process, `compiled` is a file that keeps compiled code for other
    processes and machines: it is read if it is there, and written when the run ends.
    """
    find_metric(config.train.latency_metric)  # a wrong name is told before anything is written
    began = time.perf_counter()
    deadline = began + 60 * minutes if minutes else None
    folder = RunFolder(Path(out))
    if compiled is not None:
        artifacts.load(compiled)
    with World.open(device) as world, termination() as terminated:
        if not overwrite:
            folder.check(config)
        world.wait()  # everyone has looked before anyone writes
        if world.first:
            if overwrite:
                folder.clear()
            folder.create(config)
        world.wait()
        run = Run(config, folder, world, validate, tensorboard, deadline, pool or StepPool(), began)
        with run.journal or contextlib.nullcontext():
            outcome = run.train(lambda: terminated() or (stop is not None and stop()))
        if compiled is not None and world.first:
            artifacts.save(compiled)
        return outcome


class Run:
    """The state of a run between updates."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        world: World,
        validate: Validate | None,
        tensorboard: bool,
        deadline: float | None,
        pool: StepPool,
        began: float,
    ) -> None:
        self.config, self.folder, self.world = config, folder, world
        self.deadline, self.began = deadline, began
        self.validate = validate or evaluate_model
        self.codec = Codec.load(config.data.folder)
        seed(config.train.seed, 0, 0)
        sizes = len(self.codec.source_vocabulary), len(self.codec.target_vocabulary)
        model = models.build(config, *sizes)
        self.batches = Batches(
            Corpus(config.data.folder),
            config.data,
            seed=config.train.seed,
            rank=world.rank,
            world=world.size,
            prefixes=Prefixes(config.data.prefixes, self.codec),
        )
        newest = folder.newest()
        state: dict[str, Any] = {}
        if newest is not None:
            state = checkpoint.load_trainer(newest)
            checkpoint.restore(model, checkpoint.load_weights(newest), str(newest))
        elif config.train.init_from:
            self._initialise(model)
        model.to(world.device)
        # recorded updates know where an optimiser's moments lie: a resumed run brings its own
        self.step = (StepPool() if state else pool).take(model, config, world)
        self.model = self.step.model
        self.update: int = state.get("update", 0)
        if state:
            load_optimizer(self.step.optimizer, state["optimizer"])
            self.batches.resume(state["batches"])
            if world.first:
                self.step.sums += state["sums"].to(world.device)
        self.journal = None
        if world.first:
            self.journal = Journal(folder, config.train, self.update, tensorboard)
            if text := self.batches.describe_left_out():
                self.journal.say(text)
        self._clock, self._pace, self._logged = time.perf_counter(), 0.0, self.update
        # until then what was measured would shorten the schedule for nothing
        self._settled = self.update + (SETTLING if self.step.recorder is not None else 0)
        self._first = 0.0  # seconds of the first update, which may compile: they are no pace
        self._told = False  # that the schedule is shortened

    def _initialise(self, model: TranslationModel) -> None:
        """Start from the model of train.init_from."""
        config = self.config.train
        try:
            checkpoint.check_network(self.config, config.init_from)
            fresh = checkpoint.initialise(
                model,
                config.init_from,
                self.codec,
                select_as_attended=config.init_select != "fresh",
            )
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"train.init_from: {error}; train that model first,"
                " or start from scratch with --set train.init_from="
            ) from error
        if config.init_select == "calibrated" and fresh:  # else its heads select already
            model.to(self.world.device)
            first = self.batches.assemble(self.batches.plan(0), 0)  # the same on every process
            calibrate(model, first.to(self.world.device))

    def train(self, terminated: Callable[[], bool]) -> Outcome:
        world, total, first = self.world, self.config.train.updates, self.update
        if self.journal is not None and 0 < first < total:
            self.journal.say(f"{self.folder.path}: continues at update {first} of {total}")
        if self.update:
            self._after_checkpoint()  # a kill may have come before the validation
        with contextlib.closing(self._stream()) as stream:
            stopped = self._loop(stream, terminated)
        if stopped:
            return Outcome(self.update, finished=False, folder=self.folder.last)
        if self.journal is not None:
            self.folder.finish(self.config)
            if self.step.end == self.update < total:
                self.journal.say(
                    f"time is up at update {self.update} of {total}: {self.folder.final} holds the"
                    " model so far, and the same command continues"
                )
        world.wait()
        return Outcome(self.update, finished=True, folder=self.folder.final)

    def _loop(self, stream: Iterator[Batch], terminated: Callable[[], bool]) -> bool:
        """Update until the end, or until told to stop; True: there is more to do."""
        config, world = self.config.train, self.world
        self.model.train()
        self._clock, begin = time.perf_counter(), self.update
        while self.update < self.step.end and not self._share_impatience():
            self.update += 1
            seed(config.seed, self.update, world.rank)
            self.step(self.update, [next(stream) for _ in range(config.accumulate)])
            done = self.update - begin
            if done == 1:
                self._first = time.perf_counter() - self._clock
            last = self.update == self.step.end or self._is_late()
            stopping = world.size == 1 and terminated()
            if last or self.update % config.log_every == 0 or self._looks_early(done):
                self._log()
                # Processes get their signals at different updates; here they meet anyway.
                flag = torch.tensor(float(terminated()), device=world.device)
                stopping = bool(world.sum_over_ranks(flag))
                last = self._hurry()
            if last or stopping or self.update % config.save_every == 0 or self._validates():
                self._save()
                self._after_checkpoint()
            if stopping and not last:
                return True
        return False

    def _is_late(self) -> bool:
        """Whether time is up between two reports; several processes only look at reports."""
        late = self.deadline is not None and time.perf_counter() >= self.deadline
        return late and self.world.size == 1

    def _looks_early(self, done: int) -> bool:
        """Whether to report so soon: where updates are slow, the first report may come too late."""
        cpu = self.world.device.type == "cpu"
        return self.deadline is not None and cpu and done == FIRST_LOOK

    def _hurry(self) -> bool:
        """Whether the run is at its end, which a deadline moves to where the pace leads."""
        if self.deadline is not None and not self._settles(self.deadline):
            left = max(0, int((self.deadline - time.perf_counter()) / self._pace))
            end = min(self.config.train.updates, self.update + left)
            self.step.end = int(self.world.share(end))
            shortened = optim.schedule_share(self.config.train, self.step.end) < 1
            if shortened and not self._told and self.journal is not None:
                self._told = True
                self.journal.say(
                    f"about {self.step.end} of {self.config.train.updates} updates fit into the"
                    " time: warm-up and cooldown are shortened; more time gives a better model"
                )
        return self.update >= self.step.end

    def _settles(self, deadline: float) -> bool:
        """Whether the pace is not known yet; with half of the time gone, it has to be."""
        early = time.perf_counter() < (self.began + deadline) / 2
        return self.update < self._settled and early

    def _stream(self) -> Generator[Batch]:
        for batch in self.batches:
            yield batch.to(self.world.device)

    def _validates(self) -> bool:
        every = self.config.train.validate_every
        return every > 0 and self.update % every == 0

    def _share_impatience(self) -> bool:
        if not self.config.train.patience or not self._validates():
            return False
        impatient: bool = self.world.share(self.journal is not None and self.journal.impatient())
        return impatient

    def _check(self) -> None:
        failed = int(self.world.min_over_ranks(self.step.failed.clone()))
        if failed != NEVER:
            kept = self.folder.newest()
            raise NonFiniteLossError(
                f"the loss is not finite at update {failed}; "
                + (f"{kept} holds the last good weights" if kept else "nothing was saved yet")
                + "; a lower train.lr, a longer train.warmup or train.clip = 1.0 may help"
            )

    def _log(self) -> None:
        """Where the host waits for the device."""
        self._check()
        config = self.config.train
        sums = self.world.sum_over_ranks(self.step.sums.clone())
        values = losses.LossTerms(*sums.unbind())
        weights = losses.latency_weights(self.config.loss, self.update)
        loss = losses.total(values, values.tokens, values.sentences, self.config.loss, weights)
        self.step.sums.zero_()
        now = time.perf_counter()
        if self.journal is not None:
            tokens, sentences = float(values.tokens), float(values.sentences)
            record = {
                "epoch": self.batches.state()["epoch"],
                "loss": float(loss),
                "nll": float(values.nll) / tokens,
                "smooth": float(values.smooth) / tokens,
                "divergence": float(values.divergence) / tokens,
                "latency_average": float(values.latency_average) / sentences,
                "latency_variance": float(values.latency_variance) / sentences,
                "lr": optim.learning_rate(config, self.update, self.step.end),
                "gradient_norm": float(self.step.norm),
                "tokens_per_second": tokens / (now - self._clock),
                "seconds": now - self.began,
            }
            self.journal.note("train", self.update, record)
        seconds, count = now - self._clock, self.update - self._logged
        if count > 1:
            seconds, count = seconds - self._first, count - bool(self._first)
        self._pace = seconds / count
        self._clock, self._logged, self._first = now, self.update, 0.0

    def _save(self) -> None:
        self._check()
        paused = time.perf_counter()
        weights = gather(checkpoint.weights_of(self.model))
        state = {
            "update": self.update,
            "batches": self.batches.state(),
            "sums": self.world.sum_over_ranks(self.step.sums.clone()).cpu(),
            "optimizer": gather(self.step.optimizer.state_dict()),
        }
        place = self.folder.checkpoint(self.update)
        if self.world.first and not place.exists():
            checkpoint.save(place, weights, self.config, self.codec, trainer=state)
        self._clock += time.perf_counter() - paused

    def _after_checkpoint(self) -> None:
        """Validate if it is time, then name the last and the best and drop what is not needed."""
        paused = time.perf_counter()
        cut = self.world.size > 1 and self.config.train.parallel == "fsdp"
        if self.journal is not None:
            if self._validates() and not self.journal.validated(self.update):
                model = self.model
                if cut:
                    model, _, _ = checkpoint.load_model(
                        self.folder.checkpoint(self.update), self.world.device
                    )
                model.eval()
                with torch.inference_mode():
                    values = self.validate(model, self.config, self.codec)
                self.journal.note("valid", self.update, values)
                self.model.train()
            best = self.journal.best()
            checkpoint.point(self.folder.last, self.folder.checkpoint(self.update))
            if best is not None:
                checkpoint.point(self.folder.best, self.folder.checkpoint(best))
            self.folder.prune(self.config, best)
        self.world.wait()
        self._clock += time.perf_counter() - paused


def seed(number: int, update: int, rank: int) -> None:
    """Seed every source of random numbers for one update of one process."""
    value = random.Random(f"{number}/{update}/{rank}").getrandbits(63)
    torch.manual_seed(value)
    numpy.random.seed(value % 2**32)
    random.seed(value)


@contextlib.contextmanager
def termination() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or Ctrl-C came, instead of dying of it; a second one kills as usual."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event.is_set
        return

    def arrive(number: int, _: object) -> None:
        event.set()
        restore()
        if number == signal.SIGINT:
            os.write(2, b"\nsaving what was learnt; Ctrl-C once more ends at once\n")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    # a job in the background ignores Ctrl-C, and goes on to
    wanted = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, arrive) for number in wanted}
    try:
        yield event.is_set
    finally:
        restore()
