"""Live beams: they find what a slow search finds, and change nothing else of a stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from small import ARCHITECTURES, CODEC, POLICIES, feed_all, make, sentence, writes

from simultan.config import Config
from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel
from simultan.streaming import ahead
from simultan.streaming.ahead import AHEAD, Candidate, LookAhead
from simultan.streaming.backends import Backend, OfflineModel
from simultan.streaming.lags import Lags
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator

every_model = pytest.mark.parametrize(
    ("policy", "architecture"), list(itertools.product(POLICIES, ARCHITECTURES))
)
AGENT = {"offline": "wait-k:2,"}


@pytest.fixture(autouse=True)
def _never_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is searched: random models are sure of some."""
    monkeypatch.setattr(ahead, "SURE", 0.0)


def decoding(policy: str, beam: int) -> str:
    return f"{AGENT.get(policy, '')}beam={beam}"


@every_model
def test_a_stream_with_beams_is_like_any_other(policy: str, architecture: str) -> None:
    """Word by word, in chunks and as a whole; alone and beside rows with other beams."""
    changed = 0
    for seed in range(3):
        model = make(policy, architecture, seed, end=0.3)
        texts = [sentence(8, seed), sentence(5, seed + 10), sentence(6, seed + 20)]
        chosen = [decoding(policy, beam) for beam in (3, 1, 2)]
        alone = []
        for text, how in zip(texts, chosen, strict=True):
            words = text.split()
            results = [
                writes(feed_all(Session(model, CODEC, how), chunks))
                for chunks in (words, [text], [words[0], " ".join(words[1:])])
            ]
            assert results[1:] == results[:1] * 2
            alone.append(results[0])
            greedy = writes(feed_all(Session(model, CODEC, decoding(policy, 1)), words))
            changed += results[0] != greedy
        session = Session(model, CODEC, rows=3)
        for row, (text, how) in enumerate(zip(texts, chosen, strict=True)):
            session.set_decoding(how, row)
            session.push(text, row)
            session.close(row)
        together: list[list] = [[], [], []]
        while not all(row.done for row in session.rows):
            for row, event in session.advance():
                together[row].append(event)
        assert [writes(events) for events in together] == alone
    assert changed


def search_slowly(
    model: TranslationModel,
    source: list[int],
    written: list[tuple[int, int]],
    beam: int,
    over: bool,
) -> int:
    """The token to write next, of a model that has read this and no more; nothing is kept from one
    step to the next. `written`: tokens, each with what of the source it took."""

    def log_probs(tokens: Sequence[int]) -> list[float]:
        state = model.initial_state(1)
        model.extend(torch.tensor([source]), state, [0], [len(source)], [True])
        before = [BOS, *(token for token, _ in written), *tokens]
        for i, last in enumerate(before):
            if not model.policy.learned:  # who decides may have shown it less then
                state.limit(0, written[i][1] if i < len(written) else len(source))
            step = model.step([last], state, [0], [0.5])
            state.commit([0])
        found = step.logits[0].log_softmax(-1).tolist()
        return [value if i > EOS or (i == EOS and over) else -math.inf
                for i, value in enumerate(found)]  # fmt: skip

    beams, ended = [((), 0.0)], []
    for count in range(1, AHEAD + 2):
        grown = sorted(
            ((score + more, (*tokens, token))
             for tokens, score in beams
             for token, more in enumerate(log_probs(tokens)) if more > -math.inf),
            reverse=True,
        )  # fmt: skip
        ended += [(score / count, tokens) for score, tokens in grown[:beam] if tokens[-1] == EOS]
        beams = [(tokens, score) for score, tokens in grown if tokens[-1] != EOS][:beam]
    going = [(score / (AHEAD + 1), tokens) for tokens, score in beams]
    return max(going + ended)[1][0]


@torch.inference_mode()
@every_model
def test_it_finds_what_a_slow_search_finds(policy: str, architecture: str) -> None:
    """In the second row of a state, whose first one reads and writes something else; what is
    written is drawn at random."""
    searched = changed = ends = 0
    for seed, beam in ((0, 2), (1, 3), (2, 4)):
        model = make(policy, architecture, seed, end=0.9)
        model.output.weight[3:260] = 0.01 * torch.randn(257, 16)  # no two tokens are alike
        source, other = (CODEC.encode_source(sentence(5, seed + n)) for n in (0, 50))
        draw = torch.Generator().manual_seed(seed)
        state = model.initial_state(2)
        search = LookAhead(model, state)
        model.extend(torch.tensor([other]), state, [0], [len(other)], [True])
        written: list[tuple[int, int]] = []
        for read, token in enumerate(source, 1):
            model.extend(torch.tensor([[token]]), state, [1], [1], [read == len(source)])
            for _ in range(2 if read < len(source) else 6):  # tokens, if the heads let it write
                if policy == "offline":
                    state.limit(1, read)
                last = written[-1][0] if written else BOS
                step = model.step([BOS, last], state, [0, 1], [0.5, 0.5])
                if 1 not in step.rows:
                    break
                place = step.rows.index(1)
                best = step.best(EOS)[place]
                seen = int(step.positions[place].max()) + 1
                candidate = Candidate(1, best, beam, 0.5, None)
                (found,) = search.choose([candidate], step.logits[place : place + 1])
                over = seen == len(source)
                if best == EOS:
                    assert found == EOS
                else:
                    assert found == search_slowly(model, source[:seen], written, beam, over)
                    searched, changed = searched + 1, changed + (found != best)
                    ends += over
                written.append((int(torch.randint(260, 270, (1,), generator=draw)), seen))
                state.commit([1])
    assert searched > 20
    assert changed
    assert ends


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_heads_that_stay_undecided(architecture: str) -> None:
    for seed in range(3):
        model, text = make("mma-h", architecture, seed), sentence(8, seed)
        for attention in model.cross_attentions():
            if attention.selecting_heads:  # as soft as those that were trained softly
                with torch.no_grad():
                    attention.select_query.weight *= 1e-7
                    attention.select_query.bias *= 1e-7
                    attention.energy_bias *= 1e-7
        results = [
            writes(feed_all(Session(model, CODEC, "mass=0.6,beam=3"), chunks))
            for chunks in (text.split(), [text])
        ]
        assert results[0] == results[1] != []


def test_a_window_forgets_and_is_searched_nevertheless() -> None:
    model, text = make("mma-il", "transformer", 1, window=4), sentence(30, 5)
    one, other = (
        writes(feed_all(Session(model, CODEC, "beam=3"), chunks))
        for chunks in (text.split(), [text])
    )
    assert one == other != []


def test_what_is_sure_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = make("mma-il", "transformer", 2), sentence(8, 2)
    monkeypatch.setattr(ahead, "SURE", -math.inf)
    session = Session(model, CODEC, "beam=3")
    assert feed_all(session, [text]) == feed_all(Session(model, CODEC), [text])
    assert session.decider.look_ahead is not None
    assert session.decider.look_ahead.copy is None


def test_more_beams_than_tokens() -> None:
    model = make("mma-il", "transformer", 2)
    assert writes(feed_all(Session(model, CODEC, "beam=16"), [sentence(8, 2)]))


def test_a_model_that_was_measured_with_beams_has_them() -> None:
    model, text = make("mma-il", "transformer", 1, end=0.3), sentence(12, 1)
    usual = Translator(model, Config(), CODEC, Lags(((0.2, 1.0), (0.8, 2.0)), beam=3))
    plain = Translator(model, Config(), CODEC)
    searched, greedy = plain.translate([text], "beam=3"), plain.translate([text])
    assert searched[0].words != greedy[0].words
    assert usual.translate([text])[0].words == searched[0].words
    assert usual.translate([text], "threshold=0.5")[0].words == searched[0].words
    assert usual.translate([text], "beam=1")[0].words == greedy[0].words
    assert writes(feed_all(usual.session(), [text])) == writes(
        feed_all(plain.session("beam=3"), [text])
    )


@pytest.mark.parametrize("agent", ["agreement:2", "hold:1"])
def test_agents_that_choose_the_words_are_not_searched(agent: str) -> None:
    """What they agreed on, or held back, is for the words that they have seen."""
    session = Session(make("offline", "transformer", 1), CODEC, "wait-k:2,beam=2")
    with pytest.raises(ValueError, match=f"^{agent},beam=2: this agent chooses the words itself"):
        session.set_decoding(f"{agent},beam=2")
    session.set_decoding(agent)


def test_another_systems_model_cannot_be_searched_in_a_stream() -> None:
    class Bare(OfflineModel):
        def backend(self, rows: int) -> Backend:
            return Rows()

    class Rows(Backend):
        def reset(self, row: int) -> None:
            pass

    session = Session(Bare(), CODEC)
    with pytest.raises(ValueError, match=r"^wait-k:1,beam=2: .* in a stream; leave out beam"):
        session.set_decoding("wait-k:1,beam=2")
    session.set_decoding("wait-k:1,beam=1")
