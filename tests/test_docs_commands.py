"""Every command of the documentation is run, or stands here with the reason why it is not.

Training is shortened and models are tiny; all else runs as it stands in the page.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simultan import cli
from simultan.data.toy import write_toy

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_README = "test_readme_commands.py"
NOT_RUN = {  # page: the beginning of commands, and why
    "README.md": {
        "make": "installs an environment, as the tests' own set-up does",
        ". .venv": "the tests are run in such an environment",
        "pip install": "needs a network",
        "simultan toy": _README,
        "simultan prepare": _README,
        "simultan train": _README,
        "simultan evaluate": _README,
        "simultan plot": _README,
        "echo": _README,
        "simultan serve": "runs until it is stopped; tests/server runs it",
    },
    "captions.md": {"simultan captions talk.de.vtt --live": "plays as long as the talk lasts"},
    "cluster.md": {"": "needs several machines"},
    "import.md": {"": "needs a network or a token; test_marian.py, test_hub.py, test_ct2.py"},
    "metrics.md": {
        "simultan evaluate runs/toy": "needs a trained model; tests/evaluation/test_curve.py",
    },
    "models.md": {"": "needs a network; tests/streaming/test_foreign.py has such models"},
    "performance.md": {"": "measures for minutes, and some of it needs a GPU"},
    "policies.md": {
        "simultan train-agent": "needs a corpus; tests/train/test_train_agent.py",
        "simultan evaluate": "needs a trained model; tests/train/test_train_agent.py",
    },
    "reproduction.md": {"": "needs a GPU; tests/test_reproduce.py runs the plan with tiny models"},
    "serving.md": {"": "needs a network or runs until it is stopped; tests/server runs it"},
    "simuleval.md": {"simuleval": "needs an environment of its own; test_simuleval_agent.py"},
    "streaming.md": {
        "simultan translate MODEL --show": "draws into a terminal; test_display.py",
        "simultan ends": "trains for half an hour; streaming/test_ends.py",
    },
    "training.md": {"": "a form, no command: RECIPE.toml"},
}
PYTHON_RUN = {"captions.md", "maths.md", "policies.md", "streaming.md"}
PYTHON_ELSEWHERE = {  # test_readme_commands.py; test_walks.py, test_architecture.py; server/
    "README.md",
    "architecture.md",
    "models.md",  # streaming/test_foreign.py
    "serving.md",
}
SHORT = (
    "--set train.updates=3 --set train.warmup=1 --set train.cooldown=0"
    " --set train.validate_every=0 --set model.width=16 --set model.ffn=16 --set model.heads=2"
)


def fenced(page: Path, language: str) -> str:
    text = page.read_text("utf-8")
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def commands(page: Path) -> list[str]:
    """The commands of a page: of blocks of shell, and of indented lines that begin like one."""
    shell = fenced(page, "sh").replace("\\\n", "")
    indented = re.findall(
        r"^    ((?:simultan|python|make|torchrun) .*)$", page.read_text("utf-8"), re.MULTILINE
    )
    lines = [*shell.splitlines(), *indented]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def is_run(page: Path, command: str) -> bool:
    return not any(command.startswith(start) for start in NOT_RUN.get(page.name, ()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    write_toy(folder / "toy", 60, 1)
    toy = {p: (folder / "toy" / f"train.{p}").read_text("utf-8") for p in ("en", "fr")}
    for part in ("train", "valid"):
        (folder / f"{part}.de").write_text(toy["en"], "utf-8")
        (folder / f"{part}.en").write_text(toy["fr"], "utf-8")
    (folder / "test.de").write_text("Das ist ein Haus.\nDer Zug kommt heute nicht.\n", "utf-8")
    (folder / "test.en").write_text("This is a house.\nThe train is not coming.\n", "utf-8")
    (folder / "text").write_text("Das ist ein Haus.\n", "utf-8")
    pairs = list(zip(toy["en"].splitlines(), toy["fr"].splitlines(), strict=True))
    for name in ("pairs", "valid"):
        lines = "".join(f"{de}\t{en}\n" for de, en in pairs)
        (folder / f"{name}.tsv").write_text(lines, "utf-8")
    objects = "".join(json.dumps({"de": de, "en": en}) + "\n" for de, en in pairs)
    (folder / "pairs.jsonl").write_text(objects, "utf-8")
    for language, side in (("de", "en"), ("en", "fr")):
        (folder / f"a.{language}.gz").write_bytes(gzip.compress(toy[side].encode()))
        (folder / "texts" / language).mkdir(parents=True)
        (folder / "texts" / language / f"a.{language}").write_text(toy[side], "utf-8")
    talk = "1\n00:00:00,000 --> 00:00:02,000\nGuten Abend, meine Damen und Herren.\n"
    (folder / "talk.de.srt").write_text(talk, "utf-8")
    (folder / "talk.de.vtt").write_text("WEBVTT\n\n" + talk.replace(",000", ".000"), "utf-8")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "simultan").write_text(
        f'#!/bin/sh\ncase "$1" in train) set -- "$@" {SHORT};; esac\n'
        f'exec {sys.executable} -m simultan "$@"\n'
    )
    (tools / "simultan").chmod(0o755)
    return folder


def run(place: Path, *command: str, path: str = "") -> str:
    source = f"{ROOT / 'src'}{os.pathsep}{path}"
    environment = os.environ | {
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return done.stdout


RUN = [page for page in PAGES if any(is_run(page, command) for command in commands(page))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_commands_run(page: Path, place: Path) -> None:
    script = [command for command in commands(page) if is_run(page, command)]
    run(place, "bash", "-euo", "pipefail", "-c", "\n".join(script).replace("MODEL", "de-en"))


@pytest.mark.parametrize("name", sorted(PYTHON_RUN))
def test_python_runs(name: str, place: Path) -> None:
    text = fenced(ROOT / "docs" / name, "python")
    assert text
    text = text.replace("runs/toy/mma-il/final", "de-en")
    run(place, sys.executable, "-c", text, path=str(ROOT / "benchmarks"))


def test_nothing_is_left_out() -> None:
    with_python = {page.name for page in PAGES if fenced(page, "python")}
    assert with_python == PYTHON_RUN | PYTHON_ELSEWHERE
    for name, reasons in NOT_RUN.items():
        for start in reasons:
            page = next(page for page in PAGES if page.name == name)
            found = [line for line in commands(page) if line.startswith(start)]
            assert found or (name, start) == ("cluster.md", ""), f"{name}: {start!r} is not there"


TEXTS = [*PAGES, ROOT / "recipes/de-en/README.md", *ROOT.glob("examples/*.md")]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.parent.name + "/" + page.stem)
def test_verbs_and_options_exist(page: Path) -> None:
    """Also of what stands in a sentence: `simultan train --minutes 30`."""
    code = re.findall(r"```.*?```|`[^`]+`|^    .*$", page.read_text("utf-8"), re.DOTALL | re.M)
    joined = "\n".join(code).replace("\\\n", " ")
    found = re.findall(r"(?<!from )\bsimultan ([a-z]+(?:-[a-z]+)*)\b(?!=)([^\n`|;&]*)", joined)
    for verb, rest in found:
        assert verb in cli.VERBS, f"{page.name}: simultan {verb}"
        known = {name for parameter in cli.load_verb(verb).params for name in parameter.opts}
        known |= {name for p in cli.load_verb(verb).params for name in p.secondary_opts}
        used = re.findall(r"(?<=\s)(--[a-z][a-z-]*)", rest.split("  #")[0])
        assert set(used) <= known | {"--help"}, f"{page.name}: simultan {verb}{rest}"
