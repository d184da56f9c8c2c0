"""Draws every figure and writes README.md and the tables of docs/reproduction.md from results/.

make -C experiments/mma2020-de-en figures
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import matplotlib  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from experiments.harness import ablation, agents, curves, figures, report, tables  # noqa: E402
from experiments.harness import plan as plans  # noqa: E402
from experiments.harness import verbs as late  # noqa: E402
from experiments.harness.figures import (  # noqa: E402
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    SKY,
    Curve,
    curve,
)
from experiments.harness.measure import read_predictions  # noqa: E402
from experiments.harness.plan import Plan  # noqa: E402
from experiments.harness.tables import Results, Row  # noqa: E402

OTHER = HERE.parent / "mma2020"  # the other pair
LEARNED = ("mma-il", "mma-il-soft", "mma-h", "mma-h-mass", "milk", "milk-hard", "one-head")
CURVES = [
    curve("MMA-IL", "MMA-IL", BLUE, "o"),
    curve("MMA-IL, trained softly", "MMA-IL, soft", BLUE, "*", ""),
    curve("MMA-H", "MMA-H", ORANGE, "s"),
    curve("MMA-H, undecided", "MMA-H, undecided", ORANGE, "*", "--"),
    curve("MILk (RNN)", "MILk", GREEN, "^"),
    curve("MILk (RNN), hard alignments", "MILk, hard", GREEN, "v", "--"),
    curve("MILk (Transformer)", "MILk, Transformer", SKY, "^"),
    curve("wait-k", "wait-k", AMBER, "D"),
    figures.rule("test-time wait-k", "agents-wait-k", "v", AMBER, "--"),
    figures.rule("AlignAtt", "agents-align-att", "o", PINK),
    figures.rule("agreement", "agents-agreement", "^", INK),
    figures.rule("reinforced", "agents-reinforced", "X", INK, "--"),
    figures.rule("static read/write", "agents-static", "P", GREY),
]
SLOW = 14.0  # AL of what is drawn; all is in the tables
LEVELS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # AL at which verbs are compared
HARD = [("subwords", ("mma-il",), ("mma-h", "mma-h-mass"))]
KEYS = ("al", "dal", "al_subwords", "dal_subwords")
BESIDE = [(t, key) for t in ("static reading", "trained wait-k", "MMA-IL") for key in KEYS[:2]]
BESIDE_MASS = [
    (title, key) for title in ("MMA-H, a threshold", "trained wait-k", "MMA-IL") for key in KEYS[:2]
]
BOXED = [one for one in agents.curves_of("box") if "prefix pairs" not in one.label]
BESIDE_BOXED = [
    (title, key)
    for title in ("test-time wait-k", "static reading", "its own heads", "the reinforced agent")
    for key in KEYS[:2]
]
STREAMED = ("bleu", "al", "laal", "dal", "atd", "length_ratio")
SAME = "a threshold, the same weights"
VERBS = [  # what is compared, groups of one, of the other
    ("a learned against a fixed policy", ("mma-il", "mma-h", "mma-h-mass", "one-head"), "wait-k"),
    ("MMA against MILk", ("mma-il", "mma-h", "mma-h-mass"), "milk"),
    ("over the model in the box: agents against its own heads", ("box-trained",), "box-own"),
]
NEAR = 1.0  # words of AL between two points that are compared
VerbRow = tuple[Row, late.Tally]
Judged = dict[str, list[late.Judged]]  # by the name of a point


def judge_verbs(folder: Path, keys: Path, plan: Plan, results: Results) -> Judged:
    """The late verbs of every point whose translations are kept."""
    known = late.read_keys(keys)
    found = {}
    for row in tables.rows_of(plan.runs, results):
        file = tables.predictions_of(row)
        if file and not row.run.group.name.startswith("ablation"):
            found[tables.show(row)] = late.judge(known, read_predictions(folder / file))
    return found


def tally_verbs(plan: Plan, results: Results, judged: Judged) -> list[VerbRow]:
    rows = tables.rows_of(plan.runs, results)
    return [(r, late.tally(judged[tables.show(r)])) for r in rows if tables.show(r) in judged]


def compare_verbs(plan: Plan, results: Results, judged: Judged) -> str:
    """Points of two systems with the nearest AL, key by key."""
    found = []
    for claim, *rows in curves.nearest(plan, results, VERBS, NEAR):
        names = [tables.show(row) for row in rows]
        apart = late.difference(*(judged[name] for name in names))
        found.append((claim, names[0], names[1], apart))
    return late.difference_table(found)


def blocks(plan: Plan, results: Results, folder: Path, judged: Judged) -> dict[str, str]:
    """Every generated piece of text, by name."""
    quality, verbs = plan.quality, tally_verbs(plan, results, judged)
    rows, compared = tables.rows_of(plan.runs, results), folder / "comparisons.json"
    decided = [row for row in rows if row.run.name.startswith("agents")]
    boxed, open_ = ([row for row in rows if row.run.group.part == part] for part in (4, 5))
    trained = [row for row in rows if row not in (*decided, *boxed, *open_)]
    mass = [row for row in rows if row.run.group.name == "mma-h-mass"]
    points = [(tables.show(r), r.test["al"], r.test[quality], t) for r, t in verbs]
    others = [name for name in LEARNED if name != "milk"]
    pieces = {
        "progress": tables.progress(plan, results),
        "part-one": tables.part(1, plan, results),
        "part-two": tables.part(2, plan, results),
        "offline": tables.offline(plan, results),
        "over-wait-k": curves.equal_latency(plan, results, LEARNED, "wait-k"),
        "over-milk": curves.equal_latency(plan, results, others, "milk"),
        "hard": curves.equal_dal(plan, results, HARD, ("MMA-H", "MMA-IL")),
        "soft": tables.soft_and_streamed(plan, results),
        "habits": tables.habits(plan, results),
        "comparisons": curves.comparisons(compared, lambda claim: "at equal" not in claim),
        **{
            f"over-{name}": curves.equal_table(compared, points, [(title, key) for key in KEYS])
            for name, title, points in (
                ("wait-k-apart", "trained wait-k", trained),
                ("test-time", "test-time wait-k", [*trained, *decided]),
            )
        },
        "agents-apart": curves.equal_table(compared, decided, BESIDE),
        "seeds": tables.seeds(plan, results),
        "ablation": ablation.ablation(plan, results, "valid"),
        "agents": agents.agents(plan, results),
        "agents-trained": agents.trained(plan, results),
        "verbs": late.point_table(points),
        "verbs-apart": compare_verbs(plan, results, judged),
        "verbs-levels": late.level_table(by_system(CURVES, verbs), LEVELS),
        "box": agents.agents(plan, results, "box"),
        "box-trained": agents.trained(plan, results, "box"),
        "box-apart": curves.equal_table(compared, boxed, BESIDE_BOXED),
        "box-verbs": late.level_table(by_system(BOXED, verbs), LEVELS),
        "undecided": undecided(open_),
        "mass-apart": curves.equal_table(compared, mass, BESIDE_MASS),
        "undecided-apart": curves.equal_table(compared, open_, [(SAME, key) for key in KEYS[:2]]),
        "provenance": tables.provenance(plan, results),
    }
    return {f"de-en-{name}": text for name, text in pieces.items()}


def undecided(rows: Sequence[Row]) -> str:
    """The same weights with both kinds of streams; NLL of training and of its threshold's stops."""
    body = []
    for row in rows:
        losses = row.result["validation_losses"]
        body.append(
            [row.run.name, row.point, *(tables.number(row.test[key]) for key in STREAMED),
             tables.number(losses["nll"]), tables.number(losses["nll_hard"])]
        )  # fmt: skip
    header = ["run", "stream", "BLEU", "AL", "LAAL", "DAL", "ATD", "length"]
    header += ["NLL, as trained", "NLL, stops at 0.5"]
    return tables.table(header, body) if body else tables.not_run()


def by_system(
    systems: Sequence[Curve], verbs: Sequence[VerbRow]
) -> dict[str, list[tuple[float, float]]]:
    """AL and the share of verbs that were found, of every point of a system."""
    return {
        one.label: [
            (row.test["al"], tally.found)
            for row, tally in verbs
            if one.holds(row.run) and row.test["al"] is not None
        ]
        for one in systems
    }


def draw_verbs(verbs: Sequence[VerbRow]) -> Figure:
    """Shares of the late verbs that were translated, and written before they were read."""
    figure = Figure(figsize=(10.4, 4.1), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2)
    shares = {"late verbs that are translated, %": lambda t: t.found}
    shares["and written before they were read, %"] = lambda t: t.foreseen
    for axis, (title, share) in zip(panels, shares.items(), strict=True):
        for one in CURVES:
            points = sorted(
                (row.test["al"], 100 * share(tally))
                for row, tally in verbs
                if one.holds(row.run) and figures.lagging(row) <= SLOW
            )
            figures.plot_points(axis, points, one)
        for row, tally in verbs:
            if row.run.name in ("offline", "offline-rnn") and axis is panels[0]:
                colour = GREEN if row.run.name == "offline-rnn" else GREY
                axis.axhline(100 * tally.found, color=colour, linewidth=1.1, linestyle="--",
                             label=f"{row.run.name.replace('-rnn', ' RNN')}", zorder=1)  # fmt: skip
        axis.set_ylabel(title)
        axis.set_xlabel("Average Lagging (words)")
    return figures.finish(figure, panels, columns=5)


def draw_all(plan: Plan, results: Results, verbs: Sequence[VerbRow], out: Path) -> list[Path]:
    """Every figure; one without a result says so."""
    label = f"BLEU, detokenised ({plan.test})"
    other = plans.load(OTHER / "plan.toml")
    known = tables.read_results(OTHER / "results")
    panels = [
        (
            "IWSLT15 English-Vietnamese",
            [
                figures.Span("MMA-H, words", other, known, "MMA-H", ORANGE, "s", (5, -10)),
                figures.Span("MMA-H, subwords", other, known, "MMA-H, modern", BLUE, "o", (-17, 5)),
            ],
        ),
        (
            "German-English",
            [figures.Span("MMA-H, German", plan, results, "MMA-H", PINK, "D", (5, -10))],
        ),
    ]
    # the paper's levels belong to other training data: they are in the table
    more = {"floor": 0.0, "label": label, "slow": SLOW, "paper": False}
    with matplotlib.rc_context(figures.STYLE):
        drawn = {
            "quality-tokens": figures.draw_quality(plan, results, CURVES, subwords=True, **more),
            "quality-words": figures.draw_quality(plan, results, CURVES, **more),
            "attention-span": figures.draw_spans(panels),
            "agents": agents.draw(plan, results, label, floor=0.0),
            "agents-over-wait-k": agents.draw_over(plan, results),
            "agents-box": agents.draw(plan, results, label, 21.0, "box"),
            "agents-box-over-wait-k": agents.draw_over(plan, results, "box", 21.0),
            "layers-and-heads": figures.draw_ablation(plan, results),
            "verbs": draw_verbs(verbs),
        }
        return [file for name, one in drawn.items() for file in figures.save(one, out / name)]


def write_report(folder: Path, document: Path | None, plan_file: Path | None = None) -> list[Path]:
    """README.md and figures/ in a folder with results/; the blocks of a document, if given."""
    plan = plans.load(plan_file or folder / "plan.toml")
    results = tables.read_results(folder / "results")
    keys = folder / "verbs.tsv"
    judged = judge_verbs(folder, keys if keys.exists() else HERE / "verbs.tsv", plan, results)
    verbs = tally_verbs(plan, results, judged)
    files = draw_all(plan, results, verbs, folder / "figures")
    pieces = blocks(plan, results, folder, judged)
    template = HERE / "README.template.md"
    return [*files, *report.write_pages(folder / "README.md", template, document, pieces)]


if __name__ == "__main__":
    report.main(HERE, __doc__, write_report)
