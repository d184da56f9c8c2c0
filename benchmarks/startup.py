"""How long a training run takes to be under way, part by part: all that is not updates.

    python benchmarks/startup.py PREPARED_CORPUS --compiled work/compiled.bin
    python benchmarks/startup.py PREPARED_CORPUS --tiny    # on a CPU: compiled, but not recorded
Run it twice for a second run on the same machine; carry the file to another machine for the first
run there. `first` counts from the start of the process, `again` is a second run in it. Parts are
seconds of the clock; `host_s` is what the process and its threads kept CPUs busy until then.
"""

from __future__ import annotations

import time

PROCESS_BEGAN = time.perf_counter()  # imports below are a part of the start

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import tempfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from simultan import config as configuration  # noqa: E402
from simultan.data.batching import Batch  # noqa: E402
from simultan.streaming.board import Recorder  # noqa: E402
from simultan.train import artifacts, loop  # noqa: E402
from simultan.train.step import Step, StepPool  # noqa: E402

RECIPE = Path(__file__).parents[1] / "recipes" / "iwslt15-en-vi" / "offline.toml"
TINY = ("model.width=32", "model.ffn=64", "model.heads=2", "data.batch_tokens=600",
        "train.precision=float32")  # fmt: skip


class Parts:
    """Sums up the seconds of what is done once, by wrapping the functions that do it."""

    def __init__(self) -> None:
        self.seconds = Counter[str]()
        self.calls = Counter[str]()
        self._recording = False
        self._shapes = set[object]()
        self._wrap(loop.Run, "__init__", "opening")
        self._wrap(artifacts, "load", "compiled")
        self._wrap(artifacts, "save", "compiled")
        record, update = Recorder.record, Step._update

        def timed_record(recorder: Recorder, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
            self._recording = True
            try:
                return self.time("recording", record, recorder, step)
            finally:
                self._recording = False

        def timed_update(step: Step, batches: Sequence[Batch]) -> None:
            shape = id(step), *(batch.source.shape + batch.target.shape for batch in batches)
            if self._recording or shape in self._shapes:
                return update(step, batches)
            self._shapes.add(shape)
            return self.time("first updates", update, step, batches)

        Recorder.record, Step._update = timed_record, timed_update  # type: ignore[method-assign]

    def _wrap(self, owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)
        setattr(owner, name, lambda *given, **named: self.time(part, function, *given, **named))

    def time(self, part: str, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            self.seconds[part] += time.perf_counter() - began
            self.calls[part] += 1

    def take(self, pace: float) -> dict[str, float]:
        """The parts since the last call; updates among them count as much as any other."""
        from torch._dynamo.utils import calculate_time_spent

        traced = calculate_time_spent()["total_wall_time"]
        self.seconds["tracing"] += traced - self.seconds["traced before"]
        first = self.seconds["first updates"] - self.seconds["tracing"]
        found = {name: self.seconds[name] for name in ("opening", "tracing", "recording")}
        found |= {
            "first updates": first - self.calls["first updates"] * pace,
            "compiled": self.seconds["compiled"],
        }
        self.seconds, self.calls = Counter({"traced before": traced}), Counter()
        return found


def run(settings: list[str], compiled: Path | None, pool: StepPool) -> tuple[float, float]:
    """Seconds besides the updates, and of an update once all is recorded."""
    config = configuration.load(RECIPE, settings)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as out:
        began = time.perf_counter()
        loop.fit(config, Path(out) / "run", tensorboard=False, pool=pool, compiled=compiled)
        seconds = time.perf_counter() - began
        lines = (Path(out) / "run" / "metrics.jsonl").read_text().splitlines()
    before, last = (json.loads(line) for line in lines[-2:])
    pace = (last["seconds"] - before["seconds"]) / (last["update"] - before["update"])
    return seconds - last["update"] * pace, pace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--policy", default="mma-il")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--compiled", type=Path)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="a model for a CPU, as a dry run")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    settings = [f"data.folder={arguments.corpus}", f"policy.name={arguments.policy}"]
    settings += [f"train.updates={arguments.updates}", "data.shapes=30", "train.validate_every=0"]
    settings += [f"train.log_every={max(1, arguments.updates // 4)}", "train.save_every=1000000"]
    settings += TINY if arguments.tiny else ()
    imported, parts, pool = time.perf_counter() - PROCESS_BEGAN, Parts(), StepPool()
    for number in range(arguments.runs):
        busy = time.process_time() if number else 0.0
        seconds, pace = run([*settings, *arguments.set], arguments.compiled, pool)
        busy, imports = time.process_time() - busy, 0.0 if number else imported
        found = {"imports": imports} | parts.take(pace)
        found["rest"] = seconds - sum(found.values()) + imports
        from torch._dynamo.utils import counters

        print(
            json.dumps(
                {
                    "policy": arguments.policy,
                    "run": "again" if number else "first",
                    "start_up_s": round(seconds + imports, 1),
                    "parts_s": {name: round(value, 2) for name, value in found.items()},
                    "update_ms": round(1e3 * pace, 2),
                    "host_s": round(busy, 1),
                    "traces": counters["stats"]["unique_graphs"],
                    "cache": {k: v for kind in ("inductor", "aot_autograd")
                              for k, v in counters[kind].items() if "cache" in k},
                }
            ),
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
