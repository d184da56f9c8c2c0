"""Paired bootstrap over stored predictions: comparisons.json, for the tables.

    python experiments/mma2020/compare.py FOLDER    # FOLDER holds test.vi.xz
The same resampled sentences score both systems of a pair, 2,000 times; lower-cased tokenised BLEU.
Besides the pairs below: every learned point and the line between two points of another system, at
its AL, LAAL and DAL.
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

LEARNED = ("mma-il", "mma-il-soft", "mma-h", "mma-h-mass", "one-head")
LINES = {  # systems that others are compared with at equal latency: title, how its runs begin
    "MILk (RNN)": "milk-avg",
    "MILk (Transformer)": "milk-transformer",
    "trained wait-k": "wait-k",
    "MMA-IL": "mma-il-avg",
}
KEYS = ("al", "laal", "dal")
HEADS = "many deciding heads against one, both Transformers"
TRANSFORMER = "one deciding head: Transformer against RNN"
UNDECIDED = "MMA-H, undecided against a threshold, the same weights"
AGENTS = "agents against rules, and each other"
PAIRS = [  # what is claimed, one, other
    ("a learned against a fixed policy", "mma-il-avg0.08", "wait-k@k=1"),
    ("a learned against a fixed policy", "mma-il-avg0.04", "wait-k@k=2"),
    ("a learned against a fixed policy", "mma-il-avg0.04-seed2", "wait-k@k=2"),
    ("a learned against a fixed policy", "mma-il-avg0.04-seed3", "wait-k@k=2"),
    ("a learned against a fixed policy", "mma-il-avg0.02", "wait-k@k=3"),
    ("a learned against a fixed policy", "milk-transformer-avg0.1", "wait-k@k=1"),
    ("a learned against a fixed policy", "milk-transformer-avg0.04", "wait-k@k=2"),
    ("a learned against a fixed policy", "mma-il-avg0.01", "wait-k@k=5"),
    ("a learned against a fixed policy", "mma-h-var0.3", "wait-k@k=1"),
    ("a learned against a fixed policy", "mma-h-var0.1", "wait-k@k=2"),
    ("MMA against MILk (claims 1 and 2)", "mma-il-avg0.08", "milk-avg0.02"),
    ("MMA against MILk (claims 1 and 2)", "mma-il-avg0.04", "milk-avg0.01"),
    ("MMA against MILk (claims 1 and 2)", "mma-il-avg0.02", "milk-avg0.005"),
    ("MMA against MILk (claims 1 and 2)", "mma-h-var0.3", "milk-avg0.02"),
    ("MMA against MILk (claims 1 and 2)", "mma-h-var0.1", "milk-avg0.01"),
    (HEADS, "mma-il-avg0.08", "milk-transformer-avg0.1"),
    (HEADS, "mma-il-avg0.04", "milk-transformer-avg0.04"),
    (HEADS, "mma-il-avg0.04-seed2", "milk-transformer-avg0.04"),
    (HEADS, "mma-il-avg0.04-seed3", "milk-transformer-avg0.04"),
    (HEADS, "mma-il-avg0.01", "milk-transformer-avg0.01"),
    (HEADS, "mma-il-avg0.02", "mocha-transformer"),
    (HEADS, "mma-h-var0.3", "hard-transformer"),
    (HEADS, "mma-h-var0.3", "milk-transformer-avg0.1"),
    (HEADS, "mma-h-var0.1", "milk-transformer-avg0.04"),
    (TRANSFORMER, "milk-transformer-avg0.1", "milk-avg0.02"),
    (TRANSFORMER, "milk-transformer-avg0.04", "milk-avg0.005"),
    (TRANSFORMER, "mocha-transformer", "mocha"),
    (TRANSFORMER, "hard-transformer", "hard"),
    ("against their own offline model", "milk-transformer-avg0.04", "offline"),
    ("against their own offline model", "milk-transformer-avg0.1", "offline"),
    ("against their own offline model", "hard-transformer", "offline"),
    ("against their own offline model", "mma-il-avg0.02", "offline"),
    ("against their own offline model", "mma-il-avg0.04", "offline"),
    ("against their own offline model", "mma-il-avg0.08", "offline"),
    ("against their own offline model", "mma-h-var0.3", "offline"),
    ("against their own offline model", "milk-avg0.005", "offline-rnn"),
    ("against their own offline model", "milk-avg0.02", "offline-rnn"),
    ("MMA-H against MMA-IL, similar DAL", "mma-h-var0.3", "mma-il-avg0.04"),
    ("MMA-H against MMA-IL, similar DAL", "mma-h-var0.1", "mma-il-avg0.02"),
    *[
        (UNDECIDED, f"mma-h-mass-var{weight}@mass={mass}", f"mma-h-mass-var{weight}@threshold=0.5")
        for weight, masses in (("0.1", (0.5, 0.7, 0.8, 0.9)), ("0.02", (0.7, 0.9)))
        for mass in masses
    ],
    ("against their own offline model", "mma-h-mass-var0.1@mass=0.8", "offline"),
    ("what helps MMA-H (1,500 updates)", "mma-h-start-calibrated", "mma-h-start-fresh"),
    ("what helps MMA-H (1,500 updates)", "mma-h-start-hard-fresh", "mma-h-start-fresh"),
    ("what helps MMA-H (1,500 updates)", "mma-h-start-hard-calibrated", "mma-h-start-calibrated"),
    (
        "what helps MMA-H (1,500 updates)",
        "mma-h-start-hard-calibrated-on-hard",
        "mma-h-start-hard-calibrated",
    ),
    *[
        ("another seed", f"{run}-seed{seed}", run)
        for run in ("mma-il-avg0.02", "mma-il-avg0.04", "mma-h-var0.1")
        for seed in (2, 3)
    ],
    *[
        (f"decoder {what} (claim 4)", f"{more}-{kind}{seed}", f"{less}-{kind}{seed}")
        for seed in ("", "-seed2", "-seed3")
        for kind in ("offline", "mma-h")
        for what, more, less in (
            ("layers", "layers6-heads4", "layers1-heads4"),
            ("layers", "layers6-heads1", "layers1-heads1"),
            ("heads", "layers6-heads4", "layers6-heads1"),
            ("heads", "layers6-heads16", "layers6-heads4"),
            ("heads", "layers1-heads4", "layers1-heads1"),
        )
    ],
    ("wait-k trained or at test time", "wait-k@k=1", "test-time-wait-k@wait-k-1"),
    ("wait-k trained or at test time", "wait-k@k=3", "test-time-wait-k@wait-k-3"),
    (AGENTS, "agents-align-att@align-att-2", "agents-wait-k@wait-k-1"),
    (AGENTS, "agents-align-att@align-att-2", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-align-att@align-att-3", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-align-att@align-att-4", "agents-wait-k@wait-k-5"),
    (AGENTS, "agents-agreement@agreement-3", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-agreement@agreement-4", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-agreement@agreement-5", "agents-wait-k@wait-k-5"),
    (AGENTS, "agents-hold@hold-6", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-hold@hold-8", "agents-wait-k@wait-k-5"),
    *[
        (AGENTS, f"agents-prefixes@{point}", f"agents-static@{point}")
        for point in ("static-2-2", "static-4-2", "static-6-2")
    ],
    (AGENTS, "agents-ed-att@ed-att-0.1-2", "agents-wait-k@wait-k-5"),
    (AGENTS, "agents-ed-att@ed-att-0.3-2", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-ed-att@ed-att-0.3-2", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-static@static-2-2", "agents-wait-k@wait-k-1"),
    (AGENTS, "agents-reinforced@reinforced-0.11-0.05", "agents-wait-k@wait-k-1"),
    (AGENTS, "agents-reinforced@reinforced-0.08", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-reinforced@reinforced-0.04", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-reinforced@reinforced-0.02", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-reinforced@reinforced-0.02-0.95", "agents-wait-k@wait-k-5"),
    (AGENTS, "agents-reinforced@reinforced-0.08", "agents-static@static-2-2"),
    (AGENTS, "agents-reinforced@reinforced-0.02", "agents-static@static-4-2"),
    (AGENTS, "agents-reinforced@reinforced-0.08", "agents-align-att@align-att-2"),
    (AGENTS, "agents-reinforced@reinforced-0.005", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-reinforced@reinforced-0.005", "agents-static@static-4-2"),
    (AGENTS, "agents-reinforced@reinforced-0.002", "agents-wait-k@wait-k-5"),
    (AGENTS, "agents-reinforced@reinforced-0.002", "agents-static@static-4-2"),
    (AGENTS, "agents-reinforced@reinforced-0.002-0.9", "agents-wait-k@wait-k-7"),
    (AGENTS, "agents-reinforced@reinforced-0.002-0.9", "agents-static@static-6-2"),
    (AGENTS, "agents-predict@predict-bonus", "agents-wait-k@wait-k-1"),
    (AGENTS, "agents-predict@predict-bonus", "agents-reinforced@reinforced-0.11-0.05"),
    (AGENTS, "agents-predict@predict-bonus-0.9", "agents-reinforced@reinforced-0.08"),
    (AGENTS, "agents-predict@predict-0.03", "agents-reinforced@reinforced-0.002"),
    (AGENTS, "agents-predict@predict-0.03-0.95", "agents-reinforced@reinforced-0.002-0.9"),
    (AGENTS, "agents-imitation@imitation-0.75", "agents-reinforced@reinforced-0.11-0.05"),
    (AGENTS, "agents-imitation@imitation-0.75", "agents-wait-k@wait-k-1"),
    (AGENTS, "agents-imitation@imitation-0.85", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-imitation@imitation-0.85", "agents-reinforced@reinforced-0.04"),
    (AGENTS, "agents-imitation@imitation-0.92", "agents-wait-k@wait-k-3"),
    (AGENTS, "agents-wait-if-diff@wait-if-diff-2-2", "agents-wait-k@wait-k-2"),
    (AGENTS, "agents-wait-if-worse@wait-if-worse-1-1", "agents-wait-k@wait-k-5"),
    ("subwords", "modern-il-avg0.09-hard", "modern-test-time-wait-k@wait-k-1"),
    ("subwords", "modern-il-avg0.048-hard", "modern-test-time-wait-k@wait-k-3"),
    ("subwords", "modern-il-avg0.024-hard", "modern-test-time-wait-k@wait-k-3"),
    ("subwords", "modern-il-avg0.024-hard", "modern-il-avg0.024"),
    ("subwords", "modern-h-var0.1", "modern-il-avg0.048-hard"),
    ("subwords", "modern-offline-diverse", "modern-offline-mixed"),
    ("subwords", "modern-il-diverse-avg0.09", "modern-wait-k@k=1"),
    ("subwords", "modern-il-diverse-avg0.05", "modern-wait-k@k=2"),
    ("subwords", "modern-il-diverse-avg0.026", "modern-wait-k@k=3"),
    ("subwords", "modern-h-diverse-var0.3", "modern-il-diverse-avg0.05"),
]


def main() -> None:
    plan, results = plans.load(HERE / "plan.toml"), tables.read_results(HERE / "results")
    rows = tables.rows_of([run for run in plan.runs if run.group.part == 1], results)
    learned = [row for row in rows if row.run.group.name in LEARNED]
    lines = {
        title: [r for r in rows if r.run.name.startswith(name) and r.run.seed == 1]
        for title, name in LINES.items()
    }
    pairs = [*PAIRS, *curves.at_equal_latency(learned, lines, KEYS)]
    references = find_text(Path(sys.argv[1]), ("test.vi", "tst2013.vi"))
    bleu = BLEU(lowercase=True, tokenize="none", force=True)
    compare(HERE, pairs, references, bleu)


if __name__ == "__main__":
    main()
