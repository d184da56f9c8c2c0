"""Long speech: what a stream loses against sentence by sentence, with and without punctuation.

    python benchmarks/long_streams.py newstest2015.de newstest2015.en tatoeba.de tatoeba.en ...

Each pair of files (plain, .gz or .xz) is cut into documents of `--lines` lines, `--documents` of
them are played as streams. "recognised" is text without capitals and punctuation; its BLEU is
without both, too. Sentence by sentence is what the same model writes when it is told where every
sentence ends. `--words N` feeds one stream N unpunctuated words and prints seconds a word and
memory for each tenth of them.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from pathlib import Path

import simultan
from simultan.data.sources import read_lines
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.instances import read_log
from simultan.evaluation.quality import measure
from simultan.evaluation.stream import Document, documents_of, evaluate_streams, spoken
from simultan.streaming.translator import Translator

COLUMNS = ["text", "speech", "way", "words", "share", "silence", "BLEU", "chrF", "AL", "LAAL"]


def sample(source: Path, target: Path, lines: int, count: int) -> list[Document]:
    """Some documents, the same ones each time."""
    found = documents_of(list(read_lines(source)), list(read_lines(target)), lines)
    found = [document for document in found if len(document[0]) == lines]
    return random.Random(1).sample(found, min(count, len(found)))


def bare_quality(folder: Path) -> tuple[float, float]:
    """BLEU and chrF without case and punctuation."""
    log = read_log(folder)
    predictions = [spoken(instance.prediction, "recognised") for instance in log]
    references = [spoken(instance.reference or "", "recognised") for instance in log]
    quality = measure(predictions, references)
    return quality.bleu, quality.chrf


def compare(translator: Translator, name: str, documents: list[Document], options) -> None:  # type: ignore[no-untyped-def]
    """Two rows of the table for each kind of speech."""
    for speech in ("written", "recognised"):
        sources = [spoken(text, speech) for texts, _ in documents for text in texts]
        references = [text for _, texts in documents for text in texts]
        folder = Path(options.out) / f"{name}-{speech}"
        alone = evaluate(
            translator, sources, references, folder / "sentences", options.decoding, rows=32
        )
        stream = evaluate_streams(
            translator, documents, options.decoding, folder / "stream",
            speech=speech, rows=options.rows, longest=options.longest or None,
        )  # fmt: skip
        words = sum(len(instance.delays) for instance in read_log(folder / "sentences"))
        for way, scores, written, silence in (
            ("sentences", alone, words, ""),
            ("stream", stream.scores, stream.written_words, str(stream.longest_silence)),
        ):
            quality = scores.bleu, scores.chrf
            if speech == "recognised":
                quality = bare_quality(folder / way)
            values = [*quality, scores.latency["al"], scores.latency["laal"]]
            shown = [f"{value:.2f}" for value in values if value is not None]
            row = [
                name,
                speech,
                way,
                str(written),
                f"{100 * written / words:.1f}%",
                silence,
                *shown,
            ]
            print("| " + " | ".join(row) + " |", flush=True)


def run_long(translator: Translator, documents: list[Document], options) -> None:  # type: ignore[no-untyped-def]
    """One stream of very many words: time and memory must not grow."""
    words = [
        word
        for texts, _ in documents
        for text in texts
        for word in spoken(text, "recognised").split()
    ]
    session = translator.session(options.decoding)
    part = max(1, options.words // 10)
    for tenth in range(10):
        started = time.process_time()
        for number in range(tenth * part, (tenth + 1) * part):
            session.feed(words[number % len(words)])
        seconds = (time.process_time() - started) / part
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{(tenth + 1) * part} words: {1000 * seconds:.1f} ms a word, {memory:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="source and reference files in turn")
    parser.add_argument("--model", default="de-en")
    parser.add_argument("--decoding", default="lag=3")
    parser.add_argument("--lines", type=int, default=20, help="lines of a document")
    parser.add_argument("--documents", type=int, default=30)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--longest", type=int, default=0, help="tokens; 0: the session's own")
    parser.add_argument("--words", type=int, default=0, help="instead: one stream of so many")
    parser.add_argument("--out", default="runs/long_streams")
    options = parser.parse_args()
    translator = simultan.load(options.model, threads=1)
    pairs = list(zip(options.files[::2], options.files[1::2], strict=True))
    if not options.words:
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for source, target in pairs:
        documents = sample(source, target, options.lines, options.documents)
        if options.words:
            run_long(translator, documents, options)
            return
        name = f"{source.parent.name}-{source.name.partition('.')[0]}"
        compare(translator, name, documents, options)


if __name__ == "__main__":
    main()
