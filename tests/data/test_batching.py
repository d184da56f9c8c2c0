import itertools
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simultan.config import ConfigError, DataConfig
from simultan.data.batching import Batch, Batches
from simultan.data.corpus import prepare
from simultan.data.shapes import _ladders, choose_shapes
from simultan.data.shards import Corpus, TokenSide
from simultan.data.sources import TextPair
from simultan.data.vocabulary import EOS, PAD


class Pairs(Corpus):
    """A corpus in memory: pair n starts with a token that names it."""

    def __init__(self, source_lengths, target_lengths, weights=None):
        self.folder, self.split = "memory", "train"
        self.source = self._side(source_lengths)
        self.target = self._side(target_lengths)
        self._weights = weights or [(len(source_lengths), 1.0)]

    @staticmethod
    def _side(lengths):
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.full(offsets[-1], 7, np.uint32)
        tokens[offsets[1:] - 1] = EOS
        tokens[offsets[:-1]] = 100 + np.arange(len(lengths))
        return TokenSide(tokens, offsets)

    @property
    def weights(self):
        return self._weights


def lengths(count, seed=0):
    random = np.random.default_rng(seed)
    target = random.geometric(0.06, count).clip(1, 90) + 1
    return (target * random.uniform(0.5, 1.5, count)).astype(int).clip(2, 90), target


def corpus(count=3_000, seed=0):
    return Pairs(*lengths(count, seed))


def names(batch):
    return (batch.source[:, 0] - 100).tolist()


CONFIG = DataConfig(batch_tokens=1_000, max_length=64, length_step=4)


def one_epoch(made, **options):
    return list(Batches(made, CONFIG, epochs=1, **options))


@pytest.mark.parametrize("prefetch", [0, 3])
def test_every_pair_once_an_epoch_within_the_budget(prefetch):
    made = corpus()
    batches = Batches(made, CONFIG, epochs=1, prefetch=prefetch)
    seen = []
    for batch in batches:
        rows, width = batch.source.shape
        assert batch.source.dtype == batch.target_lengths.dtype == torch.int64
        assert rows * max(width, batch.target.shape[1]) <= CONFIG.batch_tokens
        assert width % 4 == batch.target.shape[1] % 4 == 0
        assert names(batch) == (batch.target[:, 0] - 100).tolist()
        for tokens, counts in (
            (batch.source, batch.source_lengths),
            (batch.target, batch.target_lengths),
        ):
            inside = torch.arange(tokens.shape[1]) < counts[:, None]
            assert (tokens[~inside] == PAD).all()
            assert (tokens[inside] != PAD).all()
            assert (tokens.gather(1, counts[:, None] - 1) == EOS).all()
        seen += names(batch)
    longest = np.maximum(made.source.lengths(), made.target.lengths())
    assert sorted(seen) == np.flatnonzero(longest <= 64).tolist()
    assert batches.left_out == (longest > 64).sum() > 0
    assert batches.describe_left_out() == (
        "111 of 3,000 pairs (3.7%) are left out: a side has more than 64 tokens (data.max_length)"
    )


def test_few_shapes_little_padding():
    made = corpus(30_000)
    batches = Batches(made, CONFIG, epochs=1)
    plan = batches.plan(0)
    full = {index for index, pairs in plan.batches if len(pairs) == batches.shapes.rows[index]}
    partial = [index for index, pairs in plan.batches if len(pairs) < batches.shapes.rows[index]]
    assert len(batches.shapes) <= 60
    assert len(full) <= 60
    assert len(partial) <= 1
    padded = sum(len(pairs) * batches.shapes.target[index] for index, pairs in plan.batches)
    real = sum(plan.target_lengths[pairs].sum() for _, pairs in plan.batches)
    assert 1 - real / padded < 0.12


def test_order_depends_on_seed_and_epoch_alone():
    made = corpus(500)
    first = list(itertools.islice(Batches(made, CONFIG, seed=3), 60))
    again = list(itertools.islice(Batches(made, CONFIG, seed=3, prefetch=0), 60))
    assert [names(b) for b in first] == [names(b) for b in again]
    other = list(itertools.islice(Batches(made, CONFIG, seed=4), 60))
    assert [names(b) for b in first] != [names(b) for b in other]
    batches = Batches(made, CONFIG, seed=3)
    orders = [[p.tolist() for _, p in batches.plan(epoch).batches] for epoch in (0, 1)]
    assert orders[0] != orders[1]


@given(count=st.integers(1, 400), world=st.integers(1, 5), seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_processes_share_the_stream(count, world, seed):
    made = corpus(count, seed)
    whole = list(itertools.islice(Batches(made, CONFIG, prefetch=0), 12 * world))
    for rank in range(world):
        own = Batches(made, CONFIG, rank=rank, world=world, prefetch=0)
        got = list(itertools.islice(own, 12))
        assert [names(b) for b in got] == [names(b) for b in whole[rank::world]]


@given(count=st.integers(20, 400), world=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_processes_get_equally_many_in_a_finite_run(count, world):
    made = corpus(count)
    parts = [one_epoch(made, rank=rank, world=world, prefetch=0) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    seen = sorted(n for part in parts for batch in part for n in names(batch))
    assert seen == sorted(n for batch in one_epoch(made, prefetch=0) for n in names(batch))


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("stop", [0, 1, 17, 18, 40])
def test_resume_equals_unbroken(world, stop):
    made = corpus(600)
    places = set()
    for rank in range(world):
        options = {"seed": 5, "rank": rank, "world": world}
        unbroken = [names(b) for b in itertools.islice(Batches(made, CONFIG, **options), 70)]
        first = Batches(made, CONFIG, **options)
        assert [names(b) for b in itertools.islice(first, stop)] == unbroken[:stop]
        places.add(tuple(first.state().items()))
        second = Batches(made, CONFIG, **options)
        second.resume(first.state())
        rest = [names(b) for b in itertools.islice(second, 70 - stop)]
        assert rest == unbroken[stop:]
        # a second loop over the same object goes on, too
        assert [names(b) for b in itertools.islice(first, 5)] == unbroken[stop : stop + 5]
    assert len(places) == 1


def test_weights_repeat_and_draw():
    made = Pairs(*lengths(300), weights=[(100, 2.0), (100, 0.25), (100, 1.5)])
    made.source, made.target = made.target, made.target  # no pair over the limit on one side only
    short = np.flatnonzero(made.target.lengths() <= 64)
    batches = Batches(made, CONFIG)
    counts = []
    for epoch in (0, 1):
        pairs = np.concatenate([p for _, p in batches.plan(epoch).batches])
        counts.append(np.bincount(pairs, minlength=300))
    for count in counts:
        assert (count[short[short < 100]] == 2).all()
        assert set(count[100:200]) == {0, 1}
        assert set(count[short[short >= 200]]) == {1, 2}
        assert 20 <= count[100:200].sum() <= 25
    assert (counts[0][100:200] != counts[1][100:200]).any()


def test_tiny_and_impossible_corpora():
    made = Pairs(np.array([3]), np.array([2]))
    (batch,) = one_epoch(made)
    assert batch.source.shape == (1, 4)
    with pytest.raises(ConfigError, match="at most 2 tokens"):
        Batches(made, DataConfig(batch_tokens=1_000, max_length=2))
    (batch,) = Batches(made, DataConfig(batch_tokens=5, length_step=8), epochs=1)
    assert batch.source.shape == (1, 5)
    with pytest.raises(ValueError, match="cannot be shared"):
        one_epoch(made, world=2)
    with pytest.raises(ValueError, match="process 2 of 2"):
        Batches(made, CONFIG, rank=2, world=2)


def test_errors_of_the_thread_are_raised_and_it_ends():
    before = threading.active_count()
    made = corpus(200)
    batches = Batches(made, CONFIG)
    stream = iter(batches)
    next(stream)
    stream.close()
    assert threading.active_count() == before

    def fail(*_):
        raise OSError("disk gone")

    made.source.rows = fail
    with pytest.raises(OSError, match="disk gone"):
        next(iter(Batches(made, CONFIG)))
    assert threading.active_count() == before


def test_dropout_batches_fit_in_every_epoch(tmp_path):
    random = np.random.default_rng(1)
    lines = [
        " ".join("".join(random.choice(list("abcd"), 5)) for _ in range(random.integers(1, 9)))
        for _ in range(400)
    ]
    for name in ("t.en", "t.de"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    pair = TextPair(tmp_path / "t.en", tmp_path / "t.de")
    prepare(tmp_path / "out", [pair], bpe_dropout=0.5, samples=4, vocabulary=400)
    made = Corpus(tmp_path / "out")
    batches = Batches(made, DataConfig(batch_tokens=400, max_length=100, length_step=4))
    for epoch in range(3):
        plan = batches.plan(epoch)
        assert sorted(np.concatenate([p for _, p in plan.batches])) == list(range(400))
        for number in range(len(plan.batches)):
            batch = batches.assemble(plan, number)
            assert (batch.target.gather(1, batch.target_lengths[:, None] - 1) == EOS).all()
            assert ((batch.target != PAD).sum(1) == batch.target_lengths).all()
    assert batches.plan(0).target_lengths.tolist() != batches.plan(1).target_lengths.tolist()


def test_batch_moves():
    batch = Batch(*(torch.ones(2, dtype=torch.int64) for _ in range(4)))
    assert batch.to("meta").target.device.type == "meta"


@given(st.lists(st.integers(0, 9), min_size=2, max_size=9), st.integers(1, 4))
def test_ladders_are_the_best_there_are(histogram, most):
    histogram = np.array([0, *histogram])
    top = len(histogram) - 1
    best = [
        min(
            sum(
                count * min(rung for rung in (*inner, top) if rung >= length)
                for length, count in enumerate(histogram)
            )
            for inner in itertools.combinations(range(1, top), rungs)
        )
        for rungs in range(min(most, top))
    ]
    found = _ladders(histogram, most)
    assert [cost for cost, _ in found] == best[: len(found)]
    assert found[-1][0] == min(best)
    for cost, ladder in found:
        rungs = ladder[np.searchsorted(ladder, np.arange(top + 1))]
        assert (rungs * histogram).sum() == cost
        assert ladder[-1] == top


def test_shapes_hold_their_pairs():
    source, target = lengths(2_000)
    shapes = choose_shapes(source, target, 1_000, 4, 30, (91, 95))
    assert len(shapes) <= 30
    index = shapes.of(source, target)
    assert (shapes.source[index] >= source).all()
    assert (shapes.target[index] >= target).all()
    assert (shapes.source[-1], shapes.target[-1], shapes.overflow[-1]) == (92, 96, -1)
    for number, larger in enumerate(shapes.overflow[:-1]):
        assert larger > number
        assert shapes.source[larger] >= shapes.source[number]
        assert shapes.target[larger] >= shapes.target[number]
    assert (shapes.rows * np.maximum(shapes.source, shapes.target) <= 1_000).all()
    assert len(choose_shapes(source, target, 1_000, 4, 1, (91, 95))) == 1
