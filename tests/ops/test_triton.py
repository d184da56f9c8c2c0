"""The kernels equal the reference in value and gradient; a CPU runs them in the interpreter.

The full grid of sizes runs on a GPU (`pytest -m gpu`); here the shapes stay small.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from simultan.ops import Backend, expected_alignment, expected_attention

pytest.importorskip("triton", reason="Triton is only made for Linux")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [1, 2, 31, 63] + ([128, 1000, 4096] if DEVICE == "cuda" else [])
LOOKBACKS = [1, 3, 16, None]


def compare(p: Tensor, u: Tensor, lengths: Tensor, w: int | None) -> Iterator[tuple[str, float]]:
    """Relative error, in norm, of alpha, beta and both gradients."""
    weights = torch.randn(p.shape, device=p.device)
    results = []
    backends: tuple[Backend, ...] = ("reference", "triton")
    for backend in backends:
        x, e = p.clone().requires_grad_(), u.clone().requires_grad_()
        alpha = expected_alignment(x, lengths, backend=backend)
        beta = expected_attention(alpha, e, lengths, lookback=w, backend=backend)
        # alpha enters both ways, as in a model with a latency loss
        loss = (beta * weights).sum() + (alpha * weights.flip(-1)).sum()
        results.append((alpha, beta, *torch.autograd.grad(loss, (x, e), allow_unused=True)))
    for name, expected, actual in zip(("alpha", "beta", "dp", "du"), *results, strict=True):
        if expected is None:
            assert actual is None
            continue
        assert not actual.isnan().any(), name
        difference = float((actual - expected).detach().norm())
        # where the answer is 0 (du of a single token), relative to a hundredth of what flows in
        yield name, difference / (float(expected.detach().norm()) or 0.01 * float(weights.norm()))


def draw(target: int, source: int, bias: float, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads = (8, 4) if DEVICE == "cuda" else (4, 1)
    p = torch.sigmoid(bias + spread * torch.randn(batch, heads, target, source, device=DEVICE))
    u = torch.randn(p.shape, device=DEVICE)
    lengths = torch.randint(1, source + 1, (batch,), device=DEVICE)
    lengths[0] = source
    return p, u, lengths


@pytest.mark.parametrize("bias", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("spread", [1.0, 6.0])
@pytest.mark.parametrize("source", SIZES)
@pytest.mark.usefixtures("poisoned")
def test_equals_the_reference(source: int, bias: float, spread: float) -> None:
    torch.manual_seed(source)
    p, u, lengths = draw(target=min(source, 200) if DEVICE == "cuda" else 3,
                         source=source, bias=bias, spread=spread)  # fmt: skip
    for w in LOOKBACKS:
        for name, error in compare(p, u, lengths, w):
            assert error < 1e-5, (name, w, error)


@pytest.mark.parametrize("source", SIZES)
@pytest.mark.usefixtures("poisoned")
def test_certain_choices(source: int) -> None:
    """p exactly 0 and exactly 1, where a closed form divides by zero."""
    torch.manual_seed(0)
    p, u, lengths = draw(7, source, 0.0, 1.0)
    p[0] = 0.0
    p[1] = 1.0
    p[2] = (p[2] > 0.5).float()
    for w in LOOKBACKS:
        for name, error in compare(p, u, lengths, w):
            assert error < 1e-5, (name, w, error)


@pytest.mark.parametrize("w", [3, 16, None])
@pytest.mark.usefixtures("poisoned")
def test_large_energies(w: int | None) -> None:
    """Against the reference in float64: +-80, and the largest energy last."""
    torch.manual_seed(0)
    alpha = torch.softmax(torch.randn(2, 2, 3, 40, device=DEVICE), -1)
    u = torch.linspace(-80, 80, 40, device=DEVICE).expand(2, 2, 3, 40).contiguous()
    u[1] = 160 * torch.rand(2, 3, 40, device=DEVICE) - 80
    lengths = torch.tensor([40, 33], device=DEVICE)
    exact = expected_attention(alpha.double(), u.double(), lengths, lookback=w, backend="reference")
    beta = expected_attention(alpha, u, lengths, lookback=w, backend="triton")
    torch.testing.assert_close(beta.double(), exact, rtol=2e-5, atol=1e-12)


@pytest.mark.usefixtures("poisoned")
def test_gradients_of_wide_rows() -> None:
    """Energies too far apart for plain sums of exponentials take the running maximum."""
    torch.manual_seed(0)
    p, u, lengths = draw(3, 31, 0.0, 1.0)
    u *= 20
    weights = torch.randn(p.shape, device=DEVICE)
    results = []
    cases: tuple[tuple[Backend, torch.dtype], ...] = (
        ("reference", torch.float64),
        ("triton", torch.float32),
    )
    for backend, dtype in cases:
        alpha = expected_alignment(p.to(dtype), lengths, backend=backend).requires_grad_()
        energy = u.to(dtype).requires_grad_()
        beta = expected_attention(alpha, energy, lengths, backend=backend)
        results.append(torch.autograd.grad((beta * weights).sum(), (alpha, energy)))
    for exact, actual in zip(*results, strict=True):
        assert (actual - exact).norm() < 2e-5 * exact.norm()


@pytest.mark.usefixtures("poisoned")
def test_float64_stays_float64() -> None:
    torch.manual_seed(0)
    p, u, lengths = draw(4, 9, 0.0, 1.0)
    alpha = expected_alignment(p.double(), lengths, backend="triton")
    exact = expected_alignment(p.double(), lengths, backend="reference")
    assert alpha.dtype == torch.float64
    torch.testing.assert_close(alpha, exact, rtol=1e-12, atol=0)
    beta = expected_attention(alpha, u.double(), lengths, backend="triton")
    exact = expected_attention(exact, u.double(), lengths, backend="reference")
    torch.testing.assert_close(beta, exact, rtol=1e-12, atol=1e-300)


def test_a_source_too_long_for_the_kernel_is_an_error() -> None:
    with pytest.raises(ValueError, match="at most 16384"):
        expected_alignment(torch.rand(1, 1, 1, 20_000), torch.tensor([9]), backend="triton")


@pytest.mark.gpu
def test_compiles_without_a_graph_break() -> None:
    def loss(x: Tensor, u: Tensor, lengths: Tensor) -> Tensor:
        alpha = expected_alignment(torch.sigmoid(x), lengths)
        return (expected_attention(alpha, u, lengths) ** 2).sum() + alpha[..., 0].sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for target, source in ((7, 9), (30, 40), (33, 130)):
        x = torch.randn(3, 2, target, source, device=DEVICE, requires_grad=True)
        u = torch.randn(3, 2, target, source, device=DEVICE, requires_grad=True)
        lengths = torch.tensor([source, 3, source - 1], device=DEVICE)
        eager, fast = loss(x, u, lengths), compiled(x, u, lengths)
        torch.testing.assert_close(fast, eager)
        for a, b in zip(
            torch.autograd.grad(fast, (x, u)), torch.autograd.grad(eager, (x, u)), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
