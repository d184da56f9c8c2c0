"""The normalisation kernel equals PyTorch's, in value and gradient."""

import pytest
import torch
import torch.nn.functional as F

from simultan.ops import norm_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 16), (37, 48), (130, 64), (5, 1000)])
@pytest.mark.parametrize("programs", [1, 528])
@pytest.mark.usefixtures("poisoned")
def test_equals_layer_norm(
    rows: int, width: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(norm_triton, "PROGRAMS", programs)
    torch.manual_seed(rows)
    x = (3 + 2 * torch.randn(rows, width, device=DEVICE)).requires_grad_()
    weight = torch.randn(width, device=DEVICE, requires_grad=True)
    bias = torch.randn(width, device=DEVICE, requires_grad=True)
    g = torch.randn(rows, width, device=DEVICE)
    expected = F.layer_norm(x, (width,), weight, bias, 1e-5)
    actual = norm_triton.layer_norm(x, weight, bias, 1e-5)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(
        torch.autograd.grad(actual, (x, weight, bias), g),
        torch.autograd.grad(expected, (x, weight, bias), g),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_too_wide_is_an_error() -> None:
    wide = torch.zeros(1, 5000)
    with pytest.raises(ValueError, match="at most 4096"):
        norm_triton.layer_norm(wide, wide[0], wide[0], 1e-5)
