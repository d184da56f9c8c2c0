"""docs/architecture.md lists every source file; `python tests/test_readme.py` writes the list."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "simultan"
BEGIN, END = "<!-- files: begin -->\n", "<!-- files: end -->\n"


def source_files() -> dict[str, str]:
    """Path below src/simultan -> its one line; empty files and build products are not listed."""
    files = {}
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and path.stat().st_size and "__pycache__" not in path.parts:
            files[path.relative_to(SOURCE).as_posix()] = one_line(path)
    return files


def one_line(path: Path) -> str:
    """The first line of a module's docstring; of other files, of the comment they begin with; of
    plain text, its beginning."""
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
    if path.suffix == ".txt":
        return f"A talk, for `simultan demo`: {' '.join(path.read_text('utf-8').split()[:5])} ..."
    if path.suffix not in (".c", ".html", ".css", ".js", ".toml"):
        return ""
    comment = re.search(r"(?:<!--|/\*+|//|#)\s*(.*?)\s*(?:-->|\*/|\n)", path.read_text("utf-8"))
    return comment[1] if comment else ""


def listed_files() -> dict[str, str]:
    block = LIST.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", block, re.MULTILINE))


def test_every_source_file_is_listed() -> None:
    missing = source_files().keys() - listed_files().keys()
    assert not missing, "run `python tests/test_readme.py` and commit docs/architecture.md"


def test_every_listed_file_exists_and_is_described() -> None:
    for path, line in listed_files().items():
        assert (SOURCE / path).is_file(), path
        assert line.strip(), f"{path} needs one line, the first of its docstring"


def test_links_lead_to_files() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text("utf-8")):
            assert link.startswith("http") or (ROOT / link).exists(), f"{name}: {link}"


def write_list() -> None:
    head, rest = LIST.read_text("utf-8").split(BEGIN)
    rows = "".join(f"| `{path}` | {line} |\n" for path, line in source_files().items())
    table = f"| file in src/simultan | what it is |\n|---|---|\n{rows}"
    LIST.write_text(head + BEGIN + table + END + rest.split(END)[1], "utf-8")


if __name__ == "__main__":
    write_list()
