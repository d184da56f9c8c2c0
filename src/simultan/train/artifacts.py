"""Compiled code in a file, for other processes and machines of the same kind.

What torch.compile makes is kept in a folder of the machine anyway; a fresh machine begins
without it. PyTorch passes over what was made by another version or for another device. It knows
nothing of kernels that are written in Triton by hand, so that these are added to its file.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import torch

COMPILED = "torch"  # the member with what PyTorch keeps; all others are Triton's
GROUP = "__grp__"  # files that list others by their full paths


def load(path: str | Path) -> bool:
    """Take over compiled code; False: there is no such file, everything is compiled here."""
    path, kernels = Path(path), _kernels()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name != COMPILED and not (kernels / name).exists():
                _move_group(Path(archive.extract(name, kernels)))
        found = archive.read(COMPILED) if COMPILED in archive.namelist() else b""
    return bool(found) and torch.compiler.load_cache_artifacts(found) is not None


def save(path: str | Path) -> None:
    """Write what this process has compiled or taken over; nothing, if that is nothing."""
    found, kernels = torch.compiler.save_cache_artifacts(), _kernels()
    if found is None:
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(COMPILED, found[0])
        for folder in sorted(kernels.iterdir()) if kernels.is_dir() else []:
            files = sorted(file for file in folder.iterdir() if file.is_file())
            # the compiler names its kernels so, and its file has them
            if not any(file.name.startswith("triton_") for file in files):
                for file in files:
                    archive.write(file, f"{folder.name}/{file.name}")
    partial.replace(path)


def _kernels() -> Path:
    """Where Triton keeps kernels: the compiler's and those written by hand in one folder."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir  # slow to import

    return Path(os.environ.setdefault("TRITON_CACHE_DIR", triton_cache_dir(0)))


def _move_group(file: Path) -> None:
    """Full paths of the machine where it was made become those of this one."""
    if file.name.startswith(GROUP):
        listed = json.loads(file.read_text(encoding="utf-8"))["child_paths"]
        moved = {name: str(file.parent / Path(place).name) for name, place in listed.items()}
        file.write_text(json.dumps({"child_paths": moved}), encoding="utf-8")
