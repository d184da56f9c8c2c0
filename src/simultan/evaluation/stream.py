"""Long speech: each document is played as one stream, and what was written is put back into
sentences, so that it can be scored like any test set."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simultan.data.speech import as_recognised
from simultan.evaluation.instances import Instance, write_log, write_text
from simultan.evaluation.resegment import resegment
from simultan.evaluation.scores import Scores, score, write_scores

if TYPE_CHECKING:
    from simultan.streaming.decoding import Decoding
    from simultan.streaming.translator import Translator

__all__ = ["Document", "Speech", "StreamScores", "documents_of", "evaluate_streams", "play"]

Speech = Literal["written", "unpunctuated", "lower-case", "recognised"]
Document = tuple[list[str], list[str]]  # source sentences, reference sentences
Written = list[tuple[str, int]]  # words and their delays


@dataclass(frozen=True)
class StreamScores:
    """Scores of the sentences after resegmentation, and what only a stream has."""

    scores: Scores
    documents: int
    source_words: int
    written_words: int
    reference_words: int
    longest_silence: int  # source words that were heard without anything being written


def documents_of(
    sources: Sequence[str], references: Sequence[str], lines: int = 0
) -> list[Document]:
    """Documents of so many lines; 0: all of them. An empty source line ends a document, too."""
    if len(sources) != len(references):
        raise ValueError(
            f"{len(sources)} source lines against {len(references)} reference lines: "
            "they must be the two sides of one test set"
        )
    found: list[Document] = [([], [])]
    for source, reference in zip(sources, references, strict=True):
        if not source.strip() or (lines and len(found[-1][0]) >= lines):
            found.append(([], []))
        if source.strip():
            found[-1][0].append(source)
            found[-1][1].append(reference)
    found = [document for document in found if document[0]]
    if not found:
        raise ValueError("the test set is empty")
    return found


def spoken(text: str, speech: Speech) -> str:
    """A sentence as it is given to the stream."""
    if speech == "written":
        return " ".join(text.split())
    bare, lower = speech != "lower-case", speech != "unpunctuated"
    return as_recognised(text, lower=lower, bare=bare)


def play(
    translator: Translator,
    texts: Sequence[str],
    decoding: Decoding | str = "",
    *,
    rows: int = 32,
    longest: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Written]:
    """Each text as one stream; `progress` is told how many more source words were heard."""
    from simultan.streaming.session import Write

    rows = max(1, min(rows, len(texts)))
    session = translator.session(decoding, rows=rows, longest=longest)
    written: list[Written] = [[] for _ in texts]
    waiting = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    text_of = [-1] * rows
    active = 0
    for row in range(rows):
        text_of[row] = waiting.pop()
        session.push(texts[text_of[row]], row)
        session.close(row)
        active += 1
    while active:
        for row, event in session.advance():
            if isinstance(event, Write):
                written[text_of[row]] += [(word, event.delay) for word in event.text.split()]
        for row in range(rows):
            if text_of[row] >= 0 and session.rows[row].done:
                if progress is not None:
                    progress(session.rows[row].read)
                text_of[row] = -1
                active -= 1
                if waiting:
                    session.reset(row)
                    text_of[row] = waiting.pop()
                    session.push(texts[text_of[row]], row)
                    session.close(row)
                    active += 1
    return written


def evaluate_streams(
    translator: Translator,
    documents: Sequence[Document],
    decoding: Decoding | str = "",
    out: str | Path | None = None,
    *,
    speech: Speech = "written",
    rows: int = 32,
    longest: int | None = None,
    tokenized: bool = False,
    system: str = "",
    progress: Callable[[int], None] | None = None,
) -> StreamScores:
    """Play, put back into sentences, score; with `out`, leave log and scores there.

    The delay of a word counts from the beginning of its sentence. Where it is a sentence that was
    not heard yet, by the alignment, that is a number below 1.
    """
    said = [[spoken(text, speech) for text in sources] for sources, _ in documents]
    written = play(
        translator,
        [" ".join(sentences) for sentences in said],
        decoding,
        rows=rows,
        longest=longest,
        progress=progress,
    )
    instances: list[Instance] = []
    silence = heard = 0
    for sentences, (_, references), words in zip(said, documents, written, strict=True):
        count = sum(len(sentence.split()) for sentence in sentences)
        stops = [0, *(delay for _, delay in words), count]
        silence = max(silence, max(two - one for one, two in pairwise(stops)))
        instances += _sentences(len(instances), sentences, references, words)
        heard += count
    scores = score(instances, tokenized=tokenized, system=system)
    found = StreamScores(
        scores,
        len(documents),
        heard,
        sum(map(len, written)),
        sum(len((instance.reference or "").split()) for instance in instances),
        silence,
    )
    if out is not None:
        write_log(Path(out) / "instances.log", instances)
        write_scores(Path(out) / "scores.json", scores)
        facts = {key: value for key, value in asdict(found).items() if key != "scores"}
        write_text(Path(out) / "stream.json", json.dumps(facts, indent=2) + "\n")
    return found


def _sentences(
    first: int, sentences: list[str], references: list[str], words: Written
) -> list[Instance]:
    """The log of a document, a line for each reference sentence."""
    found: list[Instance] = []
    begin = before = 0
    ends = resegment([word for word, _ in words], references)
    for sentence, reference, end in zip(sentences, references, ends, strict=True):
        part = words[begin:end]
        count = len(sentence.split())
        found.append(
            Instance(
                index=first + len(found),
                prediction=" ".join(word for word, _ in part),
                delays=[delay - before for _, delay in part],
                elapsed=[0.0] * len(part),
                prediction_length=len(part),
                reference=reference,
                source=sentence,
                source_length=count,
            )
        )
        begin, before = end, before + count
    return found
