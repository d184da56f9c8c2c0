"""Trains stages of the stretch, one after the other, in one process: code is compiled once.

    python recipes/de-en/second/students.py back
    python recipes/de-en/second/students.py pairs offline mma-il wait-k

A stage that fails is tried again by the next process, each time more carefully; after the last
try it is left out, and the others do without.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from schedule import HERE, LAST, LEAST, TRIES, Stretch

from simultan import config as configuration
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.model import TranslationModel
from simultan.streaming.translator import Translator
from simultan.train.loop import fit
from simultan.train.step import StepPool
from simultan.train.validation import evaluate_translator

THRESHOLDS = (0.1, 0.5, 0.9)
LOOKED_AT = 100  # sentences
# The policy of the first edition, if the new one does not learn
SAFE = ["policy.spread=5", "loss.lambda_avg=0.02", "loss.lambda_grade=0"]
MOST_RATIO, MOST_LAG = 1.3, 12.0  # at 0.5: else it has not learnt to stream
ENDING = 8  # seconds from the last update to a model that is written
PATIENCE = 90  # seconds that a stage waits for its text


@dataclass(frozen=True)
class Stage:
    """How a model comes to be."""

    recipe: str
    text: tuple[str, ...]  # prepared folders, the best first
    # stages whose weights it may start from, the best first; start: a model that came along
    start: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


STAGES = {
    "back": Stage("back", ("swapped",)),
    # short: half of it warms up, the rest cools down
    "pairs": Stage(
        "offline", ("spoken", "pairs"), ("start",), ("train.warmup=800", "train.cooldown=800")
    ),
    "offline": Stage("offline", ("speech", "spoken", "pairs"), ("pairs", "start")),
    "mma-il": Stage("mma-il", ("speech", "spoken", "pairs"), ("offline", "pairs", "start")),
    "wait-k": Stage("wait-k", ("speech", "spoken", "pairs"), ("offline", "pairs", "start")),
}


class Looker:
    """Looks once, half-way, whether a policy learns to stream; `given_up`: it does not."""

    def __init__(self, stretch: Stretch, name: str) -> None:
        self.stretch, self.name, self.given_up = stretch, name, False

    def __call__(
        self, model: TranslationModel, config: Config, codec: Codec
    ) -> Mapping[str, float]:
        if self.stretch.noted(f"{self.name}.looked") is not None:
            return {}
        translator, found = Translator(model, config, codec), dict[str, float]()
        for threshold in THRESHOLDS:
            decoding = f"threshold={threshold}"
            values = evaluate_translator(translator, config.data.folder, LOOKED_AT, decoding)
            names = ("BLEU", "AL", "DAL", "length_ratio")
            if threshold == 0.5:
                found |= {name: values.get(name, 0.0) for name in names}
            found |= {f"{name} at {threshold}": values.get(name, 0.0) for name in names}
        least = self.stretch.least_bleu
        bad = found["BLEU"] < least or found["length_ratio"] > MOST_RATIO or found["AL"] > MOST_LAG
        safe = self.stretch.noted(f"{self.name}.safe") is not None
        if bad and not safe and self.stretch.seconds(self.name) > LEAST:
            print(f"{self.name}: {found}: the first edition's policy instead", flush=True)
            self.stretch.note(f"{self.name}.safe")
            self.given_up = True
        else:
            self.stretch.note(f"{self.name}.looked")
        return found


def choose_text(stretch: Stretch, name: str) -> str:
    """The prepared folder of a stage, which waits a while for the best; chosen once."""
    wanted, end = STAGES[name].text, time.time() + PATIENCE
    chosen = stretch.noted(f"{name}.text")
    while chosen is None:
        places = {text: stretch.work / "data" / text / "prepared.json" for text in wanted}
        there = [text for text, place in places.items() if place.exists()]
        late = time.time() >= end or stretch.noted(f"{wanted[0]}.failed") is not None
        if there and (there[0] == wanted[0] or late):
            chosen = there[0]
            stretch.note(f"{name}.text", chosen)
        elif time.time() >= end + 10 * PATIENCE:
            raise TimeoutError(f"{name}: there is no text")
        else:
            time.sleep(0.5)
    return chosen


def changes(stretch: Stretch, name: str, attempt: int) -> list[str]:
    """What differs from the recipe; a run that is continued has what it had."""
    stage, begun = STAGES[name], list((stretch.work / name).glob("checkpoints/[0-9]*"))
    if begun and (known := stretch.noted(f"{name}.changes")) is not None:
        return list(json.loads(known))
    folder = stretch.work / "data" / choose_text(stretch, name)
    found = [f"data.folder={folder}", *stage.changes]
    # what came along may not fit: another try does without
    models = [stretch.model(start) for start in stage.start if start != "start" or not attempt]
    begin = next((model for model in models if model is not None), None)
    found.append(f"train.init_from={begin or ''}")
    if stretch.noted(f"{name}.safe") is not None or (name == "mma-il" and attempt):
        found += SAFE  # without what no GPU has seen
    found += stretch.changes
    settings = configuration.load(HERE / f"{stage.recipe}.toml", found)
    if attempt > 1:  # was it memory, the rate, the compiler?
        found.append(f"data.batch_tokens={settings.data.batch_tokens // 2}")
        found += [f"train.lr={settings.train.lr / 2}", "train.compile=false"]
    stretch.note(f"{name}.changes", json.dumps(found))
    return found


def set_aside(stretch: Stretch, name: str) -> None:
    """Another try begins in a folder of its own."""
    folder = stretch.work / name
    if folder.exists():
        place = folder.with_name(f"{name}.{int(time.time())}")
        shutil.move(folder, place)
        shutil.rmtree(place / "checkpoints", ignore_errors=True)


def train(stretch: Stretch, name: str, pool: StepPool) -> bool:
    """One try of a stage; False: it was told to stop."""
    attempt = int(stretch.noted(f"{name}.tries") or 0)
    seconds = stretch.seconds(name)
    unwanted = stretch.table.get(name) == 0 or (name == LAST and attempt == 0 and seconds < LEAST)
    if attempt >= TRIES or unwanted:
        print(f"{name}: left out", flush=True)
        stretch.note(f"{name}.done")
        return True
    if attempt > 1:
        set_aside(stretch, name)
    stretch.note("training", name)
    recipe = HERE / f"{STAGES[name].recipe}.toml"
    settings = configuration.load(recipe, changes(stretch, name, attempt))
    stretch.note(f"{name}.tries", str(attempt + 1))
    looker = Looker(stretch, name) if name == "mma-il" else None
    if looker is None:
        settings = replace(settings, train=replace(settings.train, validate_every=0))
    left = max(5.0, stretch.seconds(name) - ENDING)
    outcome = fit(
        settings,
        stretch.work / name,
        device=stretch.device,
        minutes=left / 60,
        validate=looker,
        tensorboard=False,  # nobody could look at it
        stop=lambda: looker is not None and looker.given_up,
        pool=pool,
    )
    if looker is not None and looker.given_up:
        stretch.note(f"{name}.tries", "0")
        set_aside(stretch, name)
        return train(stretch, name, pool)
    if not outcome.finished:
        stretch.note(f"{name}.tries", str(attempt))  # a signal is nobody's mistake
        return False
    stretch.note(f"{name}.done")
    return True


def main(names: list[str]) -> None:
    # each policy is one more version of the same compiled code; beyond 8 it would be left eager
    torch._dynamo.config.recompile_limit = 64
    stretch, pool = Stretch.read(), StepPool()
    for name in names:
        if stretch.noted(f"{name}.done") is None and not train(stretch, name, pool):
            sys.exit(143)


if __name__ == "__main__":
    main(sys.argv[1:])
