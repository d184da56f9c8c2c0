"""How long a training run takes to be under way: compilation, recordings, and all else but updates.

    python benchmarks/startup.py PREPARED_CORPUS --compiled work/compiled.bin
Run it twice for a second run on the same machine; carry the file to another machine for the first
run there. `first` counts from the start of the process, `again` is a second run in it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

PROCESS_BEGAN = time.time()  # imports below are a part of the start

import torch  # noqa: E402
from torch._dynamo.utils import calculate_time_spent, counters  # noqa: E402

from simultan import config as configuration  # noqa: E402
from simultan.train.loop import fit  # noqa: E402
from simultan.train.step import Step, StepPool  # noqa: E402

RECIPE = Path(__file__).parents[1] / "recipes" / "iwslt15-en-vi" / "offline.toml"


def run(settings: list[str], compiled: Path | None, pool: StepPool) -> tuple[float, float]:
    """Seconds besides the updates, and of an update once all is recorded."""
    config = configuration.load(RECIPE, settings)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as out:
        fit(config, Path(out) / "run", tensorboard=False, pool=pool, compiled=compiled)
        lines = (Path(out) / "run" / "metrics.jsonl").read_text().splitlines()
    before, last = (json.loads(line) for line in lines[-2:])
    pace = (last["seconds"] - before["seconds"]) / (last["update"] - before["update"])
    return last["seconds"] - last["update"] * pace, pace


def clock(spent: dict[str, float], name: str) -> None:
    """Sum up the seconds of a method of Step."""
    method = getattr(Step, name)

    def timed(self: Step, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(self, *arguments)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    setattr(Step, name, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--policy", default="mma-il")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--compiled", type=Path)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    settings = [f"data.folder={arguments.corpus}", f"policy.name={arguments.policy}"]
    settings += [f"train.updates={arguments.updates}", "data.shapes=30", "train.validate_every=0"]
    settings += [f"train.log_every={max(1, arguments.updates // 4)}", "train.save_every=1000000"]
    if not torch.cuda.is_available():
        settings += ["train.compile=false", "train.precision=float32", "model.width=32"]
    pool, imported = StepPool(), time.time() - PROCESS_BEGAN
    spent: dict[str, float] = {}
    for name in ("_record", "_update"):
        clock(spent, name)
    for number in range(arguments.runs):
        seconds, pace = run([*settings, *arguments.set], arguments.compiled, pool)
        found = {
            "policy": arguments.policy,
            "run": "again" if number else "first",
            "start_up_s": round(seconds + (0 if number else imported), 1),
            "imports_s": round(imported, 1),
            "update_ms": round(1e3 * pace, 2),
            "spent_s": {k: round(v, 1) for k, v in (spent | calculate_time_spent()).items()},
            "cache": {k: v for k, v in counters["inductor"].items() if "cache" in k}
            | {k: v for k, v in counters["aot_autograd"].items() if "cache" in k},
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
