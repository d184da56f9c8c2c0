"""Dropout whose mask is a hash of position and seed where code is compiled for a GPU.

keep[i] = hash(i, seed) >= p 2^32 - 2^31
The compiler's own random numbers make an elementwise kernel two to three times slower and are
kept for the backward pass as a mask in memory; a hash is a few integer operations that it merges
with what stands around them, and does again in the backward pass. On a CPU, where PyTorch draws
a number for each element, one number serves four.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def hashed(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """x with a share p of it 0 and the rest scaled up; seed is one int32."""
    h = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape) ^ seed
    # Three products, as few as pass the tests: integers are slow enough on a GPU to be seen. One
    # factor depends on the seed, or masks would be shifted copies of each other.
    h = h * -2048144789
    h = (h ^ (h >> 15)) * ((seed * -1640531527) | 1)
    h = (h ^ (h >> 13)) * -1028477387
    return torch.where(h >= round(p * 2**32) - 2**31, x * (1.0 / (1.0 - p)), 0.0)


def sampled(x: Tensor, p: float) -> Tensor:
    """The same with 16 bits of randomness an element."""
    numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    level = round(p * 2**16)
    kept = numbers.view(torch.int16)[: x.numel()].view(x.shape) >= level - 2**15
    return torch.where(kept, x * (2**16 / (2**16 - level)), 0.0)


class _ReluDropout(torch.autograd.Function):
    """Its output tells where the gradient goes: nothing else is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: Tensor) -> Tensor:
        y = hashed(x.relu(), p, seed)
        ctx.save_for_backward(y)
        ctx.scale = 1.0 / (1.0 - p)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, grads[0] * ctx.scale, 0.0), None, None


def hashed_relu(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """hashed() of what is positive of x."""
    y: Tensor = _ReluDropout.apply(x, p, seed)
    return y


class Dropout(nn.Dropout):
    """nn.Dropout; the hashed one while it has a seed, the sampled one in eager code on a CPU."""

    seed: Tensor | None = None  # no buffer: every process has its own

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        if self.seed is not None:
            return hashed(x, self.p, self.seed)
        if x.is_cpu and not torch.compiler.is_compiling():
            return sampled(x, self.p)
        return super().forward(x)

    def relu(self, x: Tensor) -> Tensor:
        """Dropout of what is positive of x."""
        if not self.training:
            return x.relu_()
        if self.seed is None or not self.p:
            return self(x.relu())
        return hashed_relu(x, self.p, self.seed)


def plant_seeds(model: nn.Module, device: torch.device) -> list[Tensor]:
    """Make a model's dropouts hash; the seeds are for new_seeds()."""
    layers = [module for module in model.modules() if isinstance(module, Dropout) and module.p]
    for layer in layers:
        layer.seed = torch.zeros((), dtype=torch.int32, device=device)
    return [layer.seed for layer in layers if layer.seed is not None]


def new_seeds(seeds: list[Tensor]) -> None:
    """To be called before each forward pass. Drawn here, not in compiled code, which would draw
    the number anew for every element that reads it."""
    if seeds:
        drawn = torch.randint(2**31 - 1, (len(seeds),), dtype=torch.int32, device=seeds[0].device)
        torch._foreach_copy_(seeds, list(drawn.unbind()))
