"""Simultaneous machine translation: train it, measure it, run it live."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simultan.ops import expected_alignment, expected_attention
    from simultan.streaming.decoding import Decoding
    from simultan.streaming.session import Session
    from simultan.streaming.translator import load

    __version__: str

__all__ = [
    "Decoding",
    "Session",
    "__version__",
    "expected_alignment",
    "expected_attention",
    "load",
]

_HOMES = {
    "Decoding": "simultan.streaming.decoding",
    "Session": "simultan.streaming.session",
    "expected_alignment": "simultan.ops",
    "expected_attention": "simultan.ops",
    "load": "simultan.streaming.translator",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import simultan` is quick."""
    import importlib
    import importlib.metadata

    if name == "__version__":
        value: Any = importlib.metadata.version("simultan")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'simultan' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
