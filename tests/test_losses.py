"""Each loss term alone: its value by hand, its gradient, padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, pad

from simultan import losses
from simultan.config import LossConfig
from simultan.data.batching import Batch


@dataclass
class Output:
    hidden: Tensor
    delays: Tensor | None
    hard: Tensor | None = None
    shift: Tensor | None = None


class Fixed(nn.Module):
    """A stand-in model: hidden states and delays are given, the projection is a matrix."""

    def __init__(self, hidden: Tensor, delays: Tensor | None, size: int = 7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        weight = torch.randn(size, hidden.shape[-1], generator=generator, dtype=hidden.dtype)
        self.weight, self.output = nn.Parameter(weight), Output(hidden, delays)

    def forward(self, batch: Batch) -> Output:
        return self.output

    def project(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight.T


def make_batch(source_lengths: list[int], target_lengths: list[int], size: int = 7) -> Batch:
    generator = torch.Generator().manual_seed(2)
    shape = len(target_lengths), max(target_lengths)
    return Batch(
        source=torch.ones(len(source_lengths), max(source_lengths), dtype=torch.int64),
        source_lengths=torch.tensor(source_lengths),
        target=torch.randint(size, shape, generator=generator),
        target_lengths=torch.tensor(target_lengths),
    )


def mask(lengths: Tensor, size: int) -> Tensor:
    return torch.arange(size) < lengths[:, None]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [3, 2048])
def test_cross_entropy_is_torchs(smoothing, chunk, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_ROWS", chunk)
    batch = make_batch([3, 3], [5, 2])
    model = Fixed(torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True), None)
    found = losses.terms(model, batch, LossConfig(label_smoothing=smoothing))
    found.smooth.backward()
    gradients = model.weight.grad, model.output.hidden.grad
    model.weight.grad = model.output.hidden.grad = None

    logits = model.project(model.output.hidden)[mask(batch.target_lengths, 5)]
    labels = batch.target[mask(batch.target_lengths, 5)]
    wanted = cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    wanted.backward()
    torch.testing.assert_close(found.smooth, wanted)
    torch.testing.assert_close(found.nll, cross_entropy(logits, labels, reduction="sum"))
    torch.testing.assert_close(gradients[0], model.weight.grad)
    torch.testing.assert_close(gradients[1], model.output.hidden.grad)
    assert (found.tokens, found.sentences) == (7, 2)
    assert found.latency_average == 0
    assert found.latency_variance == 0


def test_cross_entropy_by_hand():
    # Logits (ln 2, 0, 0), target 0: lse = ln 4, nll = ln 2, smoothed adds eps (ln 2 - mean).
    model = Fixed(torch.log(torch.tensor([[[2.0, 1.0, 1.0]]])), None, size=3)
    model.weight.data = torch.eye(3)
    batch = make_batch([1], [1])._replace(target=torch.tensor([[0]]))
    found = losses.terms(model, batch, LossConfig(label_smoothing=0.3))
    ln2 = torch.log(torch.tensor(2.0))
    torch.testing.assert_close(found.nll, ln2)
    torch.testing.assert_close(found.smooth, ln2 + 0.3 * (ln2 - ln2 / 3))


def test_bfloat16_logits_are_summed_in_float32():
    hidden = torch.randn(2, 64, 16).bfloat16()
    model = Fixed(hidden, None, size=1000).bfloat16()
    batch = make_batch([3, 3], [64, 64], size=1000)
    found = losses.terms(model, batch, LossConfig(label_smoothing=0.1))
    logits = model.project(hidden).float().flatten(0, 1)
    wanted = cross_entropy(logits, batch.target.flatten(), label_smoothing=0.1, reduction="sum")
    assert found.smooth.dtype == torch.float32
    torch.testing.assert_close(found.smooth, wanted)


def test_average_latency_by_hand():
    # Two heads at (1, 3) for both tokens of a 4-word source. The softmax average of the delays
    # is g = (e 1 + e^3 3) / (e + e^3), so DAL = mean(g, max(g - 4/2, g)) = g. The average of
    # the two heads' own DALs would be (1 + 3) / 2.
    delays = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1).expand(1, 1, 2, 2)
    found = losses.weighted_average_latency(delays, torch.tensor([4]), torch.tensor([2]))
    e = torch.e
    torch.testing.assert_close(found, torch.tensor((e + 3 * e**3) / (e + e**3)))


def test_average_latency_weighs_layers_and_heads_together_per_token():
    # Heads that swap the lead: the slow one counts at every token, which no average over the
    # scores of heads can see. DAL of (9, 9) over 10 words and 2 tokens is (9 + 9) / 2.
    delays = torch.tensor([[9.0, 1.0], [1.0, 9.0]])
    for shape in [(1, 2, 1, 2), (1, 1, 2, 2)]:
        found = losses.weighted_average_latency(
            delays.view(shape), torch.tensor([10]), torch.tensor([2])
        )
        torch.testing.assert_close(found, torch.tensor(9.0), atol=0.01, rtol=0)


def test_variance_by_hand():
    # First sentence: variances 1 (of 1, 3) and 4 (of 0, 4), mean 2.5; second: one token, 9.
    delays = torch.tensor([[[1.0, 0.0], [3.0, 4.0]], [[1.0, 50.0], [7.0, 90.0]]])[:, None]
    found = losses.head_variance(delays, torch.tensor([2, 1]))
    torch.testing.assert_close(found, torch.tensor(2.5 + 9.0))
    torch.testing.assert_close(
        losses.head_variance(delays.transpose(1, 2), torch.tensor([2, 1])), found
    )


@pytest.mark.parametrize("term", ["smooth", "nll", "latency_average", "latency_variance"])
def test_gradients(term):
    batch = make_batch([4, 6], [3, 5])

    def run(hidden: Tensor, delays: Tensor) -> Tensor:
        found = losses.terms(Fixed(hidden, delays), batch, LossConfig())
        return getattr(found, term)

    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    delays = torch.rand(2, 2, 3, 5, generator=generator, dtype=torch.float64) * 5 + 1
    assert torch.autograd.gradcheck(run, (hidden, delays.requires_grad_()))


@pytest.mark.parametrize("rubbish", [0.0, 1e4, float("nan")])
def test_padding_contributes_nothing(rubbish):
    batch = make_batch([4, 6], [3, 5])
    hidden = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    delays = (torch.rand(2, 2, 3, 5, dtype=torch.float64) * 5 + 1).requires_grad_()
    config = LossConfig(lambda_avg=0.3, lambda_var=0.7)
    plain = losses.terms(Fixed(hidden, delays), batch, config)
    losses.total(plain, plain.tokens, plain.sentences, config).backward()
    gradients = hidden.grad.clone(), delays.grad.clone()
    assert not gradients[1][0, ..., 3:].any()
    hidden.grad = delays.grad = None

    keep = mask(batch.target_lengths, 5)
    longer = batch._replace(
        source=pad(batch.source, (0, 3)),
        target=pad(torch.where(keep, batch.target, 0), (0, 2)),
    )
    spoiled = pad(torch.where(keep[:, None, None], delays, rubbish), (0, 2), value=rubbish)
    found = losses.terms(Fixed(pad(hidden, (0, 0, 0, 2)), spoiled), longer, config)
    losses.total(found, found.tokens, found.sentences, config).backward()
    for name, one, other in zip(plain._fields, plain, found, strict=True):
        torch.testing.assert_close(one, other, msg=name)
    torch.testing.assert_close(hidden.grad, gradients[0])
    torch.testing.assert_close(delays.grad, gradients[1])


def test_a_row_of_length_zero_counts_for_nothing():
    batch = make_batch([4, 6], [3, 5])
    hidden, delays = torch.randn(2, 5, 4), torch.rand(2, 2, 3, 5) * 5 + 1
    plain = losses.terms(Fixed(hidden, delays), batch, LossConfig())
    more = Batch(*(torch.cat([t, torch.zeros_like(t[:1])]) for t in batch))
    model = Fixed(torch.cat([hidden, hidden[:1]]), torch.cat([delays, delays[:1]]))
    for one, other in zip(plain, losses.terms(model, more, LossConfig()), strict=True):
        torch.testing.assert_close(one, other)


def test_total_weighs_each_term_once():
    values = torch.tensor([8.0, 10.0, 3.0, 6.0, 4.0, 5.0, 2.0])
    sums = losses.LossTerms(*values)
    config = LossConfig(lambda_avg=0.5, lambda_var=0.25, rdrop=7.0, ramp=10)
    found = losses.total(sums, sums.tokens, sums.sentences, config)
    translation, latency = 10 / 5 + 7.0 * 3 / 5, 0.5 * 6 / 2 + 0.25 * 4 / 2
    torch.testing.assert_close(found, torch.tensor(translation + latency))
    weights = losses.latency_weights(config, 4)
    found = losses.total(sums, sums.tokens, sums.sentences, config, weights)
    torch.testing.assert_close(found, torch.tensor(translation + 0.4 * latency))
    assert losses.latency_weights(config, 11) == losses.latency_weights(config) == (0.5, 0.25)
    assert losses.latency_weights(replace(config, ramp=0), 1) == (0.5, 0.25)


def test_the_papers_scale_weighs_latency_against_the_nll_of_a_sentence():
    sums = losses.LossTerms(*torch.tensor([8.0, 10.0, 0.0, 6.0, 4.0, 5.0, 2.0]))
    config = LossConfig(lambda_avg=0.5, lambda_var=0.25, scale="sentence")
    found = losses.total(sums, sums.tokens, sums.sentences, config)
    nll_of_a_sentence, tokens_of_a_sentence = 10 / 2, 5 / 2
    wanted = (nll_of_a_sentence + 0.5 * 6 / 2 + 0.25 * 4 / 2) / tokens_of_a_sentence
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_latency_is_graded_by_the_shift():
    """A sentence counts exp(grade shift) times, in its latency alone."""
    batch = make_batch([4, 6], [3, 5])
    hidden, delays = torch.randn(2, 5, 4), torch.rand(2, 2, 3, 5) * 4 + 1
    model, plain = Fixed(hidden, delays), Fixed(hidden, delays)
    model.output.shift = torch.tensor([2.0, -1.0])
    found = losses.terms(model, batch, LossConfig(lambda_grade=0.5))
    each = [
        losses.terms(Fixed(hidden[[n]], delays[[n]]), Batch(*(t[[n]] for t in batch)), LossConfig())
        for n in range(2)
    ]
    wanted = math.exp(1.0) * each[0].latency_average + math.exp(-0.5) * each[1].latency_average
    torch.testing.assert_close(found.latency_average, wanted)
    whole = losses.terms(plain, batch, LossConfig(lambda_grade=0.5))  # nothing was shifted
    assert whole.latency_average == losses.terms(plain, batch, LossConfig()).latency_average
    for name in set(found._fields) - {"latency_average"}:
        assert getattr(found, name) == getattr(whole, name)


def test_latency_of_the_hard_rows_alone():
    """It is the mean over these rows, counted for as many sentences as there are."""
    batch = make_batch([4, 6, 5], [3, 5, 4])
    hidden, delays = torch.randn(3, 5, 4), torch.rand(3, 2, 3, 5) * 4 + 1
    delays.requires_grad_()
    model = Fixed(hidden, delays)
    model.output.hard = torch.tensor([True, False, True])
    found = losses.terms(model, batch, LossConfig(on_hard=True))
    rows = [0, 2]
    few = Batch(*(t[rows] for t in batch))
    wanted = losses.terms(Fixed(hidden[rows], delays[rows]), few, LossConfig())
    torch.testing.assert_close(found.latency_average / 3, wanted.latency_average / 2)
    torch.testing.assert_close(found.latency_variance / 3, wanted.latency_variance / 2)
    (gradient,) = torch.autograd.grad(found.latency_average + found.latency_variance, delays)
    assert not gradient[1].any()
    assert gradient[0].any()
    model.output.hard = torch.zeros(3, dtype=torch.bool)
    nothing = losses.terms(model, batch, LossConfig(on_hard=True))
    assert (nothing.latency_average, nothing.latency_variance) == (0, 0)


@pytest.mark.parametrize("chunk", [3, 2048])
def test_two_passes(chunk, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_ROWS", chunk)
    batch = make_batch([4, 6], [3, 5])
    torch.manual_seed(0)
    hidden = torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True)  # two passes
    delays = torch.rand(2, 2, 2, 3, 5, dtype=torch.float64) * 5 + 1
    model = Fixed(hidden.flatten(0, 1), delays.flatten(0, 1))
    found = losses.terms(model, batch, LossConfig(rdrop=1.0))
    each = [
        losses.terms(Fixed(h, d), batch, LossConfig()) for h, d in zip(hidden, delays, strict=True)
    ]
    for name in found._fields:
        if name != "divergence":
            mean = (getattr(each[0], name) + getattr(each[1], name)) / 2
            torch.testing.assert_close(getattr(found, name).double(), mean.double(), msg=name)
    p, q = (model.project(h)[mask(batch.target_lengths, 5)].log_softmax(-1) for h in hidden)
    wanted = (kl_div(p, q, reduction="sum", log_target=True) + kl_div(
        q, p, reduction="sum", log_target=True
    )) / 2  # fmt: skip
    torch.testing.assert_close(found.divergence, wanted)
    gradients = torch.autograd.grad(found.divergence, hidden, retain_graph=True)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, hidden))
    same = Fixed(torch.cat([hidden[0], hidden[0]]), torch.cat([delays[0], delays[0]]))
    assert abs(losses.terms(same, batch, LossConfig(rdrop=1.0)).divergence) < 1e-12


def test_sums_of_parts_are_the_sums_of_the_whole():
    batch = make_batch([4, 6, 2], [3, 5, 5])
    hidden, delays = torch.randn(3, 5, 4), torch.rand(3, 2, 3, 5) * 5 + 1
    whole = losses.terms(Fixed(hidden, delays), batch, LossConfig())
    parts = [
        losses.terms(
            Fixed(hidden[rows], delays[rows]),
            Batch(*(t[rows] for t in batch)),
            LossConfig(),
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    for one, *others in zip(whole, *parts, strict=True):
        torch.testing.assert_close(one, sum(others))
