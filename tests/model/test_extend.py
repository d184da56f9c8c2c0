"""Rows that read words of different lengths together read what each reads alone."""

import pytest
import torch
from test_streaming_parity import ARCHITECTURES, VARIANTS, make


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_words_of_different_lengths(architecture: str, variant: str) -> None:
    if architecture == "recurrent" and variant == "rotary post-norm":
        variant = "plain"
    model = make("mma-il", architecture, variant, seed=2)
    generator = torch.Generator().manual_seed(0)
    together = model.initial_state(4)
    alone = [model.initial_state(1) for _ in range(4)]
    turns = [([0, 1, 3], [1, 1, 4]), ([3, 0, 2], [1, 5, 1]), ([1, 2], [2, 1]), ([0, 2], [1, 8])]
    with torch.no_grad():
        for rows, counts in turns:
            width = max(counts)
            tokens = torch.randint(4, 19, (len(rows), width), generator=generator)
            model.extend(tokens, together, rows, counts, [False] * len(rows))
            for row, count, line in zip(rows, counts, tokens, strict=True):
                model.extend(line[None, :count], alone[row], [0], [count], [False])
    for row, own in enumerate(alone):
        length = own.available[0]
        assert together.available[row] == length
        for ours, others in zip(own.source_caches, together.source_caches, strict=True):
            assert ours.base[0] == others.base[row] == 0
            torch.testing.assert_close(
                [layer[row, :length] for layer in others.layers],
                [layer[0, :length] for layer in ours.layers],
            )
