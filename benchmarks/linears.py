"""The linear layers that a token of the model in the box passes, in our way and in PyTorch's.

    python benchmarks/linears.py [--rows 1,3,32] [--rounds N] [--threads N]

One pass: 6 encoder layers, what the decoder keeps of the source, 3 decoder layers and the output,
44 matrices with 37 million weights. The weights are random. Ways take turns; figures are medians
of the processor time, and the least of it; with more than one thread, of the time on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from simultan.model import kernels
from simultan.model.linear import Int8, Packed, Tiled
from simultan.model.pages import Pages

ENCODER = [(512, 1536), (512, 512), (512, 2048), (2048, 512)]
DECODER = [(512, 1536), (512, 512), (512, 1024), (512, 512), (512, 2048), (2048, 512)]
SHAPES = [*ENCODER * 6, (512, 2304), *DECODER * 3, (512, 10_000)]
Way = Callable[[Tensor], Tensor]


def product_alone(linear: nn.Linear) -> Way:
    """What Int8 calls, without what it does before and after."""
    ours = Int8([linear])
    return lambda x: ours.product(x, ours.step, ours.zero, ours.packed)


def linear_dynamic(linear: nn.Linear) -> Way:
    """One range for all rows."""
    scales, zeros = scales_of(linear).double(), torch.zeros(linear.out_features, dtype=torch.long)
    rounded = torch.quantize_per_channel(linear.weight.detach(), scales, zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(rounded, linear.bias.detach())
    return lambda x: torch.ops.quantized.linear_dynamic.default(x, packed, False)


def int_mm(linear: nn.Linear) -> Way:
    """The product of integers, and nothing around it."""
    weight = rounded(linear).t()
    return lambda x: torch._int_mm(x.to(torch.int8), weight)


def weights_only(linear: nn.Linear) -> Way:
    """int8 weights, bfloat16 inputs."""
    weight, scales = rounded(linear), scales_of(linear).bfloat16()
    return lambda x: torch.ops.aten._weight_int8pack_mm.default(x.bfloat16(), weight, scales)


def scales_of(linear: nn.Linear) -> Tensor:
    return linear.weight.detach().abs().amax(1) / 127


def rounded(linear: nn.Linear) -> Tensor:
    return (linear.weight.detach() / scales_of(linear)[:, None]).round().to(torch.int8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", default="1,3,32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    torch.manual_seed(0)
    linears = [nn.Linear(inputs, outputs) for inputs, outputs in SHAPES]
    pages = Pages()
    ways: dict[str, list[Way]] = {
        "Int8": [Int8([linear]) for linear in linears],
        "the product of Int8 alone": [product_alone(linear) for linear in linears],
        "quantized.linear_dynamic": [linear_dynamic(linear) for linear in linears],
        "_int_mm": [int_mm(linear) for linear in linears],
        "_weight_int8pack_mm": [weights_only(linear) for linear in linears],
        "Packed (float32)": [Packed([linear], pages) for linear in linears],
    }
    if kernels.find():
        ways = {
            "Tiled (int8)": [Tiled([linear], pages, int8=True) for linear in linears],
            "Tiled (float32)": [Tiled([linear], pages) for linear in linears],
            **ways,
        }
    for rows in map(int, arguments.rows.split(",")):
        inputs = {width: torch.randn(rows, width) for width in (512, 2048)}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(arguments.rounds + 1):
            for name, layers in ways.items():
                begin = clock()
                with torch.inference_mode():
                    for layer, (width, _) in zip(layers, SHAPES, strict=True):
                        layer(inputs[width])
                if turn:  # the first round warms up
                    times[name].append((clock() - begin) * 1e3)
        for name, spent in times.items():
            print(
                f"{rows:3d} rows  {name:28s} {statistics.median(spent):8.2f} ms"
                f"   at least {min(spent):8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
