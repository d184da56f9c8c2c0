"""MkDocs hooks: the README is the first page, links out of docs/ work, formulas become MathML.

A file that a page links to and that lies outside docs/ becomes part of the site, under
repository/; a Markdown file becomes a page. Formulas need neither a script nor another server.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
FORMULA = re.compile(
    r"\$\$(?P<block>.+?)\$\$"
    r"|(?<![\w$\\])\$(?=\S)(?P<inline>[^$\n]+?(?:\n[^$\n]+?)?)(?<=\S)\$(?![\w$])",
    re.DOTALL,
)
MARK = re.compile(r"\[([a-z])\](?!\()")  # [a]: a mark in a table, no reference
HOME = "README.md"


def place_of(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path == HOME:
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def target_of(link: str, path: str) -> str | None:
    """The file of the repository that a relative link of `path` leads to, if there is one."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if (ROOT / found).is_dir() and (ROOT / found / "README.md").is_file():
        found = posixpath.join(found, "README.md")
    return found if not found.startswith("..") and (ROOT / found).is_file() else None


def change_prose(text: str, change: Callable[[str], str]) -> str:
    """The text with its prose changed and its code as it was."""
    return "".join(
        part if number % 2 else change(part) for number, part in enumerate(CODE.split(text))
    )


def on_files(files: Files, config: Any) -> Files:
    """Add the README, and whatever pages link to outside docs/."""
    waiting = [HOME, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            place = place_of(path)
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            text = CODE.sub("", (ROOT / path).read_text("utf-8"))
            for _, link, _ in LINK.findall(text):
                found = target_of(link, path)
                if found is not None and found not in seen and not found.startswith("docs/"):
                    seen.add(found)
                    waiting.append(found)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links lead to where the files stand in the site; formulas become MathML."""
    place = page.file.src_uri
    if place == "index.md":
        path = HOME
    elif place.startswith("repository/"):
        path = place.removeprefix("repository/")
    else:
        path = f"docs/{place}"

    def relink(match: re.Match[str]) -> str:
        found = target_of(match[2], path)
        if found is None:
            return match[0]
        return match[1] + posixpath.relpath(place_of(found), posixpath.dirname(place)) + match[3]

    def formula(match: re.Match[str]) -> str:
        display = "inline" if match["block"] is None else "block"
        latex = match["block"] or match["inline"]
        formulas.append(convert(" ".join(latex.split()), display=display))
        return (
            f"FORMULA{len(formulas) - 1}X"  # Markdown would take a tag at a line's start for HTML
        )

    formulas: list[str] = []
    page.meta["formulas"] = formulas

    def change(part: str) -> str:
        return FORMULA.sub(formula, LINK.sub(relink, MARK.sub(r"&#91;\1&#93;", part)))

    return change_prose(markdown, change)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Put the formulas into the finished page."""
    formulas = page.meta.get("formulas", ())
    return re.sub(r"FORMULA(\d+)X", lambda match: formulas[int(match[1])], html)
