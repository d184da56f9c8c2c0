"""Kernel launches that torch.compile sees as one operation each.

Block sizes and warps depend on a shape, which is a symbol while it traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.library import custom_op

Launch = TypeVar("Launch", bound=Callable[..., Any])


def opaque(name: str, like: Callable[..., Any]) -> Callable[[Launch], Launch]:
    """Make a function an operation; `like` gives, for its arguments, tensors like its results.

    Outside of torch.compile the function itself is called, which saves the dispatch.
    """

    def wrap(launch: Launch) -> Launch:
        operation = custom_op(f"simultan::{name}", launch, mutates_args=())
        operation.register_fake(like)

        def run(*arguments: Any) -> Any:
            return (operation if torch.compiler.is_compiling() else launch)(*arguments)

        return run  # type: ignore[return-value]

    return wrap
