"""The examples of docs/architecture.md: a new agent and a new backend, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small import CODEC, feed_all, make, sentence, writes

from simultan.config import Config
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, Vocabulary
from simultan.evaluation.evaluate import evaluate
from simultan.streaming.agents import AGENTS
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import End, Session, Write
from simultan.streaming.translator import Translator

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    before = dict(AGENTS)
    yield
    AGENTS.clear()
    AGENTS.update(before)


def example(heading: str) -> dict[str, Any]:
    """What the first block of Python under a heading defines."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"```python\n(.*?)```", section, re.S)
    assert block is not None
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block[1], heading, "exec", dont_inherit=True), names)
    return names


def test_a_new_agent() -> None:
    example("A new agent")
    assert str(Decoding.parse("confident:60")) == "confident:60"
    with pytest.raises(ValueError, match="confident:PERCENT"):
        Decoding.parse("confident:0")
    model, text = make("offline", "transformer", seed=1), sentence(8, 1)
    delays = {}
    for percent in (1, 100):
        at_once = writes(feed_all(Session(model, CODEC, f"confident:{percent}"), [text]))
        assert (
            writes(feed_all(Session(model, CODEC, f"confident:{percent}"), text.split())) == at_once
        )
        delays[percent] = [write.delay for write in at_once]
    assert delays[1][0] == 1  # it is sure of anything, and here of nothing
    assert set(delays[100]) == {8}


ECHO = Vocabulary([*SPECIAL, "a", "b", "home."])
WORDS = Codec(Pipeline("words"), ECHO, ECHO)


@pytest.mark.parametrize(
    ("decoding", "delays"),
    [("wait-k:1", [1, 2, 3]), ("wait-k:2", [2, 3, 3]), ("", [2, 3, 3]), ("agreement:3", [3, 3, 3])],
)
def test_a_new_backend(decoding: str, delays: list[int]) -> None:
    model = example("A new backend")["Echo"](len(ECHO))
    session = Session(model, WORDS, decoding, rows=2, segment=True)
    events = [
        event for event in feed_all(session, ["a b", "home. b"]) if not isinstance(event, Write)
    ]
    assert [event for event in events if isinstance(event, End)] == [End(3), End(4)]
    session.reset()
    written = writes(feed_all(session, ["a", "b", "home."]))
    assert [(write.text, write.delay) for write in written] == list(
        zip(["a", "b", "home."], delays, strict=True)
    )
    translator = Translator(model, Config(), WORDS)
    texts = ["a b home.", "b"]
    assert [t.text for t in translator.translate(texts, decoding)] == texts
    assert evaluate(translator, texts, texts, decoding=decoding).bleu == pytest.approx(100)
    with pytest.raises(ValueError, match="cannot be searched"):
        translator.translate(texts, "beam=2")
    for row, text in enumerate(["a b a", "b"]):
        session.reset(row)
        session.push(text, row)
        session.close(row)
    said: list[list[str]] = [[], []]
    while not all(row.done for row in session.rows):
        for row, event in session.advance():
            if isinstance(event, Write):
                said[row].append(event.text)
    assert said == [["a", "b", "a"], ["b"]]
