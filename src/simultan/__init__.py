"""Simultaneous machine translation: train it, measure it, run it live."""

from typing import Any

__all__ = ["Session", "expected_alignment", "expected_attention", "load"]

_HOMES = {
    "load": "simultan.streaming.translator",
    "Session": "simultan.streaming.session",
    "expected_alignment": "simultan.ops",
    "expected_attention": "simultan.ops",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first asked for: `import simultan` is quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'simultan' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
