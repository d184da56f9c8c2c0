"""What a step hands to agents: logits, decoder states, attention, and how much a row sees."""

import pytest
import torch
from test_streaming_parity import ARCHITECTURES, draw, extend, make

from simultan.data.vocabulary import BOS


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", ["plain", "windowed"])
def test_attention_and_hidden(architecture: str, variant: str) -> None:
    """The weights are those the context was made with, and logits come from the hidden state."""
    model = make("offline", architecture, variant)
    batches = [draw(7, 5, seed=1), draw(4, 5, seed=2)]
    with torch.no_grad():
        state = model.initial_state(2)
        for row, batch in enumerate(batches):
            extend(model, state, batch.source[0], True, row)
        step = model.step([BOS, BOS], state, [0, 1], [0.5, 0.5], attention=True)
        again = model.step([BOS, BOS], state, [0, 1], [0.5, 0.5])
        one = model.step([BOS], state, [1], [0.5], attention=True)
    assert again.attention is None
    assert step.attention is not None
    assert one.attention is not None
    torch.testing.assert_close(step.logits, again.logits)
    torch.testing.assert_close(model.project(step.hidden), step.logits)
    layers = len(model.cross_attentions())
    heads = model.cross_attentions()[0].heads
    assert step.attention.shape == (2, layers, heads, 7)
    assert not step.attention[1, :, :, 4:].any()
    torch.testing.assert_close(step.attention.sum(-1), torch.ones(2, layers, heads).double())
    torch.testing.assert_close(one.attention[0], step.attention[1, :, :, :4])
    if variant == "windowed":
        assert not step.attention[0, :, :, :4].any()  # a window of three


def test_attention_is_not_for_heads_that_select() -> None:
    model = make("mma-il", "transformer", "plain")
    state = model.initial_state(1)
    with pytest.raises(ValueError, match="mma-il"):
        model.step([BOS], state, [0], [0.5], attention=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_limit(architecture: str) -> None:
    """A row limited to n tokens writes what a row that has read n tokens would."""
    model = make("offline", architecture, "plain")
    source = draw(8, 5, seed=3).source[0]
    with torch.no_grad():
        long, short = model.initial_state(2), model.initial_state(1)
        for row in range(2):
            extend(model, long, source, True, row)
        extend(model, short, source[:3], False)
        short.limit(0, 3)
        long.limit(1, 3)
        both = model.step([BOS, BOS], long, [0, 1], [0.5, 0.5])
        wanted = model.step([BOS], short, [0], [0.5])
        torch.testing.assert_close(both.logits[1:], wanted.logits)
        assert (both.logits[0] - both.logits[1]).abs().max() > 1e-3
        assert both.positions[1].max() == 2
        short.limit(0, 4)  # that token has not come
        assert not model.step([BOS], short, [0], [0.5]).rows
        short.limit(0, None)  # as much as the policy says: all, and the end has not come
        assert not model.step([BOS], short, [0], [0.5]).rows
        long.limit(1, 99)  # there are no more
        assert model.step([BOS], long, [1], [0.5]).positions.max() == 7
