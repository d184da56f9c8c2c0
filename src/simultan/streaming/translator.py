"""A trained model for users: load it, open sessions, translate test sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from simultan import checkpoint
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.data.ragged import Array, Ragged
from simultan.data.words import join_words
from simultan.model import TranslationModel
from simultan.streaming import backends
from simultan.streaming.backends import OfflineModel
from simultan.streaming.deciders import AgentsDecide
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.ends import EndNetwork, load_ends
from simultan.streaming.generation import Generator
from simultan.streaming.lags import UNMEASURED, Lags
from simultan.streaming.lines import MOST, LineText
from simultan.streaming.row import Choice
from simultan.streaming.search import Search
from simultan.streaming.session import Session, Write

__all__ = ["Translation", "Translator", "find_device", "limits", "load", "play"]


@dataclass
class Translation:
    """One translated sentence, and when each part of it was written."""

    words: list[str] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)  # source words read, for each word
    elapsed: list[float] = field(default_factory=list)  # seconds of computing, for each word
    tokens: list[int] = field(default_factory=list)  # target pieces, without end-of-sequence
    token_delays: list[int] = field(default_factory=list)  # source pieces read, for each piece
    token_heads: list[list[list[int]]] = field(default_factory=list)  # [T, L, H] pieces, from 1
    guesses: list[bool] = field(default_factory=list)  # of an agent: whether each was right
    language: str = ""

    @property
    def text(self) -> str:
        return join_words(self.words, self.language)


class Translator:
    """A model with its vocabularies."""

    def __init__(
        self,
        model: TranslationModel | OfflineModel,
        config: Config,
        codec: Codec,
        lags: Lags = UNMEASURED,
        ends: EndNetwork | None = None,
    ) -> None:
        self.model = model.eval() if isinstance(model, TranslationModel) else model
        self.config, self.codec = config, codec
        self.lags, self.ends = lags, ends
        self._generators: dict[tuple[Decoding, int], Generator] = {}

    def session(
        self,
        decoding: Decoding | str = DEFAULT,
        *,
        rows: int = 1,
        segment: bool = True,
        longest: int | None = None,
    ) -> Session:
        """Open a stream. How to decode is a Decoding or its text, such as "lag=4" or "wait-k:3".

        With `segment` each sentence is translated by itself, and the stream may never end;
        without it, all words until finish() are one sentence.
        """
        return Session(
            self.model,
            self.codec,
            decoding,
            rows=rows,
            segment=segment,
            longest=longest,
            lags=self.lags,
            ends=self.ends,
        )

    def translate(
        self,
        sentences: Iterable[str],
        decoding: Decoding | str = DEFAULT,
        *,
        rows: int = 32,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate sentences side by side; a row that is done takes the next sentence.

        Sentences are fed as a whole: the words and their delays are those of a live stream.
        """
        texts = [] if isinstance(sentences, str) else list(sentences)
        if isinstance(sentences, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError("translate() takes a list of sentences: write translate([text])")
        sentences = texts
        chosen = Decoding.parse(decoding).resolve(self.model.policy, self.lags)
        if self.generates(chosen):
            return self._generate(sentences, chosen, rows, progress)
        results = [Translation(language=self.codec.target_language) for _ in sentences]
        session = self.session(chosen, rows=max(1, min(rows, len(sentences))), segment=False)
        learned = self.model.policy.learned
        for number, event, seconds in play(session, sentences):
            result = results[number]
            if isinstance(event, Write):
                words = event.text.split()
                result.words += words
                result.delays += [event.delay] * len(words)
                result.elapsed += [seconds] * len(words)
            elif isinstance(event, Choice):
                result.tokens.append(event.token)
                result.token_delays.append(event.delay)
                if learned:
                    heads = [[at + 1 for at in layer] for layer in event.token_heads]
                    result.token_heads.append(heads)
            elif isinstance(event, bool):
                result.guesses.append(event)
            elif progress is not None:
                progress(1)
        return results

    def generates(self, decoding: Decoding | str = DEFAULT) -> bool:
        """Whether sentences are translated as a whole, many at once (streaming/generation.py)."""
        chosen = Decoding.parse(decoding)
        if not isinstance(self.model, TranslationModel):
            if chosen.whole:
                raise ValueError(f"{chosen}: this model cannot be searched; choose an agent")
            return False
        return self.model.policy.name == "offline" and chosen.agent is None

    def default_rows(self, decoding: Decoding | str = DEFAULT) -> int:
        """Rows that keep the device busy."""
        if not isinstance(self.model, TranslationModel) or not self.generates(decoding):
            return 32
        return 2048 if self.model.output.weight.is_cuda else 32

    def generator(self, decoding: Decoding | str, rows: int) -> Generator:
        """What translates whole sentences; it is kept, with what it has recorded."""
        chosen = Decoding.parse(decoding)
        assert isinstance(self.model, TranslationModel)
        if (chosen, rows) not in self._generators:
            search = Search(beam=chosen.beam or 0, sampling=chosen.sample)
            self._generators = {(chosen, rows): Generator(self.model, search, rows=rows)}
        return self._generators[chosen, rows]

    def _generate(
        self,
        sentences: Sequence[str],
        decoding: Decoding,
        rows: int,
        progress: Callable[[int], None] | None,
    ) -> list[Translation]:
        careful = decoding.beam is None
        text = LineText(self.codec, careful)
        sources = Ragged.of([text.encode(sentence) for sentence in sentences])
        found = self.generator(decoding, rows).generate(
            sources, limits=limits(sources, careful), progress=progress
        )
        results = []
        for i, (sentence, tokens) in enumerate(zip(sentences, found.best().lists(), strict=True)):
            written = text.decode(sentence, tokens)
            result = Translation(
                words=written.words,
                delays=written.delays,
                elapsed=[float(found.seconds[i])] * len(written.words),
                tokens=list(written.tokens),
                token_delays=[int(sources.lengths[i])] * len(written.tokens),
                language=self.codec.target_language,
            )
            results.append(result)
        return results


def limits(sources: Ragged, careful: bool) -> Array:
    """Tokens that may be written for each source; a session has a bound beside."""
    found: Array = 2 * sources.lengths + 30
    return np.minimum(found, MOST) if careful else found


def play(
    session: Session, texts: Sequence[str]
) -> Iterator[tuple[int, Write | Choice | bool | None, float]]:
    """Translate texts side by side, the longest first; a row that is done takes the next one.

    Yields the number of a text, what happened, and the seconds since the text was begun. What
    happens is that words are written, that a token is chosen, that an agent's guess of the source
    was right or wrong, or that the text is done (None).
    """
    waiting = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    playing: dict[int, tuple[int, float]] = {}  # row: its text, and when that was begun
    happened: list[tuple[int, Write | Choice | bool | None]] = []
    session.on_token = lambda choice: happened.append((choice.row, choice))
    if isinstance(session.decider, AgentsDecide):
        session.decider.on_guess = lambda row, right: happened.append((row, right))
    while waiting or playing:
        for row in range(len(session.rows)):
            if waiting and row not in playing:
                playing[row] = waiting.pop(), time.perf_counter()
                session.reset(row)
                session.push(texts[playing[row][0]], row)
                session.close(row)
        happened.clear()
        happened += [(row, event) for row, event in session.advance() if isinstance(event, Write)]
        now = time.perf_counter()
        happened += [(row, None) for row in playing if session.rows[row].done]
        for row, event in happened:
            number, began = playing[row]
            yield number, event, now - began
            if event is None:
                del playing[row]


def load(
    name: str | Path,
    *,
    device: str | torch.device = "cpu",
    quantize: str | None = None,
    threads: int | None = None,
) -> Translator:
    """Load a model from its folder, or a model in the box by its name, such as "de-en".

    Offline models of other systems are "hf:NAME" or "hf:FOLDER" (transformers) and "ct2:FOLDER"
    (CTranslate2); behind it "?source=CODE&target=CODE" chooses languages of a model of many.

    quantize="int8" rounds the weights, which is faster on a CPU. threads=1 is best for one stream
    on a machine that does anything else; PyTorch has one setting for the whole process, so this
    changes it for all. Without it nothing is changed.
    """
    place = find_device(device)
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads={threads}: it must be at least 1")
        torch.set_num_threads(threads)
    folder, foreign = backends.locate(name)
    if foreign is not None:
        opened, codec = backends.open_foreign(foreign, folder, place, quantize)
        return Translator(opened, Config(), codec)
    model, config, codec = checkpoint.load_model(folder)
    model.to(place).eval()
    ends = load_ends(folder, len(codec.source_vocabulary))
    return Translator(model.prepare_inference(quantize), config, codec, Lags.load(folder), ends)


def find_device(name: str | torch.device) -> torch.device:
    """The device of this name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device {str(name)!r}: write cpu or cuda") from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            raise ValueError(f"device {str(name)!r}: PyTorch finds no GPU here; write cpu")
        if (device.index or 0) >= count:
            raise ValueError(f"device {str(name)!r}: there are {count} GPUs, from cuda:0 on")
    return device
