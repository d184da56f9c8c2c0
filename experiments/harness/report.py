"""A page of generated pieces: README.md of an experiment, and blocks of another document."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["fill_blocks", "fill_template", "main", "write_pages"]


def fill_template(template: str, pieces: Mapping[str, str]) -> str:
    """Put each piece where {{name}} stands."""

    def replace(match: re.Match[str]) -> str:
        return pieces[match[1]].rstrip("\n")

    return re.sub(r"\{\{([a-z-]+)\}\}", replace, template)


def fill_blocks(text: str, pieces: Mapping[str, str]) -> str:
    """Replace what stands between <!-- NAME: begin --> and <!-- NAME: end -->."""

    def replace(match: re.Match[str]) -> str:
        if match[2] not in pieces:  # of another experiment
            return match[0]
        return f"{match[1]}\n{pieces[match[2]].rstrip(chr(10))}\n{match[3]}"

    pattern = r"(<!-- ([a-z-]+): begin -->)\n.*?\n?(<!-- \2: end -->)"
    return re.sub(pattern, replace, text, flags=re.DOTALL)


def write_pages(
    readme: Path, template: Path, document: Path | None, pieces: Mapping[str, str]
) -> list[Path]:
    """README.md from its template; the blocks of a document, if given."""
    readme.write_text(fill_template(template.read_text("utf-8"), pieces), "utf-8")
    if document is not None:
        document.write_text(fill_blocks(document.read_text("utf-8"), pieces), "utf-8")
    return [readme, *([] if document is None else [document])]


def main(
    folder: Path, description: str, write: Callable[[Path, Path | None, Path | None], list[Path]]
) -> None:
    """The command of an experiment's report.py."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=folder, help="holds results/")
    parser.add_argument("--plan", type=Path, help="another plan than the folder's")
    parser.add_argument("--document", type=Path, default=folder.parents[1] / "docs/reproduction.md")
    arguments = parser.parse_args()
    document = arguments.document if arguments.document.is_file() else None
    for file in write(arguments.folder, document, arguments.plan):
        print(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
