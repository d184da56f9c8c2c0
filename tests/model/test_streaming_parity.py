"""Training and streaming are one model: forward() equals step() wherever p_choose is certain."""

import math

import pytest
import torch
from torch import Tensor

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel, build
from simultan.model.policy import NO_CHANCE, Chance
from simultan.model.state import State

POLICIES = ["hard", "mocha", "milk", "mma-h", "mma-il", "wait-k", "offline"]
ARCHITECTURES = ["transformer", "recurrent"]
VARIANTS = {
    "plain": ModelConfig(width=16, ffn=24, heads=2, encoder_layers=2, decoder_layers=3),
    "rotary post-norm": ModelConfig(
        width=16, ffn=24, heads=2, encoder_layers=1, decoder_layers=2, positions="rotary",
        norm="post",
    ),
    "windowed": ModelConfig(
        width=16, ffn=24, heads=2, encoder_layers=1, decoder_layers=2, window=3
    ),
    "more decoder heads": ModelConfig(
        width=16, ffn=24, heads=2, decoder_heads=4, encoder_layers=1, decoder_layers=2
    ),
}  # fmt: skip


def make(policy: str, architecture: str, variant: str, seed: int = 0) -> TranslationModel:
    base = VARIANTS[variant]
    shape = ModelConfig(**{**base.__dict__, "architecture": architecture, "dropout": 0.0})
    config = Config(
        model=shape,
        policy=PolicyConfig(name=policy, chunk=2, k=(2,), energy_bias=-0.2),  # type: ignore[arg-type]
    )
    torch.manual_seed(seed)
    model = build(config, 23, 19).double().eval()
    with torch.no_grad():  # saturated and, with random projections, different in every head
        for attention in model.cross_attentions():
            if attention.selecting_heads:
                attention.select_query.weight *= 1e7
                attention.select_query.bias.normal_(0, 1e7)
                attention.energy_bias *= 1e7
    return model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["hard", "mocha", "milk", "mma-h", "mma-il"])
@pytest.mark.parametrize(("spread", "shift"), [(0.0, 0.0), (2.0, 0.5), (2.0, -1.0), (2.0, 2.0)])
def test_a_hard_row_is_trained_on_what_it_will_stream(
    policy: str, architecture: str, spread: float, shift: float
) -> None:
    """Heads of any certainty: where policy.hard holds, forward() stops where step() stops; and
    shifted energies are another threshold."""
    shape = ModelConfig(
        architecture=architecture,  # type: ignore[arg-type]
        width=16, ffn=24, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0,
    )  # fmt: skip
    chosen = PolicyConfig(
        name=policy,  # type: ignore[arg-type]
        chunk=2, hard=1.0, noise=3.0, energy_bias=0.0, spread=spread,
    )  # fmt: skip
    torch.manual_seed(4)
    model = build(Config(model=shape, policy=chosen), 23, 19).double()
    batch = draw(source=9, target=8, seed=1)
    hard, _ = model.chance(batch)
    assert hard is not None
    shifts = torch.full((1,), shift, dtype=torch.double)
    model.chance = lambda batch: Chance(hard, shifts)  # type: ignore[method-assign]
    output = model(batch)
    logits = model.project(output.hidden)[0]
    logits.logsumexp(-1).sum().backward()
    gradients = [a.select_query.weight.grad for a in model.cross_attentions() if a.selecting_heads]
    assert all(g is not None and g.isfinite().all() and g.any() for g in gradients)
    model.chance = lambda batch: NO_CHANCE  # type: ignore[method-assign]
    with torch.no_grad():
        threshold = 1 / (1 + math.exp(shift))
        streamed, positions, _ = stream(model.eval(), batch, [9], threshold)
        soft = model.project(model(batch).hidden)[0]
    torch.testing.assert_close(logits.detach(), streamed)
    assert (soft - streamed).abs().max() > 1e-3  # expected attention is something else
    assert output.delays is not None
    stops = torch.tensor(positions).permute(1, 2, 0)[None] + 1.0  # [1, L, H, T]
    torch.testing.assert_close(output.delays.detach(), stops.double())


def draw(source: int, target: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, 23, (1, source), generator=generator)
    y = torch.randint(4, 19, (1, target), generator=generator)
    x[:, -1] = EOS
    return Batch(x, torch.tensor([source]), y, torch.tensor([target]))


def extend(model: TranslationModel, state: State, tokens: Tensor, last: bool, row: int = 0) -> None:
    model.extend(tokens[None], state, [row], [len(tokens)], [last])


def stream(
    model: TranslationModel, batch: Batch, chunks: list[int], threshold: float = 0.5
) -> tuple[Tensor, list[list[list[int]]], list[int]]:
    """Teacher-forced streaming: logits [T, V], head positions, tokens read at each write."""
    source, target = batch.source[0], batch.target[0]
    state = model.initial_state(1)
    read, logits, positions, delays = 0, [], [], []
    inputs = [BOS, *target[:-1].tolist()]
    while len(logits) < len(target):
        result = model.step([inputs[len(logits)]], state, [0], [threshold])
        if result.rows:
            logits.append(result.logits[0])
            positions.append(result.positions[0].tolist())
            delays.append(read)
            state.commit([0])
        else:
            size = chunks.pop(0) if chunks else len(source)
            extend(model, state, source[read : read + size], read + size >= len(source))
            read = min(read + size, len(source))
    layers = len(model.cross_attentions())
    assert state.evaluations == layers * len(target)  # whatever was read
    return torch.stack(logits), positions, delays


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_forward_equals_step(policy: str, architecture: str, variant: str) -> None:
    if architecture == "recurrent" and variant == "rotary post-norm":
        variant = "plain"
    disagreed = False
    for seed in range(5):
        model = make(policy, architecture, variant, seed)
        batch = draw(source=9, target=8, seed=seed)
        with torch.no_grad():
            expected = model.project(model(batch).hidden)[0]
            one_by_one, positions, delays = stream(model, batch, [1] * 9)
            at_once, positions_at_once, _ = stream(model, batch, [9])
            ragged, positions_ragged, _ = stream(model, batch, [2, 1, 3, 1, 2])
        torch.testing.assert_close(one_by_one, expected)
        torch.testing.assert_close(at_once, expected)
        torch.testing.assert_close(ragged, expected)
        assert positions == positions_at_once == positions_ragged
        # it wrote as soon as it could: what was read is what the furthest head stands on
        for written, read in zip(positions, delays, strict=True):
            assert max(max(layer) for layer in written) <= read - 1
        furthest = [max(max(layer) for layer in written) for written in positions]
        first = [read for i, read in enumerate(delays) if i == 0 or read > delays[i - 1]]
        assert first[0] == furthest[0] + 1
        disagreed |= any(len({p for layer in w for p in layer}) > 1 for w in positions)
    if policy in ("mma-h", "mma-il"):
        assert disagreed


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_expected_delays_are_the_positions(policy: str, architecture: str) -> None:
    model = make(policy, architecture, "plain")
    batch = draw(source=9, target=8, seed=1)
    with torch.no_grad():
        delays = model(batch).delays
        _, positions, _ = stream(model, batch, [9])
    if delays is None:
        assert policy in ("wait-k", "offline")
        return
    hard = torch.tensor(positions).permute(1, 2, 0) + 1  # [L, H, T], from 1
    torch.testing.assert_close(delays[0], hard.to(delays))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_independent(policy: str, architecture: str) -> None:
    """B rows that read at their own pace, blocked in different layers, equal B streams."""
    model = make(policy, architecture, "plain", seed=5)
    batches = [draw(4 + 2 * i, 5 + i, seed=10 + i) for i in range(4)]
    with torch.no_grad():
        alone = [stream(model, batch, [1] * 20)[0] for batch in batches]
        state = model.initial_state(4)
        read, logits = [0] * 4, [[] for _ in range(4)]
        pace = [1, 2, 3, 1]
        for turn in range(100):
            rows = [r for r in range(4) if len(logits[r]) < len(alone[r])]
            if not rows:
                break
            for row in rows:  # row r reads every pace[r]-th turn
                source = batches[row].source[0]
                if turn % pace[row] == 0 and read[row] < len(source):
                    new = source[read[row] : read[row] + 1]
                    read[row] += 1
                    extend(model, state, new, read[row] == len(source), row)
            for _ in range(3):
                rows = [r for r in range(4) if len(logits[r]) < len(alone[r])]
                tokens = [
                    BOS if not logits[r] else int(batches[r].target[0, len(logits[r]) - 1])
                    for r in rows
                ]
                result = model.step(tokens, state, rows, [0.5] * len(rows))
                state.commit(result.rows)
                for row, values in zip(result.rows, result.logits, strict=True):
                    logits[row].append(values)
    for row in range(4):
        torch.testing.assert_close(torch.stack(logits[row]), alone[row])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_cannot_be_heard(policy: str, architecture: str) -> None:
    """Change a token no head has reached: what was written before is the same to the bit."""
    model = make(policy, architecture, "plain", seed=3)
    batch = draw(source=10, target=9, seed=4)
    changed = Batch(batch.source.clone(), batch.source_lengths, batch.target, batch.target_lengths)
    with torch.no_grad():
        logits, positions, _ = stream(model, batch, [10])
        furthest = [max(max(layer) for layer in written) for written in positions]
        for token in range(1, 9):
            changed.source.copy_(batch.source)
            changed.source[0, token] = 4 + (int(batch.source[0, token]) - 3) % 19
            again, _, _ = stream(model, changed, [10])
            unaffected = sum(f < token for f in furthest)
            assert torch.equal(again[:unaffected], logits[:unaffected])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["mma-il", "mma-h", "offline", "wait-k"])
def test_padding_changes_nothing(policy: str, architecture: str) -> None:
    model = make(policy, architecture, "plain")
    short, long = draw(5, 4, seed=1), draw(9, 8, seed=2)

    def pad(x: Tensor, size: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, size - x.shape[1]))

    both = Batch(
        torch.cat([pad(short.source, 9), long.source]),
        torch.tensor([5, 9]),
        torch.cat([pad(short.target, 8), long.target]),
        torch.tensor([4, 8]),
    )
    together, alone = model(both), model(short)
    torch.testing.assert_close(together.hidden[0, :4], alone.hidden[0])
    if alone.delays is not None:
        torch.testing.assert_close(together.delays[0, :, :, :4], alone.delays[0])


def test_offline_attention_is_softmax_attention() -> None:
    model = make("offline", "transformer", "plain")
    batch = draw(7, 5, seed=0)
    attention = model.cross_attentions()[0]
    x, memory = torch.randn(1, 5, 16).double(), torch.randn(1, 7, 16).double()
    stops = model.fixed_stops(batch)
    q, k, v = (
        p(y).view(1, -1, 2, 8).transpose(1, 2)
        for p, y in ((attention.query, x), (attention.key, memory), (attention.value, memory))
    )
    context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    expected = context.transpose(1, 2).reshape(1, 5, 16)
    torch.testing.assert_close(attention.forward_fixed(x, memory, stops), expected)


def test_a_long_stream_keeps_a_bounded_cache() -> None:
    """A windowed mma-h model drops what it can no longer see."""
    model = make("mma-h", "transformer", "windowed")
    with torch.no_grad():
        for attention in model.cross_attentions():  # stop at once: heads follow the source
            attention.select_query.weight.zero_()
            attention.select_query.bias.zero_()
            attention.energy_bias.fill_(-1.0)
        state = model.initial_state(1)
        for i in range(2000):
            extend(model, state, torch.tensor([4 + i % 19]), False)
            state.skip_to(0, i)  # as after an end of sentence: move on
            for attention in model.cross_attentions():
                attention.energy_bias.fill_(1.0)
            result = model.step([5 + i % 7], state, [0], [0.5])
            state.commit(result.rows)
        assert state.length[0] == 2000
        assert max(state.slots()) <= 64
