"""Every example runs, and does what it says; clients are in server/test_example_clients.py."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed():
    listed = re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(p.name for p in EXAMPLES.iterdir() if p.name != "README.md")


def test_the_notebook():
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    notebook = nbformat.read(EXAMPLES / "simultan.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    os.environ["OMP_NUM_THREADS"] = "1"
    client(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    printed = " ".join(output.get("text", "") for output in outputs)
    assert "book" in printed
    assert "BLEU" in printed
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_a_model_of_your_own_learns_where_to_stop():
    accuracy, delays = load("own_model").train(updates=400)
    assert accuracy > 0.95
    assert delays[:5] == pytest.approx([3, 4, 5, 6, 7], abs=0.5)


def test_policies_are_compared():
    table = load("compare_policies").compare("de-en", "Das ist ein Haus.", ["lag=3", "lag=8"])
    heard, soon, late = (list(column.cells) for column in table.columns)
    assert heard == ["Das", "ist", "ein", "Haus."]
    assert "".join(late[:-1]) == ""
    assert "house" in " ".join(soon)


def test_the_microphone():
    """A recogniser that changes its mind, without a microphone."""
    microphone = load("microphone")

    def hear(*utterances):
        for utterance in utterances:
            words = utterance.split()
            for count in range(1, len(words) + 1):
                yield " ".join([*words[: count - 1], words[count - 1][:2]]), False  # not yet heard
                yield " ".join(words[:count]), False
            yield utterance, True

    import simultan

    translator = simultan.load("de-en")
    said = "guten tag meine damen und herren", "ich freue mich sehr dass sie heute hier sind"
    found = "".join(microphone.translate(translator.session("lag=4"), hear(*said)))
    session = translator.session("lag=4")
    events = [*session.feed(" ".join(said)), *session.finish()]
    assert found.split() == " ".join(getattr(event, "text", "") for event in events).split()
    assert "ladies and gentlemen" in found.lower()
