"""Writes docs/settings.md: every setting of a recipe, with its line of explanation.

python docs/site/tables.py
"""

from __future__ import annotations

import ast
import dataclasses
import io
import sys
import tokenize
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

from simultan import config  # noqa: E402
from simultan.train.agents import recipe  # noqa: E402

OUT = ROOT / "docs" / "settings.md"
HEAD = """# Settings of a recipe

<!-- Written by docs/site/tables.py from src/simultan/config.py and train/agents/recipe.py. -->

A recipe is a TOML file with these sections. What it does not say has its default; an unknown key is
an error. On the command line `simultan train RECIPE.toml --set section.key=value` changes one.
"""
AGENTS = """
# Settings of an agent's recipe

For `simultan train-agent`; see [agents that are trained](policies.md#agents-that-are-trained).
"""


def explanations(source: str) -> dict[tuple[str, str], str]:
    """(class, field) -> the comment beside the field and on the lines of their own about it.

    Such lines stand below the field, or above one that has no comment beside it.
    """
    lines = [*source.splitlines(), ""]
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[tuple[str, str], str] = {}
    previous = ("", "")
    for part in ast.parse(source).body:
        if not isinstance(part, ast.ClassDef):
            continue
        loose: list[int] = []  # lines since the field before
        for node in part.body:
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            numbers = [*range(node.lineno, (node.end_lineno or node.lineno) + 1)]
            if not any(number in comments for number in numbers):
                numbers = loose + numbers
            elif loose:
                found[previous] += " " + " ".join(comments[number] for number in loose)
            text = " ".join(comments[number] for number in numbers if number in comments)
            previous = part.name, node.target.id
            found[previous] = text
            loose = []
            while lines[numbers[-1] + len(loose)].strip().startswith("#"):
                loose.append(numbers[-1] + len(loose) + 1)
        if loose:
            found[previous] += " " + " ".join(comments[number] for number in loose)
    return found


def kind_of(annotation: Any) -> str:
    """A type as a reader of TOML understands it, with its bounds."""
    notes = [str(note) for note in getattr(annotation, "__metadata__", ())]
    plain = get_args(annotation)[0] if notes else annotation
    if get_origin(plain) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(plain))
    if get_origin(plain) is tuple:
        inner = get_args(plain)
        many = "list" if inner[-1] is Ellipsis else f"{len(inner)} values"
        return f"{many}: {kind_of(inner[0])}"
    names = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}
    name = names.get(plain, 'number or `"none"`')
    return " ".join([name, *notes])


def render() -> str:
    agents = sections(recipe.AgentRecipe, Path(recipe.__file__), "agent: ")
    return HEAD + sections(config.Config, Path(config.__file__)) + AGENTS + agents


def sections(whole: type, file: Path, before: str = "") -> str:
    """A table for each section of a dataclass."""
    comments = explanations(file.read_text("utf-8"))
    parts = []
    for section in dataclasses.fields(whole):
        kind = get_type_hints(whole)[section.name]
        parts.append(f"\n## {before}{section.name}\n\n{(kind.__doc__ or '').strip()}\n\n")
        parts.append("| setting | default | values | what it does |\n|---|---|---|---|\n")
        hints = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            default = config._toml(field.default)
            text = comments.get((kind.__name__, field.name), "")
            row = [f"`{field.name}`", f"`{default}`", kind_of(hints[field.name]), text]
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    OUT.write_text(render(), "utf-8")
