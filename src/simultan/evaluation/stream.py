"""Long speech: each document is played as one stream, and what was written is put back into
sentences, so that it can be scored like any test set."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from simultan.atomic import write_text
from simultan.data.speech import as_recognised
from simultan.evaluation.evaluate import check_sides
from simultan.evaluation.instances import Instance, write_log
from simultan.evaluation.resegment import resegment
from simultan.evaluation.scores import Scores, score, write_scores
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator, play

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
    check_sides(sources, references)
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


def evaluate_streams(
    translator: Translator,
    documents: Sequence[Document],
    decoding: Decoding | str = "",
    out: str | Path | None = None,
    scoring: Scoring = Scoring(),
    *,
    speech: Speech = "written",
    rows: int = 32,
    longest: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> StreamScores:
    """Play, put back into sentences, score; with `out`, leave log and scores there.

    `progress` is told how many more source words were heard.

    The delay of a word counts from the beginning of its sentence. Where it is a sentence that was
    not heard yet, by the alignment, that is a number below 1.
    """
    said = [[spoken(text, speech) for text in sources] for sources, _ in documents]
    texts = [" ".join(sentences) for sentences in said]
    session = translator.session(decoding, rows=max(1, min(rows, len(texts))), longest=longest)
    written: list[Written] = [[] for _ in texts]
    for number, event, _ in play(session, texts):
        if isinstance(event, Write):
            written[number] += [(word, event.delay) for word in event.text.split()]
        elif event is None and progress is not None:
            progress(len(texts[number].split()))
    instances: list[Instance] = []
    silence = heard = 0
    for sentences, (_, references), words in zip(said, documents, written, strict=True):
        count = sum(len(sentence.split()) for sentence in sentences)
        stops = [0, *(delay for _, delay in words), count]
        silence = max(silence, max(two - one for one, two in pairwise(stops)))
        instances += _sentences(len(instances), sentences, references, words)
        heard += count
    scores = score(instances, scoring)
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
        _write_streams(Path(out), said, documents, written)
    return found


def _write_streams(
    out: Path, said: list[list[str]], documents: Sequence[Document], written: list[Written]
) -> None:
    """The streams as they were, for other tools: a word of the source takes a second.

    omnisteval longform --speech_segmentation segments.json --ref_sentences_file references.txt
    --hypothesis_file streams.jsonl
    """
    streams, segments, lines = [], [], []
    for number, (sentences, words) in enumerate(zip(said, written, strict=True)):
        name, offset = f"document{number}", 0
        for sentence in sentences:
            count = len(sentence.split())
            segments.append({"wav": name, "offset": offset, "duration": count})
            offset += count
        text = " ".join(word for word, _ in words)
        delays = [1000 * delay for _, delay in words]
        log = {"source": name, "prediction": text, "delays": delays, "source_length": 1000 * offset}
        streams.append(json.dumps(log, ensure_ascii=False))
    for _, references in documents:
        lines += [" ".join(reference.split()) for reference in references]
    write_text(out / "streams.jsonl", "".join(line + "\n" for line in streams))
    write_text(out / "segments.json", json.dumps(segments) + "\n")
    write_text(out / "references.txt", "".join(line + "\n" for line in lines))


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
