"""Small random models whose heads disagree, and a codec with words of several pieces."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.text import MARKER, Pipeline
from simultan.data.vocabulary import BYTES, EOS, SPECIAL, Vocabulary
from simultan.model import TranslationModel, build
from simultan.streaming.generation import Generator
from simultan.streaming.search import Hypothesis, Search
from simultan.streaming.session import Event, Session, Write

POLICIES = ["hard", "mocha", "milk", "mma-h", "mma-il", "wait-k", "offline"]
ARCHITECTURES = ["transformer", "recurrent"]
PIECES = ["o", "u", *(c + MARKER for c in "klmnpqrs")]
SOURCE = Vocabulary([*SPECIAL, *BYTES, *"abcdef.", MARKER], [])
TARGET = Vocabulary([*SPECIAL, *BYTES, *PIECES], [])
CODEC = Codec(Pipeline("bpe"), SOURCE, TARGET)
WORDS = Codec(Pipeline("words"), Vocabulary([*SPECIAL, *"abcdef."]), TARGET)


def make(
    policy: str,
    architecture: str,
    seed: int = 0,
    end: float = 0.6,
    window: int = 0,
    width: int = 16,
) -> TranslationModel:
    """`end` scales the end-of-sequence logit: larger, and it comes early more often."""
    config = Config(
        model=ModelConfig(
            architecture=architecture,  # type: ignore[arg-type]
            width=width, ffn=24, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0,
            window=window,
        ),
        policy=PolicyConfig(name=policy, chunk=2, k=(2,), energy_bias=-0.2),  # type: ignore[arg-type]
    )  # fmt: skip
    torch.manual_seed(seed)
    model = build(config, len(SOURCE), len(TARGET)).double().eval()
    with torch.no_grad():  # saturated and, with random projections, different in every head
        for attention in model.cross_attentions():
            if attention.selecting_heads:
                attention.select_query.weight *= 1e7
                attention.select_query.bias.normal_(0, 1e7)
                attention.energy_bias *= 1e7
        if architecture == "recurrent":  # livelier than a fresh LSTM
            for name, parameter in model.named_parameters():
                if "coder." in name or "combine" in name:
                    parameter *= 4
        model.output.weight[4 : 4 + len(BYTES)] = 0  # bytes would drown the pieces
        model.output.weight[3] = 0
        model.output.weight[EOS] *= end
    return model


def sentence(words: int, seed: int, closing: str = "") -> str:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4, (words,), generator=generator).tolist()
    letters = torch.randint(0, 6, (words, 3), generator=generator).tolist()
    pairs = zip(letters, lengths, strict=True)
    return " ".join("".join("abcdef"[i] for i in row[:n]) for row, n in pairs) + closing


def feed_all(session: Session, chunks: list[str]) -> list[Event]:
    """All events of a stream that arrives in these chunks."""
    events = [event for chunk in chunks for event in session.feed(chunk)]
    return events + session.finish()


def writes(events: list[Event]) -> list[Write]:
    return [event for event in events if isinstance(event, Write)]


def beam_search(
    model: TranslationModel, sources: Sequence[Sequence[int]], beam: int = 4, penalty: float = 1.0
) -> list[Hypothesis]:
    """The best translation of each source (token ids that end with end-of-sequence)."""
    generator = Generator(model, Search(beam=beam, penalty=penalty), rows=beam * len(sources) or 1)
    found = generator.generate(sources)
    return [found.hypotheses(i)[0] for i in range(len(found))]
