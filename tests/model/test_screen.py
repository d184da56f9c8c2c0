"""The screen finds the largest logit exactly, or says that it cannot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.model import build, screen
from simultan.model.maps import Int8
from simultan.model.screen import MANY, Screen, screen_of

pytestmark = pytest.mark.skipif(
    torch.backends.quantized.engine not in ("x86", "fbgemm", "onednn"), reason="no int8 products"
)


def output(inputs: int = 64, outputs: int = 3000, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
    linear.weight *= torch.rand(outputs, 1) * 2  # rows of different sizes
    return linear


def best(linear: nn.Linear, x: Tensor, first: int) -> list[int]:
    logits = linear(x)
    logits[:, :first] = -torch.inf
    return logits.argmax(1).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_largest(seed: int) -> None:
    linear = output(seed=seed)
    found = Screen(linear)
    for scale in (0.0, 0.3, 3.0):  # from no clear winner to a clear one
        wanted = torch.randint(0, 3000, (40,))
        x = torch.randn(40, 64) + scale * linear.weight[wanted] * 64
        assert found(x, 7) == best(linear, x, 7)


def test_two_that_int8_cannot_tell_apart() -> None:
    linear = output()
    linear.weight[100] = linear.weight[2000] = linear.weight.abs().amax()
    x = torch.ones(2, 64) + torch.randn(2, 64) / 100
    for larger in (100, 2000):
        changed = output()
        changed.weight.copy_(linear.weight)
        changed.weight[larger] *= 1.0001
        assert Int8(changed)(x)[0, 100] == pytest.approx(float(Int8(changed)(x)[0, 2000]), abs=0.1)
        assert Screen(changed)(x, 7) == [larger, larger]


def test_too_many_of_them() -> None:
    linear = output()
    linear.weight[: 2 * MANY] = 1.0
    assert Screen(linear)(torch.ones(1, 64), 0) is None


def test_products_that_round_otherwise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = output()
    assert screen_of(linear) is not None
    honest = Screen._products

    def towards_zero(self: Screen, u: Tensor) -> Tensor:
        return honest(self, torch.trunc(u * self.steps) / self.steps)

    monkeypatch.setattr(Screen, "_products", towards_zero)
    assert screen_of(linear) is None


def test_a_model_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of several rows, with the screen and with all logits."""
    config = Config(
        model=ModelConfig(
            width=32, ffn=32, heads=2, encoder_layers=1, decoder_layers=1, tie="none"
        ),
        policy=PolicyConfig(name="offline"),
    )
    torch.manual_seed(0)
    plain = build(config, 50, 2500).eval()
    written = []
    with torch.inference_mode():
        for large in (10_000, 2_000):
            monkeypatch.setattr(screen, "LARGE", large)
            model = plain.prepare_inference()
            assert (model.screen is None) == (large == 10_000)
            state = model.initial_state(3)
            source = torch.arange(5, 20).view(3, 5)
            model.extend(source, state, [0, 1, 2], [5, 5, 5], [True] * 3)
            tokens, all_of_them = [1, 1, 1], []
            for _ in range(12):
                step = model.step(tokens, state, [0, 1, 2], [0.5] * 3)
                tokens = step.best(3)
                all_of_them.append(tokens)
                model.commit(step.rows, state)
            written.append(all_of_them)
    assert written[0] == written[1]
    assert plain.train().screen is None
