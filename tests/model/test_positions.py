"""Positions of a stream: the same bits from the table, beyond it, in one row and in many."""

import pytest
import torch

from simultan.config import ModelConfig
from simultan.model.transformer import PAGE, Embedding, page


@pytest.mark.parametrize("count", [1, 3])
def test_a_position_is_the_same_however_it_is_found(count: int) -> None:
    embedding = Embedding(ModelConfig(width=24, heads=2, first_position=2), 5)
    tokens = torch.tensor([[1, 2, 3]])[:, :count]
    for start in (0, PAGE - count, PAGE - 1, PAGE, 3 * PAGE - 2, 3 * PAGE, 100_000):
        found = embedding.step(tokens, [start])
        positions = torch.arange(start, start + count)
        expected = embedding.tokens(tokens) * embedding.scale + embedding.waves(positions)
        assert torch.equal(found, expected)
        many = embedding.step(tokens.expand(2, -1), [start, 7])
        assert torch.equal(many[:1], found)


def test_few_pages_are_kept() -> None:
    """However long a stream is."""
    embedding = Embedding(ModelConfig(width=24, heads=2), 5)
    for number in range(1, 20):
        embedding.step(torch.tensor([[1]]), [number * PAGE])
    info = page.cache_info()
    assert info.currsize == info.maxsize == 8
