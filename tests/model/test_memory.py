"""Large pieces of memory come back cleared, and not before the last view has gone."""

import pytest
import torch

from simultan.model import memory


def test_zeros_of_any_size_and_type() -> None:
    for dtype in (torch.float32, torch.float64):
        for shape in ((3, 5), (2, 1000, 1500)):
            x = memory.zeros(*shape, like=torch.zeros(1, dtype=dtype))
            assert x.shape == shape
            assert x.dtype == dtype
            assert not x.any()


def test_pages_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free", [])  # what other tests have left
    like = torch.zeros(1)
    x = memory.zeros(2, 3_000_000, like=like)
    place, view = x.data_ptr(), x[1].fill_(7)
    del x
    other = memory.zeros(2, 3_000_000, like=like)
    assert other.data_ptr() != place  # a view still lies there
    assert bool((view == 7).all())
    del view
    again = memory.zeros(2, 2_900_000, like=like)
    assert again.data_ptr() == place
    assert not again.any()


def test_slabs_keep_matrices_apart() -> None:
    slabs = memory.Slabs()
    matrices = [torch.randn(n, 7) for n in (1, 30, 5_000, 2_000_000, 3)]
    copies = [slabs.put(matrix) for matrix in matrices]
    for matrix, copy in zip(matrices, copies, strict=True):
        assert torch.equal(matrix, copy)
        assert copy.data_ptr() % 64 == 0
