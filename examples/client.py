"""Speaks to a server: words of standard input go out as they are typed, the translation comes back.

simultan serve &
python examples/client.py http://127.0.0.1:8000 --decoding lag=4 < talk.de.txt
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator

from simultan import client


async def read_words() -> AsyncIterator[str]:
    """Lines of standard input, each as soon as it is there."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip():
            yield line


async def main(url: str, decoding: str) -> None:
    token = os.environ.get("SIMULTAN_TOKEN")
    async for write in client.translate(url, read_words(), decoding=decoding, token=token):
        print(write.text, end=" ", flush=True)
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--decoding", default="default")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.url, given.decoding))
    except client.ServerError as error:  # nobody answers, or the server stops
        sys.exit(f"client.py: {error}")
