"""Without a GPU, Triton's interpreter runs the kernels: it must be asked for before any import."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("shared machine", deadline=None)  # tests measure no time
settings.load_profile("shared machine")

torch.set_num_threads(1)  # pytest runs one process a core


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
