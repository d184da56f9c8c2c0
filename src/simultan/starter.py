"""Starter recipes: the one that fits a corpus, and a project folder for a person's own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Size = Literal["laptop", "one-gpu", "many-gpus"]
STEPS = ("offline", "mma-il")
_HERE = Path(__file__).resolve().parent
PLACES = _HERE / "recipes", _HERE.parents[1] / "recipes"  # of a wheel; of a checkout
_SMALLEST = 10_000  # pairs from which a model of one's own makes sense
_VOCABULARIES = {"laptop": 4_000, "one-gpu": 16_000, "many-gpus": 32_000}
_LAUNCH = {"many-gpus": "torchrun --standalone --nproc-per-node 8 -m simultan train"}


def find(name: str) -> Path:
    """A file of recipes/starter, in a checkout or in an installed package."""
    for place in PLACES:
        path = place / "starter" / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"this installation has no recipes/starter/{name}")


def size_for(pairs: int) -> Size:
    """The recipe for a corpus of so many pairs."""
    return "laptop" if pairs <= 100_000 else "one-gpu" if pairs <= 2_000_000 else "many-gpus"


def next_commands(prepared: Path, pairs: int, whole_words: bool = False) -> list[str]:
    """The commands that train on a prepared folder: an offline model, then the streaming one.

    Few pairs of `whole_words` are a toy, which needs one step only.
    """
    size = size_for(pairs)
    runs = f"runs/{prepared.name}"
    launch = _LAUNCH.get(size, "simultan train")
    toy = PLACES[1] / "toy" / "mma-il.toml"
    if whole_words and pairs < _SMALLEST and toy.is_file():
        return [f"{launch} {_shown(toy)} --set data.folder={prepared} --out {runs}/mma-il"]
    commands = []
    for step in STEPS:
        recipe = _shown(find(f"{size}/{step}.toml"))
        start = "" if step == "offline" else f" --set train.init_from={runs}/offline/final"
        folder = f" --set data.folder={prepared}{start}"
        commands.append(f"{launch} {recipe}{folder} --out {runs}/{step}")
    return commands


def _shown(recipe: Path) -> str:
    near = os.path.relpath(recipe)
    return str(recipe) if near.startswith("..") else near


def lay_out(folder: Path, source: str, target: str, size: Size) -> list[Path]:
    """Write a project folder: a place for the data, two recipes and a Makefile."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder")
    for language in (source, target):
        if not language.replace("-", "").isalnum():
            raise ValueError(f"{language!r} is not the code of a language, such as de")
    if source == target:
        raise ValueError(f"{source} and {target}: two languages, please")
    names = {
        "source": source,
        "target": target,
        "vocabulary": _VOCABULARIES[size],
        "launch": _LAUNCH.get(size, "$(SIMULTAN) train"),
    }
    texts = {
        "Makefile": find("Makefile").read_text("utf-8").format(**names),
        "data/README.txt": find("data.txt").read_text("utf-8").format(**names),
    }
    for step in STEPS:
        text = find(f"{size}/{step}.toml").read_text("utf-8")
        comments, blank, settings = text.partition("\n\n")  # comments first, then settings
        kept = comments.partition("\n#\n")[0]  # then commands, which the Makefile has instead
        settings = settings.replace(f"work/{size}", "work/corpus")
        settings = settings.replace(f"runs/{size}/", "runs/")
        texts[f"{step}.toml"] = kept + blank + settings
    (folder / "data").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in texts]
