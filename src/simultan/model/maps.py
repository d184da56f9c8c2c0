"""Linear maps as streams call them: the modules themselves, or their weights laid out for speed.

y = x W^T + b for x [R, K]; modules that share x can be one map, their outputs side by side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.model.memory import Slabs

__all__ = ["Int8", "Joined", "Make", "Map", "Mapped", "Packed", "Plain", "maker"]


class Map(Protocol):
    """x [R, K] -> [R, N]"""

    linears: tuple[nn.Linear, ...]

    def __call__(self, x: Tensor) -> Tensor: ...

    def relu(self, x: Tensor) -> Tensor:
        """What is positive of the map."""
        return self(x).relu_()

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The map, and a residual [R, N]."""
        return self(x).add_(other)

    def part(self, index: int, x: Tensor) -> Tensor:
        """The output of one of the modules."""
        return self(x).split([linear.out_features for linear in self.linears], -1)[index]

    def parts(self, x: Tensor) -> Iterator[Tensor]:
        """The output of each module, one after the other."""
        return iter(self(x).split([linear.out_features for linear in self.linears], -1))


Make = Callable[..., Map]  # of the nn.Linear modules that become one map


class Mapped:
    """A module that calls some of its linear maps one target token at a time."""

    def lay_out(self, make: Make) -> None:
        """Make the maps anew."""
        raise NotImplementedError


class Plain(Map):
    """The modules as they are: it follows their weights wherever they go."""

    def __init__(self, *linears: nn.Linear) -> None:
        self.linears = linears

    def __call__(self, x: Tensor) -> Tensor:
        parts = [F.linear(x, linear.weight, linear.bias) for linear in self.linears]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class Joined(Map):
    """A copy of the weights, in one matrix."""

    def __init__(self, *linears: nn.Linear) -> None:
        self.linears = linears
        self.weight, self.bias = _join(linears)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Packed(Map):
    """float32 on a CPU: one layout for a single row, one for several, made when first needed."""

    BLOCKS = 4

    def __init__(self, *linears: nn.Linear, slabs: Slabs) -> None:
        self.linears, self.slabs = linears, slabs
        weight, self.bias = _join(linears)
        self.outputs, self.inputs = weight.shape
        self.more = -self.outputs % self.BLOCKS  # rows of zeros that fill the last block
        self.shape = self.BLOCKS, self.inputs, 1
        self.strides = 0, 1, self.inputs
        self.rows: Tensor | None = None  # [BLOCKS, N / BLOCKS, K], for one row
        self.row_bias: Tensor | None = None
        self.tiles: Tensor | None = None  # oneDNN's own, for several
        self.single: list[Packed] = []  # each module on its own

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] != 1:
            return self._several(x)
        if self.rows is None:
            self._lay_out_rows()
            assert self.rows is not None
        # A batch of matrix-vector products, with x as a column of a matrix of width K: BLAS then
        # reads the weights as fast as memory delivers them, more than twice as fast as F.linear.
        column = x.as_strided(self.shape, self.strides)
        if self.row_bias is None:
            y = torch.bmm(self.rows, column).view(1, -1)
        else:
            y = torch.baddbmm(self.row_bias, self.rows, column).view(1, -1)
        return y[:, : self.outputs] if self.more else y

    def relu(self, x: Tensor) -> Tensor:
        return self._several(x, "relu") if x.shape[0] != 1 else self(x).relu_()

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return self(x).add_(other)
        return torch.ops.mkldnn._linear_pointwise.binary(
            x.contiguous(), other.contiguous(), self._tiles(), self.bias, "add"
        )

    def part(self, index: int, x: Tensor) -> Tensor:
        if not self.single:
            self.single = [Packed(linear, slabs=self.slabs) for linear in self.linears]
        return self.single[index](x)

    def parts(self, x: Tensor) -> Iterator[Tensor]:
        return (self.part(index, x) for index in range(len(self.linears)))

    def _several(self, x: Tensor, then: str = "none") -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(
            x.contiguous(), self._tiles(), self.bias, then, [], ""
        )

    def _tiles(self) -> Tensor:
        if self.tiles is None:
            weight = _join(self.linears)[0].contiguous()
            self.tiles = torch.ops.mkldnn._reorder_linear_weight.default(weight, 32)
        return self.tiles

    def _lay_out_rows(self) -> None:
        weight = F.pad(_join(self.linears)[0], (0, 0, 0, self.more))
        self.rows = self.slabs.put(weight).view(self.BLOCKS, -1, self.inputs)
        if self.bias is not None:
            self.row_bias = F.pad(self.bias, (0, self.more)).view(self.BLOCKS, -1, 1)


class Int8(Map):
    """int8 weights, a scale for each output; activations are rounded as they come."""

    def __init__(self, *linears: nn.Linear) -> None:
        self.linears = linears
        weight, self.bias = _join(linears)
        with warnings.catch_warnings():
            # quantised tensors are to leave PyTorch one day; nothing that stays is as fast
            warnings.simplefilter("ignore")
            whole = self.round(weight)
            self.one = torch.ops.quantized.linear_prepack(whole, self.bias)
            self.many = torch.ops.quantized.linear_prepack(whole, None)
        # without VNNI instructions pairs of products are summed in 16 bits: leave them room
        self.reduce_range = not torch.cpu._is_vnni_supported()
        self.range = torch.ones(1, weight.shape[1])
        self.range[0, 0] = -1

    @staticmethod
    def round(weight: Tensor) -> Tensor:
        """The weights as they are kept, a quantised tensor."""
        scales = (weight.abs().amax(1) / 127).clamp(min=1e-12)
        zeros = torch.zeros(len(scales), dtype=torch.long)
        return torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return torch.ops.quantized.linear_dynamic.default(x, self.one, self.reduce_range)
        # The library has one range for all rows. A row must not depend on its neighbours, least
        # of all on later tokens: each is brought to [-1, 1], and one more row fixes that range.
        scale = x.abs().amax(1, keepdim=True).clamp_(min=1e-12)
        y = torch.ops.quantized.linear_dynamic.default(
            torch.cat([x / scale, self.range]), self.many, self.reduce_range
        )[:-1].mul_(scale)
        return y if self.bias is None else y.add_(self.bias)


def maker(weight: Tensor, quantize: str | None) -> Make:
    """The fastest layout for a model with weights like this one."""
    if quantize is None:
        ours = weight.device.type == "cpu" and weight.dtype == torch.float32
        if not ours or not torch.backends.mkldnn.is_available():
            return Joined
        return partial(Packed, slabs=Slabs())
    if quantize != "int8":
        raise ValueError(f'quantize = {quantize!r}: "int8" is all there is')
    if weight.device.type != "cpu":
        raise ValueError(f'quantize = "int8" is for a CPU; this model is on {weight.device}')
    if torch.backends.quantized.engine == "none":
        raise ValueError('quantize = "int8": this build of PyTorch has no quantised kernels')
    return Int8


def _join(linears: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor | None]:
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
