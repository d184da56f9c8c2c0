"""Whole sentences in many rows: what was written sentence by sentence, in whatever rows."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from small import ARCHITECTURES, CODEC, beam_search, make, sentence

from simultan.config import Config
from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel
from simultan.model.buffers import halve
from simultan.streaming import board, generation
from simultan.streaming.decoding import Sampling
from simultan.streaming.generation import Generator
from simultan.streaming.search import Hypothesis, Search, draw
from simultan.streaming.session import Write
from simultan.streaming.translator import Translation, Translator, play

LINES = [sentence(n % 9, n) for n in range(24)]  # some of them empty
SOURCES = [CODEC.encode_source(line) for line in LINES]


def lively(architecture: str, seed: int, window: int = 0, width: int = 16) -> TranslationModel:
    """A random model some of whose sentences end early, some late and some never."""
    model = make("offline", architecture, seed, end=1.0, window=window, width=width)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "output.weight" and "embedding" not in name:
                parameter *= 2
    return model


def by_session(translator: Translator, lines: Sequence[str], rows: int = 4) -> list[Translation]:
    """As a session writes lines that it hears to their ends."""
    results = [Translation(language=translator.codec.target_language) for _ in lines]
    for number, event, _ in play(translator.session(rows=rows, segment=False), lines):
        if isinstance(event, Write):
            words = event.text.split()
            results[number].words += words
            results[number].delays += [event.delay] * len(words)
        elif event is not None and not isinstance(event, bool):
            results[number].tokens.append(event.token)
            results[number].token_delays.append(event.delay)
    return results


def search_slowly(
    model: TranslationModel, source: Sequence[int], beam: int, penalty: float = 1.0
) -> list[Hypothesis]:
    """Beam search over one sentence, hypothesis by hypothesis; all that have ended, best first."""
    longest = 2 * len(source) + 30
    state = model.initial_state(beam)
    source = [*model.source_prefix, *source]
    model.extend(
        torch.tensor([source] * beam), state, range(beam), [len(source)] * beam, [True] * beam
    )
    before = [BOS, *model.target_prefix]
    for token in before[:-1]:
        model.step([token] * beam, state, range(beam), [0.5] * beam)
        state.commit(range(beam))
    beams, ended = [Hypothesis(())], list[Hypothesis]()
    while len(ended) < beam and len(beams[0].tokens) < longest:
        rows = range(len(beams))
        last = [(*before, *one.tokens)[-1] for one in beams]
        logits = model.step(last, state, rows, [0.5] * len(rows)).logits
        state.commit(rows)
        logits[:, :EOS] = -torch.inf
        scores = torch.log_softmax(logits.double(), -1).tolist()
        grown = sorted(
            ((one.score + score, i, token) for i, one in enumerate(beams)
             for token, score in enumerate(scores[i])), reverse=True,
        )  # fmt: skip
        best = [(i, token, total) for total, i, token in grown[: 2 * beam]]
        for i, token, total in best[:beam]:
            if token == EOS:
                worth = total / (len(beams[i].tokens) + 1) ** penalty
                ended.append(Hypothesis(beams[i].tokens, worth))
        going = [one for one in best if one[1] != EOS][:beam]
        beams = [Hypothesis((*beams[i].tokens, token), total) for i, token, total in going]
        parents = [i for i, _, _ in going]
        state.reorder(parents + list(range(len(parents), beam)))
    if not ended:
        ended.append(Hypothesis(beams[0].tokens, beams[0].score / longest**penalty))
    return sorted(ended, key=lambda one: -one.score)


def tokens_of(generator: Generator, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return [tuple(tokens) for tokens in generator.generate(sources).best().lists()]


def alike(one: Translation, other: Translation) -> bool:
    return (one.words, one.delays, one.tokens, one.token_delays) == (
        other.words, other.delays, other.tokens, other.token_delays,
    )  # fmt: skip


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_is_what_a_session_writes(architecture: str, window: int) -> None:
    lines = [*LINES, "a 12 b", "[b a] c", "ab 😀 cd", "😀", "a www.b.de c 3", "b " * 300]
    for seed in range(2):
        model = lively(architecture, seed, window).float()
        translator = Translator(model, Config(), CODEC)
        wanted = by_session(translator, lines)
        assert len({len(one.tokens) for one in wanted}) > 4
        for rows in (5, 64):
            found = translator.translate(lines, rows=rows)
            for one, other in zip(wanted, found, strict=True):
                assert alike(one, other), (one, other)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_beams_are_those_of_the_slow_search(architecture: str) -> None:
    sources = SOURCES[:10]
    for seed, beam in ((0, 1), (1, 3), (2, 4)):
        model = lively(architecture, seed).float()
        search = Search(beam=beam, best=min(2, beam))
        found = Generator(model, search, rows=3 * beam).generate(sources)
        with torch.inference_mode():
            for i, source in enumerate(sources):
                hypotheses = found.hypotheses(i)
                if len(source) == 1:
                    assert hypotheses == [Hypothesis(())]
                    continue
                wanted = search_slowly(model, source, beam)
                for wants, has in zip(wanted, hypotheses, strict=False):
                    assert has.tokens == wants.tokens
                    assert has.score == pytest.approx(wants.score, rel=1e-5)
                assert len(hypotheses) == min(search.best, len(wanted))


@pytest.mark.parametrize("search", [Search(), Search(beam=3), Search(sampling=Sampling(1.3, 6))])
def test_rows_do_not_see_each_other(search: Search) -> None:
    """Alone, replaced midway, or moved together at the end: the same tokens in the same order."""
    model = lively("transformer", 1)
    alone, sources = [], SOURCES[:14]
    for number, source in enumerate(sources):
        one = Generator(model, search, rows=1).generate([source], numbers=[number])
        alone.append(one.hypotheses(0)[0].tokens)
    assert len({len(tokens) for tokens in alone}) > 3  # they end at different times
    for rows in (3, 4, 9, 300):
        assert tokens_of(Generator(model, search, rows=rows), sources) == alone


@pytest.mark.parametrize("search", [Search(), Search(beam=3, best=2), Search(sampling=Sampling())])
def test_few_shapes_give_the_same(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does, with steps that are called instead of replayed: buffers that are used
    again, several steps between two looks, and sentences moved to fewer rows."""
    monkeypatch.setattr(generation, "FEWEST", 2 * search.rows)
    monkeypatch.setattr(board, "WARM", 16)
    monkeypatch.setattr(generation, "SHAPES", (4, 8, 16))
    model = lively("transformer", 1)
    sources = [*SOURCES, *SOURCES, [*[5] * 20, EOS], [*[5, 6] * 20, EOS]]
    wanted = Generator(model, search, rows=64).generate(sources)
    generator = Generator(model, search, rows=32 * search.rows, fixed=True)
    generator.recorder = Replayed()  # type: ignore[assignment]
    for _ in range(2):
        found = generator.generate(sources)
        assert found.tokens.lists() == wanted.tokens.lists()
        assert found.scores == pytest.approx(wanted.scores)
    shapes = list(generator.boards)
    assert len({source for _, source, _ in shapes}) == 5  # of three, and powers of two beyond
    assert len({sentences for sentences, _, _ in shapes}) == 3
    assert any(one.graph is not None for one in generator.boards.values())


class Replayed:
    """Stands for what records steps: replaying one is doing it."""

    def try_record(self, step: Callable[[], None]) -> object:
        return SimpleNamespace(replay=step)


def test_what_outgrows_its_room_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("offline", "transformer", 0, end=0.1)  # runs on and on
    sources = [CODEC.encode_source("a b c"), CODEC.encode_source("abc " * 25)]
    done: list[int] = []
    for search in (Search(), Search(beam=2)):
        found = Generator(model, search, rows=8).generate(sources, progress=done.append)
        assert found.tokens.lengths.tolist() == [2 * len(source) + 30 for source in sources]
        limited = Generator(model, search, rows=8).generate(sources, limits=[5, 7])
        assert limited.tokens.lengths.tolist() == [5, 7]
    assert sum(done) == 4


def test_prefixes_are_forced() -> None:
    """As if the model had written them, and nobody sees them."""
    model = lively("transformer", 3)
    plain = tokens_of(Generator(model, rows=4), SOURCES)
    model.source_prefix, model.target_prefix = (7, 5), (262, 9)
    with torch.inference_mode():
        for beam in (1, 3):
            found = Generator(model, Search(beam=beam), rows=12).generate(SOURCES)
            for i, source in enumerate(SOURCES):
                if len(source) > 1:
                    assert (
                        found.hypotheses(i)[0].tokens
                        == search_slowly(model, source, beam)[0].tokens
                    )
    prefixed = tokens_of(Generator(model, rows=4), SOURCES)
    assert prefixed != plain
    assert prefixed == tokens_of(Generator(model, Search(beam=1), rows=4), SOURCES)


def test_sampling_follows_the_distribution() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -torch.inf]).repeat(40_000, 1)
    numbers, zero = torch.arange(len(logits)), torch.zeros(len(logits), dtype=torch.long)
    for sampling in (Sampling(), Sampling(0.5, seed=2), Sampling(2.0, top_k=2, seed=3)):
        weights = [math.exp(x / sampling.temperature) for x in logits[0].tolist()]
        if sampling.top_k:
            weights = [w if w in sorted(weights)[-sampling.top_k :] else 0.0 for w in weights]
        drawn = Counter(draw(logits, sampling, numbers, zero).tolist())
        for token, weight in enumerate(weights):
            share = weight / sum(weights)
            spread = math.sqrt(share * (1 - share) / len(logits))
            assert abs(drawn[token] / len(logits) - share) <= 4.5 * spread
    # neighbours, positions and seeds have nothing to do with each other
    one = draw(logits, Sampling(), numbers, zero)
    for other in (
        draw(logits, Sampling(), numbers + 1, zero),
        draw(logits, Sampling(), numbers, zero + 1),
        draw(logits, Sampling(seed=2), numbers, zero),
    ):
        chance = sum(p**2 for p in torch.softmax(logits[0], -1).tolist())
        assert abs((one == other).double().mean().item() - chance) < 0.015


@pytest.mark.parametrize("top_k", [0, 2])
def test_extreme_temperatures(top_k: int) -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -torch.inf]).repeat(500, 1)
    numbers, zero = torch.arange(len(logits)), torch.zeros(len(logits), dtype=torch.long)
    for cold in (1e-45, 1e-40, 1e-20):
        assert set(draw(logits, Sampling(cold, top_k), numbers, zero).tolist()) == {3}
    for hot in (1e20, 1e39, 1e300):
        drawn = set(draw(logits, Sampling(hot, top_k), numbers, zero).tolist())
        assert drawn == ({0, 3} if top_k else {0, 1, 2, 3})


def test_equal_logits_are_equally_likely() -> None:
    """Which of them topk takes depends on the machine and on how many rows there are."""
    logits = torch.tensor([0.0, 2.0, 0.0, -1.0, 0.0, 1.0]).repeat(40_000, 1)
    numbers, zero = torch.arange(len(logits)), torch.zeros(len(logits), dtype=torch.long)
    drawn = Counter(draw(logits, Sampling(top_k=3), numbers, zero).tolist())
    weights = {1: math.exp(2), 5: math.exp(1), 0: 1.0, 2: 1.0, 4: 1.0}
    assert drawn.keys() == weights.keys()
    for token, weight in weights.items():
        share = weight / sum(weights.values())
        spread = math.sqrt(share * (1 - share) / len(logits))
        assert abs(drawn[token] / len(logits) - share) <= 4.5 * spread


def test_ties_of_one_row_do_not_change_the_draws_of_others() -> None:
    """Where no row has them, the top k are drawn from alone."""
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(5_000, 300, generator=generator)
    tied = torch.cat([logits, torch.zeros(1, 300)])
    numbers, zero = torch.arange(len(tied)), torch.zeros(len(tied), dtype=torch.long)
    sampling = Sampling(1.3, 6)
    alone = draw(logits, sampling, numbers[:-1], zero[:-1])
    assert torch.equal(draw(tied, sampling, numbers, zero)[:-1], alone)
    assert (logits >= logits.topk(6).values[:, -1:]).gather(1, alone[:, None]).all()
    assert len(alone.unique()) > 250


def test_rounding_draws_no_token_outside_the_top_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU sums up parts of a single row side by side, so that a sum may rise by its last bit
    where a part begins with a token that has no chance. Here the draw falls just there."""

    def cumsum(chances: torch.Tensor, dim: int) -> torch.Tensor:
        sums, before = [], torch.zeros(len(chances))
        for part in chances.split(4, dim):
            at = before
            for column in part.unbind(dim):
                at = at + column
                sums.append(at)
            before = before + part.sum(dim)  # not always `at`
        return torch.stack(sums, dim)

    logits = 3 * torch.randn(2_000, 64, generator=torch.Generator().manual_seed(1))
    logits[-1] = 0  # with equals, as on a GPU, a row keeps all of its columns
    allowed = logits >= logits.topk(12).values[:, -1:]
    chances = (logits - logits.amax(1, keepdim=True)).exp().where(allowed, torch.tensor(0.0))
    sums = cumsum(chances, 1)
    rises = (sums.diff(dim=1) > 0) & ~allowed[:, 1:]
    assert rises.any(1).sum() > 50
    place = sums.gather(1, rises.int().argmax(1, keepdim=True)) / sums[:, -1:]
    monkeypatch.setattr(torch.Tensor, "cumsum", cumsum)
    monkeypatch.setattr("simultan.streaming.search._uniform", lambda *_: place[:, 0])
    nothing = torch.zeros(len(logits), dtype=torch.long)
    drawn = draw(logits, Sampling(top_k=12), nothing, nothing)
    assert allowed.gather(1, drawn[:, None]).all()


def test_what_is_drawn_does_not_depend_on_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU that takes the last of equal logits where another one takes the first."""
    model = lively("transformer", 1)
    search = Search(sampling=Sampling(1.3, 6))
    wanted = tokens_of(Generator(model, search, rows=48), SOURCES)
    tied = 0

    def topk(logits: torch.Tensor, count: int) -> object:
        nonlocal tied
        values, index = logits.flip(-1).sort(dim=-1, descending=True, stable=True)
        tied += int((values[:, count - 1] == values[:, count]).sum())
        found = values[:, :count], logits.shape[1] - 1 - index[:, :count]
        return torch.return_types.topk(found)

    monkeypatch.setattr(torch.Tensor, "topk", topk)
    assert tokens_of(Generator(model, search, rows=48), SOURCES) == wanted
    assert tied > 50


def test_a_seed_draws_the_same_again() -> None:
    model = lively("transformer", 1)
    drawn = [
        tokens_of(Generator(model, Search(sampling=Sampling(seed=seed)), rows=5), SOURCES)
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    cold = Search(sampling=Sampling(temperature=1e-4))
    assert tokens_of(Generator(model, cold, rows=5), SOURCES) == tokens_of(
        Generator(model, rows=5), SOURCES
    )


def test_edges() -> None:
    model = make("offline", "transformer")
    assert len(Generator(model).generate([])) == 0
    silent = make("offline", "transformer", 1, end=1.5)  # ends at once
    assert set(tokens_of(Generator(silent), SOURCES)) == {()}
    assert beam_search(model, []) == []
    with pytest.raises(ValueError, match="needs an offline model; this one is mma-il"):
        Generator(make("mma-il", "transformer"))
    with pytest.raises(ValueError, match="at least 1"):
        Generator(model, rows=0)
    with pytest.raises(ValueError, match="as many beams"):
        Search(beam=2, best=3)
    with pytest.raises(ValueError, match="choose one"):
        Search(beam=2, sampling=Sampling())


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("search", [Search(), Search(beam=3), Search(sampling=Sampling(1.3, 6))])
def test_recorded_steps_are_the_steps(
    search: Search, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU in float32, with heads of 8 for PyTorch's attention and of 32 for our kernel."""
    monkeypatch.setattr(generation, "FEWEST", 4)
    monkeypatch.setattr(board, "WARM", 8)
    model = lively("transformer", 1, width=width).float()
    sources = 20 * SOURCES
    wanted = tokens_of(Generator(model, search, rows=48), sources)
    device = copy.deepcopy(model).cuda()
    eager = tokens_of(Generator(device, search, rows=48, half=False, record=False), sources)
    same = sum(map(tuple.__eq__, wanted, eager))
    assert same >= 0.9 * len(sources)  # but for ties
    recorded = Generator(device, search, rows=48, half=False)
    for _ in range(2):
        assert tokens_of(recorded, sources) == eager
    assert any(one.graph is not None for one in recorded.boards.values())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_bfloat16_writes_nearly_the_same(device: str) -> None:
    """Random models are undecided, so that many sentences part after some tokens."""
    for seed in range(3):
        model = lively("transformer", seed).float()
        wanted = tokens_of(Generator(model, rows=64), SOURCES)
        found = tokens_of(Generator(halve(copy.deepcopy(model).to(device)), rows=64), SOURCES)
        begins = [one[:1] == other[:1] for one, other in zip(wanted, found, strict=True)]
        assert sum(begins) >= len(begins) - 2
        assert sum(map(tuple.__eq__, wanted, found)) >= 0.3 * len(wanted)
        assert next(model.parameters()).dtype == torch.float32
        prepared = lively("transformer", seed).to(device).prepare_inference()  # as it is loaded
        with torch.inference_mode():  # as in a validation
            assert tokens_of(Generator(halve(prepared), rows=64), SOURCES) == found
    far = [[*[5] * 1100, EOS], [6, 7, EOS]]  # past the table of positions
    assert len(tokens_of(Generator(halve(model.to(device)), rows=4), far)[1])
