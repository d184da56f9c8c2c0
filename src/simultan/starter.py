"""Starter recipes: the one that fits a corpus, and a project folder for a person's own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

__all__ = ["STEPS", "Size", "lay_out", "next_commands", "size_for"]

Size = Literal["laptop", "one-gpu", "many-gpus"]
STEPS = ("offline", "mma-il")
_HERE = Path(__file__).resolve().parent
PLACES = _HERE / "recipes", _HERE.parents[1] / "recipes"  # of a wheel; of a checkout
_LARGEST = (("laptop", 100_000), ("one-gpu", 2_000_000))  # pairs
_VOCABULARIES = {"laptop": 4_000, "one-gpu": 16_000, "many-gpus": 32_000}
_LAUNCH = {"many-gpus": "torchrun --standalone --nproc-per-node 8 -m simultan train"}

MAKEFILE = """\
# make: from the text in data/ to a model that translates live; what is done is not done again.
# make OPTIONS='--minutes 30': options for `simultan train`; this one ends each run in time.
SIMULTAN ?= simultan
TRAIN ?= {launch}
TEXT := $(foreach part,train valid,data/$(part).{source} data/$(part).{target})

.PHONY: all translate serve
all: runs/test/scores.json

work/corpus/prepared.json: $(TEXT)
\t$(SIMULTAN) prepare --source data/train.{source} --target data/train.{target} \\
\t\t--valid-source data/valid.{source} --valid-target data/valid.{target} \\
\t\t--vocabulary {vocabulary} --out work/corpus --overwrite

runs/offline/final/config.toml: work/corpus/prepared.json offline.toml
\t$(TRAIN) offline.toml --out runs/offline $(OPTIONS)

runs/mma-il/final/config.toml: runs/offline/final/config.toml mma-il.toml
\t$(TRAIN) mma-il.toml --out runs/mma-il $(OPTIONS)

runs/test/scores.json: runs/mma-il/final/config.toml data/test.{source} data/test.{target}
\t$(SIMULTAN) evaluate runs/mma-il/final --out runs/test \\
\t\t--source data/test.{source} --reference data/test.{target}

translate: runs/mma-il/final/config.toml
\t$(SIMULTAN) translate runs/mma-il/final

serve: runs/mma-il/final/config.toml
\t$(SIMULTAN) serve runs/mma-il/final
"""
README = """\
Put six files here: train.{source}, valid.{source}, test.{source}
and train.{target}, valid.{target}, test.{target}.
Line n of one side is the translation of line n of the other. valid and test need some hundred lines
each, and none of them may stand in train. Then say `make` in the folder above this one.
"""


def find_recipe(size: Size, step: str) -> Path:
    """The file of a starter recipe, in a checkout or in an installed package."""
    for place in PLACES:
        path = place / "starter" / size / f"{step}.toml"
        if path.is_file():
            return path
    raise FileNotFoundError(f"this installation has no starter recipe {size}/{step}.toml")


def size_for(pairs: int) -> Size:
    """The recipe for a corpus of so many pairs."""
    for size, largest in _LARGEST:
        if pairs <= largest:
            return size  # type: ignore[return-value]
    return "many-gpus"


def next_commands(prepared: Path, pairs: int) -> list[str]:
    """The commands that train on a prepared folder: an offline model, then the streaming one."""
    size = size_for(pairs)
    runs = f"runs/{prepared.name}"
    launch = _LAUNCH.get(size, "simultan train")
    commands = []
    for step in STEPS:
        recipe = find_recipe(size, step)
        shown = os.path.relpath(recipe)
        shown = str(recipe) if shown.startswith("..") else shown
        start = "" if step == "offline" else f" --set train.init_from={runs}/offline/final"
        folder = f" --set data.folder={prepared}{start}"
        commands.append(f"{launch} {shown}{folder} --out {runs}/{step}")
    return commands


def lay_out(folder: Path, source: str, target: str, size: Size) -> list[Path]:
    """Write a project folder: a place for the data, two recipes and a Makefile."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder")
    for language in (source, target):
        if not language.replace("-", "").isalnum():
            raise ValueError(f"{language!r} is not the code of a language, such as de")
    if source == target:
        raise ValueError(f"{source} and {target}: two languages, please")
    names = {"source": source, "target": target}
    texts = {
        "Makefile": MAKEFILE.format(
            **names,
            vocabulary=_VOCABULARIES[size],
            launch=_LAUNCH.get(size, "$(SIMULTAN) train"),
        ),
        "data/README.txt": README.format(**names),
    }
    for step in STEPS:
        text = find_recipe(size, step).read_text("utf-8")
        _, blank, settings = text.partition("\n\n")  # comments first, then settings
        comments = [line for line in text.splitlines() if line.startswith("# ")]
        kept = [line for line in comments[:4] if "simultan" not in line]
        settings = settings.replace(f"work/{size}", "work/corpus")
        settings = settings.replace(f"runs/{size}/", "runs/")
        texts[f"{step}.toml"] = "\n".join(kept) + blank + settings
    written = []
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        written.append(path)
    return written
