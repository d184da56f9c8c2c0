"""Linear layers whose weights streams lay out for speed.

y = x W^T + b. Training calls the modules as PyTorch has them; prepare_inference() gives each a
layout, a copy of its weights that is faster for a few rows on a CPU. Modules that share their
input can be one matrix, with their outputs side by side.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.model import kernels
from simultan.model.kernels import has_vnni
from simultan.model.pages import Pages

EXPONENT = 0xFF << 23  # of a number in float32


class Layout(ABC):
    """Weights as streams multiply by them."""

    def __call__(
        self,
        x: Tensor,
        relu: bool = False,
        plus: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """x [..., K], normalised -> [..., N]; what is positive of that; its sum with [..., N]."""
        y = self.multiply(x if norm is None else norm.forward(x))
        if relu:
            y = y.relu_()
        return y if plus is None else y.add_(plus)

    @abstractmethod
    def multiply(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""


MakeLayout = Callable[[Sequence[nn.Linear]], Layout]


class Linear(nn.Linear):
    """PyTorch's, or its layout for streams."""

    layout: Layout | None = None
    positive = False  # whether no input is below zero

    def __call__(
        self,
        x: Tensor,
        relu: bool = False,
        plus: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """As of a layout."""
        layout = self.layout  # streams have no hooks: to look for them takes time
        if layout is not None:
            return layout(x, relu, plus, norm)
        y: Tensor = super().__call__(x if norm is None else norm.forward(x))
        if relu:
            y = y.relu()
        return y if plus is None else y + plus


class Joint(nn.Module):
    """Linear layers of other modules that share their input."""

    layout: Layout | None = None

    def __init__(self, *linears: Linear) -> None:
        super().__init__()
        self.linears = linears  # a tuple: they stay submodules of their owners alone

    def forward(self, x: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
        """Their outputs, side by side."""
        if self.layout is not None:
            return self.layout(x, norm=norm)
        return torch.cat(list(self.each(x if norm is None else norm.forward(x))), -1)

    def each(self, x: Tensor) -> Iterator[Tensor]:
        """Their outputs, one after the other."""
        return (linear(x) for linear in self.linears)


def lay_out(model: nn.Module, make: MakeLayout | None) -> None:
    """Give all linear layers of a model their layout, or take it away."""
    for module in model.modules():
        if isinstance(module, Joint):
            module.layout = None if make is None else make(module.linears)
        elif isinstance(module, Linear):
            module.layout = None if make is None else make([module])


def choose_layout(weight: Tensor, quantize: str | None) -> MakeLayout:
    """The fastest layout for a model with weights like this one."""
    pages = Pages()
    ours = weight.device.type == "cpu" and weight.dtype == torch.float32
    if quantize is None:
        plain: MakeLayout = partial(Packed, pages=pages) if ours and has_tiles() else Joined
        return partial(Tiled, pages=pages) if ours and kernels.find() else plain
    if quantize != "int8":
        raise ValueError(f'quantize = {quantize!r}: "int8" is all there is')
    if weight.device.type != "cpu":
        raise ValueError(f'quantize = "int8" is for a CPU; this model is on {weight.device}')
    if torch.backends.quantized.engine == "none":
        raise ValueError('quantize = "int8": this build of PyTorch has no quantised kernels')
    return partial(Tiled, pages=pages, int8=True) if ours and kernels.find() else Int8


class Joined(Layout):
    """The weights in one matrix."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self.weight, self.bias = _join(linears)

    def multiply(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Packed(Layout):
    """float32 on a CPU: one layout for a row or two, one for more, each made when first needed."""

    BLOCKS = 4
    FEW = 2

    def __init__(self, linears: Sequence[nn.Linear], pages: Pages) -> None:
        self.linears, self.pages = linears, pages
        self.outputs = sum(linear.out_features for linear in linears)
        self.inputs = linears[0].in_features
        self.blocks: Tensor | None = None  # [BLOCKS, N / BLOCKS, K], for few rows
        self.block_bias: Tensor | None = None
        self.tiles: Tensor | None = None  # oneDNN's own, for more
        self.bias: Tensor | None = None

    def multiply(self, x: Tensor) -> Tensor:
        rows = x.numel() // self.inputs
        if rows > self.FEW:
            if self.tiles is None:
                self._make_tiles()
            return torch.ops.mkldnn._linear_pointwise.default(
                x.contiguous(), self.tiles, self.bias, "none", [], ""
            )
        if self.blocks is None:
            self._make_blocks()
            assert self.blocks is not None
        # A batch of matrix-vector products, with x as columns: BLAS then reads the weights as fast
        # as memory delivers them, more than twice as fast as F.linear.
        x = x.contiguous()
        columns = x.as_strided((self.BLOCKS, self.inputs, rows), (0, 1, self.inputs))
        if self.block_bias is None:
            y = torch.bmm(self.blocks, columns)
        else:
            y = torch.baddbmm(self.block_bias, self.blocks, columns)
        if rows > 1:
            y = y.view(-1, rows).t()
        elif y.numel() == self.outputs:
            return y.view(*x.shape[:-1], self.outputs)
        return y.reshape(rows, -1)[:, : self.outputs].reshape(*x.shape[:-1], self.outputs)

    def _make_tiles(self) -> None:
        weight, self.bias = _join(self.linears)
        self.tiles = torch.ops.mkldnn._reorder_linear_weight.default(weight.contiguous(), 32)

    def _make_blocks(self) -> None:
        weight, bias = _join(self.linears)
        more = -self.outputs % self.BLOCKS  # rows of zeros that fill the last block
        weight = self.pages.put(F.pad(weight, (0, 0, 0, more)))
        self.blocks = weight.view(self.BLOCKS, -1, self.inputs)
        if bias is not None:
            self.block_bias = F.pad(bias, (0, more)).view(self.BLOCKS, -1, 1)


@cache
def has_tiles() -> bool:
    """Whether oneDNN's layouts are there and right: PyTorch keeps them to itself."""
    try:
        weight, x = torch.eye(3, 5), torch.arange(15.0).view(3, 5)
        tiles = torch.ops.mkldnn._reorder_linear_weight.default(weight, 32)
        y = torch.ops.mkldnn._linear_pointwise.default(x, tiles, None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.equal(y, x[:, :3])


class Int8(Layout):
    """int8 weights, a scale for each output, and int8 inputs, a scale for each row.

    A row gives the same numbers, to the last bit, whatever other rows are there: its scale is its
    own and a power of two, which is exact wherever it is multiplied in, sums of integers are exact,
    and what else is done in float32 is done number by number.
    """

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        weight, self.bias = _join(linears)
        self.inputs = weight.shape[1]
        rounded, scales = round_weight(weight)
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with warnings.catch_warnings():
            # quantised tensors are to leave PyTorch one day; nothing that stays is as fast
            warnings.simplefilter("ignore")
            quantized = torch._make_per_channel_quantized_tensor(rounded, scales.double(), zeros, 0)
            self.packed = torch.ops.quantized.linear_prepack(quantized, None)
        self.levels = 255 if has_vnni() else 127  # of the inputs
        operation = given_range() or torch.ops.quantized.linear_dynamic.default
        # without the look, at each call, whether Python code wants to stand in for it
        self.product = getattr(operation, "_op", operation)
        self.range: Tensor | None = None
        self.step, self.zero = 2 / self.levels, (self.levels + 1) // 2  # levels from -1 to 1
        if given_range() is None:
            # The library takes the range of all rows: one more row makes it [-1, 1].
            self.range = torch.ones(1, self.inputs)
            self.range[0, 0] = -1
        elif getattr(linears[0], "positive", False):
            self.step, self.zero = 1 / self.levels, 0  # from 0 to 1

    def multiply(self, x: Tensor) -> Tensor:
        if x.numel() == self.inputs and self.range is None:
            if self.zero:
                low, high = torch.aminmax(x)
                size = max(high.item(), -low.item())
            else:
                size = x.max().item()
            scale = math.ldexp(self.step, math.frexp(size)[1])
            y = self.product(x, scale, self.zero, self.packed)
            return y if self.bias is None else y.add_(self.bias)
        # the power of two above the largest number: its exponent's bits, and one more
        largest = (x.abs() if self.zero else x).amax(-1, True)
        bits = largest.view(torch.int32).bitwise_and_(EXPONENT).add_(1 << 23)
        scales = bits.view(torch.float32)
        rows = x / scales
        if self.range is None:
            y = self.product(rows, self.step, self.zero, self.packed)
        else:
            rows = torch.cat([rows.view(-1, self.inputs), self.range])
            y = self.product(rows, self.packed, self.levels < 255)[:-1].view(*x.shape[:-1], -1)
        return y.mul_(scales) if self.bias is None else torch.addcmul(self.bias, y, scales, out=y)


@cache
def given_range() -> Callable[..., Tensor] | None:
    """The library's product that is told the range of its inputs, if it is there and right."""
    try:
        operation = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weight = torch.quantize_per_tensor(torch.eye(8), 1.0, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(weight, None)
        x = torch.arange(-4.0, 4.0)[None]
        right = torch.equal(operation(x + 0.25, 1.0, 64, packed), x)
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    found: Callable[..., Tensor] = operation
    return found if right else None


Ready = tuple[Callable[..., None], int, kernels.Layer, dict[str, Tensor]]


class Tiled(Layout):
    """Laid out for kernels.c when first needed.

    A row gives the same numbers, to the last bit, whatever other rows are there, and on any number
    of threads.
    """

    OUTPUTS = 64  # side by side

    def __init__(self, linears: Sequence[nn.Linear], pages: Pages, int8: bool = False) -> None:
        self.linears, self.pages, self.int8 = linears, pages, int8
        self.inputs = linears[0].in_features
        self.outputs = sum(linear.out_features for linear in linears)
        self.ready: Ready | None = None

    def __call__(
        self,
        x: Tensor,
        relu: bool = False,
        plus: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        if x.dtype is not torch.float32 or not x.is_cpu:
            raise TypeError(f"{x.dtype} on {x.device}: the model was prepared for float32 on a CPU")
        call, address, *_ = self.ready or self._lay_out()
        x = x.contiguous()
        if plus is None:
            y = x.new_empty(*x.shape[:-1], self.outputs)
        else:
            plus = plus.contiguous()
            y = torch.empty_like(plus)
        call(
            address,
            x.data_ptr(),
            x.numel() // self.inputs,
            None if norm is None else norm.weight.data_ptr(),
            None if norm is None else norm.bias.data_ptr(),
            0.0 if norm is None else norm.eps,
            relu,
            None if plus is None else plus.data_ptr(),
            y.data_ptr(),
            torch.get_num_threads(),
        )
        return y

    multiply = __call__

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"ready": None}  # a copy has addresses of its own

    def _lay_out(self) -> Ready:
        weight, bias = _join(self.linears)
        kept: dict[str, Tensor] = {} if bias is None else {"bias": bias.contiguous()}
        together, step, zero = 1, 0.0, 0  # inputs that share a step of the product
        if self.int8:
            weight, scales = round_weight(weight)
            step, zero = levels_of(self.linears[0])
            kept |= {"scales": scales, "offsets": weight.sum(1, dtype=torch.int32) * zero}
            together = 4
        weight = F.pad(weight, (0, -self.inputs % together, 0, -self.outputs % self.OUTPUTS))
        weight = weight.view(-1, self.OUTPUTS, weight.shape[1] // together, together)
        kept["weight"] = self.pages.put(weight.transpose(1, 2))
        layer = kernels.Layer(
            self.inputs, self.outputs, step=step, zero=zero,
            **{name: tensor.data_ptr() for name, tensor in kept.items()},
        )  # fmt: skip
        # in one step: another thread may do the same
        self.ready = kernels.function("linear"), ctypes.addressof(layer), layer, kept
        return self.ready


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [N, K], and the scale of each output [N]."""
    scales = (weight.abs().amax(1) / 127).clamp(min=1e-12)
    rounded = (weight * (1 / scales)[:, None]).round().clamp(-128, 127).to(torch.int8)
    return rounded, scales


def levels_of(linear: nn.Linear) -> tuple[float, int]:
    """The step between the levels of inputs from -1 to 1, or from 0 on, and the level of zero."""
    if getattr(linear, "positive", False):
        return 1 / 255, 0
    return 2 / 255, 128


def _join(linears: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weights [N, K] and biases [N], without a copy of a single module's."""
    weights = [linear.weight.detach() for linear in linears]
    if len(linears) == 1:
        bias = linears[0].bias
        return weights[0], None if bias is None else bias.detach()
    biases = [
        w.new_zeros(len(w)) if linear.bias is None else linear.bias.detach()
        for linear, w in zip(linears, weights, strict=True)
    ]
    return torch.cat(weights), torch.cat(biases)
