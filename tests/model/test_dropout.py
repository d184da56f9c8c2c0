"""The hashed and the sampled mask: fair, without patterns, and the same in the backward pass."""

import itertools

import pytest
import torch

from simultan.model.dropout import Dropout, hashed, hashed_relu, new_seeds, plant_seeds, sampled

P = 0.3
SEEDS = [0, 1, 2, 12345, 2**31 - 2]


def mask_of(seed: int, rows: int = 1000, width: int = 1024) -> torch.Tensor:
    x = torch.ones(rows, width)
    return hashed(x, P, torch.tensor(seed, dtype=torch.int32)) != 0


def sampled_mask(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return sampled(torch.ones(1000, 1024), P) != 0


@pytest.mark.parametrize("draw", [mask_of, sampled_mask])
def test_masks_are_fair_and_independent(draw) -> None:
    masks = [draw(seed).double() for seed in SEEDS]
    spread = (P * (1 - P) / masks[0].numel()) ** 0.5
    for mask in masks:
        assert abs(mask.mean() - (1 - P)) < 5 * spread
        # the share kept in a row or column varies as a fair coin's does, no more and no less
        for way in (0, 1):
            expected = (P * (1 - P) / mask.shape[way]) ** 0.5
            assert 0.9 < mask.mean(way).std() / expected < 1.1
    pairs = [*itertools.combinations(masks, 2)]  # of other calls, and of neighbours
    pairs += [(m[:, 1:], m[:, :-1]) for m in masks] + [(m[1:], m[:-1]) for m in masks]
    for a, b in pairs:
        both = (a * b).mean() - a.mean() * b.mean()
        assert abs(both) < 5 * P * (1 - P) / a.numel() ** 0.5


def test_value_and_gradient() -> None:
    torch.manual_seed(0)
    seed = torch.tensor(7, dtype=torch.int32)
    x = torch.randn(5, 64, dtype=torch.double, requires_grad=True)
    mask = (hashed(torch.ones(5, 64), P, seed) != 0).double() / (1 - P)
    torch.testing.assert_close(hashed(x, P, seed), x * mask)
    assert torch.autograd.gradcheck(lambda x: hashed(x, P, seed), x)
    torch.testing.assert_close(hashed_relu(x, P, seed), x.relu() * mask)
    assert torch.autograd.gradcheck(lambda x: hashed_relu(x, P, seed), x)


def test_compiled_it_is_the_same() -> None:
    seed = torch.tensor(7, dtype=torch.int32)
    x = torch.randn(6, 32, requires_grad=True)
    for function in (hashed, hashed_relu):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
        expected, actual = function(x, P, seed), compiled(x, P, seed)
        torch.testing.assert_close(actual, expected)
        (grad,) = torch.autograd.grad(actual.sum(), x)
        torch.testing.assert_close(grad, torch.autograd.grad(expected.sum(), x)[0])


def test_without_a_seed_it_is_sampled_on_a_cpu() -> None:
    """The expectation is exact, a gradient goes where a value went, and a seed repeats it."""
    layer = Dropout(P)
    for kind in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.rand(7, 11, 13).to(kind) + 1  # not a multiple of four
        x.requires_grad_()
        torch.manual_seed(3)
        y = layer(x)
        assert y.dtype == kind
        scale = 2**16 / (2**16 - round(P * 2**16))
        assert torch.equal(y, torch.where(y != 0, x * scale, 0.0))
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, torch.where(y != 0, scale, 0.0).to(kind))
        torch.manual_seed(3)
        assert torch.equal(layer.relu(-x), torch.zeros_like(x))
        torch.manual_seed(3)
        assert torch.equal(layer.relu(x), y)
        assert not torch.equal(layer(x), y)
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(layer.relu(-x), torch.zeros_like(x))
    assert torch.equal(Dropout(0.0)(x), x)


def test_compiled_without_a_seed_it_is_pytorchs() -> None:
    x, layer = torch.randn(4, 9), Dropout(P)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.manual_seed(3)
    expected = torch.dropout(x, P, True)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), expected)


def test_seeds_are_drawn_before_each_pass() -> None:
    x = torch.randn(40, 9)
    model = torch.nn.Sequential(Dropout(P), torch.nn.Identity(), Dropout(0.0), Dropout(P))
    seeds = plant_seeds(model, x.device)
    assert len(seeds) == 2  # one that drops nothing needs none
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = []
    for _ in range(3):
        new_seeds(seeds)
        found.append(compiled(x))
        assert torch.equal(found[-1], compiled(x))
        assert int(seeds[0]) != int(seeds[1])
        expected = hashed(hashed(x, P, seeds[0]), P, seeds[1])
        torch.testing.assert_close(found[-1], expected)
    assert not torch.equal(found[0], found[1])
    assert torch.equal(model.eval()(x), x)
