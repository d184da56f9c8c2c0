"""Backends: offline models behind agents; ours, and those of other systems by their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simultan import boxed, hub
from simultan.streaming.backends.names import Name
from simultan.streaming.backends.protocol import Backend, OfflineModel

if TYPE_CHECKING:
    import torch

    from simultan.data.codec import Codec

__all__ = ["Backend", "OfflineModel", "locate", "open_foreign"]


def locate(name: str | Path) -> tuple[Path, Name | None]:
    """The folder of a model and, if it is not one of ours, what was said about it."""
    given = Name.parse(name) if isinstance(name, str) else None
    if given is None:
        folder = boxed.resolve(name)
        kind = _kind_of(folder)
        return folder, None if kind is None else Name(kind, str(folder))
    folder = Path(given.place)
    if not folder.is_dir():
        if given.kind == "ct2":
            raise FileNotFoundError(f"{given}: no such folder")
        folder = hub.fetch(str(given), pickled=given.trusts_pickles)
    kind = _kind_of(folder)
    if kind is None and given.kind == "hf":
        return folder, None
    if kind != given.kind:
        files = "model.bin" if given.kind == "ct2" else "config.json with a model_type"
        raise ValueError(f"{given}: no such model; it has no {files}")
    return folder, given


def _kind_of(folder: Path) -> Literal["hf", "ct2"] | None:
    """Whose folder this is; None for ours, or for none."""
    if (folder / "config.toml").exists() or not (folder / "config.json").exists():
        return None
    return "ct2" if (folder / "model.bin").exists() else "hf"


def open_foreign(
    name: Name, folder: Path, device: torch.device, quantize: str | None
) -> tuple[OfflineModel, Codec]:
    """Load a model of another system."""
    if name.kind == "ct2":
        from simultan.streaming.backends import ctranslate

        return ctranslate.load(name, folder, device, quantize)
    from simultan.streaming.backends import huggingface

    if quantize is not None:
        raise ValueError(
            f"{name}: transformers has no {quantize} here; convert the model for CTranslate2 and"
            " load it with ct2:"
        )
    return huggingface.load(name, folder, device)
