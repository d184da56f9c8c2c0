"""Without a GPU, Triton's interpreter runs the kernels: it must be asked for before any import."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

torch.set_num_threads(1)  # pytest runs one process a core


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN: an element a kernel forgets to write cannot pass for a zero."""
    empty_like = torch.empty_like

    def poisoned_empty_like(x: torch.Tensor) -> torch.Tensor:
        return empty_like(x).fill_(float("nan"))

    monkeypatch.setattr(torch, "empty_like", poisoned_empty_like)
