"""Paired bootstrap over stored predictions: comparisons.json, for the tables.

    python experiments/mma2020-de-en/compare.py FOLDER    # FOLDER holds newstest2015.en.xz
Pairs are the points of two systems with the nearest AL on newstest2013; detokenised BLEU.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from sacrebleu.metrics import BLEU  # noqa: E402

from experiments.harness import curves, tables  # noqa: E402
from experiments.harness import plan as plans  # noqa: E402
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


def main() -> None:
    plan, results = plans.load(HERE / "plan.toml"), tables.read_results(HERE / "results")
    pairs = [
        (claim, *(Path(tables.predictions_of(row) or "").name.split(".jsonl")[0] for row in rows))
        for claim, *rows in curves.nearest(plan, results, CLAIMS, NEAR)
    ]
    references = find_text(Path(sys.argv[1]), ("newstest2015.en", "test.en"))
    compare(HERE, pairs, references, BLEU(force=True))


if __name__ == "__main__":
    main()
