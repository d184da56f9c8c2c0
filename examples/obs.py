"""Captions in OBS from a program of your own: text goes to a channel, OBS shows the channel.

simultan serve &
python examples/obs.py http://127.0.0.1:8000 < talk.de.txt

Prints the address for a browser source in OBS (Sources, +, Browser), waits until you have pressed
Enter in the terminal (--now does not wait), and then reads the text aloud, so to speak. Replace
`speak` by whatever hears: a recogniser, a chat, a subtitle encoder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator

from simultan.client import Stream, Write


async def speak(text: str, pace: float) -> AsyncIterator[str]:
    """Words at a steady pace; 0: at once."""
    for word in text.split():
        yield word
        await asyncio.sleep(1 / pace if pace else 0)


async def publish(address: str, text: str, pace: float, wait: bool) -> None:
    token = os.environ.get("SIMULTAN_TOKEN")
    stream = Stream(address, token=token, channel=secrets.token_urlsafe(16))
    async with stream:
        key = f"#token={stream.follow}" if stream.follow else ""
        print(f"{address.rstrip('/')}/overlay?channel={stream.channel}{key}", flush=True)
        if wait:
            with open("/dev/tty") as terminal:
                await asyncio.to_thread(terminal.readline)

        async def send() -> None:
            async for word in speak(text, pace):
                await stream.send(word)
            await stream.finish()

        sending = asyncio.create_task(send())
        async for event in stream:
            if isinstance(event, Write):
                print(event.text, end=" ", flush=True)
        await sending
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--pace", type=float, default=2.5, help="words a second; 0: all at once")
    parser.add_argument("--now", action="store_true", help="do not wait for Enter")
    given = parser.parse_args()
    asyncio.run(publish(given.address, sys.stdin.read(), given.pace, not given.now))
