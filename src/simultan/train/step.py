"""One update: forward, backward, optimiser, for any number of processes and batches.

A Step is costly to make: its code is compiled and an update of each shape recorded. A StepPool
keeps it for the next run of the same model, whatever the latency weights, the seed or the rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch
from torch.fx.experimental import _config as symbols

from simultan import losses
from simultan.config import Config, LossConfig
from simultan.data.batching import Batch
from simultan.model import TranslationModel, dropout
from simultan.streaming.board import Recorder
from simultan.train import optim
from simultan.train.distributed import World, accumulating, shard

NEVER = 2**62


BatchShape = tuple[torch.Size, torch.Size]


@dataclass(frozen=True)
class Recording:
    """An update as a CUDA graph, and the batch it reads."""

    graph: torch.cuda.CUDAGraph
    batch: Batch


class Objective(nn.Module):
    """Model and losses as one module, so that both are sharded together."""

    def __init__(
        self, model: TranslationModel, config: LossConfig, compiled: bool, device: torch.device
    ) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.measure = losses.measure
        self.seeds: list[Tensor] = []
        if compiled:
            from torch._dynamo import config as dynamo  # slow to import

            if device.type == "cuda":
                self.seeds = dropout.plant_seeds(model, device)
            # Layer by layer: one compilation serves all layers, where the whole model at once
            # takes minutes. Lengths are symbols, so that it serves all batches too; each its own
            # symbol, or a batch with as many rows as words would be compiled for.
            symbols.use_duck_shape = False
            # Our operations bring their own backward pass; PyTorch keeps such code between
            # processes only where it is told that it may.
            functorch.autograd_cache_allow_custom_autograd_functions = True
            # Rates of dropout are constants: as symbols, every part would be traced twice.
            dynamo.specialize_float = True
            for part in model.repeated_parts():
                part.compile(dynamic=True)
            self.measure = torch.compile(losses.measure, dynamic=True)

    def forward(self, batch: Batch, counts: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The objective's share of this batch and its sums [7]; counts [2] of the whole update.

        weights [2] of the latency terms: a tensor, so that a recorded update reads them anew.
        """
        dropout.new_seeds(self.seeds)
        sums = losses.terms(self.model, batch, self.config, self.measure)
        total = losses.total(sums, counts[0], counts[1], self.config, weights.unbind())
        return total, torch.stack([value.detach().double() for value in sums])


class Step:
    """Makes updates and sums what they measure; nothing in here waits for the device."""

    def __init__(self, model: TranslationModel, config: Config, world: World) -> None:
        self.model, self.config, self.world = model, config, world
        self.end = config.train.updates  # a deadline may bring it forward
        objective = Objective(model, config.loss, config.train.compile, world.device)
        self.module = shard(objective, world, config.train.parallel)
        self.optimizer = optim.build(self.module, config.train)
        self.sums = torch.zeros(len(losses.LossTerms._fields), dtype=torch.float64).to(world.device)
        self.norm = torch.zeros((), device=world.device)
        self.failed = torch.full((), NEVER, device=world.device)  # first non-finite update
        self.number = torch.zeros((), dtype=torch.long, device=world.device)
        self.weights = torch.zeros(2, device=world.device)  # of the latency terms
        # Compiled code still launches hundreds of small kernels: one process on a GPU records
        # an update of each shape once and plays it back, so that the host is never the limit.
        # Not an LSTM, whose library kernels refuse to be recorded, and not several batches to an
        # update: hardly any combination of their shapes comes twice.
        records = config.train.compile and world.device.type == "cuda" and world.size == 1
        records = records and bool(model.repeated_parts()) and config.train.accumulate == 1
        self.recordings: dict[BatchShape, Recording | None] = {}
        self.recorder = Recorder() if records else None

    def __call__(self, update: int, batches: Sequence[Batch]) -> None:
        self.number.fill_(update)
        for index, weight in enumerate(losses.latency_weights(self.config.loss, update)):
            self.weights[index].fill_(weight)
        optim.set_rate(self.optimizer, optim.learning_rate(self.config.train, update, self.end))
        if self.recorder is None:
            self._update(batches)
            return
        (batch,) = batches
        shape = batch.source.shape, batch.target.shape
        if shape not in self.recordings:  # the first time: compile, and choose kernels
            self._update(batches)
            self.recordings[shape] = None
            return
        recording = self.recordings[shape]
        if recording is None:
            own = Batch(*(tensor.clone() for tensor in batch))
            graph = self.recorder.record(lambda: self._update([own]))
            recording = self.recordings[shape] = Recording(graph, own)
        for place, tensor in zip(recording.batch, batch, strict=True):
            place.copy_(tensor, non_blocking=True)
        recording.graph.replay()

    @torch.no_grad()
    def restart(self, model: TranslationModel, config: Config, world: World) -> None:
        """Begin another run of an equal model: its weights, and an optimiser without memory.

        All of it in place: recorded updates read and write these very tensors.
        """
        self.config, self.world, self.end = config, world, config.train.updates
        for place, value in zip(self.model.parameters(), model.parameters(), strict=True):
            place.copy_(value)
        for state in self.optimizer.state.values():
            for moment in state.values():
                moment.zero_()
        self.sums.zero_()
        self.norm.zero_()
        self.failed.fill_(NEVER)

    def _update(self, batches: Sequence[Batch]) -> None:
        config, world = self.config.train, self.world
        counts = torch.stack([torch.stack(losses.counts(batch)) for batch in batches]).sum(0)
        world.sum_over_ranks(counts)
        finite = torch.ones((), dtype=torch.bool, device=world.device)
        for index, batch in enumerate(batches):
            with (
                accumulating(self.module, last=index == len(batches) - 1),
                torch.autocast(
                    world.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"
                ),
            ):
                loss, sums = self.module(batch, counts, self.weights)
                (loss * world.size).backward()  # gradients are averaged over processes
            self.sums += sums
            finite &= loss.detach().isfinite()
        self.norm.copy_(optim.gradient_norm(self.optimizer))
        sound = self.norm.isfinite()  # the same on every process, unlike a loss
        first = torch.minimum(self.failed, self.number)
        self.failed.copy_(torch.where(finite & sound, self.failed, first))
        if config.clip:
            optim.clip(self.optimizer, self.norm, config.clip)
        optim.step(self.optimizer, skip=~sound)


class StepPool:
    """The steps of the last few kinds of model that this process has trained."""

    def __init__(self, size: int = 3) -> None:
        self._size, self._kept = size, dict[Any, Step]()

    def take(self, model: TranslationModel, config: Config, world: World) -> Step:
        """A step for this run; the model it trains is `step.model`, with these weights."""
        if world.size > 1:
            return Step(model, config, world)
        key = _kind(model, config, world)
        step = self._kept.pop(key, None)
        if step is None:
            while len(self._kept) >= self._size:
                del self._kept[next(iter(self._kept))]  # the one that has waited longest
            step = Step(model, config, world)
        else:
            step.restart(model, config, world)
        self._kept[key] = step
        return step


def _kind(model: TranslationModel, config: Config, world: World) -> Any:
    """All that code and recorded updates depend on."""
    loss = replace(config.loss, lambda_avg=0.0, lambda_var=0.0, ramp=0)
    names = (
        "optimizer",
        "betas",
        "weight_decay",
        "clip",
        "accumulate",
        "precision",
        "compile",
        "select_lr",
    )
    train = tuple(getattr(config.train, name) for name in names)
    shapes = tuple(parameter.shape for parameter in model.parameters())
    return config.model, config.policy, loss, train, shapes, str(world.device)
