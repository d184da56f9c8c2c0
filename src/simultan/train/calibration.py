"""The bias of each selecting head, so that it begins to follow the diagonal of a batch.

The projections of an offline model can be taken over to select by, but a softmax knows no offset:
its energies may lie all above or all below 0, and then a head stops at once or never. The bias is
where the expected delays g_i of a head have the mean of i |x| / |y| + lag, found by bisection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simultan.data.batching import Batch
from simultan.model import TranslationModel
from simultan.model.attention import MonotonicAttention, split_heads
from simultan.model.policy import p_choose
from simultan.ops import expected_alignment

LAG = 4.0  # source tokens behind the diagonal, to begin with
BOUND = 32.0  # of a bias
HALVINGS = 24


@torch.no_grad()
def calibrate(model: TranslationModel, batch: Batch, lag: float = LAG) -> None:
    """Set the energy biases of all heads, layer by layer: each sees those before it set."""

    def before(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(attention, MonotonicAttention)
        if attention.selecting_heads and attention.energy_bias is not None:
            _set_bias(attention, inputs[0], inputs[1], batch, lag)

    hooks = [a.register_forward_pre_hook(before) for a in model.cross_attentions()]
    was_training = model.training
    model.eval()
    try:
        model(batch)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)


def _set_bias(
    attention: MonotonicAttention, x: Tensor, memory: Tensor, batch: Batch, lag: float
) -> None:
    bias, heads = attention.energy_bias, attention.selecting_heads
    assert bias is not None
    bias.zero_()
    query = split_heads(attention.select_query(x), heads)
    energy = attention.energy(query, split_heads(attention.select_key(memory), heads))
    index = torch.arange(1, x.shape[1] + 1, device=x.device)
    keep = index <= batch.target_lengths[:, None]  # [B, T]
    source = batch.source_lengths[:, None].to(x)
    diagonal = index * source / batch.target_lengths.clamp(min=1)[:, None] + lag
    wanted = torch.minimum(diagonal, source)[keep].mean()
    positions = torch.arange(1, memory.shape[1] + 1, device=x.device)
    low, high = torch.full_like(bias, -BOUND), torch.full_like(bias, BOUND)
    for _ in range(HALVINGS):  # a larger bias stops earlier
        middle = (low + high) / 2
        p = p_choose(energy + middle, batch.source_lengths, 0.0, attention.spread)
        delays = (expected_alignment(p, batch.source_lengths) * positions).sum(-1)  # [B, H, T]
        mean = torch.stack([delays[:, head][keep].mean() for head in range(heads)])
        late = (mean > wanted).view_as(bias)
        low, high = torch.where(late, middle, low), torch.where(late, high, middle)
    bias.copy_((low + high) / 2)
