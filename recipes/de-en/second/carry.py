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
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

CHUNK = 16 * 2**20  # bytes that one core compresses at a time
MIB = 2**20


class _Chunks(io.RawIOBase):
    """Collects what a tar writes."""

    def __init__(self) -> None:
        self.waiting, self.full = bytearray(), list[bytes]()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.waiting += data
        while len(self.waiting) >= CHUNK:
            self.full.append(bytes(self.waiting[:CHUNK]))
            del self.waiting[:CHUNK]
        return len(data)


def _chunks(paths: Sequence[Path]) -> Iterator[bytes]:
    """A tar of the paths, some megabytes at a time; each path under its own name."""
    collected = _Chunks()
    with tarfile.open(fileobj=collected, mode="w|") as archive:
        for path in paths:
            archive.add(path, arcname=path.name)
            yield from collected.full
            collected.full.clear()
    yield from collected.full
    yield bytes(collected.waiting)


def pack(
    name: Path, paths: Sequence[Path], piece: int = 15 * MIB, workers: int | None = None
) -> list[Path]:
    """Write the pieces; returns them in order."""
    name.parent.mkdir(parents=True, exist_ok=True)
    pieces: list[Path] = []
    rest = b""

    def write(data: bytes) -> None:
        pieces.append(name.with_name(f"{name.name}.tar.xz.{len(pieces):02}"))
        pieces[-1].write_bytes(data)

    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        for compressed in pool.map(lzma.compress, _chunks(paths)):
            rest += compressed  # xz allows one stream after the other
            while len(rest) >= piece:
                write(rest[:piece])
                rest = rest[piece:]
    if rest:
        write(rest)
    return pieces


class _Joined(io.RawIOBase):
    """Files read as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.file = list(paths), io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.file.read(len(buffer))
        while not data and self.paths:
            self.file = io.BytesIO(self.paths.pop(0).read_bytes())
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def unpack(name: Path, into: Path) -> list[str]:
    """Unpack the pieces of a name; returns what stood in them."""
    pieces = sorted(name.parent.glob(f"{name.name}.tar.xz.*"))
    if not pieces:
        raise FileNotFoundError(f"{name}.tar.xz.*: no pieces there")
    into.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(io.BufferedReader(_Joined(pieces), MIB)) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        names = []
        for member in archive:
            archive.extract(member, into, filter="data")
            names.append(member.name)
    return names


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["pack", "unpack"])
    parser.add_argument("name", type=Path)
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--piece", type=float, default=15, help="MiB")
    parser.add_argument("--into", type=Path, default=Path())
    options = parser.parse_args(arguments)
    if options.what == "pack":
        for path in pack(options.name, options.paths, int(options.piece * MIB)):
            print(f"{path} {path.stat().st_size / MIB:.1f} MiB")
    else:
        print(*unpack(options.name, options.into), sep="\n")


if __name__ == "__main__":
    main()
