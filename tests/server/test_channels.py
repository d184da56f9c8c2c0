"""Followers of a channel: they see what is written, and nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
from conftest import PATIENCE, Client, Running, expected, text_of, wait_until

from simultan import client
from simultan.config import Config
from simultan.server.channels import QUEUE, RECENT, Channels
from simultan.server.live import Live
from simultan.server.protocol import ProtocolError, Write
from simultan.server.settings import Settings
from simultan.streaming.translator import Translator

Start = Callable[..., Running]


@contextlib.contextmanager
def following(
    server: Running, channel: str, query: str = "", **headers: str
) -> Iterator[Iterator[tuple[str, dict[str, Any], int]]]:
    """Its events, as they come: type, data and number."""
    request = urllib.request.Request(f"{server.http}/v1/follow/{channel}{query}", headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield read_events(answer)


def read_events(answer: HTTPResponse) -> Iterator[tuple[str, dict[str, Any], int]]:
    fields: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], json.loads(fields["data"]), int(fields.get("id", 0))
            fields = {}
        else:
            yield "comment", {}, 0


def refused(server: Running, channel: str, query: str = "", **headers: str) -> tuple[int, str]:
    with (
        pytest.raises(urllib.error.HTTPError) as error,
        following(server, channel, query, **headers),
    ):
        pass
    return error.value.code, json.loads(error.value.read())["code"]


def test_a_follower_sees_what_is_written(start: Start) -> None:
    server = start()
    text = text_of(1)
    with following(server, "hall-1") as early:
        assert next(early) == ("following", {"channel": "hall-1", "pair": "", "live": False}, 0)
        with contextlib.closing(Client(server.url, channel="hall-1").socket):
            assert next(early) == ("started", {"session": 1, "pair": ""}, 1)
        one = Client(server.url, channel="hall-1")
        assert one.started["channel"] == "hall-1"
        assert one.translate(text) == expected(text)
        found = []
        while len(found) < 2 or found[-1][0] != "finished" or found[-1][1]["session"] < 2:
            found.append(next(early))
        assert [number for _, _, number in found] == list(range(2, len(found) + 2))
        writes = [(d["text"], d["delay"]) for kind, d, _ in found if kind == "write"]
        assert writes == expected(text)
        assert [d["segment"] for kind, d, _ in found if kind == "end"] == [0, 1, 2]
        # who comes late, or again, goes on from what it has seen; an unknown number is none
        for last, wanted in (("5", 6), ("nonsense", 1), ("9999", 1)):
            with following(server, "hall-1", **{"Last-Event-ID": last}) as late:
                assert next(late)[0] == "following"
                assert next(late)[2] == wanted
    wait_until(lambda: not server.live.channels.channels)


def test_the_client_names_a_channel(start: Start) -> None:
    server = start()

    async def speak() -> None:
        async with client.Stream(server.url, channel="talk") as stream:
            await stream.send(text_of(2))
            await stream.finish()
            async for _ in stream:
                pass

    with following(server, "talk") as events:
        assert next(events)[0] == "following"
        asyncio.run(speak())
        written = []
        while (event := next(events))[0] != "finished":
            if event[0] == "write":
                written.append((event[1]["text"], event[1]["delay"]))
    assert written == expected(text_of(2))


def test_the_newest_stream_has_the_channel(start: Start) -> None:
    server = start()
    first = Client(server.url, channel="a")
    second = Client(server.url, channel="a")
    with following(server, "a") as events:
        assert [next(events)[0] for _ in range(3)] == ["following", "started", "started"]
        first.translate(text_of(1))
        second.translate(text_of(2))
        found = []
        while (event := next(events))[0] != "finished":
            found.append(event)
    assert {data["session"] for _, data, _ in found} == {2}
    assert [(d["text"], d["delay"]) for k, d, _ in found if k == "write"] == expected(text_of(2))


def test_who_may_follow(start: Start) -> None:
    server = start(token="secret", max_followers=1)
    assert refused(server, "a") == (401, "unauthorized")
    assert refused(server, "a", "?token=wrong") == (401, "unauthorized")
    assert refused(server, "a", "?token=secret", Origin="http://x.example") == (
        403,
        "forbidden-origin",
    )
    assert refused(server, "b%20c", "?token=secret") == (422, "malformed")
    assert refused(server, "x" * 65, "?token=secret") == (422, "malformed")
    with following(server, "a", Authorization="Bearer secret") as events:
        assert next(events)[0] == "following"
        assert refused(server, "b", "?token=secret") == (503, "busy")
        assert b"simultan_followers 1.0" in server.live.metrics.text()
        for name in ("", "b c", "x" * 65, "ä", 7):
            one = Client(server.url, begin=False)
            assert one.begin(token="secret", channel=name)["code"] == "malformed"
        one = Client(server.url, begin=False)
        assert one.begin(token="wrong", channel="a")["code"] == "unauthorized"
    server.live.followable = False
    assert refused(server, "a", "?token=secret") == (404, "no-channels")
    assert Client(server.url, token="secret", channel="a").started["channel"] == ""


def test_a_heartbeat_and_a_goodbye(start: Start) -> None:
    server = start(heartbeat_seconds=0.05, drain_seconds=0.1)
    with following(server, "a") as events:
        assert [next(events)[0] for _ in range(3)] == ["following", "comment", "comment"]
        server.server.should_exit = True
        assert "going-away" in [kind for kind, _, _ in events]


def test_a_follower_that_does_not_read_is_cut_off(start: Start) -> None:
    server = start(slow_seconds=0.1)
    with socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.sendall(b"GET /v1/follow/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(server.live.channels.followers) == 1)
        (follower,) = server.live.channels.followers
        server.server.live.batcher._loop.call_soon_threadsafe(  # type: ignore[union-attr]
            lambda: [follower.take("x" * 100_000) for _ in range(2 * QUEUE)]
        )
        wait_until(lambda: not server.live.channels.followers)
    text = text_of(3)
    assert Client(server.url, channel="a").translate(text) == expected(text)


def test_a_slow_follower_loses_its_place_and_hears_of_it() -> None:
    async def run() -> None:
        channels = Channels("de-en", 2, 10.0)
        channels.open("a", "s")
        slow, quick = channels.follow("a", None), channels.follow("a", None)
        with pytest.raises(ProtocolError):
            channels.follow("a", None)
        seen: list[str] = []
        iterator = aiter(quick)
        for number in range(2 * (QUEUE + RECENT)):
            channels.publish("a", "s", Write(str(number), 1, [[1]], 0, 0))
            channels.publish("a", "other", Write("no", 1, [[1]], 0, 0))
            seen.append(await anext(iterator))
        assert not any("no" in event for event in seen)
        assert [event async for event in aiter(slow)] == [
            'event: lost\ndata: {"code":"slow-reader","message":"too much was not read"}\n\n'
        ]
        assert len(channels.channels["a"].recent) == RECENT
        channels.leave("a", slow)
        channels.close("a", "s")
        assert "a" in channels.channels  # somebody waits for the next stream
        channels.leave("a", quick)
        assert not channels.channels

    asyncio.run(run())


def test_started_says_whether_the_policy_is_learned(start: Start) -> None:
    from small import CODEC, make

    assert Client(start().url).started["learned"] is True
    fixed = Translator(make("wait-k", "transformer", seed=3), Config(), CODEC)
    assert Live(fixed, Settings(rows=2)).learned is False
