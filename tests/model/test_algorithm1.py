"""A step is Algorithm 1: it reads, writes and stops where the listing in the paper does."""

import pytest
import torch
from test_streaming_parity import draw, extend, make
from torch import Tensor

from simultan.data.vocabulary import BOS
from simultan.model import attention
from simultan.model.algorithm1 import listing


def test_the_listing_by_hand() -> None:
    """Two heads of one layer; the second waits for the third token, then for the end."""
    yes, no = 0.9, 0.1
    p = [
        [[[yes, no, no, no], [no, no, yes, no]]],
        [[[no, yes, yes, no], [no, no, no, no]]],
        [[[yes, no, yes, no], [yes, yes, yes, no]]],
    ]
    actions, stops = listing(p)
    assert stops == [[[0, 2]], [[1, 3]], [[2, 3]]]
    assert actions == ["READ", "READ", "READ", "WRITE", "READ", "WRITE", "WRITE"]


@pytest.mark.parametrize("policy", ["hard", "mocha", "milk", "mma-h", "mma-il"])
def test_steps_follow_the_listing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """forward() tells p_choose, all of it 0 or 1; a stream sees one source token at a time."""
    found: list[Tensor] = []
    align = attention.expected_alignment

    def note(p: Tensor, lengths: Tensor) -> Tensor:
        found.append(p[0])
        return align(p, lengths)

    monkeypatch.setattr(attention, "expected_alignment", note)
    for seed in range(4):
        model = make(policy, "transformer", "plain", seed)
        batch = draw(source=9, target=8, seed=seed)
        found.clear()
        with torch.no_grad():
            model(batch)
            wanted = listing(torch.stack(found).permute(2, 0, 1, 3).tolist())
            state = model.initial_state(1)
            actions, stops = [], []
            source, last = batch.source[0], [BOS, *batch.target[0].tolist()]
            while len(stops) < 8:
                step = model.step([last[len(stops)]], state, [0], [0.5])
                if step.rows:
                    actions.append("WRITE")
                    stops += step.positions.tolist()
                    state.commit([0])
                else:
                    actions.append("READ")
                    read = state.available[0]
                    extend(model, state, source[read : read + 1], read + 1 == len(source))
        assert (actions, stops) == wanted
