"""Some updates of every kind of model, on random tokens, while its text is still on its way.

Errors show at once, and what is compiled here is found on the disk by those who train.
"""

from __future__ import annotations

import sys
import time
import tomllib
import traceback

import torch
from schedule import HERE, Stretch
from students import STAGES

from simultan import config as configuration
from simultan import model as models
from simultan.data.batching import Batch
from simultan.train.distributed import World
from simultan.train.step import NEVER, StepPool

LENGTHS = (32, 32, 32, 48, 160, 160, 160)  # unrecorded, recorded, played back; short and long


def draw(rows: int, length: int, pieces: int, device: torch.device) -> Batch:
    tokens = torch.randint(4, pieces, (rows, length), device=device)
    lengths = torch.full((rows,), length, device=device)
    return Batch(tokens, lengths, tokens.clone(), lengths.clone())


def rehearse(stretch: Stretch, name: str, pieces: int) -> None:
    settings = ["train.init_from=", *stretch.changes]
    config = configuration.load(HERE / f"{STAGES[name].recipe}.toml", settings)
    with World.open(stretch.device) as world:
        model = models.build(config, pieces, pieces).to(world.device).train()
        step = StepPool().take(model, config, world)
        for number, length in enumerate(LENGTHS, 1):
            rows = max(1, config.data.batch_tokens // length // 8 * 8)
            step(number, [draw(rows, length, pieces, world.device)])
        if int(step.failed) != NEVER:
            raise ValueError(f"{name}: the loss is not finite at update {int(step.failed)}")


def main() -> int:
    torch._dynamo.config.recompile_limit = 64
    stretch, failed, began = Stretch.read(), 0, time.time()
    pieces = tomllib.loads(stretch.texts.read_text(encoding="utf-8"))["vocabulary"]
    for name in ("back", "mma-il", "offline", "wait-k"):  # pairs is an offline one
        try:
            rehearse(stretch, name, pieces)
            print(f"{name}: rehearsed after {time.time() - began:.0f} s", flush=True)
        except Exception:  # the next one may work
            traceback.print_exc()
            failed += 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
