"""Compiled code in a file, for other processes and machines of the same kind.

What torch.compile makes is kept in a folder of the machine anyway; a fresh machine begins
without it. PyTorch passes over what was made for another device, and may stumble over what
another version made: that is left out. It knows nothing of kernels that are written in Triton by
hand, so that these are added to its file.

A process may save several times, as it comes to new kinds of model: each time adds a part to the
file. PyTorch itself would append to what it gave before, and of such a list it reads the last part
alone; so it is told to forget what has been saved.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
import zipfile
import zlib
from pathlib import Path

import torch

from simultan import atomic

COMPILED = "torch"  # how members begin that PyTorch made; all others are Triton's
GROUP = "__grp__"  # files that list others by their full paths
_taken: set[str] = set()  # what PyTorch was given or has given, in this process
_unsaved: dict[str, bytes | Path] = {}  # what it has given and no file has yet


def load(path: str | Path) -> bool:
    """Take over compiled code; False: there is no such file, everything is compiled here."""
    try:
        return _load(Path(path))
    except Exception as error:  # it only saves time
        warnings.warn(f"compiled code was not taken over: {error}", stacklevel=2)
        return False


def _load(path: Path) -> bool:
    kernels, found = _kernels(), False
    names = _members(path)
    if not names:
        return False
    with zipfile.ZipFile(path) as archive:
        for name in names:
            if name.startswith(COMPILED):
                try:
                    info = torch.compiler.load_cache_artifacts(archive.read(name))
                except Exception:  # whatever another version's pickles lack here
                    continue
                _taken.update(_names(info))
                found |= info is not None
            elif not (kernels / name).exists():
                _move_group(Path(archive.extract(name, kernels)))
    return found


def save(path: str | Path) -> None:
    """Add what this process has compiled to a file, which keeps what it has.

    Whatever goes wrong here is no reason to lose the run whose code would have been kept. Of
    processes that save at the same moment the last one wins: what others had is compiled again.
    """
    try:
        _save(Path(path))
    except Exception as error:  # of the disk, or of PyTorch, whose versions differ here
        warnings.warn(f"compiled code was not kept: {error}", stacklevel=2)


def _members(path: Path) -> list[str]:
    """What a file holds; nothing, if it is not there or was damaged on its way."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [] if archive.testzip() else archive.namelist()
    except (OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return []


def _save(path: Path) -> None:
    _unsaved.update(_new_part())
    parts, kernels = dict(_unsaved), _kernels()
    known = set(_members(path))
    for folder in sorted(kernels.iterdir()) if kernels.is_dir() else []:
        files = sorted(file for file in folder.iterdir() if file.is_file())
        # the compiler names its kernels so, and its part has them
        if not any(file.name.startswith("triton_") for file in files):
            parts |= {f"{folder.name}/{file.name}": file for file in files}
    parts = {name: part for name, part in parts.items() if name not in known}
    if not any(name.startswith(COMPILED) for name in {*known, *parts}) or not parts:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.place(path) as partial:
        if known:
            shutil.copyfile(path, partial)
        with zipfile.ZipFile(partial, "a" if known else "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in parts.items():
                archive.writestr(name, part.read_bytes() if isinstance(part, Path) else part)
    _unsaved.clear()


def _new_part() -> dict[str, bytes | Path]:
    """What PyTorch has compiled since it was last asked, as a member of the file, or nothing."""
    from torch.compiler._cache import CacheArtifactManager  # slow to import

    found = torch.compiler.save_cache_artifacts()
    CacheArtifactManager.clear()
    names = set() if found is None else _names(found[1])
    if found is None or names <= _taken:  # found in the file of before, not compiled here
        return {}
    _taken.update(names)
    return {f"{COMPILED}-{hashlib.sha256(found[0]).hexdigest()[:16]}": found[0]}


def _names(info: object) -> set[str]:
    """What a part holds: kinds of code and the keys by which PyTorch finds it."""
    kinds: dict[str, list[str]] = getattr(info, "artifacts", {})
    return {f"{kind}/{key}" for kind, keys in kinds.items() for key in keys}


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
