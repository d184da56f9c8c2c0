"""Files in small pieces, for a machine that takes and gives only so much at a time.

    python recipes/de-en/second/carry.py pack OUT/NAME PATH ... --piece 15
    python recipes/de-en/second/carry.py unpack OUT/NAME --into FOLDER

pack writes OUT/NAME.tar.xz.00, .01, ...: `cat` of them is a tar in xz, which any tool reads. It
is compressed by all cores, each a part of its own.
"""

from __future__ import annotations

import argparse
import io
import lzma
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

MIB = 2**20
CHUNK = 16 * MIB  # bytes that one core compresses at a time
MAGIC = b"\xfd7zXZ\0"  # how a stream of xz begins


class _Chunks(io.RawIOBase):
    """Collects what a tar writes."""

    def __init__(self, size: int) -> None:
        self.size, self.waiting, self.full = size, bytearray(), list[bytes]()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.waiting += data
        while len(self.waiting) >= self.size:
            self.full.append(bytes(self.waiting[: self.size]))
            del self.waiting[: self.size]
        return len(data)


def _chunks(paths: Sequence[Path], size: int) -> Iterator[bytes]:
    """A tar of the paths, some megabytes at a time; each path under its own name."""
    collected = _Chunks(size)
    with tarfile.open(fileobj=collected, mode="w|") as archive:
        for path in paths:
            archive.add(path, arcname=path.name)
            yield from collected.full
            collected.full.clear()
    yield from collected.full
    yield bytes(collected.waiting)


def pack(
    name: Path,
    paths: Sequence[Path],
    piece: int = 15 * MIB,
    workers: int | None = None,
) -> list[Path]:
    """Write the pieces; returns them in order."""
    name.parent.mkdir(parents=True, exist_ok=True)
    pieces: list[Path] = []
    rest = b""

    def write(data: bytes) -> None:
        pieces.append(name.with_name(f"{name.name}.tar.xz.{len(pieces):02}"))
        pieces[-1].write_bytes(data)

    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        for compressed in pool.map(lzma.compress, _chunks(paths, CHUNK)):
            rest += compressed  # xz allows one stream after the other
            while len(rest) >= piece:
                write(rest[:piece])
                rest = rest[piece:]
    if rest:
        write(rest)
    return pieces


def unpack(name: Path, into: Path, workers: int | None = None) -> list[str]:
    """Unpack the pieces of a name; returns what stood in them."""
    pieces = sorted(name.parent.glob(f"{name.name}.tar.xz.*"))
    if not pieces:
        raise FileNotFoundError(f"{name}.tar.xz.*: no pieces there")
    into.mkdir(parents=True, exist_ok=True)
    data = b"".join(piece.read_bytes() for piece in pieces)
    with tarfile.open(fileobj=io.BytesIO(_decompress(data, workers))) as archive:
        names = archive.getnames()
        archive.extractall(into, filter="data")
    return names


def _decompress(data: bytes, workers: int | None) -> bytes:
    """Stream by stream, on all cores."""
    starts = [found.start() for found in re.finditer(re.escape(MAGIC), data)]
    streams = [data[first:last] for first, last in pairwise([*starts, len(data)])]
    try:
        with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
            return b"".join(pool.map(lzma.decompress, streams))
    except lzma.LZMAError:  # what looked like a beginning was none, or something is missing
        return lzma.decompress(data)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["pack", "unpack"])
    parser.add_argument("name", type=Path)
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--piece", type=float, default=15, help="MiB")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--into", type=Path, default=Path())
    options = parser.parse_args(arguments)
    if options.what == "pack":
        for path in pack(options.name, options.paths, int(options.piece * MIB), options.workers):
            print(f"{path} {path.stat().st_size / MIB:.1f} MiB")
    else:
        print(*unpack(options.name, options.into), sep="\n")


if __name__ == "__main__":
    main()
