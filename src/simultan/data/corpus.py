"""Parallel text -> a prepared folder: vocabularies and memory-mapped shards."""

from __future__ import annotations

from simultan.data.codec import Codec, load_codec

__all__ = ["Codec", "load_codec"]
