"""Models found by name: those that come with the package or a checkout, and those on the hub."""

from __future__ import annotations

from pathlib import Path

from simultan import hub

DEFAULT = "de-en"
_HERE = Path(__file__).resolve().parent
BOXES = _HERE / "models", _HERE.parents[1] / "models"  # in a wheel; in a checkout
_MARK = "weights.safetensors"


def _folders() -> dict[str, Path]:
    """The models in the box by name; those of an installed package come first."""
    found: dict[str, Path] = {}
    for box in BOXES:
        for mark in sorted(box.glob(f"*/{_MARK}")):
            found.setdefault(mark.parent.name, mark.parent)
    return found


def default() -> str:
    """The name of the model to use when none is named."""
    if DEFAULT not in _folders():
        raise ValueError("which model? `make toy-demo` trains one: runs/toy/mma-il/final")
    return DEFAULT


def resolve(name: str | Path) -> Path:
    """The folder of a model: the path itself, the model in the box with this name, or one of the
    hub (`hf:OWNER/NAME`), which is downloaded if need be."""
    if hub.is_named(name):
        return hub.fetch(str(name))
    path = Path(name)
    if (path / _MARK).exists():
        return path
    boxed = _folders()
    if str(name) in boxed:
        return boxed[str(name)]
    if path.exists() or len(path.parts) != 1:
        return path  # the error of whoever opens it says what is missing
    known = f"known names: {', '.join(boxed)}" if boxed else "there is no model in the box"
    raise FileNotFoundError(f"{name}: neither a model's folder nor a model's name; {known}")
