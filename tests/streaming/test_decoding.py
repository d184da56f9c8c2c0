"""How to decode as one value: its text, what it refuses, and what a model makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan.config import Config, PolicyConfig
from simultan.model.policy import Policy, policy_of
from simultan.streaming.agents import AGENTS, load_agent
from simultan.streaming.decoding import Decoding, Sampling
from simultan.streaming.lags import Lags

LEARNED = Policy("mma-il", learned=True, lookback=None, every_head=True)
FIXED = Policy("wait-k", learned=False, lookback=None, every_head=False, lags=(3,))
OFFLINE = Policy("offline", learned=False, lookback=None, every_head=False)
LAGS = Lags(((0.2, 2.0), (0.5, 3.0), (0.8, 5.0)))


@pytest.mark.parametrize(
    ("text", "decoding"),
    [
        ("", Decoding()),
        ("default", Decoding()),
        ("threshold=0.5", Decoding(threshold=0.5)),
        ("lag=4", Decoding(lag=4)),
        (" lag=4.25 ", Decoding(lag=4.25)),
        ("mass=0.7", Decoding(mass=0.7)),
        ("k=3", Decoding(k=3)),
        ("beam=4", Decoding(beam=4)),
        ("lag=4,beam=2", Decoding(lag=4, beam=2)),
        (" lag=4, beam= 2 ", Decoding(lag=4, beam=2)),
        ("threshold=0.5,beam=1", Decoding(threshold=0.5, beam=1)),
        ("static:3,2,beam=3", Decoding(agent="static:3,2", beam=3)),
        ("agent=runs/a=1,beam=3", Decoding(agent="runs/a=1", beam=3)),
        ("wait-k:3", Decoding(agent="wait-k:3")),
        ("agent=wait-k:3", Decoding(agent="wait-k:3")),
        ("static:3,2", Decoding(agent="static:3,2")),
        ("agreement:2", Decoding(agent="agreement:2")),
        ("runs/agent", Decoding(agent="runs/agent")),
        ("agent=runs/a=1", Decoding(agent="runs/a=1")),
    ],
)
def test_text(text: str, decoding: Decoding) -> None:
    assert Decoding.parse(text) == decoding
    assert Decoding.parse(str(decoding)) == decoding
    assert Decoding.parse(decoding) is decoding


def test_the_text_is_short() -> None:
    given = Decoding(), Decoding(lag=4.0), Decoding(threshold=0.1), Decoding(agent="wait-k:3")
    assert [str(decoding) for decoding in given] == [
        "default",
        "lag=4",
        "threshold=0.1",
        "wait-k:3",
    ]


@pytest.mark.parametrize("text", ["beam=2,beam=3", "lag=4,beam=2,beam=3"])
def test_beams_are_named_once(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}: beam is there twice$"):
        Decoding.parse(text)


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_no_digit_of_a_threshold_is_lost(threshold: float) -> None:
    decoding = Decoding(threshold=threshold)
    assert Decoding.parse(str(decoding)) == decoding


@pytest.mark.parametrize(
    "text",
    ["thresh=0.5", "threshold", "threshold=", "threshold=x", "k=3.5", "lag=four", "0.5", "wait",
     "beam=4,k=2", "=", "=3"],
)  # fmt: skip
def test_bad_text_lists_what_is_possible(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"threshold=0\.5, lag=4, mass=0\.7, k=3, beam=4.*static:START,STEP"
    ):
        Decoding.parse(text)


@pytest.mark.parametrize(
    "text",
    ["wait-k", "wait-k:", "wait-k:x", "wait-k:0", "wait-k:1,2", "wait-k:-1", "wait-k:²", "static:3",
     "wait-if:1,1", "wait-if-diff:1,0", "wait-if-worse:2", "agent=", "agent=wait-k"],
)  # fmt: skip
def test_bad_agents(text: str) -> None:
    with pytest.raises(ValueError, match=r"write agreement:PREFIXES, .*wait-k:K"):
        Decoding.parse(text)
    with pytest.raises(ValueError, match=r"ALPHA between 0 and 1.*; with several, put a space"):
        Decoding.parse("static:2,2,static:4,2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threshold": 0.0}, "between 0 and 1"),
        ({"threshold": 1.0}, "between 0 and 1"),
        ({"threshold": float("nan")}, "between 0 and 1"),
        ({"lag": float("inf")}, "a number of words"),
        ({"k": 0}, "at least 1"),
        ({"beam": 0}, "at least 1"),
        ({"beam": 1.5}, "whole number"),
        ({"k": 3, "lag": 4.0, "beam": 4}, "lag=4.0 and k=3: choose one"),
        ({"sample": Sampling(), "beam": 4}, "choose one"),
        ({"threshold": 0.5, "lag": 4.0, "agent": "wait-k:3"}, "choose one"),
    ],
)
def test_bad_values(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**given)


def test_a_temperature_keeps_its_digits() -> None:
    exact = Decoding(sample=Sampling(0.1234567))
    assert Decoding.parse(str(exact)) == exact
    assert str(Decoding(sample=Sampling(0.8, 10, 3))) == "sample=0.8,10,3"


def test_a_decoding_is_text_or_itself() -> None:
    with pytest.raises(TypeError, match="not float"):
        Decoding.parse(0.5)  # type: ignore[arg-type]


def test_a_learned_model_gets_a_threshold() -> None:
    assert Decoding().resolve(LEARNED, LAGS) == Decoding(threshold=0.5)
    assert Decoding(threshold=0.3).resolve(LEARNED, Lags()) == Decoding(threshold=0.3)
    assert Decoding(mass=0.7).resolve(LEARNED, LAGS) == Decoding(mass=0.7)
    found = Decoding(lag=4.0).resolve(LEARNED, LAGS).threshold
    assert found == pytest.approx(2 / 3)  # odds of 2: between 1 and 4
    with pytest.raises(ValueError, match=r"this model has 2\.0 to 5\.0"):
        Decoding(lag=9.0).resolve(LEARNED, LAGS)
    with pytest.raises(ValueError, match="was not measured"):
        Decoding(lag=4.0).resolve(LEARNED, Lags())


def test_beams_beside_a_threshold() -> None:
    """A model that was measured with beams has them, unless a caller says otherwise."""
    usual = Lags(LAGS.points, beam=2)

    def resolved(text: str, policy: Policy = LEARNED, lags: Lags = LAGS) -> str:
        return str(Decoding.parse(text).resolve(policy, lags))

    assert resolved("beam=4") == "threshold=0.5,beam=4"
    assert resolved("lag=3,beam=4") == "threshold=0.5,beam=4"
    assert resolved("beam=1") == resolved("threshold=0.5,beam=1") == "threshold=0.5"
    assert resolved("", lags=usual) == resolved("lag=3", lags=usual) == "threshold=0.5,beam=2"
    assert resolved("beam=3", lags=usual) == "threshold=0.5,beam=3"
    alone = Decoding.parse("beam=1").resolve(LEARNED, usual)
    assert alone.resolve(LEARNED, usual) == alone == Decoding(threshold=0.5, beam=1)
    assert resolved("wait-k:3", OFFLINE, usual) == "wait-k:3"
    assert resolved("beam=4", FIXED) == "k=3,beam=4"
    assert resolved("beam=1", OFFLINE) == "default"
    assert resolved("beam=99", OFFLINE) == "beam=99"  # of whole sentences
    whole = [text for text in ("beam=4", "sample=1", "wait-k:3", "wait-k:3,beam=4", "")
             if Decoding.parse(text).resolve(OFFLINE, LAGS).whole]  # fmt: skip
    assert whole == ["beam=4", "sample=1"]
    assert not Decoding.parse("beam=4").resolve(LEARNED, LAGS).whole


@pytest.mark.parametrize(
    ("name", "hard", "default"),
    [("mma-h", 0.0, "mass=0.7"), ("mma-h", 0.5, "threshold=0.5"), ("mma-il", 0.0, "threshold=0.5")],
)
def test_mma_h_streams_as_it_was_trained(name: str, hard: float, default: str) -> None:
    policy = policy_of(Config(policy=PolicyConfig(name=name, hard=hard)))  # type: ignore[arg-type]
    assert str(Decoding().resolve(policy, LAGS)) == default
    assert str(Decoding(threshold=0.5).resolve(policy, LAGS)) == "threshold=0.5"


@pytest.mark.parametrize(
    ("policy", "text"),
    [(FIXED, "default"), (FIXED, "k=5"), (OFFLINE, "default"), (OFFLINE, "static:3,2"),
     (FIXED, "k=5,beam=2"), (OFFLINE, "beam=4"), (OFFLINE, "wait-k:3,beam=4")],
)  # fmt: skip
def test_others_keep_what_they_are_given(policy: Policy, text: str) -> None:
    decoding = Decoding.parse(text)
    assert decoding.resolve(policy, Lags()) == decoding


@pytest.mark.parametrize(
    ("policy", "text", "message"),
    [
        (
            LEARNED,
            "k=3",
            r"k=3: this model's policy is mma-il; it takes threshold=0\.5, lag=4 or mass",
        ),
        (LEARNED, "beam=17", "17: a stream has 16 beams at most"),
        (OFFLINE, "wait-k:3,beam=17", "a stream has 16 beams at most"),
        (LEARNED, "wait-k:3", r"mass=0\.7 \(an agent decides for offline models\)$"),
        (FIXED, "threshold=0.5", "wait-k; it takes k=3$"),
        (FIXED, "lag=4", "wait-k; it takes k=3$"),
        (FIXED, "mass=0.7", "wait-k; it takes k=3$"),
        (OFFLINE, "k=3", "offline; it takes beam=4 or an agent such as wait-k:3$"),
        (OFFLINE, "threshold=0.5", "offline; it takes"),
        (OFFLINE, "lag=4", "offline; it takes"),
    ],
)
def test_a_model_refuses_what_it_cannot_do(policy: Policy, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding.parse(text).resolve(policy, LAGS)


class Weighted:
    """An agent with weights."""

    folder: Path

    @classmethod
    def load(cls, folder: Path) -> Weighted:
        agent = cls()
        agent.folder = folder
        return agent


def test_an_agent_with_weights_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no agent\.toml"):
        load_agent(str(tmp_path))
    (tmp_path / "agent.toml").write_text('name = "wait-k"\n')
    with pytest.raises(ValueError, match="no agent with weights is called 'wait-k'"):
        load_agent(str(tmp_path))
    monkeypatch.setitem(AGENTS, "weighted", Weighted)
    (tmp_path / "agent.toml").write_text('name = "weighted"\n')
    agent: Any = load_agent(str(tmp_path))
    assert agent.folder == tmp_path
