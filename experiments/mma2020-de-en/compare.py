"""Paired bootstrap over stored predictions: comparisons.json, for the tables.

    python experiments/mma2020-de-en/compare.py FOLDER    # FOLDER holds newstest2015.en.xz
Pairs are the points of two systems with the nearest AL on newstest2013; and every point beside the
line between two points of another system, at its AL and at its DAL. Detokenised BLEU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from sacrebleu.metrics import BLEU  # noqa: E402

from experiments.harness import curves, tables  # noqa: E402
from experiments.harness import plan as plans  # noqa: E402
from experiments.harness.compare import compare, find_text  # noqa: E402
from experiments.harness.tables import Row  # noqa: E402

MMA = ("mma-il", "mma-h", "mma-h-mass")
CLAIMS = [  # what is claimed, groups of one, of the other
    ("MMA against MILk (claims 1 and 2)", MMA, "milk"),
    ("many deciding heads against one, both Transformers", MMA, "one-head"),
    ("one deciding head: Transformer against RNN", ("one-head",), "milk"),
    ("a learned against a fixed policy", (*MMA, "one-head"), "wait-k"),
    ("MMA-H against MMA-IL", MMA[1:], "mma-il"),
    ("against their own offline model", (*MMA, "wait-k"), "offline"),
    ("against their own offline model", ("milk",), "offline-rnn"),
]
NEAR = 1.0  # words of AL between two points that are compared
KEYS = ("al", "dal", "al_subwords", "dal_subwords")
LINES = {  # systems that others are compared with at equal latency: title, run or group
    "trained wait-k": "wait-k",
    "test-time wait-k": "agents-wait-k",
    "static reading": "agents-static",
    "MMA-IL": "mma-il",
    "MMA-H, a threshold": "mma-h-again",
}
BOXED = {  # the same, over the weights of the model in the box
    "test-time wait-k": "box-wait-k",
    "static reading": "box-static",
    "its own heads": "box-own",
    "the reinforced agent": "box-reinforced",
}
SAME = "a threshold, the same weights"


def undecided(
    rows: Sequence[Row], keys: Sequence[str]
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Streams that attend as in training beside thresholds over the same weights."""
    for key in keys:
        for row in rows:
            line = [r for r in rows if r.run == row.run and r.point.startswith("threshold")]
            shares = curves.shares(line, key, row.test[key])
            if shares and row not in line:
                yield curves.equal(SAME, key), curves.point_name(row), shares


def main() -> None:
    plan, results = plans.load(HERE / "plan.toml"), tables.read_results(HERE / "results")
    rows = tables.rows_of(plan.runs, results)
    boxed = [row for row in rows if row.run.group.part == 4]
    open_ = [row for row in rows if row.run.group.part == 5]
    lines, boxes = (
        {
            title: [r for r in rows if name in (r.run.name, r.run.group.name) and r.run.seed == 1]
            for title, name in names.items()
        }
        for names in (LINES, BOXED)
    )
    pairs = [
        *(
            (claim, curves.point_name(one), curves.point_name(other))
            for claim, one, other in curves.nearest(plan, results, CLAIMS, NEAR)
        ),
        *curves.at_equal_latency([r for r in rows if r.run.group.part < 4], lines, KEYS),
        *curves.at_equal_latency(boxed, boxes, KEYS[:2]),
        *undecided(open_, KEYS[:2]),
    ]
    references = find_text(Path(sys.argv[1]), ("newstest2015.en", "test.en"))
    compare(HERE, pairs, references, BLEU(force=True))


if __name__ == "__main__":
    main()
