"""Adam and the inverse square root schedule: lr(u) = lr sqrt(warmup / u) after a linear warm-up."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from simultan.checkpoint import selects
from simultan.config import TrainConfig


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


def build(module: nn.Module, config: TrainConfig) -> Optimizer:
    """Adam, or AdamW on the matrices when there is weight decay; one fused kernel either way."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            times = config.select_lr if selects(name) else 1.0
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((times, decay), []).append(parameter)
    device = next(iter(groups.values()))[0].device
    kind = AdamW if config.weight_decay else Adam
    return kind(
        [
            # A tensor: the rate changes without a new graph where the step is captured.
            {"params": p, "lr": torch.zeros((), device=device), "times": t, "weight_decay": d}
            for (t, d), p in groups.items()
        ],
        betas=config.betas,
        fused=True,
        capturable=device.type == "cuda",  # the step count stays on the device
    )


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
