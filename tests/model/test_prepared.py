"""A prepared model translates as it did: other layouts, the same numbers but for rounding."""

import pytest
import torch
from test_streaming_parity import ARCHITECTURES, POLICIES, VARIANTS, draw, make, stream

from simultan.data.batching import Batch
from simultan.model import TranslationModel, kernels
from simultan.model.linear import Joined, Packed, Tiled
from simultan.model.pages import Pages


def soft(policy: str, architecture: str, variant: str = "plain") -> TranslationModel:
    """In float32, for which the layouts are; energies are large, yet far from overflow."""
    model = make(policy, architecture, variant, seed=2)
    with torch.no_grad():
        for attention in model.cross_attentions():
            if attention.selecting_heads:
                attention.select_query.weight /= 1e5
                attention.select_query.bias /= 1e5
                attention.energy_bias /= 1e5
    return model.float()


def stream_together(model: TranslationModel, batches: list[Batch]) -> list[torch.Tensor]:
    """Rows in step, each with its whole source at once, forced to their targets."""
    state = model.initial_state(len(batches))
    rows = list(range(len(batches)))
    tokens = torch.cat([batch.source for batch in batches])
    model.extend(tokens, state, rows, [tokens.shape[1]] * len(rows), [True] * len(rows))
    logits, last = [], [1] * len(rows)
    for i in range(batches[0].target.shape[1]):
        step = model.step(last, state, rows, [0.5] * len(rows))
        assert step.rows == rows
        state.commit(rows)
        logits.append(step.logits)
        last = [int(batch.target[0, i]) for batch in batches]
    return list(torch.stack(logits, 1))


@pytest.mark.usefixtures("kernels_or_none")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_prepared_is_unprepared(policy: str, architecture: str, variant: str) -> None:
    if architecture == "recurrent" and variant == "rotary post-norm":
        variant = "plain"
    model = soft(policy, architecture, variant)
    batches = [draw(source=9, target=8, seed=seed) for seed in range(3)]
    with torch.no_grad():
        expected = [stream(model, batch, [1, 2, 1, 3, 2]) for batch in batches]
        together = stream_together(model, batches)
        model.prepare_inference()
        assert isinstance(model.output.layout, Tiled if kernels.find() else Packed)
        for batch, (logits, positions, delays) in zip(batches, expected, strict=True):
            again, positions_again, delays_again = stream(model, batch, [1, 2, 1, 3, 2])
            torch.testing.assert_close(again, logits, rtol=1e-4, atol=1e-4)
            assert (positions_again, delays_again) == (positions, delays)
        for row, logits in zip(stream_together(model, batches), together, strict=True):
            torch.testing.assert_close(row, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_packed_is_linear(rows: int, threads: int) -> None:
    """Narrow and wide, alone and side by side, of any number of outputs."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        narrow, wide = torch.nn.Linear(24, 40), torch.nn.Linear(24, 1101, bias=False)
        x = torch.randn(rows, 24)
        with torch.no_grad():
            for linears in ([narrow], [wide], [narrow, wide]):
                packed = Packed(linears, Pages())(x)
                plain = torch.cat([each(x) for each in linears], -1)
                torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(Joined(linears)(x), plain, rtol=1e-4, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_row_is_many_rows(architecture: str) -> None:
    """The same sentence in two rows takes the other path."""
    model = make("mma-il", architecture, "plain", seed=4)
    with torch.no_grad():
        for length in (9, 40):  # more than a CPU scans in one go, more than a fresh cache holds
            batches = [draw(source=length, target=length, seed=seed) for seed in range(3)]
            together = stream_together(model, batches)
            for batch, row in zip(batches, together, strict=True):
                torch.testing.assert_close(row, stream(model, batch, [length])[0])


def test_double_precision_is_joined() -> None:
    model = make("mma-il", "transformer", "plain").prepare_inference()
    assert isinstance(model.output.layout, Joined)
    batch = draw(source=7, target=5, seed=0)
    with torch.no_grad():
        logits = stream(model, batch, [7])[0]
        torch.testing.assert_close(logits, model.project(model(batch).hidden)[0])


def test_training_goes_back_to_the_weights() -> None:
    model = soft("mma-il", "transformer").prepare_inference()
    model.train()
    assert not [m for m in model.modules() if getattr(m, "layout", None) is not None]
    assert not [m for m in model.modules() if getattr(m, "exact", False)]
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(set(names)) == len(model.state_dict())
