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
from running_servers import PATIENCE, Client, Running, expected, text_of, wait_until

from simultan import client
from simultan.config import Config
from simultan.server.access import channel_of
from simultan.server.channels import QUEUE, RECENT, Channels
from simultan.server.live import Live
from simultan.server.protocol import ProtocolError, Write
from simultan.server.rates import Places
from simultan.server.settings import Settings
from simultan.streaming.translator import Translator

Start = Callable[..., Running]
SECRET = "a-secret-of-the-hall"
HALL = channel_of(SECRET)


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
    with following(server, HALL) as early:
        assert next(early) == ("following", {"channel": HALL, "pair": "", "live": False}, 0)
        with contextlib.closing(Client(server.url, channel=SECRET).socket):
            assert next(early) == ("started", {"session": 1, "pair": ""}, 1)
        one = Client(server.url, channel=SECRET)
        assert one.started["channel"] == HALL
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
            with following(server, HALL, **{"Last-Event-ID": last}) as late:
                assert next(late)[0] == "following"
                assert next(late)[2] == wanted
    wait_until(lambda: not server.live.channels.channels)


def test_the_client_names_a_channel(start: Start) -> None:
    server = start()

    async def speak() -> None:
        async with client.Stream(server.url, channel=SECRET, timeout=4 * PATIENCE) as stream:
            assert (stream.channel, stream.follow) == (HALL, "")
            await stream.send(text_of(2))
            await stream.finish()
            async for _ in stream:
                pass

    with following(server, HALL) as events:
        assert next(events)[0] == "following"
        asyncio.run(speak())
        written = []
        while (event := next(events))[0] != "finished":
            if event[0] == "write":
                written.append((event[1]["text"], event[1]["delay"]))
    assert written == expected(text_of(2))


def test_the_newest_stream_with_the_secret_has_the_channel(start: Start) -> None:
    server = start()
    first = Client(server.url, channel=SECRET)
    second = Client(server.url, channel=SECRET)
    with following(server, HALL) as events:
        assert [next(events)[0] for _ in range(3)] == ["following", "started", "started"]
        first.translate(text_of(1))
        second.translate(text_of(2))
        found = []
        while (event := next(events))[0] != "finished":
            found.append(event)
    assert {data["session"] for _, data, _ in found} == {2}
    assert [(d["text"], d["delay"]) for k, d, _ in found if k == "write"] == expected(text_of(2))


def test_who_can_read_a_channel_cannot_write_or_mute_it(start: Start) -> None:
    server = start()
    speaker = Client(server.url, channel=SECRET)
    assert speaker.started["channel"] == HALL
    with following(server, HALL) as events:
        assert [next(events)[0] for _ in range(2)] == ["following", "started"]
        thief = Client(server.url, channel=HALL)  # all that the link tells
        assert thief.started["channel"] not in (HALL, "")
        thief.translate(text_of(7))
        Client(server.url, channel=HALL).socket.close(1000)
        assert speaker.translate(text_of(1)) == expected(text_of(1))
        found = []
        while (event := next(events))[0] != "finished":
            found.append(event)
    assert [(d["text"], d["delay"]) for k, d, _ in found if k == "write"] == expected(text_of(1))


def test_who_may_follow(start: Start) -> None:
    server = start(token="secret", max_followers=1)
    assert refused(server, HALL) == (401, "unauthorized")
    assert refused(server, HALL, "?token=wrong") == (401, "unauthorized")
    assert refused(server, HALL, "?token=secret", Origin="http://x.example") == (
        403,
        "forbidden-origin",
    )
    assert refused(server, "b%20c", "?token=secret") == (422, "malformed")
    assert refused(server, "x" * 65, "?token=secret") == (422, "malformed")
    with following(server, HALL, Authorization="Bearer secret") as events:
        assert next(events)[0] == "following"
        assert refused(server, HALL, "?token=secret") == (503, "busy")
        assert b"simultan_followers 1.0" in server.live.metrics.text()
        for name in ("", "b c", "x" * 65, "ä" * 20, 7):
            one = Client(server.url, begin=False)
            assert one.begin(token="secret", channel=name)["code"] == "malformed"
        one = Client(server.url, begin=False)
        assert one.begin(token="wrong", channel=SECRET)["code"] == "unauthorized"


def test_the_key_of_a_link_follows_one_channel_and_does_nothing_else(start: Start) -> None:
    server = start(token="sesame-open-up")
    speaker = Client(server.url, token="sesame-open-up", channel=SECRET)
    key = speaker.started["follow"]
    with following(server, HALL, f"?token={key}") as events:
        assert [next(events)[0] for _ in range(2)] == ["following", "started"]
    other = channel_of("another-secret")
    assert refused(server, other, f"?token={key}") == (401, "unauthorized")
    one = Client(server.url, begin=False)
    assert one.begin(token=key)["code"] == "unauthorized"
    again = Client(
        server.url, token="sesame-open-up",
        resume={"session": speaker.started["session"], "last": 0},
    )  # fmt: skip
    assert again.started["follow"] == key


def test_a_heartbeat_and_a_goodbye(start: Start) -> None:
    server = start(heartbeat_seconds=0.05, drain_seconds=0.1)
    with following(server, HALL) as events:
        assert [next(events)[0] for _ in range(3)] == ["following", "comment", "comment"]
        server.server.should_exit = True
        assert "going-away" in [kind for kind, _, _ in events]


def test_a_follower_that_does_not_read_is_cut_off(start: Start) -> None:
    server = start(slow_seconds=0.1)
    with socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.sendall(b"GET /v1/follow/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % HALL.encode())
        wait_until(lambda: len(server.live.channels.followers) == 1)
        (follower,) = server.live.channels.followers
        server.server.live.batcher._loop.call_soon_threadsafe(  # type: ignore[union-attr]
            lambda: [follower.take("x" * 100_000) for _ in range(2 * QUEUE)]
        )
        wait_until(lambda: not server.live.channels.followers)
    text = text_of(3)
    assert Client(server.url, channel=SECRET).translate(text) == expected(text)


def test_a_slow_follower_loses_its_place_and_hears_of_it() -> None:
    async def run() -> None:
        channels = Channels("de-en", 10.0, Places("follower", 2, 0))
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
