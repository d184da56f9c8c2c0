"""The operations on a CPU against the formulas written out, and their hand-written gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simultan.ops import cpu, expected_alignment, expected_attention, naive

LOOKBACKS = [1, 2, 3, 16, None]


def draw(b: int, h: int, t: int, s: int, seed: int, bias: float = 0.0, spread: float = 1.0):
    generator = torch.Generator().manual_seed(seed)
    energy = torch.randn(b, h, t, s, generator=generator, dtype=torch.float64)
    u = torch.randn(b, h, t, s, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, s + 1, (b,), generator=generator)
    return torch.sigmoid(bias + spread * energy), u, lengths


shapes = st.tuples(
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 6), st.integers(1, 9), st.integers(0, 999)
)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, w=st.sampled_from(LOOKBACKS))
def test_equals_the_printed_formulas(shape: tuple[int, ...], w: int | None) -> None:
    p, u, lengths = draw(*shape)
    alpha = expected_alignment(p, lengths)
    torch.testing.assert_close(alpha, naive.expected_alignment(p, lengths))
    beta = expected_attention(alpha, u, lengths, lookback=w)
    torch.testing.assert_close(beta, naive.expected_attention(alpha, u, lengths, w))


def test_alignment_gradcheck() -> None:
    p, _, lengths = draw(2, 2, 4, 5, seed=1)
    p[0, 0, 1, 2], p[1, 1, 2, 0] = 0.0, 1.0
    # 0 and 1 are inside the domain of the polynomial, so finite differences may step outside
    assert torch.autograd.gradcheck(lambda x: expected_alignment(x, lengths), p.requires_grad_())


@pytest.mark.parametrize("w", LOOKBACKS)
def test_attention_gradcheck(w: int | None) -> None:
    p, u, lengths = draw(2, 2, 3, 6, seed=2)
    alpha = expected_alignment(p, lengths).requires_grad_()

    def attend(a: Tensor, e: Tensor) -> Tensor:
        return expected_attention(a, e, lengths, lookback=w)

    assert torch.autograd.gradcheck(attend, (alpha, u.requires_grad_()))


@settings(max_examples=40, deadline=None)
@given(shape=shapes, bias=st.sampled_from([-3.0, 0.0, 3.0]), spread=st.sampled_from([1.0, 6.0]))
def test_alpha_is_a_probability(shape: tuple[int, ...], bias: float, spread: float) -> None:
    p, u, lengths = draw(*shape, bias=bias, spread=spread)
    alpha = expected_alignment(p, lengths)
    assert (alpha >= 0).all()
    assert (alpha.sum(-1) <= 1 + 1e-12).all()
    p[torch.arange(len(lengths)), :, :, lengths - 1] = 1.0  # the source end is certain
    alpha = expected_alignment(p, lengths)
    torch.testing.assert_close(alpha.sum(-1), torch.ones_like(alpha[..., 0]))
    for w in LOOKBACKS:  # and attention only moves that mass
        beta = expected_attention(alpha, u, lengths, lookback=w)
        assert (beta >= 0).all()
        torch.testing.assert_close(beta.sum(-1), torch.ones_like(alpha[..., 0]))


@settings(max_examples=25, deadline=None)
@given(shape=shapes)
def test_lookback_limits(shape: tuple[int, ...]) -> None:
    p, u, lengths = draw(*shape)
    alpha = expected_alignment(p, lengths)
    assert torch.equal(expected_attention(alpha, u, lengths, lookback=1), alpha)
    infinite = expected_attention(alpha, u, lengths, lookback=None)
    for w in (shape[3], shape[3] + 5):
        assert torch.equal(expected_attention(alpha, u, lengths, lookback=w), infinite)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, pad=st.integers(1, 5), w=st.sampled_from(LOOKBACKS))
def test_padding_changes_nothing(shape: tuple[int, ...], pad: int, w: int | None) -> None:
    p, u, lengths = draw(*shape)
    junk = torch.full((*p.shape[:3], pad), 0.7, dtype=p.dtype)
    p.requires_grad_()
    u.requires_grad_()

    def run(p: Tensor, u: Tensor) -> Tensor:
        return expected_attention(expected_alignment(p, lengths), u, lengths, lookback=w)

    plain = run(p, u)
    padded = run(torch.cat([p, junk], -1), torch.cat([u, 900 * junk], -1))
    assert torch.equal(padded[..., p.shape[-1] :], torch.zeros_like(junk))
    torch.testing.assert_close(padded[..., : p.shape[-1]], plain)
    weights = torch.rand_like(plain)
    for x in (p, u) if w != 1 else (p,):
        torch.testing.assert_close(
            torch.autograd.grad((padded[..., : p.shape[-1]] * weights).sum(), x, retain_graph=True),
            torch.autograd.grad((plain * weights).sum(), x, retain_graph=True),
        )


def test_one_hot_alpha_with_infinite_lookback_is_a_masked_softmax() -> None:
    torch.manual_seed(0)
    stop = torch.randint(0, 7, (2, 3, 5))
    alpha = torch.nn.functional.one_hot(stop, 7).double()
    u = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    keep = torch.arange(7) <= stop[..., None]
    expected = torch.softmax(u.masked_fill(~keep, -torch.inf), -1)
    lengths = torch.tensor([7, 7])
    torch.testing.assert_close(expected_attention(alpha, u, lengths), expected)


@pytest.mark.parametrize("w", [3, 16, None])
def test_large_energies_stay_exact(w: int | None) -> None:
    """A row whose largest energy comes last must not underflow what stops before it."""
    torch.manual_seed(0)
    alpha = torch.softmax(torch.randn(1, 2, 4, 40), -1)
    u = torch.linspace(-80, 80, 40).expand(1, 2, 4, 40).contiguous()
    u[:, 1] = 160 * torch.rand(4, 40) - 80
    lengths = torch.tensor([40])
    exact = naive.expected_attention(alpha.double(), u.double(), lengths, w)
    beta = expected_attention(alpha, u, lengths, lookback=w)
    torch.testing.assert_close(beta.double(), exact, rtol=2e-5, atol=1e-12)


def test_soft_p_keeps_its_mass_where_the_closed_form_loses_it() -> None:
    """FACTS: with p = sigmoid(N(0,1)) and 60 target rows the closed form keeps a third."""
    torch.manual_seed(0)
    p = torch.sigmoid(torch.randn(8, 1, 60, 60))
    lengths = torch.full((8,), 60)
    single = expected_alignment(p, lengths)
    double = expected_alignment(p.double(), lengths)
    assert (single - double).norm() / double.norm() < 1e-6
    assert double.sum(-1).mean() > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    p, u, lengths = draw(1, 1, 3, 4, seed=0)
    p = p.to(dtype).requires_grad_()
    alpha = expected_alignment(p, lengths)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert alpha.dtype == wide
    beta = expected_attention(alpha.to(dtype), u.to(dtype), lengths)
    assert beta.dtype == wide
    (grad,) = torch.autograd.grad(alpha.sum(), p)
    assert grad.dtype == dtype


@pytest.mark.parametrize(
    ("p", "lengths", "says"),
    [
        (torch.rand(2, 3, 4), torch.tensor([4, 4]), "[B, H, T, S]"),
        (torch.rand(2, 1, 0, 4), torch.tensor([4, 4]), "none of them 0"),
        (torch.ones(2, 1, 3, 4, dtype=torch.long), torch.tensor([4, 4]), "floating-point"),
        (torch.rand(2, 1, 3, 4), torch.tensor([4]), "one length for each of the 2 rows"),
        (torch.rand(2, 1, 3, 4), torch.tensor([4.0, 4.0]), "int32 or int64"),
    ],
)
def test_bad_input_is_named(p: Tensor, lengths: Tensor, says: str) -> None:
    with pytest.raises(ValueError) as error:
        expected_alignment(p, lengths)
    assert says in str(error.value)


def test_bad_arguments_are_named() -> None:
    alpha, lengths = torch.rand(1, 1, 2, 3), torch.tensor([3])
    with pytest.raises(ValueError, match="at least 1"):
        expected_attention(alpha, alpha, lengths, lookback=0)
    with pytest.raises(ValueError, match="one shape"):
        expected_attention(alpha, alpha[..., :2], lengths)
    with pytest.raises(ValueError, match="choose 'auto'"):
        expected_alignment(alpha, lengths, backend="cuda")  # type: ignore[arg-type]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_in_few_passes(smoothing):
    """Value and gradient are those of the plain expression, and of PyTorch's own."""
    logits = (5 * torch.randn(6, 11, dtype=torch.float64)).requires_grad_()
    target = torch.tensor([0, 10, 3, 3, 7, 1])
    weigh = torch.randn(2, 6, dtype=torch.float64)
    found = cpu.cross_entropy(logits, target, smoothing)
    normaliser, picked = logits.logsumexp(-1), logits[torch.arange(6), target]
    smooth = normaliser - (1 - smoothing) * picked - smoothing * logits.mean(-1)
    torch.testing.assert_close(found, torch.stack([normaliser - picked, smooth]))
    theirs = torch.nn.functional.cross_entropy(
        logits, target, reduction="none", label_smoothing=smoothing
    )
    torch.testing.assert_close(found[1], theirs)
    assert torch.autograd.gradcheck(lambda x: cpu.cross_entropy(x, target, smoothing), logits)
    compiled = torch.compile(cpu.cross_entropy, backend="aot_eager")
    (slope,) = torch.autograd.grad(found, logits, weigh)
    (wanted,) = torch.autograd.grad(compiled(logits, target, smoothing), logits, weigh)
    torch.testing.assert_close(slope, wanted)
    half = logits.detach().bfloat16().requires_grad_()
    narrow = cpu.cross_entropy(half, target, smoothing)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, cpu.cross_entropy(half.float(), target, smoothing))
    assert torch.autograd.grad(narrow, half, weigh.float())[0].dtype == torch.bfloat16
