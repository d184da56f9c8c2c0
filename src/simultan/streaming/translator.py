"""A trained model as people hold it: load it, open sessions, translate test sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from simultan import boxed, checkpoint
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.model import TranslationModel
from simultan.streaming.lags import Lags
from simultan.streaming.rules import Rule, RuleSession
from simultan.streaming.search import beam_search
from simultan.streaming.session import Session, Write

__all__ = ["Translation", "Translator", "load"]


@dataclass
class Translation:
    """One sentence, and how it came about."""

    words: list[str] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)  # source words read, for each word
    elapsed: list[float] = field(default_factory=list)  # seconds of computing, for each word
    tokens: list[int] = field(default_factory=list)  # target pieces, without end-of-sequence
    token_delays: list[int] = field(default_factory=list)  # source pieces read, for each piece
    heads: list[list[list[int]]] = field(default_factory=list)  # [T, L, H], from 1


class Translator:
    """A model with its vocabularies."""

    def __init__(
        self, model: TranslationModel, config: Config, codec: Codec, lags: Lags | None = None
    ) -> None:
        self.model, self.config, self.codec = model.eval(), config, codec
        self.lags = lags or Lags()  # `lags.threshold(5)`: the threshold to stay 5 words behind

    def session(
        self,
        *,
        rows: int = 1,
        threshold: float = 0.5,
        k: int | None = None,
        rule: str | None = None,
        segment: bool = False,
    ) -> Session:
        """A new stream; `segment` lets it run without end, sentence after sentence.

        `k` is of wait-k models, in tokens; `rule`, such as "wait-k:3", is for offline models.
        """
        if rule is None:
            return Session(
                self.model, self.codec, rows=rows, threshold=threshold, k=k, segment=segment
            )
        if k is not None:
            raise ValueError(f"k = {k} and rule {rule!r}: choose one of them")
        return RuleSession(self.model, self.codec, Rule.parse(rule), rows=rows, segment=segment)

    def translate(
        self,
        sentences: Sequence[str],
        *,
        rows: int = 32,
        threshold: float = 0.5,
        k: int | None = None,
        rule: str | None = None,
        beam: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """A test set through one session of many rows; a row that is done takes the next one.

        The source is fed at once: where heads stop does not depend on how it arrives.
        `beam` above 1 searches, for offline models only.
        """
        if beam != 1:
            if rule is not None or k is not None:
                raise ValueError(
                    f"beam = {beam}: beam search hears whole sentences, without a rule"
                )
            return self._search(sentences, rows, beam, progress)
        results = [Translation() for _ in sentences]
        if not sentences:
            return results
        rows = max(1, min(rows, len(sentences)))
        session = self.session(rows=rows, threshold=threshold, k=k, rule=rule)
        learned = self.model.policy.learned
        lengths = [len(sentence) for sentence in sentences]
        waiting = sorted(range(len(sentences)), key=lambda i: lengths[i])  # the longest first
        sentence_of = [-1] * rows
        started = [0.0] * rows

        def note(row: int, token: int, positions: list[list[int]]) -> None:
            result = results[sentence_of[row]]
            result.tokens.append(token)
            result.token_delays.append(session.tokens_needed(row, positions))
            if learned:
                result.heads.append([[at + 1 for at in layer] for layer in positions])

        def take(row: int) -> None:
            sentence_of[row] = waiting.pop()
            started[row] = time.perf_counter()
            session.reset(row)
            session.push(sentences[sentence_of[row]], row)
            session.close(row)

        session.on_token = note
        for row in range(rows):
            take(row)
        active = rows
        while active:
            events = session.advance()
            now = time.perf_counter()
            for row, event in events:
                if isinstance(event, Write):
                    words = event.text.split()
                    result = results[sentence_of[row]]
                    result.words += words
                    result.delays += [event.delay] * len(words)
                    result.elapsed += [now - started[row]] * len(words)
            for row in range(rows):
                if sentence_of[row] >= 0 and session.rows[row].done:
                    sentence_of[row] = -1
                    if progress is not None:
                        progress(1)
                    if waiting:
                        take(row)
                    else:
                        active -= 1
        session.on_token = None  # it knows the session: without this the caches would live on
        return results

    def _search(
        self,
        sentences: Sequence[str],
        rows: int,
        beam: int,
        progress: Callable[[int], None] | None,
    ) -> list[Translation]:
        results = [Translation() for _ in sentences]
        sources = [self.codec.encode_source(sentence) for sentence in sentences]
        order = sorted(range(len(sentences)), key=lambda i: len(sources[i]))
        size = max(1, rows // beam)
        for start in range(0, len(order), size):
            group = order[start : start + size]
            started = time.perf_counter()
            found = beam_search(self.model, [sources[i] for i in group], beam)
            elapsed = time.perf_counter() - started
            for i, hypothesis in zip(group, found, strict=True):
                tokens = list(hypothesis.tokens)
                words = self.codec.decode_target(tokens).split()
                heard = len(self.codec.pipeline.split_source(sentences[i]))
                results[i] = Translation(
                    words=words,
                    delays=[heard] * len(words),
                    elapsed=[elapsed] * len(words),
                    tokens=tokens,
                    token_delays=[len(sources[i])] * len(tokens),
                )
            if progress is not None:
                progress(len(group))
        return results


def load(name: str | Path, *, device: str = "cpu", quantize: str | None = None) -> Translator:
    """The translator of a model's folder, or of a model in the box by its name ("de-en").

    quantize = "int8" rounds its weights, on a CPU.
    """
    folder = boxed.resolve(name)
    model, config, codec = checkpoint.load_model(folder)
    assert isinstance(model, TranslationModel)
    model.to(torch.device(device)).eval()
    return Translator(model.prepare_inference(quantize), config, codec, Lags.load(folder))
