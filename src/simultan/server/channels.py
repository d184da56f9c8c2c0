"""Channels: a stream that writes one can be followed by others, who only read.

A client that knows a channel's secret writes it. Followers know its name, which does not tell it.
Events are made once for all followers, as server-sent events. A follower has a queue of bounded
length: one that reads too slowly is told so and cut off, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from simultan.server.protocol import End, Finished, Numbered, Write
from simultan.server.rates import Places

RECENT = 100  # events that a new follower is sent at once
QUEUE = 256  # events that wait for one follower


class Follower:
    """A reader of a channel: iterate over its events, ready to be sent."""

    def __init__(self, first: list[str], heartbeat: float, address: str) -> None:
        self.address = address
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()
        for event in first:
            self.queue.put_nowait(event)
        self.heartbeat = heartbeat
        self.task = asyncio.current_task()
        self.over: float | None = None  # since when there has been nothing more to come

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                event = await asyncio.wait_for(self.queue.get(), self.heartbeat)
            except TimeoutError:
                event = ": still here\n\n"  # a comment, so that nobody takes the line for dead
            if event is None:
                return
            yield event

    def take(self, event: str) -> bool:
        """Queue an event; False if the queue is full, which ends this follower."""
        if self.queue.qsize() < QUEUE + RECENT:
            self.queue.put_nowait(event)
            return True
        self.end(_event("lost", {"code": "slow-reader", "message": "too much was not read"}))
        return False

    def end(self, last: str) -> None:
        """This, and no more; of what waits nothing is sent."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.over = time.monotonic()
        for event in (last, None):
            self.queue.put_nowait(event)


@dataclass
class Channel:
    """One name: the stream that has it now, who follows, and what happened last."""

    owner: str | None = None  # its session
    sessions: int = 0  # that had it, one after the other
    number: int = 0  # of the last event
    recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    followers: set[Follower] = field(default_factory=set)

    def tell(self, kind: str, **data: Any) -> None:
        self.number += 1
        event = _event(kind, {"session": self.sessions, **data}, self.number)
        self.recent.append((self.number, event))
        self.followers = {follower for follower in self.followers if follower.take(event)}


class Channels:
    """All channels of a server. One without stream and followers is forgotten."""

    def __init__(self, pair: str, heartbeat: float, places: Places) -> None:
        self.pair, self.heartbeat, self.places = pair, heartbeat, places
        self.channels: dict[str, Channel] = {}
        self.followers: set[Follower] = set()  # all that are connected

    def open(self, name: str, session: str) -> None:
        """This session has the channel now; an earlier one of the same secret no longer does."""
        channel = self.channels.setdefault(name, Channel())
        channel.owner = session
        channel.sessions += 1
        channel.tell("started", pair=self.pair)

    def publish(self, name: str, session: str, message: Numbered) -> None:
        channel = self.channels.get(name)
        if channel is None or channel.owner != session:
            return
        match message:
            case Write(text, delay, _, segment, at):
                channel.tell("write", text=text, delay=delay, segment=segment, at=at)
            case End(words, segment):
                channel.tell("end", words=words, segment=segment)
            case Finished():
                self.close(name, session)

    def close(self, name: str, session: str) -> None:
        """The session is over; its followers wait for the next one."""
        channel = self.channels.get(name)
        if channel is not None and channel.owner == session:
            channel.owner = None
            channel.tell("finished")
            self._forget(name)

    def follow(self, name: str, last: int | None, address: str = "") -> Follower:
        """From event `last` on, if it is known; else from the last lines on."""
        self.places.take(address)
        channel = self.channels.setdefault(name, Channel())
        live = channel.owner is not None
        first = [_event("following", {"channel": name, "pair": self.pair, "live": live})]
        seen = last if last is not None and last <= channel.number else 0
        first += [event for number, event in channel.recent if number > seen]
        follower = Follower(first, self.heartbeat, address)
        channel.followers.add(follower)
        self.followers.add(follower)
        return follower

    def leave(self, name: str, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.discard(follower)
            self.places.give_back(follower.address)
        channel = self.channels.get(name)
        if channel is not None:
            channel.followers.discard(follower)
            self._forget(name)

    def stop(self) -> None:
        """Tell all followers that the server stops."""
        for follower in self.followers:
            follower.end(_event("going-away", {}))

    def look(self, now: float, slow: float) -> None:
        """Cut off followers that do not even read their last event."""
        for follower in self.followers:
            if follower.over is not None and now - follower.over > slow and follower.task:
                follower.task.cancel()

    def _forget(self, name: str) -> None:
        channel = self.channels[name]
        if channel.owner is None and not channel.followers:
            del self.channels[name]


def _event(kind: str, data: dict[str, Any], number: int | None = None) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    known = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{known}data: {text}\n\n"
