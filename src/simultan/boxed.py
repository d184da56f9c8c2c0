"""Models that come in the box: found by name in an installed package or in a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["default", "names", "resolve"]

DEFAULT = "de-en"
_HERE = Path(__file__).resolve().parent
BOXES = _HERE / "models", _HERE.parents[1] / "models"  # of a wheel; of a checkout
_MARK = "weights.safetensors"


def _folders() -> dict[str, Path]:
    """Every boxed model by its name; an installed one comes first."""
    found: dict[str, Path] = {}
    for box in BOXES:
        for mark in sorted(box.glob(f"*/{_MARK}")):
            found.setdefault(mark.parent.name, mark.parent)
    return found


def names() -> list[str]:
    """The models of this installation."""
    return sorted(_folders())


def default() -> str:
    """The model to take when none is named; empty where none is in the box."""
    return DEFAULT if DEFAULT in _folders() else ""


def resolve(name: str | Path) -> Path:
    """The folder of a model: one that is there, or the boxed one of this name."""
    path = Path(name)
    if (path / _MARK).exists():
        return path
    boxed = _folders()
    if str(name) in boxed:
        return boxed[str(name)]
    if path.exists() or len(path.parts) != 1:
        return path  # whoever opens it says what is missing
    known = f"known names: {', '.join(boxed)}" if boxed else "this installation has none by name"
    raise FileNotFoundError(f"{name}: neither a model's folder nor a model's name; {known}")
