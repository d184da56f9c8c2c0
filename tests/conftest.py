"""Without a GPU, Triton's interpreter runs the kernels: it must be asked for before any import."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tests measure no time. Where CI judges a change, what passes once passes again; elsewhere every
# run looks for new examples.
settings.register_profile(
    "shared machine",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")

torch.set_num_threads(1)  # pytest runs one process a core


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Every test draws the same numbers, whichever tests the process has run before."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN: an element a kernel forgets to write cannot pass for a zero."""
    for name in ("empty", "empty_like"):
        allocate = getattr(torch, name)

        def poisoned_allocate(
            *args: Any, allocate: Callable[..., torch.Tensor] = allocate, **options: Any
        ) -> torch.Tensor:
            fresh = allocate(*args, **options)
            return fresh.fill_(float("nan")) if fresh.is_floating_point() else fresh

        monkeypatch.setattr(torch, name, poisoned_allocate)


@pytest.fixture(params=["kernels", "plain"])
def kernels_or_none(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled kernels, where this machine has them, and with PyTorch's operations."""
    if request.param == "plain":
        monkeypatch.setattr("simultan.model.kernels.find", lambda: None)
