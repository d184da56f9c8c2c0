"""Paired bootstrap over stored predictions: comparisons.json, for the tables.

    python experiments/mma2020-de-en/compare.py FOLDER    # FOLDER holds newstest2015.en.xz
Pairs are the points of two systems with the nearest AL on newstest2013; detokenised BLEU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from sacrebleu.metrics import BLEU  # noqa: E402

from experiments.harness import plan as plans  # noqa: E402
from experiments.harness import tables  # noqa: E402
from experiments.harness.compare import compare, find_text  # noqa: E402

CLAIMS = [  # what is claimed, groups of one, of the other
    ("MMA against MILk (claims 1 and 2)", ("mma-il", "mma-h"), "milk"),
    ("many deciding heads against one, both Transformers", ("mma-il", "mma-h"), "one-head"),
    ("one deciding head: Transformer against RNN", ("one-head",), "milk"),
    ("a learned against a fixed policy", ("mma-il", "mma-h", "one-head"), "wait-k"),
    ("MMA-H against MMA-IL", ("mma-h",), "mma-il"),
    ("against their own offline model", ("mma-il", "mma-h", "wait-k"), "offline"),
    ("against their own offline model", ("milk",), "offline-rnn"),
]
NEAR = 1.0  # words of AL between two points that are compared


def pairs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """For each point of a system, the other system's point with the nearest AL."""
    plan, results = plans.load(folder / "plan.toml"), tables.read_results(folder / "results")

    def points(group: str) -> list[tuple[float, str]]:
        found = []
        for row in tables.rows_of(tables.of_group(plan, group), results):
            measured = {p["point"]: p for p in row.result["points"]}[row.point]
            if "predictions" in measured and row.valid["al"] is not None:
                stem = Path(measured["predictions"]).name.removesuffix(".jsonl.xz")
                found.append((row.valid["al"], stem))
        return found

    for claim, groups, other in CLAIMS:
        others = points(other)
        for al, name in (point for group in groups for point in points(group)):
            if not others:
                continue
            distance, nearest = min((abs(al - there), known) for there, known in others)
            if distance <= NEAR or other.startswith("offline"):
                yield claim, name, nearest


def main() -> None:
    references = find_text(Path(sys.argv[1]), ("newstest2015.en", "test.en"))
    compare(HERE, pairs(HERE), references, BLEU(force=True))


if __name__ == "__main__":
    main()
