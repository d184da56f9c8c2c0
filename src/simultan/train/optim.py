"""Adam, Muon; the inverse square root schedule: lr(u) = lr sqrt(warmup / u) after a warm-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from simultan.checkpoint import selects
from simultan.config import TrainConfig

MOMENTUM = 0.95  # of Muon


def schedule_share(config: TrainConfig, end: int) -> float:
    """How much of its warm-up and cooldown a run has room for that a deadline ends at `end`."""
    if end >= config.updates:
        return 1.0
    return min(1.0, end / max(1, config.warmup + max(config.warmup, config.cooldown)))


def learning_rate(config: TrainConfig, update: int, end: int | None = None) -> float:
    """The rate of an update, counted from 1, of a run that ends with update `end`."""
    end = config.updates if end is None else end
    share = schedule_share(config, end)
    warmup, cooldown = share * config.warmup, share * config.cooldown
    if update < warmup:
        return config.warmup_init_lr + (config.lr - config.warmup_init_lr) / warmup * update
    rate = config.lr * (max(warmup, 1) / update) ** 0.5
    left = end + 1 - update
    return rate * left / (cooldown + 1) if left <= cooldown else rate


class Muon(AdamW):
    """Adam, but for matrices of layers a momentum all of whose directions weigh alike.

    M = momentum M + (1 - momentum) G;  W -= lr 0.2 sqrt(max(rows, columns)) U V^T, where
    U S V^T = G + momentum (M - G), by five Newton-Schulz steps (Jordan et al. 2024). The factor
    makes an entry's step as large as Adam's, so that rates are the same (Liu et al. 2025).
    PyTorch's own version takes one matrix at a time and asks the device for the rate: it cannot
    be recorded.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if group["momentum"]:
                self._turn(group)
        super().step(closure)

    def _turn(self, group: dict[str, Any]) -> None:
        matrices = [p for p in group["params"] if p.grad is not None]
        for matrix in matrices:
            if not self.state[matrix]:  # under Adam's names: it looks at all states when it loads
                self.state[matrix] = {
                    "step": torch.zeros((), device=matrix.device),
                    "exp_avg": torch.zeros_like(matrix),
                }
        skip: Tensor = self.found_inf > 0  # type: ignore[attr-defined]
        rate = torch.where(skip, 0.0, group["lr"])
        momenta = [self.state[matrix]["exp_avg"] for matrix in matrices]
        # a spoiled gradient is replaced by the momentum, which then stays as it is
        gradients = [torch.where(skip, m, p.grad) for m, p in zip(momenta, matrices, strict=True)]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        mixed = torch._foreach_lerp(gradients, momenta, group["momentum"])
        if group["weight_decay"]:
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
        alike: dict[torch.Size, list[int]] = {}
        for index, matrix in enumerate(matrices):
            alike.setdefault(matrix.shape, []).append(index)
            matrix.grad = None  # Adam passes it over
        for (rows, columns), indices in alike.items():
            parts = group["parts"]  # queries, keys and values in one matrix are three
            stacked = torch.stack([mixed[index] for index in indices])
            turned = orthogonalise(stacked.view(-1, rows // parts, columns)).view_as(stacked)
            turned = turned * (-0.2 * max(rows // parts, columns) ** 0.5 * rate)
            torch._foreach_add_([matrices[index] for index in indices], list(turned.unbind()))


def orthogonalise(x: Tensor) -> Tensor:
    """[N, R, C] -> about U V^T of each U S V^T: singular values between 0.7 and 1.2."""
    long = x.shape[1] > x.shape[2]
    y = x.bfloat16() if x.is_cuda else x
    y = y.mT if long else y
    y = y / (y.float().norm(dim=(1, 2), keepdim=True).to(y.dtype) + 1e-7)
    for _ in range(5):
        square = y @ y.mT
        square = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        y = torch.baddbmm(y, square, y, beta=3.4445)
    return (y.mT if long else y).to(x.dtype)


def build(module: nn.Module, config: TrainConfig) -> Optimizer:
    """Adam, or AdamW on the matrices when there is weight decay, in one fused kernel; or Muon."""
    groups: dict[tuple[float, float, float, int], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            times = config.select_lr if selects(name) else 1.0
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            turns = config.optimizer == "muon" and _of_layer(name) and parameter.ndim == 2
            parts = 3 if turns and name.endswith("qkv.weight") else 1
            key = times, decay, MOMENTUM if turns else 0.0, parts
            groups.setdefault(key, []).append(parameter)
    device = next(iter(groups.values()))[0].device
    kind = AdamW if config.weight_decay else Adam
    return (Muon if config.optimizer == "muon" else kind)(
        [
            # A tensor: the rate changes without a new graph where the step is captured.
            {
                "params": params,
                "lr": torch.zeros((), device=device),
                **dict(zip(("times", "weight_decay", "momentum", "parts"), key, strict=True)),
            }
            for key, params in groups.items()
        ],
        betas=config.betas,
        fused=True,
        capturable=device.type == "cuda",  # the step count stays on the device
    )


def _of_layer(name: str) -> bool:
    """Whether a weight belongs to one of many layers: not an embedding, not the output."""
    return any(part.isdigit() for part in name.split("."))


def gradient_norm(optimizer: Optimizer) -> Tensor:
    """The norm of all gradients together, over all processes; 0-d, no host synchronisation."""
    gradients = [
        p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    norm: Tensor = torch.nn.utils.get_total_norm(gradients, foreach=True)
    # Weights cut over processes give a cut norm.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def clip(optimizer: Optimizer, norm: Tensor, limit: float) -> None:
    """Scale the gradients down to a norm of at most limit."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm, foreach=True)


def set_rate(optimizer: Optimizer, lr: float) -> None:
    """The rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"].fill_(lr * group["times"])


def step(optimizer: Optimizer, skip: Tensor) -> None:
    """One update; where skip (0-d bool) holds, weights and moments stay as they are.

    The fused kernel reads the flag on the device, as it does for loss scaling: no host
    synchronisation, and a non-finite gradient never reaches a weight.
    """
    optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
