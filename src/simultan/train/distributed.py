"""Processes that train together: ranks, sums over all of them, and models cut over them.

Nothing else imports torch.distributed. Without torchrun's environment there is one process and
every function here is free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from simultan.streaming.translator import find_device

PATIENCE = timedelta(hours=3)  # the others wait while the first process validates

# The group of the last world, kept until the next one. Whoever drops a group last waits for its
# threads, and those may want Python's lock to give a tensor back. From Python the lock is let go
# meanwhile; inside DistributedDataParallel it is held, and both would wait for ever.
_kept: list[dist.ProcessGroup | None] = [None]


@dataclass(frozen=True)
class World:
    """This process among those that train one model."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    @contextlib.contextmanager
    def open(cls, device: str | None = None) -> Iterator[World]:
        """Join the processes torchrun started, if it did; one GPU each where there are any."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
        name = device or ("cuda" if torch.cuda.is_available() else "cpu")
        place = find_device(f"cuda:{local}" if name == "cuda" else name)
        if place.type == "cuda":
            torch.cuda.set_device(place)
        if size == 1:
            yield cls(device=place)
            return
        _kept[0] = None  # with its store, in which the next group would find old addresses
        dist.init_process_group(
            "nccl" if place.type == "cuda" else "gloo", rank=rank, world_size=size, timeout=PATIENCE
        )
        _kept[0] = dist.group.WORLD
        world = cls(rank, size, place)
        try:
            yield world
            world.wait()  # leaving while another still talks to us would hang it
        finally:
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and talks."""
        return self.rank == 0

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """The sum over all processes, in place; no host synchronisation."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def min_over_ranks(self, value: Tensor) -> Tensor:
        """The minimum over all processes, in place; no host synchronisation."""
        if self.size > 1:
            dist.all_reduce(value, op=dist.ReduceOp.MIN)
        return value

    def wait(self) -> None:
        """Until every process has come here."""
        if self.size > 1:
            dist.barrier()

    def share(self, value: Any) -> Any:
        """The first process's value, on every process."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


def shard(module: nn.Module, world: World, kind: Literal["ddp", "fsdp"]) -> nn.Module:
    """A module whose gradients are averaged over the processes; fsdp also cuts its weights up."""
    if world.size == 1:
        return module
    if kind == "ddp":
        devices = [world.device] if world.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for part in list(module.modules()):
        if isinstance(part, nn.ModuleList):  # a layer is gathered only while it runs;
            for layer in part:
                if type(layer).forward is not nn.Module.forward:  # unless it runs in pieces
                    fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


@contextlib.contextmanager
def accumulating(module: nn.Module, last: bool) -> Iterator[None]:
    """Around a forward and backward pass: gradients travel only with the last of an update."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    if isinstance(module, DistributedDataParallel) and not last:
        with module.no_sync():
            yield
    else:
        yield


def gather(state: Any) -> Any:
    """Nested state with whole tensors in the place of cut ones; every process must take part."""
    if isinstance(state, DTensor):
        return state.full_tensor()
    if isinstance(state, dict):
        return {key: gather(value) for key, value in state.items()}
    if isinstance(state, list):
        return [gather(value) for value in state]
    return state


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load the moments gather(optimizer.state_dict()) gave, cut again as the parameters are.

    Rates and flags stay this optimiser's own: they follow from the recipe and the device, and
    the run that was saved may have had another one.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in state["state"].items():
        parameter = parameters[index]
        if isinstance(parameter, DTensor):
            for name, value in values.items():
                if value.shape == parameter.shape:
                    values[name] = distribute_tensor(
                        value.to(parameter.device), parameter.device_mesh, parameter.placements
                    )
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
