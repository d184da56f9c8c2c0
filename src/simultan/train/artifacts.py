"""Compiled code in a file, for other processes and machines of the same kind.

What torch.compile makes is kept in a folder of the machine anyway; a fresh machine begins
without it. PyTorch passes over what was made by another version or for another device.
"""

from __future__ import annotations

from pathlib import Path

import torch


def load(path: str | Path) -> bool:
    """Take over compiled code; False: there is no such file, everything is compiled here."""
    path = Path(path)
    if not path.is_file():
        return False
    return torch.compiler.load_cache_artifacts(path.read_bytes()) is not None


def save(path: str | Path) -> None:
    """Write what this process has compiled or taken over; nothing, if that is nothing."""
    found = torch.compiler.save_cache_artifacts()
    if found is not None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(found[0])
        partial.replace(path)
