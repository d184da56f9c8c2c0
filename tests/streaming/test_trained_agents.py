"""Agents with weights, here at random: they are sessions like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small import ARCHITECTURES, CODEC, feed_all, make, sentence, writes

from simultan.data.vocabulary import BOS, EOS, PAD, UNK
from simultan.model import TranslationModel
from simultan.streaming.agents import Scores, Seen, load_agent
from simultan.streaming.agents.predict import Predict, SourceModel
from simultan.streaming.agents.reinforced import NUMBERS, Policy, Reinforced
from simultan.streaming.session import Event, Session
from simultan.streaming.translator import Translator

MODEL_WIDTH = 16


def write_agent(folder: Path, name: str, seed: int) -> str:
    """An agent whose decisions go both ways."""
    torch.manual_seed(seed)
    predicts = name == "predict"
    policy = Policy(3 * MODEL_WIDTH + NUMBERS + predicts, 8, 2 + predicts)
    with torch.no_grad():
        policy.actions.weight.normal_(0, 4)
    weights = {f"policy.{key}": value for key, value in policy.state_dict().items()}
    if predicts:
        ends = [CODEC.source_vocabulary.ends_word(i) for i in range(len(CODEC.source_vocabulary))]
        source = SourceModel(torch.tensor(ends), 8)
        weights |= {f"source.{key}": value for key, value in source.state_dict().items()}
    folder.mkdir()
    (folder / "agent.toml").write_text(f'name = "{name}"\n', "utf-8")
    save_file(weights, folder / "weights.safetensors")
    return str(folder)


def guessed(model: TranslationModel, agent: str, text: str) -> list[bool]:
    from simultan.config import Config

    return Translator(model, Config(), CODEC).translate([text], f"agent={agent}")[0].guesses


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["reinforced", "predict"])
def test_they_are_sessions_like_any_other(architecture: str, name: str, tmp_path: Path) -> None:
    """How words arrive and who else is there changes nothing; nor does what was not yet read."""
    delays: set[int] = set()
    guesses: list[bool] = []
    for seed in range(6):
        agent = write_agent(tmp_path / str(seed), name, seed)
        model, text = make("offline", architecture, seed, end=0.9), sentence(7, seed)
        words = text.split()

        def session(rows: int = 1, model: TranslationModel = model, agent: str = agent) -> Session:
            return Session(model, CODEC, f"agent={agent}", rows=rows, segment=False)

        expected = writes(feed_all(session(), [text]))
        delays |= {write.delay for write in expected}
        guesses += guessed(model, agent, text)
        for chunks in (words, [" ".join(words[:3]), "", " ".join(words[3:])]):
            assert writes(feed_all(session(), chunks)) == expected
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
        # the fifth word on is another: what was written before it was heard is the same
        changed = writes(feed_all(session(), [*words[:4], "fed", "cab", "bad"]))
        known = [write for write in expected if write.delay <= 4]
        assert changed[: len(known)] == known
        assert [w for w in changed if w.delay <= 4] == known
    assert len(delays) > 3  # they read and write in turn
    if name == "predict":
        assert guesses


def test_the_language_model_guesses_whole_words() -> None:
    ends = [CODEC.source_vocabulary.ends_word(i) for i in range(len(CODEC.source_vocabulary))]
    for seed in range(5):
        torch.manual_seed(seed)
        source = SourceModel(torch.tensor(ends), 8).eval()
        with torch.no_grad():
            source.tokens.weight.normal_()
        tokens = [[BOS, *CODEC.encode_source_word(word)] for word in ("ab", "f", "cde")]
        with torch.no_grad():
            hidden, states = source.read(tokens, torch.zeros(3, 8))
            words, sure = source.guess(hidden, states)
            for row, one in enumerate(tokens):  # as if it were alone
                alone = source.read([one[:1]], torch.zeros(1, 8))
                alone = source.read([one[1:]], alone[1])
                assert source.guess(*alone)[0] == [words[row]]
        for word, p in zip(words, sure, strict=True):
            assert p < 0
            assert not {PAD, BOS, UNK} & set(word)
            assert all(not ends[token] and token != EOS for token in word[:-1])
            assert ends[word[-1]] or word[-1] == EOS or len(word) == 8


def test_folders(tmp_path: Path) -> None:
    assert isinstance(load_agent(write_agent(tmp_path / "a", "reinforced", 1)), Reinforced)
    assert isinstance(load_agent(write_agent(tmp_path / "b", "predict", 1)), Predict)
    (tmp_path / "a" / "weights.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="train-agent"):
        load_agent(str(tmp_path / "a"))


def look_away(words: int) -> Scores:
    raise AssertionError("there is nothing to see")


@pytest.mark.parametrize(
    ("threshold", "two", "three"),
    [
        ("", [1, 0], [2, 0]),
        (":0.3", [0, 0], [0, 0]),
        (":.5", [1, 0], [2, 0]),
        (":.8", [1, 1], [2, 1]),
    ],
)
def test_a_threshold_by_hand(
    threshold: str, two: list[int], three: list[int], tmp_path: Path
) -> None:
    """Write, read, guess: what is best, or writing where it is more probable than the threshold."""
    probabilities = {
        "reinforced": [[0.4, 0.6], [0.7, 0.3]],
        "predict": [[0.4, 0.1, 0.5], [0.7, 0.2, 0.1]],
    }
    for name, expected in (("reinforced", two), ("predict", three)):
        agent = load_agent(write_agent(tmp_path / name, name, 1) + threshold)
        assert isinstance(agent, Reinforced)
        scores = torch.tensor(probabilities[name]).log()
        nothing = Seen([], [], [], [], look_away)
        assert agent.pick(nothing, scores, scores) == expected


@pytest.mark.parametrize(("start", "k"), [(0.5, 1), (1.5, 2), (3.5, 4)])
def test_before_it_learns_an_agent_is_wait_k(start: float, k: int) -> None:
    """It writes where it is more than `start` words behind."""
    model = make("offline", "transformer", 2, end=0.9)
    policy = Policy(3 * MODEL_WIDTH + NUMBERS, 8, 2, start, 1.0).eval()
    for seed in range(3):
        text = sentence(8, seed)
        found = []
        for agent in (Reinforced(policy), load_agent(f"wait-k:{k}")):
            session = Session(model, CODEC, segment=False)
            session.decider.agents = [agent]  # type: ignore[union-attr]
            found.append(writes(feed_all(session, [text])))
        assert found[0] == found[1]
