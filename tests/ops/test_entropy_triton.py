"""The cross-entropy kernels equal the plain expression, in value and gradient."""

import pytest
import torch

from simultan.ops import cross_entropy, entropy_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 16), (5, 17), (9, 100), (0, 7)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("poisoned")
def test_equals_the_reference(
    rows: int, size: int, smoothing: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropy_triton, "BLOCK", block)
    torch.manual_seed(size)
    logits = (20 * torch.randn(rows, size, device=DEVICE)).requires_grad_()
    target = torch.randint(size, (rows,), device=DEVICE)
    g = torch.randn(2, rows, device=DEVICE)
    if rows > 2:
        g[:, 1] = 0  # padding
        g[0, 2] = 0  # as in training: the plain NLL is only looked at
    wide = logits.double()
    expected = cross_entropy(wide, target, smoothing, backend="reference")
    actual = cross_entropy(logits, target, smoothing, backend="triton")
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected, logits, g.double())
    (found,) = torch.autograd.grad(actual, logits, g)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("poisoned")
def test_padding_may_hold_anything() -> None:
    logits = torch.randn(3, 40, device=DEVICE)
    logits[1] = torch.inf
    logits.requires_grad_()
    losses = cross_entropy(logits, torch.zeros(3, device=DEVICE).long(), 0.1, backend="triton")
    keep = torch.tensor([True, False, True], device=DEVICE)
    (found,) = torch.autograd.grad(torch.where(keep, losses, 0.0).sum(), logits)
    assert found.isfinite().all()
    assert not found[1].any()


def test_impossible_tokens() -> None:
    logits = torch.randn(4, 40, device=DEVICE)
    logits[:, 3] = logits[:, 20] = -torch.inf
    target = torch.tensor([0, 1, 2, 39], device=DEVICE)
    found = cross_entropy(logits, target, 0.0, backend="triton")[0]
    expected = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(found, expected)


def test_half_precision_stays_half() -> None:
    logits = torch.randn(6, 50, device=DEVICE).bfloat16().requires_grad_()
    target = torch.arange(6, device=DEVICE)
    losses = cross_entropy(logits, target, 0.1, backend="triton")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, cross_entropy(logits, target, 0.1, backend="reference"))
    (found,) = torch.autograd.grad(losses[1].sum(), logits)
    assert found.dtype == torch.bfloat16


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match="wanted"):
        cross_entropy(torch.zeros(2, 3), torch.zeros(3).long(), 0.1)
