"""What a GPU compiles, it compiles once: no shape of a batch may ask for more."""

from dataclasses import replace

import pytest
import torch
from torch.fx.experimental import _config as symbols

import simultan.ops
from simultan import losses
from simultan.config import Config, LossConfig, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.model import build
from simultan.model.transformer import LayerNorm
from simultan.ops.norm_triton import layer_norm
from simultan.train.step import Objective

SHAPE = ModelConfig(width=16, ffn=32, heads=2, encoder_layers=1, decoder_layers=1)
BOTH_WAYS = replace(SHAPE, encoder="bidirectional")
SHAPES = [(4, 8, 6), (5, 10, 7), (3, 3, 9), (6, 6, 6), (8, 5, 8)]  # rows, source, target


def draw(rows: int, source: int, target: int) -> Batch:
    return Batch(
        torch.randint(4, 20, (rows, source)),
        torch.randint(source // 2, source + 1, (rows,)),
        torch.randint(4, 20, (rows, target)),
        torch.full((rows,), target),
    )


@pytest.mark.parametrize("policy", ["offline", "bidirectional", "mma-il"])
def test_one_compilation_serves_all_shapes(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = torch.compile

    def compile_quickly(*arguments: object, **options: object) -> object:
        return compiler(*arguments, **options, backend="eager", fullgraph=True)  # type: ignore[call-overload]

    monkeypatch.setattr(torch, "compile", compile_quickly)
    # the graph a GPU gets, with the kernels in it
    monkeypatch.setattr(simultan.ops, "_use_triton", lambda x, backend: True)
    monkeypatch.setattr(
        LayerNorm, "forward", lambda self, x: layer_norm(x, self.weight, self.bias, self.eps)
    )
    learned = policy == "mma-il"
    loss = LossConfig(lambda_avg=0.1, lambda_var=0.1, rdrop=1.0, lambda_grade=0.5 * learned)
    shape, name = (SHAPE, policy) if policy != "bidirectional" else (BOTH_WAYS, "offline")
    chosen = PolicyConfig(name=name, hard=0.5, spread=3.0)  # type: ignore[arg-type]
    config = Config(model=shape, policy=chosen, loss=loss)
    torch._dynamo.reset()
    objective = Objective(build(config, 20, 20), loss, True, torch.device("cpu")).train()
    counts, weights = torch.tensor([10, 3]), torch.ones(2)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows, source, target in SHAPES:
            total, _ = objective(draw(rows, source, target), counts, weights)
            assert total.isfinite()


@pytest.mark.parametrize("rdrop", [0.0, 1.0])
def test_compiled_losses_divide_no_lengths(rdrop: float) -> None:
    """A quotient of symbols is in all shapes that follow, and takes most of the time of tracing."""
    shapes: list[str] = []

    def collect(graph: torch.fx.GraphModule, _: object) -> object:
        values = [node.meta.get("example_value") for node in graph.graph.nodes]
        shapes.extend(str(tuple(x.shape)) for x in values if isinstance(x, torch.Tensor))
        return graph.forward

    loss = LossConfig(rdrop=rdrop)
    config = Config(model=SHAPE, policy=PolicyConfig(name="offline"), loss=loss)
    torch._dynamo.reset()
    model = build(config, 20, 20).train()
    compiled = torch.compile(losses.measure, dynamic=True, fullgraph=True, backend=collect)
    with symbols.patch(use_duck_shape=False):  # as where training is compiled
        found = losses.terms(model, draw(4, 8, 6), loss, compiled)
    assert any("*" in shape for shape in shapes)  # lengths are symbols
    assert not [shape for shape in shapes if "/" in shape]
    assert found.tokens == 24


@pytest.mark.parametrize("policy", ["offline", "bidirectional", "wait-k", "mma-h", "mma-il"])
def test_an_update_never_asks_the_device(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU records updates, which it refuses where the host reads a value; so does "meta"."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # knows no "meta"
    learned = policy.startswith("mma")
    loss = LossConfig(lambda_avg=0.1, lambda_var=0.1, on_hard=learned, lambda_grade=0.5 * learned)
    shape, name = (SHAPE, policy) if policy != "bidirectional" else (BOTH_WAYS, "offline")
    chosen = PolicyConfig(name=name, hard=0.5, spread=4.0, k=(1, 3, 5))  # type: ignore[arg-type]
    config = Config(model=shape, policy=chosen, loss=loss)
    with torch.device("meta"):
        model = build(config, 20, 20).to("meta").train()
        objective = Objective(model, loss, False, torch.device("meta"))
        batch = draw(4, 8, 6)
        total, _ = objective(batch, torch.tensor([10, 3]), torch.ones(2))
    total.backward()
    assert total.is_meta
