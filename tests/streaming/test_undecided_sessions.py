"""Sessions whose heads stay undecided."""

import pytest
import torch
from small import ARCHITECTURES, CODEC, feed_all, make, sentence, writes

from simultan.model import TranslationModel
from simultan.streaming.session import Session

LEARNED = ["hard", "mocha", "milk", "mma-h", "mma-il"]
TEXT = sentence(9, 1, ".") + " " + sentence(7, 2, ".") + " " + sentence(8, 3, ".")


def unsure(
    policy: str, architecture: str = "transformer", window: int = 0, width: int = 16
) -> TranslationModel:
    """The usual small model, but its heads are sure of nothing."""
    model = make(policy, architecture, seed=3, window=window, width=width)
    with torch.no_grad():
        for attention in model.cross_attentions():
            if attention.selecting_heads:
                attention.select_query.weight /= 3e6
                attention.select_query.bias.zero_()
                attention.energy_bias.fill_(-0.5)
    return model


def stream(model: TranslationModel, decoding: str, chunks: list[str]) -> list[tuple[str, int]]:
    events = writes(feed_all(Session(model, CODEC, decoding), chunks))
    return [(event.text, event.delay) for event in events]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", LEARNED)
def test_words_and_delays_do_not_depend_on_how_the_source_arrives(
    policy: str, architecture: str
) -> None:
    model = unsure(policy, architecture)
    written = stream(model, "mass=0.7", TEXT.split())
    assert written
    assert written == stream(model, "mass=0.7", [TEXT])
    delays = [delay for _, delay in written]
    assert delays == sorted(delays)
    assert delays[-1] <= len(TEXT.split())


@pytest.mark.parametrize("mass", ["1e-9", "1e-300", "0.999999999"])
def test_any_mass_will_do(mass: str) -> None:
    """A client may ask for any, and heads may hardly ever stop."""
    model = unsure("mma-h")
    with torch.no_grad():
        for attention in model.cross_attentions():
            attention.energy_bias.fill_(-20.0)
    written = stream(model, f"mass={mass}", TEXT.split())
    assert written
    assert written == stream(model, f"mass={mass}", [TEXT])


def test_the_knob_changes_what_is_written_and_when() -> None:
    model = unsure("mma-h")
    found = [stream(model, f"mass={mass}", [TEXT]) for mass in (0.3, 0.9)]
    count = min(map(len, found))  # the model ends where it likes
    early, late = (sum(delay for _, delay in one[:count]) for one in found)
    assert early < late
    assert found[0] != stream(model, "threshold=0.5", [TEXT])


@pytest.mark.parametrize("policy", ["mma-h", "mma-il"])
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_many_rows_write_what_each_writes_alone(policy: str, quantize: str | None) -> None:
    """In int8, too, where the last bit counts."""
    model, ways = unsure(policy, width=64), ["mass=0.5", "threshold=0.5", "mass=0.9"]
    model.float().prepare_inference(quantize)
    alone = [stream(model, way, [TEXT]) for way in ways]
    session = Session(model, CODEC, rows=3)
    for row, way in enumerate(ways):
        session.set_decoding(way, row)
        session.push(TEXT, row)
        session.close(row)
    found: list[list[tuple[str, int]]] = [[], [], []]
    while any(session.wants_turn(row) for row in range(3)):
        for row, event in session.advance():
            found[row] += [(event.text, event.delay) for event in writes([event])]
    assert found == alone


def test_the_way_may_change_in_the_middle_of_a_sentence() -> None:
    session = Session(unsure("mma-h"), CODEC, "mass=0.9")
    events = []
    for number, word in enumerate(TEXT.split()):
        session.set_decoding(("mass=0.9", "threshold=0.5", "mass=0.4")[number // 2 % 3])
        events += session.feed(word)
    events += session.finish()
    delays = [event.delay for event in writes(events)]
    assert delays == sorted(delays)
    assert len(delays) > 3


def test_a_stream_without_end_forgets() -> None:
    model = unsure("mma-h", window=8)
    session = Session(model, CODEC, "mass=0.8")
    for start in range(60):
        session.feed(sentence(20, start))
    state = session.decider.state
    assert state.available[0] > 1000
    assert all(slots <= 512 for slots in state.slots())
