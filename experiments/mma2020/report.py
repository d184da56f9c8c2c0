"""Draws every figure and writes README.md and the tables of docs/reproduction.md from results/.

make -C experiments/mma2020 figures
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import ablation  # noqa: E402
import agents  # noqa: E402
import figures  # noqa: E402
import tables  # noqa: E402

from experiments.harness import plan as plans  # noqa: E402
from experiments.harness.plan import Plan  # noqa: E402

Results = dict[str, dict[str, Any]]


def blocks(plan: Plan, results: Results, published: dict[str, Any]) -> dict[str, str]:
    """Every generated piece of text, by name."""
    sources = tables.table(
        ["system", "source", "AL / BLEU"],
        [
            [
                system["name"] + (" (unverified)" if system.get("unverified") else ""),
                system["source"],
                ", ".join(f"{al:.2f}/{bleu:.2f}" for al, bleu in system["points"]),
            ]
            for system in published["systems"]
        ],
    )
    return {
        "progress": tables.progress(plan, results),
        "part-one": tables.part(1, plan, results),
        "part-two": tables.part(2, plan, results),
        "goals": tables.goals(plan, results, published),
        "margins-words": tables.margins(1, plan, results, published),
        "margins": tables.margins(2, plan, results, published),
        "equal-latency": tables.equal_latency(plan, results),
        "soft": tables.soft_and_streamed(plan, results),
        "habits": tables.habits(plan, results),
        "comparisons": tables.comparisons(HERE / "comparisons.json"),
        "hard": tables.hard_against_infinite(plan, results),
        "seeds": tables.seeds(plan, results),
        "scratch": tables.scratch(plan, results),
        "provenance": tables.provenance(plan, results),
        "published": sources,
        "offline": tables.offline(plan, results),
        "ablation": ablation.ablation(plan, results),
        "agents": agents.agents(plan, results),
    }


def fill_template(template: str, pieces: dict[str, str]) -> str:
    """Put each piece where {{name}} stands."""

    def replace(match: re.Match[str]) -> str:
        return pieces[match[1]].rstrip("\n")

    return re.sub(r"\{\{([a-z-]+)\}\}", replace, template)


def fill_blocks(text: str, pieces: dict[str, str]) -> str:
    """Replace what stands between <!-- NAME: begin --> and <!-- NAME: end -->."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}\n{pieces[match[2]].rstrip(chr(10))}\n{match[3]}"

    pattern = r"(<!-- ([a-z-]+): begin -->)\n.*?\n?(<!-- \2: end -->)"
    return re.sub(pattern, replace, text, flags=re.DOTALL)


def write_report(folder: Path, document: Path | None, plan_file: Path | None = None) -> list[Path]:
    """README.md and figures/ in a folder with results/; the blocks of a document, if given."""
    plan = plans.load(plan_file or folder / "plan.toml")
    results = tables.read_results(folder / "results")
    published = tables.read_published(HERE / "published.toml")
    pieces = blocks(plan, results, published)
    files = figures.draw_all(plan, results, published, folder / "figures")
    readme = folder / "README.md"
    template = (HERE / "README.template.md").read_text("utf-8")
    readme.write_text(fill_template(template, pieces), "utf-8")
    if document is not None:
        document.write_text(fill_blocks(document.read_text("utf-8"), pieces), "utf-8")
    return [*files, readme, *([] if document is None else [document])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=HERE, help="holds results/")
    parser.add_argument("--plan", type=Path, help="another plan than the folder's")
    parser.add_argument("--document", type=Path, default=HERE.parents[1] / "docs/reproduction.md")
    arguments = parser.parse_args()
    document = arguments.document if arguments.document.is_file() else None
    for file in write_report(arguments.folder, document, arguments.plan):
        print(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


if __name__ == "__main__":
    main()
