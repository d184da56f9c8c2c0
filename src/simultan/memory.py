"""How a program that translates for long keeps its memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def keep() -> None:
    """Let this process keep what it frees, up to 256 MiB (glibc), and what it has loaded.

    Otherwise every large intermediate result is new memory, which the system has to clear first,
    and the garbage collector visits all modules now and then. This is for programs, not for a
    library: it holds for all that the process does.
    """
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-1, 2**28)  # M_TRIM_THRESHOLD
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: the most there is
