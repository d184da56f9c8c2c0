"""The largest logit without all logits: int8 says which few can be the largest, exactly.

    |x.w - x'.w'| <= |x - x'| |w| + |x'| |w - w'|
for x' and w' as int8 rounds them. What lies below the largest x'.w' by more than twice that
cannot be the largest x.w; what remains, mostly a single one, is computed in full.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn

from simultan.model.maps import Int8

__all__ = ["Screen", "screen_of"]

MANY = 500  # candidates of a row: better all logits
SLACK = 1e-4  # of the bound: for sums in float32
LARGE = 2_000  # logits: with fewer, to compute them is no work


class Screen:
    """For float32 on a CPU; keeps the weights as int8 beside them."""

    def __init__(self, linear: nn.Linear) -> None:
        """Of a map without bias. ValueError: int8 products round in a way unknown here."""
        self.int8, self.weight = Int8(linear), linear.weight.detach()
        rounded = Int8.round(self.weight).dequantize()
        self.size = float(self.weight.norm(dim=1).max())  # of the largest w
        self.lost = float((self.weight - rounded).norm(dim=1).max())  # of w - w', at most
        self.steps = 63.5 if self.int8.reduce_range else 127.5  # from 0 to 1
        # a little beside what int8 can say: it has to go to the nearest
        said = torch.arange(4 * self.weight.shape[1]).view(4, -1) * 37 % 101 - 50
        near = (said + 0.25 * (said % 2 * 2 - 1)) / self.steps
        error = (self._products(near) - said / self.steps @ rounded.T).abs().max()
        if error > SLACK * self.size:
            raise ValueError("int8 products round in a way unknown here")

    def __call__(self, x: Tensor, first: int) -> list[int] | None:
        """The column of the largest logit of each row x [R, K], from `first` on.

        None: too many are close to one another.
        """
        u = x / x.abs().amax(1, keepdim=True).clamp_(min=1e-12)  # a factor changes no order
        near = self._products(u)[:, first:].numpy()
        rounded = self._round(u)
        bound = (u - rounded).norm(dim=1) * self.size
        bound += rounded.norm(dim=1) * (self.lost + SLACK * self.size)
        columns, every = near.argmax(1), np.arange(len(x))
        least = near[every, columns] - 2 * bound.numpy()
        near[every, columns] = -np.inf  # so that the second is the largest
        for row in np.flatnonzero(near.max(1) >= least):
            others = np.flatnonzero(near[row] >= least[row])
            if len(others) > MANY:
                return None
            close = np.sort(np.append(others, columns[row]))  # of equals the first, as argmax
            exact = self.weight[torch.from_numpy(close) + first] @ x[row]
            columns[row] = close[int(exact.argmax())]
        chosen: list[int] = (columns + first).tolist()
        return chosen

    def _products(self, u: Tensor) -> Tensor:
        """x'.w' [R, N] for rows in [-1, 1]; one more row fixes that range."""
        rows = torch.cat([u, self.int8.range])
        products: Tensor = torch.ops.quantized.linear_dynamic.default(
            rows, self.int8.many, self.int8.reduce_range
        )[:-1]
        return products

    def _round(self, u: Tensor) -> Tensor:
        """x' as the library has it: zero is a step, of which there are an even number."""
        zero = self.steps - 0.5
        steps = torch.round(u * self.steps + zero).clamp_(0, 2 * zero + 1)
        return (steps - zero) / self.steps


def screen_of(linear: nn.Linear) -> Screen | None:
    """A screen where it is of use and known to be right."""
    known = torch.backends.quantized.engine in ("x86", "fbgemm", "onednn")
    if not known or linear.out_features < LARGE:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as for Int8
        try:
            return Screen(linear)
        except ValueError:
            return None
