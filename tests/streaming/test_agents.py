"""Agents over an offline model: hand-made probabilities, and the properties of every session."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small import ARCHITECTURES, CODEC, WORDS, feed_all, make, sentence, writes

from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.agents import AGENTS as KNOWN
from simultan.streaming.agents import READ, WRITE, Agent, Scores, Seen, forms
from simultan.streaming.backends import Backend, OfflineModel
from simultan.streaming.session import End, Event, Read, Session, Write

AGENTS = ["wait-k:1", "wait-k:3", "static:4,2", "static:2,3", "wait-if-worse:2,1",
         "wait-if-worse:1,3", "wait-if-diff:2,1", "wait-if-diff:1,2", "agreement:2",
          "agreement:3", "hold:1", "hold:3", "align-att:1", "align-att:2,1", "ed-att:0.3,1",
          "ed-att:.7,2,1"]  # fmt: skip
K, L, M = (WORDS.target_vocabulary.pieces.index(piece) for piece in ("k▁", "l▁", "m▁"))


def scripted(
    script: list[list[dict[int, float]]], attention: list[list[list[float]]] | None = None
) -> TranslationModel:
    """script[i][c]: probabilities of target token i after c + 1 words (the end is one more).

    attention[i][c]: over source words in the second layer; the first looks at the last word.
    """
    model = make("offline", "transformer")
    honest = model.step

    def step(tokens, state, rows, threshold, **options) -> Step:  # type: ignore[no-untyped-def]
        result = honest(tokens, state, rows, threshold, **options)
        for i, row in enumerate(result.rows):
            at = int(result.positions[i].max())
            probabilities = torch.full((len(WORDS.target_vocabulary),), 1e-9)
            for token, p in script[state.length[row]][at].items():
                probabilities[token] = p
            result.logits[i] = probabilities.log()
            if attention is not None and result.attention is not None:
                result.attention[i] = 0.0
                result.attention[i, 0, :, at] = 1.0
                weights = attention[state.length[row]][at]
                result.attention[i, 1, :, : at + 1] = torch.tensor(weights).double()
        return result

    model.step = step  # type: ignore[method-assign]
    return model


def run(model: TranslationModel, agent: str, chunks: list[str]) -> list[tuple[str, int]]:
    events = feed_all(Session(model, WORDS, agent), chunks)
    return [(write.text, write.delay) for write in writes(events)]


# four words: contexts of 1, 2, 3 and 4 words, and 4 words with the end
SCRIPT = [
    [{K: 0.9}, {L: 0.6, K: 0.2}, {L: 0.5, K: 0.4}, {L: 0.9}, {L: 0.9}],
    [{K: 0.9}, {K: 0.5}, {K: 0.6}, {M: 0.7}, {M: 0.7}],
    [{EOS: 0.9}, {EOS: 0.9}, {EOS: 0.9}, {K: 0.6}, {EOS: 0.9}],
    [{EOS: 0.9}, {EOS: 0.9}, {EOS: 0.9}, {EOS: 0.9}, {EOS: 0.9}],
]


@pytest.mark.parametrize("chunks", [["a b c d"], ["a", "b", "c", "d"], ["a b", "c d"]])
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        # sees 1, 2, then an end after 3 words is too early: 4
        ("wait-k:1", [("k", 1), ("k", 2), ("k", 4)]),
        ("wait-k:3", [("l", 3), ("m", 4)]),  # then the end, with the end of the source
        ("wait-k:9", [("l", 4), ("m", 4)]),
        ("static:2,2", [("l", 2), ("k", 2), ("k", 4)]),
        # k, l differ; l, l agree (3 words read); k, k agree; an early end; k, end differ
        ("wait-if-diff:1,1", [("l", 3), ("k", 3)]),
        ("wait-if-diff:3,1", [("l", 4), ("m", 4)]),
        # k 0.9 > 0.2 wait; l 0.6 > 0.5 wait; l 0.5 < 0.9 write, 4 read; k 0.6 > 0 wait; m 0.7
        ("wait-if-worse:1,1", [("l", 4), ("m", 4)]),
        # two words at a time: k 0.9 > 0.4 wait; at 3 words the next two are the last and the end
        ("wait-if-worse:1,2", [("l", 4), ("m", 4)]),
        # these take prefixes for sentences, with an end: of one word and of two it is "l k", of
        # three "l m k" or, once k is written, "l k k", of four "l m"
        ("agreement:2", [("l", 2), ("k", 2)]),
        ("agreement:3", [("l", 3), ("m", 4)]),
        ("agreement:1", [("l", 1), ("k", 1), ("k", 3)]),
        ("agreement:9", [("l", 4), ("m", 4)]),
        # l of "l k"; two words go on with k alone, three with "m k", so m may be written
        ("hold:1", [("l", 1), ("m", 3)]),
        ("hold:2", [("l", 3), ("m", 4)]),  # l of "l m k"
        ("hold:9", [("l", 4), ("m", 4)]),
    ],
)
def test_by_hand(agent: str, chunks: list[str], expected: list[tuple[str, int]]) -> None:
    assert run(scripted(SCRIPT), agent, chunks) == expected


LAST = [0.0, 0.0, 0.0, 0.0, 1.0]  # the end of the source
ATTENTION = [
    [[1.0], [0.7, 0.3], [0.6, 0.3, 0.1], [0.6, 0.2, 0.1, 0.1], LAST],
    [[1.0], [0.2, 0.8], [0.1, 0.6, 0.3], [0.1, 0.2, 0.3, 0.4], LAST],
    [[1.0], [0.5, 0.5], [0.5, 0.3, 0.2], [0.0, 0.1, 0.2, 0.7], LAST],
]


@pytest.mark.parametrize("chunks", [["a b c d"], ["a", "b", "c", "d"], ["a b", "c d"]])
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        # l looks at the first of two words; k at the second of two: wait, of three: write; an
        # early end after three words; k at the last of four: wait, and the end
        ("align-att:1,2", [("l", 2), ("k", 3)]),
        # three words are needed; k looks at the second of three, m at the last of four: wait
        ("align-att:2,2", [("l", 3), ("m", 4)]),
        ("align-att:1,1", [("l", 4), ("m", 4)]),  # the first layer looks at the last word
        # the mean of the layers: 0.65 on the last of two words, 0.55 of three or four
        ("align-att:1", [("l", 4), ("m", 4)]),
        # on the last word: 0.3; then 0.8 wait, 0.3; the early end 0.2, k 0.7
        ("ed-att:0.35,1,2", [("l", 2), ("k", 3)]),
        # 0.3 wait, 0.1; then 0.3 and 0.4 wait
        ("ed-att:.25,1,2", [("l", 3), ("m", 4)]),
        # on the last two: 0.4; then 0.9 and 0.7 wait
        ("ed-att:0.45,2,2", [("l", 3), ("m", 4)]),
        # with the first layer, which has 1.0: 0.65 wait, 0.55; then 0.65 wait, 0.7 wait
        ("ed-att:0.6,1", [("l", 3), ("m", 4)]),
    ],
)
def test_attention_by_hand(agent: str, chunks: list[str], expected: list[tuple[str, int]]) -> None:
    assert run(scripted(SCRIPT, ATTENTION), agent, chunks) == expected


def test_a_refused_token_is_no_written_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What agreement compares begins where what is written ends, whatever guards have refused."""
    refused, real = 0, KNOWN["agreement"].decide

    def decide(agent: Agent, seen: Seen) -> list[int]:
        assert seen.tokens == [session.decider.backend.state.length[0]]
        answers: list[int] = real(agent, seen)
        wanted.append(answers.count(WRITE))
        return answers

    monkeypatch.setattr(KNOWN["agreement"], "decide", decide)
    for seed in range(6):
        wanted: list[int] = []
        session = Session(make("offline", "transformer", seed), CODEC, "agreement:2", segment=False)
        for word in sentence(14, seed).split():
            session.feed(word)
        refused += sum(wanted) - session.decider.backend.state.length[0]
    assert refused > 0


@pytest.mark.parametrize("after", ["agreement:2", "hold:1"])
@pytest.mark.parametrize("before", ["wait-if-diff:1,3", "wait-k:2"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_another_agent_sees_no_word_that_only_the_last_one_has_seen(
    architecture: str, before: str, after: str
) -> None:
    """A guessed end stands right behind what the model sees, not behind words read ahead."""
    session = Session(make("offline", architecture, 1), CODEC, before)
    decider, guesses = session.decider, 0
    real = decider.backend.score

    def score(rows: list[int], visible: list[int], attention: bool) -> Scores:
        nonlocal guesses
        for row, tokens in zip(rows, visible, strict=True):
            if decider.guessed[row] is not None:
                guesses += 1
                assert decider.backend.state.available[row] == tokens
        scores: Scores = real(rows, visible, attention)
        return scores

    decider.backend.score = score  # type: ignore[method-assign]
    words = sentence(12, 1, ".").split()
    session.feed(" ".join(words[:6]))
    session.set_decoding(after)
    for word in words[6:]:
        session.feed(word)
    session.finish()
    assert guesses > 0


@pytest.mark.parametrize("agent", ["align-att:2", "ed-att:0.3,2"])
def test_a_window_has_forgotten_what_attention_would_be_measured_on(agent: str) -> None:
    with pytest.raises(ValueError, match="does not show its attention"):
        Session(make("offline", "transformer", window=16), CODEC, agent)


def test_agreement_of_prefixes_that_a_window_has_dropped() -> None:
    for seed in range(4):
        session = Session(make("offline", "transformer", seed, window=4), CODEC, "agreement:5")
        for part in range(30):
            session.feed(sentence(3, part))
        session.finish()


def test_attention_is_summed_over_the_pieces_of_a_word() -> None:
    weights = torch.tensor([[[[0.1, 0.2, 0.7], [0.3, 0.2, 0.5]]], [[[1.0, 0, 0], [1.0, 0, 0]]]])
    seen = Seen(
        read=[2, 1],
        written=[0, 0],
        ended=[False, False],
        memory=[{}, {}],
        score=lambda more: Scores(torch.zeros(2, 5), attention=weights),
        source_words=lambda: [[1, 1, 2], [1]],
    )
    expected = torch.tensor([[0.4, 0.6], [1.0, 0.0]])
    torch.testing.assert_close(seen.attention(1), expected)
    torch.testing.assert_close(seen.attention(), expected)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("align-att:2", "does not show its attention"),
        ("ed-att:0.5,2", "does not show its attention"),
        ("hold:2", "cannot take back"),
    ],
)
def test_a_backend_that_shows_nothing(agent: str, message: str) -> None:
    class Bare(OfflineModel):
        def backend(self, rows: int) -> Backend:
            class Rows(Backend):
                def reset(self, row: int) -> None:
                    pass

            return Rows()

    with pytest.raises(ValueError, match=rf"^{agent}: .*{message}.*agreement:2$"):
        Session(Bare(), CODEC, agent)


def test_a_layer_that_the_model_does_not_have() -> None:
    with pytest.raises(ValueError, match="align-att:1,3: the decoder of this model has 2 layers"):
        Session(make("offline", "transformer"), CODEC, "align-att:1,3")


def test_every_agent_is_tested_here() -> None:
    assert {agent.partition(":")[0] for agent in AGENTS} == {
        form.partition(":")[0] for form in forms()
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_word_that_was_not_read_changes_nothing(agent: str, architecture: str) -> None:
    for seed in range(3):
        model, words = make("offline", architecture, seed, end=0.9), sentence(7, seed).split()
        expected = writes(feed_all(Session(model, CODEC, agent, segment=False), words))
        for place in range(1, len(words)):
            changed = [*words[:place], *sentence(len(words) - place + 1, seed + 50).split()]
            found = writes(feed_all(Session(model, CODEC, agent, segment=False), changed))
            known = [write for write in expected if write.delay <= place]
            assert [write for write in found if write.delay <= place] == known


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_with_an_agent_is_like_any_other(agent: str, architecture: str) -> None:
    for seed in range(2):
        model, text = make("offline", architecture, seed, end=0.9), sentence(7, seed)
        words = text.split()

        def session(rows: int = 1, model: TranslationModel = model) -> Session:
            return Session(model, CODEC, agent, rows=rows, segment=False)

        expected = writes(feed_all(session(), [text]))
        for chunks in (words, [" ".join(words[:3]), "", " ".join(words[3:])]):
            assert writes(feed_all(session(), chunks)) == expected
        one = session()
        for fed, word in enumerate(words, 1):  # what is written needed just what was read
            assert all(write.delay == fed for write in writes(one.feed(word)))
        for before, after in itertools.pairwise(expected):
            assert before.delay <= after.delay
        # rows
        texts = [text, sentence(3, seed + 1), sentence(9, seed + 2)]
        many = session(rows=3)
        for row, other in enumerate(texts):
            many.push(other, row)
            many.close(row)
        together: list[list[Event]] = [[], [], []]
        while not all(row.done for row in many.rows):
            for row, event in many.advance():
                together[row].append(event)
        assert together == [writes(feed_all(session(), [other])) for other in texts]
        # the future
        shorter = writes(feed_all(session(), words[:4]))
        known = [write for write in expected if write.delay < 4]
        assert shorter[: len(known)] == known


def test_waiting_for_ever_is_offline() -> None:
    model, text = make("offline", "transformer", seed=1), sentence(6, 3)
    offline = writes(feed_all(Session(model, CODEC), [text]))
    for agent in ("wait-k:99", "static:99,1", "wait-if-diff:99,1"):
        agentd = writes(feed_all(Session(model, CODEC, agent), [text]))
        assert [(w.text, w.delay) for w in agentd] == [(w.text, w.delay) for w in offline]


def test_segments_under_an_agent() -> None:
    model = make("offline", "transformer", seed=2)
    texts = [sentence(4, 1, "ab."), sentence(3, 2, "cd.")]
    for agent in AGENTS:
        session = Session(model, CODEC, agent, segment=True)
        events = [event for event in feed_all(session, texts) if event != Read()]
        expected: list[Event] = []
        words = 0
        for text in texts:
            for write in writes(feed_all(Session(model, CODEC, agent), [text])):
                heads = [[at + words for at in layer] for layer in write.heads]
                expected.append(Write(write.text, write.delay + words, heads))
            words += len(text.split())
            expected.append(End(words))
        assert events == expected


@dataclass(frozen=True)
class Looking(Agent):
    """Looks at everything, and remembers how often it was asked."""

    wants_attention = True
    shapes: ClassVar[list[tuple[torch.Size, ...]]] = []

    def decide(self, seen: Seen) -> list[int]:
        scores = seen.scores
        assert scores.hidden is not None
        assert scores.attention is not None
        self.shapes.append((scores.log_probs.shape, scores.hidden.shape, scores.attention.shape))
        for memory, read in zip(seen.memory, seen.read, strict=True):
            assert memory.get("read", 0) <= read  # nothing of the sentence before
            memory["read"] = read
        return [READ] * len(seen.read)


def test_what_an_agent_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "looking", Looking)
    model = make("offline", "transformer", seed=1)
    session = Session(model, CODEC, "looking", segment=True)
    feed_all(session, [sentence(3, 1, "ab."), sentence(2, 2)])
    width, layers = 16, 2
    for number, (log_probs, hidden, attention) in enumerate(Looking.shapes[:4]):
        assert log_probs == (1, len(CODEC.target_vocabulary))
        assert hidden == (1, width)
        tokens = len(CODEC.encode_source(" ".join(sentence(3, 1, "ab.").split()[: number + 1]))) - 1
        assert attention[:2] == (1, layers)
        assert attention[3] == tokens + (number == 3)


def test_rows_can_change_their_agents() -> None:
    model, text = make("offline", "transformer", seed=1), sentence(7, 1)
    alone = {
        a: writes(feed_all(Session(model, CODEC, a), [text])) for a in ("wait-k:1", "static:2,2")
    }
    session = Session(model, CODEC, "wait-k:1")
    assert writes(feed_all(session, [text])) == alone["wait-k:1"]
    session.reset()
    session.set_decoding("static:2,2")
    assert writes(feed_all(session, [text])) == alone["static:2,2"]
