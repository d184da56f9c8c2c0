"""When does each way to decode write what? One sentence, side by side.

    python examples/compare_policies.py "Ich habe gestern ein gutes Buch gelesen." lag=3 lag=6

Each column is a way to decode, each row a word that is heard; what was written when it was heard
stands beside it. Another model: --model FOLDER; agents such as wait-k:3 want an offline model.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

import simultan
from simultan.streaming.translator import Translation

SENTENCE = "Ich habe gestern im Zug ein sehr gutes Buch über Brücken gelesen."


def compare(model: str, sentence: str, decodings: list[str]) -> Table:
    """A table of the words heard and what each decoding wrote then."""
    translator = simultan.load(model)
    translations = [translator.translate([sentence], text)[0] for text in decodings]
    table = Table("heard", *decodings)
    for number, word in enumerate(sentence.split(), 1):
        table.add_row(word, *(_written(translation, number) for translation in translations))
    return table


def _written(translation: Translation, number: int) -> str:
    """The words that were written as soon as so many source words were heard."""
    pairs = zip(translation.words, translation.delays, strict=True)
    return " ".join(word for word, delay in pairs if delay == number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentence", nargs="?", default=SENTENCE)
    parser.add_argument("decodings", nargs="*", default=["lag=3", "lag=5", "lag=8"])
    parser.add_argument("--model", default="de-en")
    given = parser.parse_args()
    Console().print(compare(given.model, given.sentence, given.decodings))
