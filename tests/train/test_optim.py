"""The schedule by hand; a skipped update changes nothing; clipping."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simultan.config import TrainConfig
from simultan.train import optim
from simultan.train.distributed import gather, load_optimizer


def test_schedule_by_hand():
    config = TrainConfig(lr=1e-3, warmup=4, warmup_init_lr=2e-4)
    found = [optim.learning_rate(config, update) for update in (1, 2, 4, 16, 64)]
    assert found == pytest.approx([4e-4, 6e-4, 1e-3, 5e-4, 2.5e-4])


def test_schedule_without_warmup():
    config = TrainConfig(lr=1e-3, warmup=0)
    assert optim.learning_rate(config, 1) == 1e-3
    assert optim.learning_rate(config, 4) == pytest.approx(5e-4)


def test_the_rate_falls_at_the_end():
    config = TrainConfig(lr=1e-3, warmup=0, updates=100, cooldown=4)
    found = [optim.learning_rate(config, update) for update in (96, 97, 98, 99, 100)]
    shares = [10 * rate * update**0.5 for rate, update in zip(found, range(96, 101), strict=True)]
    assert shares == pytest.approx([1e-2, 0.8e-2, 0.6e-2, 0.4e-2, 0.2e-2])


def test_a_deadline_shortens_what_has_no_room():
    """A run that ends in what was to be its warm-up still reaches its rate, and falls to 0."""
    config = TrainConfig(lr=1e-3, warmup=300, cooldown=700, updates=2000)
    rates = [optim.learning_rate(config, update, end=100) for update in range(1, 101)]
    assert max(rates) == pytest.approx(1e-3) == rates[29]
    assert rates[-1] < 2e-5
    for update in (1, 299, 1300, 2000):  # with room for both nothing changes
        whole = optim.learning_rate(config, update)
        assert optim.learning_rate(config, update, end=2000) == whole
    assert optim.learning_rate(config, 299, end=1000) == optim.learning_rate(config, 299)
    without = TrainConfig(lr=1e-3, warmup=4000, updates=10_000)
    assert optim.learning_rate(without, 500, end=1000) == pytest.approx(1e-3)


def train(config: TrainConfig, spoiled: int = -1, steps: int = 3) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(1)
    model, norms = nn.Linear(3, 2), []
    optimizer = optim.build(model, config)
    for update in range(steps):
        torch.manual_seed(update)
        loss = model(torch.randn(4, 3)).square().sum()
        if update == spoiled:
            loss = loss * float("nan")
        loss.backward()
        norm = optim.gradient_norm(optimizer)
        norms.append(float(norm))
        if config.clip:
            optim.clip(optimizer, norm, config.clip)
        optim.set_rate(optimizer, 0.01)
        optim.step(optimizer, skip=~norm.isfinite())
    return model, norms


def test_updates_are_adams():
    config = TrainConfig(betas=(0.9, 0.98))
    found, norms = train(config)
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    adam = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98))
    for update in range(3):
        torch.manual_seed(update)
        adam.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        assert norms[update] == pytest.approx(float(norm))
        adam.step()
    for one, other in zip(found.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_non_finite_gradient_reaches_no_weight(decay, clip):
    config = TrainConfig(weight_decay=decay, clip=clip)
    clean, _ = train(config, steps=2)
    spoiled, norms = train(config, spoiled=2)
    assert norms[2] != norms[2]
    for one, other in zip(clean.parameters(), spoiled.parameters(), strict=True):
        assert torch.equal(one, other)


def test_clipping_bounds_the_gradient():
    model = nn.Linear(3, 2)
    optimizer = optim.build(model, TrainConfig())
    model(torch.ones(4, 3)).square().sum().backward()
    optim.clip(optimizer, optim.gradient_norm(optimizer), 0.01)
    assert float(optim.gradient_norm(optimizer)) <= 0.01 * (1 + 1e-4)


def test_weight_decay_leaves_vectors_alone():
    optimizer = optim.build(nn.Linear(3, 2), TrainConfig(weight_decay=0.1))
    assert [(len(g["params"]), g["weight_decay"]) for g in optimizer.param_groups] == [
        *[(1, 0.1), (1, 0.0)]
    ]


def test_weights_that_select_have_their_own_rate():
    model = nn.ModuleDict({"select_query": nn.Linear(2, 2), "query": nn.Linear(2, 2)})
    optimizer = optim.build(model, TrainConfig(select_lr=5.0))
    optim.set_rate(optimizer, 0.01)
    rates = {id(p): float(g["lr"]) for g in optimizer.param_groups for p in g["params"]}
    assert [rates[id(p)] for p in model["select_query"].parameters()] == pytest.approx([0.05] * 2)
    assert [rates[id(p)] for p in model["query"].parameters()] == pytest.approx([0.01] * 2)


def test_loading_brings_the_moments_and_nothing_else():
    model = nn.Linear(3, 2)
    saved, fresh = (optim.build(model, TrainConfig(betas=(b, 0.98))) for b in (0.5, 0.9))
    model(torch.ones(4, 3)).square().sum().backward()
    optim.set_rate(saved, 0.01)
    optim.step(saved, skip=torch.tensor(False))
    load_optimizer(fresh, gather(saved.state_dict()))
    assert fresh.param_groups[0]["betas"] == (0.9, 0.98)
    assert fresh.param_groups[0]["lr"] == 0
    for parameter in model.parameters():
        for name, value in saved.state[parameter].items():
            assert torch.equal(fresh.state[parameter][name], value)


def layers(config: TrainConfig, spoiled: int = -1, steps: int = 3) -> nn.Module:
    torch.manual_seed(1)
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 6)])})
    optimizer = optim.build(model, config)
    for update in range(steps):
        torch.manual_seed(update)
        x = torch.randn(5, 4)
        for layer in model["layers"]:
            x = layer(x)
        loss = x.square().sum() * (float("nan") if update == spoiled else 1.0)
        loss.backward()
        optim.set_rate(optimizer, 0.01)
        optim.step(optimizer, skip=~optim.gradient_norm(optimizer).isfinite())
    return model


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_updates_of_matrices_are_muons(decay):
    """PyTorch's own version for matrices, Adam for the rest."""
    found = layers(TrainConfig(optimizer="muon", betas=(0.9, 0.98), weight_decay=decay))
    torch.manual_seed(1)
    model = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 6)])
    muon = torch.optim.Muon(
        [layer.weight for layer in model],
        **{"lr": 0.01, "weight_decay": decay, "adjust_lr_fn": "match_rms_adamw"},
    )
    adam = torch.optim.Adam([layer.bias for layer in model], lr=0.01, betas=(0.9, 0.98))
    for update in range(3):
        torch.manual_seed(update)
        x = torch.randn(5, 4)
        for layer in model:
            x = layer(x)
        for optimizer in (muon, adam):
            optimizer.zero_grad()
        x.square().sum().backward()
        muon.step()
        adam.step()
    for one, other in zip(found["layers"], model, strict=True):
        # theirs rounds to bfloat16
        torch.testing.assert_close(one.weight, other.weight, atol=3e-4, rtol=0)
        torch.testing.assert_close(one.bias, other.bias, atol=1e-4, rtol=0)


def test_a_non_finite_gradient_reaches_no_matrix():
    config = TrainConfig(optimizer="muon", weight_decay=0.1)
    clean, spoiled = layers(config, steps=2), layers(config, spoiled=2)
    for one, other in zip(clean.parameters(), spoiled.parameters(), strict=True):
        assert torch.equal(one, other)
    further, other = layers(config, spoiled=1), layers(config, spoiled=1, steps=2)
    assert not torch.equal(further["layers"][0].weight, other["layers"][0].weight)


def test_directions_weigh_alike():
    torch.manual_seed(1)
    for shape in ((2, 5, 9), (2, 9, 5)):
        values = torch.linalg.svdvals(optim.orthogonalise(torch.randn(shape).double()))
        assert float(values.min()) > 0.6
        assert float(values.max()) < 1.25


def test_queries_keys_and_values_are_three_matrices():
    model = nn.ModuleList([nn.ModuleDict({"qkv": nn.Linear(2, 6)})])
    optimizer = optim.build(model, TrainConfig(optimizer="muon"))
    optim.set_rate(optimizer, 1.0)
    weight = model[0]["qkv"].weight
    before = weight.detach().clone()
    weight.grad = torch.diag(torch.tensor([1.0, 2.0])).repeat(3, 1) * torch.ones(6, 1)
    model[0]["qkv"].bias.grad = torch.zeros(6)
    optim.step(optimizer, skip=torch.tensor(False))
    for part in (before - weight.detach()).chunk(3):  # each as large as one alone
        sizes = torch.linalg.svdvals(part) / (0.2 * 2**0.5)
        assert float(sizes.min()) > 0.6
        assert float(sizes.max()) < 1.25
