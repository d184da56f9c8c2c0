"""Training speed: offline, MMA-IL, MMA-H, and MMA-IL with the textbook loop, side by side.

    python benchmarks/training.py            # the paper's two configurations on a GPU
    python benchmarks/training.py --profile  # and where the time of a step goes
On a CPU a tiny configuration shows the same table; only its ratios mean something.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

import simultan.model.attention as attention
from simultan.config import Config, DataConfig, LossConfig, ModelConfig, PolicyConfig, TrainConfig
from simultan.data.batching import Batch, Batches
from simultan.data.codec import Codec
from simultan.data.shards import Corpus
from simultan.model import build
from simultan.train.distributed import World
from simultan.train.loop import fit
from simultan.train.step import Step

CONFIGURATIONS = {  # model, vocabulary, rows, source and target length
    "iwslt d512": (ModelConfig(), 8_000, 640, 25, 25),
    "iwslt d512 long": (ModelConfig(), 8_000, 160, 100, 100),
    "wmt d1024": (ModelConfig(width=1024, ffn=4096, heads=16), 32_000, 1024, 28, 28),
    "tiny": (
        ModelConfig(width=64, ffn=128, heads=4, encoder_layers=2, decoder_layers=2),
        500, 32, 16, 16,
    ),
}  # fmt: skip
SYSTEMS = {
    "offline": ("offline", LossConfig()),
    "mma-il": ("mma-il", LossConfig(lambda_avg=0.02, lambda_var=0.02)),
    "mma-h": ("mma-h", LossConfig(lambda_var=0.02)),
    "mma-il, textbook loop": ("mma-il", LossConfig(lambda_avg=0.02, lambda_var=0.02)),
}


def textbook_alignment(p: Tensor, source_lengths: Tensor) -> Tensor:
    """The closed form, row by row: cumprod, clamped division, cumsum."""
    rest = torch.cumprod(torch.cat([torch.ones_like(p[..., :1]), 1 - p[..., :-1]], -1), -1)
    alpha = torch.zeros_like(p[:, :, 0])
    alpha[..., 0] = 1
    rows = []
    for i in range(p.shape[2]):
        total = torch.cumsum(alpha / rest[:, :, i].clamp(1e-6, 1), -1)
        alpha = (p[:, :, i] * rest[:, :, i] * total).clamp(0, 1)
        rows.append(alpha)
    return torch.stack(rows, 2)


def batch_of(rows: int, source: int, target: int, size: int, device: torch.device) -> Batch:
    return Batch(
        torch.randint(4, size, (rows, source), device=device),
        torch.randint(source // 2, source + 1, (rows,), device=device),
        torch.randint(4, size, (rows, target), device=device),
        torch.full((rows,), target, device=device),
    )


def measure(
    configuration: str, system: str, compiled: bool, seconds: float, profile: bool
) -> dict[str, float]:
    model, size, rows, source, target = CONFIGURATIONS[configuration]
    policy, loss = SYSTEMS[system]
    with World.open() as world:
        config = Config(
            model=model,
            policy=PolicyConfig(name=policy),  # type: ignore[arg-type]
            loss=loss,
            train=TrainConfig(
                precision="bfloat16" if world.device.type == "cuda" else "float32",
                compile=compiled,
            ),
        )
        torch.manual_seed(0)
        step = Step(build(config, size, size).to(world.device).train(), config, world)
        batches = [batch_of(rows, source, target, size, world.device) for _ in range(4)]
        began = time.perf_counter()
        for update in range(1, 8):
            step(update, [batches[update % 4]])
        synchronize(world.device)
        warmup = time.perf_counter() - began
        if profile:
            show_profile(lambda: step(9, [batches[0]]))
        times = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            for update in range(10):
                step(10 + update, [batches[update % 4]])
            synchronize(world.device)
            times.append((time.perf_counter() - start) / 10)
        step = None  # type: ignore[assignment]
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    median = sorted(times)[len(times) // 2]
    return {
        "ms": 1e3 * median, "tokens_per_second": rows * target / median, "warmup_s": warmup
    }  # fmt: skip


def measure_command(folder: str, system: str, updates: int) -> dict[str, float]:
    """`simultan train` on a prepared corpus against the bare step on the same batches."""
    policy, loss = SYSTEMS[system]
    gpu = torch.cuda.is_available()
    config = Config(
        data=DataConfig(folder=folder, shapes=30),
        model=CONFIGURATIONS["iwslt d512" if gpu else "tiny"][0],
        policy=PolicyConfig(name=policy),  # type: ignore[arg-type]
        loss=loss,
        train=TrainConfig(
            updates=updates,
            log_every=updates // 4,
            save_every=10 * updates,
            validate_every=0,
            precision="bfloat16" if gpu else "float32",
            compile=gpu,
        ),
    )
    with tempfile.TemporaryDirectory() as out:
        fit(config, out, tensorboard=False)
        lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    # every shape has been compiled and recorded by the last quarter
    command = json.loads(lines[-1])["tokens_per_second"]
    with World.open() as world:
        codec = Codec.load(folder)
        sizes = len(codec.source_vocabulary), len(codec.target_vocabulary)
        step = Step(build(config, *sizes).to(world.device).train(), config, world)
        stream = iter(Batches(Corpus(folder), config.data))
        batches = [next(stream).to(world.device) for _ in range(updates // 4)]
        tokens = sum(int(batch.target_lengths.sum()) for batch in batches)
        seconds = 0.0
        for _ in range(4):
            synchronize(world.device)
            start = time.perf_counter()
            for update, batch in enumerate(batches, 1):
                step(update, [batch])
            synchronize(world.device)
            seconds = time.perf_counter() - start
    return {"command": command, "step": tokens / seconds}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def show_profile(run) -> None:  # type: ignore[no-untyped-def]
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    gpu = torch.cuda.is_available()
    default = ["iwslt d512", "wmt d1024"] if gpu else ["tiny"]
    parser.add_argument("--configuration", action="append", choices=list(CONFIGURATIONS))
    parser.add_argument("--system", action="append", choices=list(SYSTEMS))
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured for each system")
    parser.add_argument("--corpus", help="a prepared folder: `simultan train` on it, as a ratio")
    parser.add_argument("--updates", type=int, default=600, help="with --corpus")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.corpus:
        rates = measure_command(options.corpus, (options.system or ["offline"])[0], options.updates)
        print(
            f"simultan train {rates['command']:,.0f} target tokens/s, the bare step"
            f" {rates['step']:,.0f}: ratio {rates['command'] / rates['step']:.2f}"
        )
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    for configuration in options.configuration or default:
        rows = results.setdefault(configuration, {})
        for system in options.system or SYSTEMS:
            exact = attention.expected_alignment
            if "loop" in system:
                attention.expected_alignment = textbook_alignment  # type: ignore[assignment]
            try:
                # the loop is what one finds published: eager
                compiled = gpu and not options.eager and "loop" not in system
                rows[system] = measure(
                    configuration, system, compiled, options.seconds, options.profile
                )
            finally:
                attention.expected_alignment = exact
            print(
                f"{configuration:16} {system:22} {rows[system]['ms']:8.1f} ms/update"
                f" {rows[system]['tokens_per_second']:12,.0f} target tokens/s"
                f"   (set-up {rows[system]['warmup_s']:.0f} s)",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    for configuration, rows in results.items():
        if "offline" in rows:
            base = rows["offline"]["tokens_per_second"]
            ratios = ", ".join(
                f"{name} {row['tokens_per_second'] / base:.2f}" for name, row in rows.items()
            )
            print(f"{configuration}: tokens/s relative to offline: {ratios}")


if __name__ == "__main__":
    main()
