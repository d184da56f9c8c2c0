"""The attention kernel equals PyTorch's attention in value and gradient, at any ragged size."""

import pytest
import torch
from torch import Tensor

from simultan.ops import Backend, masked_attention
from simultan.ops.attention_triton import HEAD_SIZES

pytest.importorskip("triton", reason="Triton is only made for Linux")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = [1, 2, 17, 25, 33, 64]
BACKENDS: tuple[Backend, ...] = ("reference", "triton")


def inputs(batch: int, heads: int, target: int, source: int, size: int) -> list[Tensor]:
    """q, k, v as a model makes them: k and v are views of one projection."""
    q = torch.randn(batch, target, heads * size, device=DEVICE)
    kv = torch.randn(batch, source, 2 * heads * size, device=DEVICE)
    return [x.unflatten(-1, (heads, size)).transpose(1, 2) for x in (q, *kv.chunk(2, -1))]


def waitk(k: int, target: int, lengths: Tensor) -> Tensor:
    steps = torch.arange(target, device=lengths.device) + k - 1
    return torch.minimum(steps[None], lengths[:, None] - 1)


def assert_equal(qkv: list[Tensor], stops: Tensor | None) -> None:
    weights = torch.randn(qkv[0].shape, device=DEVICE)
    results = []
    for backend in BACKENDS:
        # a GPU's own attention is no reference in float32: it may round as it likes
        wide = torch.float64 if backend == "reference" else torch.float32
        leaves = [x.detach().to(wide).requires_grad_() for x in qkv]
        out = masked_attention(leaves[0], leaves[1], leaves[2], stops, backend=backend)
        results.append((out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)))
    for name, expected, actual in zip(("out", "dq", "dk", "dv"), *results, strict=True):
        assert actual.shape == expected.shape
        # one key leaves nothing to choose: dq and dk are 0, in the reference up to rounding
        scale = (expected if qkv[1].shape[2] > 1 else weights).norm()
        assert (actual - expected).norm() < 1e-5 * scale, name  # false for NaN


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.usefixtures("poisoned")
def test_causal_equals_the_reference(length: int, size: int) -> None:
    torch.manual_seed(length)
    assert_equal(inputs(2, 2, length, length, size), None)


@pytest.mark.parametrize("target", LENGTHS)
@pytest.mark.parametrize("source", LENGTHS)
@pytest.mark.usefixtures("poisoned")
def test_stops_equal_the_reference(source: int, target: int) -> None:
    torch.manual_seed(target)
    qkv = inputs(2, 2, target, source, 16)
    lengths = torch.tensor([source, max(1, source // 2)], device=DEVICE)
    for stops in ((lengths - 1)[:, None], waitk(3, target, lengths)):
        assert_equal(qkv, stops)


@pytest.mark.usefixtures("poisoned")
def test_every_head_size() -> None:
    torch.manual_seed(0)
    for size in HEAD_SIZES:
        assert_equal(inputs(1, 3, 5, 20, size), torch.tensor([[11]], device=DEVICE))


@pytest.mark.usefixtures("poisoned")
def test_gradient_through_a_fused_projection() -> None:
    """As in the model: one tensor in, heads joined at the end; int32 stops, strided ones."""
    torch.manual_seed(0)
    batch, length, heads, size = 3, 25, 4, 32
    qkv = torch.randn(batch, length, 3 * heads * size, device=DEVICE)
    wide = torch.randint(0, length, (batch, 2 * length), device=DEVICE, dtype=torch.int32)
    weights = torch.randn(batch, length, heads * size, device=DEVICE)
    for stops in (None, wide[:, ::2]):
        gradients: list[Tensor] = []
        for backend in BACKENDS:
            x = qkv.clone().requires_grad_()
            q, k, v = (p.unflatten(-1, (heads, size)).transpose(1, 2) for p in x.chunk(3, -1))
            out = masked_attention(q, k, v, stops, backend=backend).transpose(1, 2).flatten(-2)
            gradients += torch.autograd.grad((out * weights).sum(), x)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("poisoned")
def test_any_layout_in_and_heads_side_by_side_out() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 32, 9, device=DEVICE).transpose(2, 3) for _ in range(3))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = masked_attention(q, k, v, None, backend="triton")
    torch.testing.assert_close(out, masked_attention(q, k, v, None, backend="reference"))
    gradients = torch.autograd.grad(out.sum(), leaves)  # the gradient that comes in is expanded
    for x in (out, *gradients):
        assert x.transpose(1, 2).is_contiguous()
    exact = masked_attention(q, k, v, None, backend="reference").sum()
    for actual, expected in zip(gradients, torch.autograd.grad(exact, leaves), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("poisoned")
def test_a_query_that_sees_nothing(backend: Backend) -> None:
    """It gets 0 and gives no gradient; a stop past the end sees everything."""
    torch.manual_seed(0)
    q, k, v = (x.requires_grad_() for x in inputs(2, 2, 3, 5, 16))
    stops = torch.tensor([[-1, 0, 99], [-7, -1, -1]], device=DEVICE)
    out = masked_attention(q, k, v, stops, backend=backend)
    assert not out[0, :, 0].any()
    assert not out[1].any()
    torch.testing.assert_close(out[0, :, 1], v[0, :, 0])
    everything = torch.softmax(q[0, :, 2:] @ k[0].transpose(-1, -2) / 4.0, -1) @ v[0]
    torch.testing.assert_close(out[0, :, 2:], everything)
    dq, dk, dv = torch.autograd.grad((out**2).sum() + out.sum(), (q, k, v))
    assert not any(x.isnan().any() for x in (dq, dk, dv))
    assert not dq[0, :, 0].any()
    assert not any(x[1].any() for x in (dq, dk, dv))


@pytest.mark.usefixtures("poisoned")
def test_large_scores() -> None:
    torch.manual_seed(0)
    q, k, v = inputs(1, 2, 9, 9, 16)
    assert_equal([100 * q, k, v], None)


@pytest.mark.usefixtures("poisoned")
def test_half_precision_is_as_exact_as_the_reference() -> None:
    """The interpreter multiplies bfloat16 as integers, so there it is float16."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    half = [x.to(dtype) for x in inputs(2, 2, 25, 25, 64)]

    def run(qkv: list[Tensor], backend: Backend) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in qkv]
        out = masked_attention(leaves[0], leaves[1], leaves[2], None, backend=backend)
        gradients = torch.autograd.grad((out.float() ** 2).sum(), leaves)
        assert out.dtype == gradients[0].dtype == qkv[0].dtype
        return [x.detach().double() for x in (out, *gradients)]

    exact = run([x.double() for x in half], "reference")
    for e, a, b in zip(exact, run(half, "reference"), run(half, "triton"), strict=True):
        assert (b - e).norm() < 2 * (a - e).norm()


def test_auto_takes_the_kernel_where_it_fits() -> None:
    from simultan.ops.attention_triton import fits

    def taken(target: int, source: int, size: int, dtype: torch.dtype = torch.float32) -> bool:
        q, k, _ = (x.to(dtype) for x in inputs(1, 1, target, source, size))
        return fits(q, k)

    assert taken(1, 64, 16)
    assert taken(64, 1, 128)
    assert taken(25, 25, 128, torch.bfloat16)
    assert not taken(65, 8, 16)
    assert not taken(8, 65, 16)
    assert not taken(8, 8, 256)
    assert not taken(8, 8, 48)
    assert not taken(8, 8, 16, torch.float64)


@pytest.mark.parametrize(("target", "source", "size"), [(70, 70, 16), (9, 80, 16), (8, 8, 48)])
def test_sizes_beyond_the_kernel_equal_the_reference(target: int, source: int, size: int) -> None:
    """Behind the same operation, so that a compiled model has one graph for all lengths."""
    torch.manual_seed(0)
    from simultan.ops import attention_triton

    qkv = inputs(2, 2, target, source, size)
    lengths = torch.tensor([source, source // 2], device=DEVICE)
    stops = waitk(3, target, lengths)
    stops[1, 0] = -1  # sees nothing
    weights = torch.randn(qkv[0].shape, device=DEVICE)
    for where in (stops, (lengths - 1)[:, None], *([None] if target == source else [])):
        leaves = [x.detach().double().requires_grad_() for x in qkv]
        expected = masked_attention(*leaves, where, backend="reference")
        exact = (expected, *torch.autograd.grad((expected * weights).sum(), leaves))
        leaves = [x.detach().requires_grad_() for x in qkv]
        actual = attention_triton.masked_attention(*leaves, where)
        found = (actual, *torch.autograd.grad((actual * weights).sum(), leaves))
        for e, a in zip(exact, found, strict=True):
            assert (a - e).norm() < 1e-5 * e.norm()


@pytest.mark.parametrize(("target", "source", "size"), [(65, 8, 16), (8, 65, 16), (8, 8, 48)])
def test_the_kernel_says_what_it_cannot_do(target: int, source: int, size: int) -> None:
    q, k, v = inputs(1, 1, target, source, size)
    stops = torch.tensor([[3]], device=DEVICE)
    with pytest.raises(ValueError, match="at most 64 tokens"):
        masked_attention(q, k, v, stops, backend="triton")
    assert masked_attention(q, k, v, stops).shape == q.shape


def test_errors() -> None:
    q, k, v = inputs(2, 2, 3, 5, 16)
    stops = torch.zeros(2, 3, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="3 queries, 5 keys"):
        masked_attention(q, k, v, None)
    with pytest.raises(ValueError, match="stops has shape"):
        masked_attention(q, k, v, stops[:, :2])
    with pytest.raises(ValueError, match="int32 or int64"):
        masked_attention(q, k, v, stops.float())
    with pytest.raises(ValueError, match="wanted"):
        masked_attention(q, k[:, :1], v, stops)
    with pytest.raises(ValueError, match="wanted"):
        masked_attention(q[0], k[0], v[0], stops)
    with pytest.raises(ValueError, match="wanted"):
        masked_attention(q, k[:, :, :0], v[:, :, :0], stops)
    with pytest.raises(ValueError, match="one floating type"):
        masked_attention(q, k.double(), v, stops)
    with pytest.raises(ValueError, match="'auto', 'reference' or 'triton'"):
        masked_attention(q, k, v, stops, backend="cuda")  # type: ignore[arg-type]


def test_compiles_without_a_graph_break() -> None:
    """Once for all sizes, self-attention and stops in one graph."""

    def loss(x: Tensor, stops: Tensor) -> Tensor:
        q, k, v = (p.unflatten(-1, (2, 16)).transpose(1, 2) for p in x.sin().chunk(3, -1))
        q = masked_attention(q, k, v, None, backend="triton")
        out = masked_attention(q, k, v, stops, backend="triton")
        return (out.transpose(1, 2).flatten(-2) ** 2).sum()

    backend = "inductor" if DEVICE == "cuda" else "aot_eager"  # that one needs no C++ compiler
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=backend)
    for batch, length in ((3, 7), (5, 40)):
        x = torch.randn(batch, length, 96, device=DEVICE, requires_grad=True)
        stops = torch.randint(0, length, (batch, length), device=DEVICE)
        eager = loss(x, stops)
        with torch.compiler.set_stance("fail_on_recompile" if length == 40 else "default"):
            fast = compiled(x, stops)
        torch.testing.assert_close(fast, eager)
        (expected,), (actual,) = (torch.autograd.grad(y, x) for y in (eager, fast))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
