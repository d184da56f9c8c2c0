"""The names of `import simultan`: listed, typed, and imported only when they are used."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import simultan


def test_names_are_listed_and_found() -> None:
    assert set(simultan.__all__) <= set(dir(simultan))
    for name in simultan.__all__:
        assert getattr(simultan, name) is getattr(simultan, name)
    assert simultan.__version__ == importlib.metadata.version("simultan")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simultan.nothing  # type: ignore[attr-defined]


def test_importing_it_does_not_import_torch() -> None:
    code = (
        "import sys, simultan; dir(simultan); simultan.__version__; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_type_checkers_see_every_name() -> None:
    tree = ast.parse(Path(str(simultan.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    found = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found |= {ast.unparse(node.target) for node in block.body if isinstance(node, ast.AnnAssign)}
    assert found == set(simultan.__all__)
