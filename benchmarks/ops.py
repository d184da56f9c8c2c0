"""Expected alignment and attention: the textbook form, the reference and the Triton kernels.

    python benchmarks/ops.py [--device cpu|cuda] [--threads N] [--json FILE]

Time of the forward pass and of forward + backward; memory at its peak above the inputs; relative
error (in norm) of value and gradient against the recurrence in float64. The last line is the ratio
that decides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler counts bytes here; it need not talk

import torch
from torch import Tensor

from simultan.ops import Backend, expected_alignment, expected_attention

SHAPES = {  # rows x T x S
    "cpu": [(16, 32, 32), (64, 64, 64), (64, 128, 128)],
    "cuda": [(2560, 25, 25), (1024, 62, 62), (1024, 128, 128), (256, 512, 512)],
}
LOOKBACKS = (None, 1, 16)
CPU_ROUNDS = 15
Op = Callable[..., Tensor]  # of the tensors that take a gradient


@dataclass(frozen=True)
class Result:
    """One way of computing one operation at one shape."""

    op: str
    shape: str
    way: str
    forward_ms: float
    both_ms: float
    peak_mib: float
    value_error: float
    gradient_error: float


def textbook_alignment(p: Tensor, eps: float = 1e-6) -> Tensor:
    """alpha_i = p_i c_i cumsum(alpha_{i-1} / c_i), c_i the cumulative product of 1 - p_i."""
    c = torch.cumprod(torch.cat([torch.ones_like(p[..., :1]), 1 - p[..., :-1]], -1), -1)
    divisor = c.clamp(eps, 1)  # c is soon too small to divide by, and here the mass is lost
    alpha = torch.zeros_like(p[..., 0, :])
    alpha[..., 0] = 1
    rows = []
    # unbind: indexing row by row would make each row's gradient as large as p, twice as slow
    for weight, below in zip((p * c).unbind(-2), divisor.unbind(-2), strict=True):
        alpha = (weight * torch.cumsum(alpha / below, -1)).clamp(0, 1)
        rows.append(alpha)
    return torch.stack(rows, -2)


def textbook_attention(alpha: Tensor, energy: Tensor, eps: float = 1e-10) -> Tensor:
    """Infinite lookback with the maximum of the whole row, future included."""
    e = torch.exp(energy - energy.amax(-1, keepdim=True))
    return e * (alpha / (e.cumsum(-1) + eps)).flip(-1).cumsum(-1).flip(-1)


def run_both(op: Op, inputs: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward of sum(op(inputs) weights)."""
    return torch.autograd.grad(op(*inputs), inputs, weights)


def recorded(function: Callable[[], object]) -> Callable[[], object]:
    """As a CUDA graph, as training runs it: the host's time to launch is left out."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def median_times(functions: dict[str, Callable[[], object]], device: str) -> list[float]:
    """Milliseconds. On a CPU the ways take turns, so that a busy machine is busy for all."""
    if device == "cuda":
        from triton.testing import do_bench  # CUDA events; flushes the L2 cache between runs

        # the loop cannot be recorded: the gradient of cumprod waits for the host
        runs = [f if way == "loop" else recorded(f) for way, f in functions.items()]
        return [do_bench(run, warmup=20, rep=100, return_mode="median") for run in runs]
    samples: list[list[float]] = [[] for _ in functions]
    for _ in range(CPU_ROUNDS + 1):
        for function, mine in zip(functions.values(), samples, strict=True):
            start = time.perf_counter()
            function()
            mine.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(mine[1:]) for mine in samples]  # the first round warms up


def peak_mib(function: Callable[[], object], device: str) -> float:
    """The most that was allocated at once while it ran, its results included."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = function()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        with torch.autograd.profiler.profile(profile_memory=True) as profiler:
            kept = function()
        assert profiler.kineto_results is not None
        events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
        now = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            now += event.nbytes()
            peak = max(peak, now)
    del kept
    return peak / 2**20


def relative(actual: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest relative error, in norm, of a few tensors."""
    return max(float((a - e).norm() / e.norm()) for a, e in zip(actual, exact, strict=True))


def compare(
    name: str, ways: dict[str, Op], exact: Op, inputs: Sequence[Tensor], device: str
) -> list[Result]:
    """Every way at one shape; `exact` is computed from the same inputs in float64."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    weights = torch.randn_like(inputs[0])
    wide = [x.detach().double().requires_grad_() for x in inputs]
    value = exact(*wide).detach()
    gradient = run_both(exact, wide, weights.double())
    value_errors, gradient_errors, peaks = [], [], []
    for op in ways.values():
        value_errors.append(relative([op(*inputs).detach()], [value]))
        gradient_errors.append(relative(run_both(op, inputs, weights), gradient))
        peaks.append(peak_mib(partial(run_both, op, inputs, weights), device))
    del wide, value, gradient
    forward = median_times({way: partial(op, *inputs) for way, op in ways.items()}, device)
    both = median_times(
        {way: partial(run_both, op, inputs, weights) for way, op in ways.items()}, device
    )
    shape = " x ".join(str(n) for n in (inputs[0].shape[:2].numel(), *inputs[0].shape[2:]))
    columns = zip(ways, forward, both, peaks, value_errors, gradient_errors, strict=True)
    return [Result(name, shape, *column) for column in columns]


def measure(rows: int, target: int, source: int, device: str) -> list[Result]:
    """Both operations, alone and together, at one shape."""
    torch.manual_seed(0)
    p = torch.sigmoid(torch.randn(rows, 1, target, source, device=device))
    energy = torch.randn_like(p)
    lengths = torch.full((rows,), source, device=device)
    backends: tuple[Backend, ...] = ("reference", "triton") if device == "cuda" else ("reference",)

    def align(p: Tensor, backend: Backend = "reference") -> Tensor:
        return expected_alignment(p, lengths, backend=backend)

    def attend(
        alpha: Tensor, energy: Tensor, lookback: int | None, backend: Backend = "reference"
    ) -> Tensor:
        return expected_attention(alpha, energy, lengths, lookback=lookback, backend=backend)

    def together(p: Tensor, energy: Tensor, backend: Backend = "reference") -> Tensor:
        return attend(align(p, backend), energy, None, backend)

    ways: dict[str, Op] = {"loop": textbook_alignment}
    ways |= {b: partial(align, backend=b) for b in backends}
    results = compare("alignment", ways, align, [p], device)
    alpha = align(p)
    for lookback in LOOKBACKS:
        if lookback == 1:  # beta = alpha: the energies take no part
            ways = {b: partial(attend, energy=energy, lookback=1, backend=b) for b in backends}
            exact: Op = lambda alpha: alpha  # noqa: E731
            results += compare("attention, lookback 1", ways, exact, [alpha], device)
            continue
        ways = {} if lookback else {"textbook": textbook_attention}
        ways |= {b: partial(attend, lookback=lookback, backend=b) for b in backends}
        name = f"attention, lookback {lookback or 'infinite'}"
        exact = partial(attend, lookback=lookback)
        results += compare(name, ways, exact, [alpha, energy], device)
    ways = {b: partial(together, backend=b) for b in backends}
    return results + compare("alignment + infinite", ways, together, [p, energy], device)


def table(results: Sequence[Result]) -> str:
    lines = [
        "| op | rows x T x S | way | forward ms | fwd+bwd ms | peak MiB | value error | gradient |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.op} | {r.shape} | {r.way} | {r.forward_ms:.3f} | {r.both_ms:.3f} |"
        f" {r.peak_mib:.1f} | {r.value_error:.1e} | {r.gradient_error:.1e} |"
        for r in results
    ]
    return "\n".join(lines)


def ratios(results: Sequence[Result], device: str) -> dict[str, float]:
    """What is promised, as ratios of forward + backward; the one that decides comes last."""
    both = {(r.op, r.shape, r.way): r.both_ms for r in results}
    shapes = list(dict.fromkeys(r.shape for r in results))
    best = "triton" if device == "cuda" else "reference"
    found = {}
    for shape in shapes:
        alone = both["alignment", shape, best]
        pair = both["alignment + infinite", shape, best]
        found[f"{best}: alignment + infinite lookback / alignment, {shape}"] = pair / alone
    decisive = shapes[2:] if device == "cuda" else shapes[:1] + shapes[2:] + shapes[1:2]
    for shape in decisive:
        loop = both["alignment", shape, "loop"]
        found[f"{best} / loop, alignment, {shape}"] = both["alignment", shape, best] / loop
    if device == "cuda":  # at most 2.2 is wanted
        name = f"{best}: alignment + infinite lookback / alignment, {shapes[-1]}"
        found[name] = found.pop(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU; one is steadiest")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    device = arguments.device
    torch.set_num_threads(arguments.threads)
    machine = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"CPU, {torch.get_num_threads()} thread(s), median of {CPU_ROUNDS}"
    )
    start = time.perf_counter()
    results = [result for shape in SHAPES[device] for result in measure(*shape, device)]
    found = ratios(results, device)
    print(f"{machine}; torch {torch.__version__}; float32; p = sigmoid(N(0, 1))\n")
    print(table(results))
    print(f"\n{time.perf_counter() - start:.0f} s in all; forward + backward:")
    for name, ratio in found.items():
        print(f"{name}: {ratio:.2f}")
    if arguments.json:
        report = {"machine": machine, "torch": torch.__version__, "ratios": found}
        report["results"] = [asdict(r) for r in results]
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
