"""Memory in large pieces, with huge pages where the system has them (Linux).

A token reads every weight once; with small pages a tenth of its time goes into finding them, and
clearing a cache of many rows takes as long as translating with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import mmap
import weakref

import torch
from torch import Tensor

__all__ = ["Slabs", "keep", "zeros"]

_LARGE = 2**22  # bytes
_SLAB = 2**25
_LINE = 64  # a cache line
_KEPT = 4  # a session has four caches
_free: list[mmap.mmap] = []


def _bytes(size: int) -> Tensor:
    """Cleared memory, as bytes."""
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(size, dtype=torch.uint8)
    for pages in list(_free):
        if size <= len(pages) <= 2 * size:
            with contextlib.suppress(ValueError):  # another thread was faster
                _free.remove(pages)
                return _lend(pages)[:size].zero_()
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return _lend(pages)


def _lend(pages: mmap.mmap) -> Tensor:
    """The pages as bytes; they come back when the last tensor that lies in them goes."""
    view = memoryview(pages)
    weakref.finalize(view, _give_back, pages)
    return torch.frombuffer(view, dtype=torch.uint8)


def _give_back(pages: mmap.mmap) -> None:
    """Keep a few for the next session: to get new pages takes longer than to clear old ones."""
    if len(_free) < _KEPT:
        _free.append(pages)


def zeros(*shape: int, like: Tensor) -> Tensor:
    """A tensor of zeros of the same type and on the same device as another."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    return _bytes(math.prod(shape) * like.element_size()).view(like.dtype).view(shape)


def keep() -> None:
    """Let this process keep what it frees, up to 256 MiB (glibc), and what it has loaded.

    Else every large intermediate result is new memory, to be cleared by the system first, and
    the garbage collector goes through all modules now and then. This is for programs, not for a
    library: it holds for all the process does.
    """
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-1, 2**28)  # M_TRIM_THRESHOLD
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: the most there is


class Slabs:
    """Room for many matrices."""

    def __init__(self) -> None:
        self.rest = _bytes(0)

    def put(self, matrix: Tensor) -> Tensor:
        """A copy of a matrix."""
        size = matrix.numel() * matrix.element_size()
        if size > len(self.rest):
            self.rest = _bytes(max(_SLAB, size))
        copy = self.rest[:size].view(matrix.dtype).view(matrix.shape).copy_(matrix)
        self.rest = self.rest[-(-size // _LINE) * _LINE :]
        return copy
