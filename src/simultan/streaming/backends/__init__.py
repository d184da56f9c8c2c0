"""Backends: offline models behind agents."""

from simultan.streaming.backends.protocol import Backend, OfflineModel, RewindingBackend

__all__ = ["Backend", "OfflineModel", "RewindingBackend"]
