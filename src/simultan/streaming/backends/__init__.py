"""Backends: offline models behind agents."""

from simultan.streaming.backends.protocol import Backend, OfflineModel

__all__ = ["Backend", "OfflineModel"]
