"""The Python client never waits for ever: a strange or silent server ends in an exception."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import running_servers
from running_servers import CODEC, MODEL, PATIENCE, Client, Running, expected, text_of
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedOK

from simultan import client
from simultan.client.stream import websocket
from simultan.config import Config
from simultan.data.text import Pipeline
from simultan.streaming.translator import Translator

Start = Callable[..., Running]
STARTED = {
    "type": "started", "session": "x", "pair": "", "decoding": "default", "default": "default",
    "layers": 1, "heads": 1, "resumed": False, "seq": 0, "ack": 0,
    "limits": {
        "message": 65536, "queue": 100, "queue_characters": 10_000, "words_per_second": 100,
        "messages_per_second": 100, "window": 1024, "idle_seconds": 600, "resume_seconds": 60,
    },
}  # fmt: skip
Handler = Callable[[ServerConnection], Awaitable[None]]


async def ask(handler: Handler, timeout: float = 0.4, **options: Any) -> list[client.Write]:
    async with serve(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/ws"
        async with asyncio.timeout(PATIENCE):
            writes = client.translate(url, ["a"], timeout=timeout, **options)
            return [write async for write in writes]


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "[]",
        "{}",
        json.dumps({"type": "write", "text": "x", "seq": 1, "ack": 1}),
        json.dumps({"type": "read", "words": "many", "seq": 1}),
        b"\x00\x01",
    ],
)
def test_a_frame_that_cannot_be_read_is_an_exception(frame: str | bytes) -> None:
    async def handler(line: ServerConnection) -> None:
        await line.recv()
        await line.send(json.dumps(STARTED))
        await line.recv()
        await line.send(frame)
        await line.wait_closed()

    with pytest.raises(client.ServerError, match="cannot be read") as error:
        asyncio.run(ask(handler, timeout=PATIENCE))
    assert error.value.code == "malformed"


def test_a_first_frame_that_cannot_be_read() -> None:
    async def handler(line: ServerConnection) -> None:
        await line.recv()
        await line.send("<html>")
        await line.wait_closed()

    with pytest.raises(client.ServerError, match="cannot be read"):
        asyncio.run(ask(handler, timeout=PATIENCE))


def test_a_server_that_never_answers() -> None:
    async def handler(line: ServerConnection) -> None:
        await line.wait_closed()

    with pytest.raises(client.ServerError, match="no simultan server"):
        asyncio.run(ask(handler))


def test_a_server_that_falls_silent() -> None:
    """It answers pings of the websocket, and says nothing."""

    async def handler(line: ServerConnection) -> None:
        start = json.loads(await line.recv())
        if "resume" not in start:
            await line.send(json.dumps(STARTED))
        async for _ in line:
            pass

    async def speak() -> None:
        async with serve(handler, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"ws://127.0.0.1:{port}/ws"
            async with asyncio.timeout(PATIENCE), client.Stream(url, timeout=PATIENCE) as stream:
                hurry(stream)
                assert [message async for message in stream]

    with pytest.raises(client.ServerError, match="cannot be reached"):
        asyncio.run(speak())


def hurry(stream: client.Stream) -> None:
    """Only now: it is connected, which may take a while."""
    stream._silence = stream._answer = stream._patience = 0.1


@pytest.mark.parametrize(("outage", "found"), [(50.0, True), (70.0, False)])
def test_a_line_that_is_down_is_tried_for_the_whole_timeout(
    monkeypatch: pytest.MonkeyPatch, outage: float, found: bool
) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def connect() -> str:
        if now < outage:
            raise ConnectionRefusedError
        return "a line"

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("simultan.client.stream.time.monotonic", lambda: now)
    stream = client.Stream("ws://127.0.0.1:1/ws")  # 60 seconds
    monkeypatch.setattr(stream, "_open", connect)
    if found:
        assert asyncio.run(stream._open_again()) == "a line"
    else:
        with pytest.raises(client.ServerError, match="cannot be reached"):
            asyncio.run(stream._open_again())
        assert now > 60


async def lose(stream: client.Stream, dead: asyncio.Event) -> None:
    """Speak on over a line that dies with the next word that was heard."""
    await stream.send("ab")
    async for message in stream:
        if isinstance(message, client.Read) and message.words == 3:
            break
    dead.set()
    await stream.send("ab " * 30_000)  # more than there is room for


def test_a_line_whose_far_end_is_dead(start: Start) -> None:
    """No close and no reset: nothing is read any more, and whoever connects again is not heard."""
    server = start()

    async def speak() -> None:
        dead = asyncio.Event()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(4096):
                if dead.is_set():
                    await asyncio.Event().wait()
                writer.write(data)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far = await asyncio.open_connection("127.0.0.1", server.port)
            with contextlib.suppress(asyncio.CancelledError):  # when all is over
                await asyncio.gather(pump(reader, far[1]), pump(far[0], writer))

        between = await asyncio.start_server(forward, "127.0.0.1", 0)
        port = between.sockets[0].getsockname()[1]
        async with (
            asyncio.timeout(PATIENCE),
            client.Stream(f"ws://127.0.0.1:{port}/ws", timeout=PATIENCE) as stream,
        ):
            await stream.send("ab cd!")
            async for message in stream:
                if isinstance(message, client.End):
                    break
            hurry(stream)  # from the next message on
            with pytest.raises(client.ServerError, match="cannot be reached"):
                await lose(stream, dead)
            with pytest.raises(client.ServerError, match="cannot be reached"):
                assert [message async for message in stream]
        between.close()

    asyncio.run(speak())


def test_what_came_before_the_end_is_read() -> None:
    """The server says the last word and closes just when the client asks whether it is there."""

    class Closed:
        asked = False

        async def send(self, text: str) -> None:
            self.asked = True
            raise ConnectionClosedOK(None, None)

        async def recv(self) -> str:
            if not self.asked:
                await asyncio.Event().wait()
            return json.dumps({"type": "end", "seq": 1, "ack": 2, "segment": 1, "words": 3})

    stream = client.Stream("http://127.0.0.1:1", timeout=4 * PATIENCE)
    stream._silence = 0.001
    message = asyncio.run(stream._next(Closed()))  # type: ignore[arg-type]
    assert isinstance(message, client.End)
    assert message.words == 3


def test_silence_is_no_fault_while_the_server_answers(start: Start) -> None:
    server = start()

    async def speak() -> list[tuple[str, int]]:
        found = []
        async with client.Stream(server.url, timeout=4 * PATIENCE) as stream:
            stream._silence = 0.1

            async def feed() -> None:
                for word in ("ab", "cd!"):
                    await asyncio.sleep(0.5)  # longer than the client waits before it asks
                    await stream.send(word)
                await stream.finish()

            feeding = asyncio.create_task(feed())
            async for message in stream:
                if isinstance(message, client.Write):
                    found.append((message.text, message.delay))
            await feeding
            assert stream.resumed == 0
        return found

    assert asyncio.run(speak()) == expected("ab cd!")


def test_the_client_ends_sentences_and_changes_its_decoding(start: Start) -> None:
    server = start()
    text = text_of(3)

    async def speak() -> list[Any]:
        async with client.Stream(
            server.url, decoding="threshold=0.7", timeout=4 * PATIENCE
        ) as stream:
            await stream.send("ab cd")
            await stream.end_sentence()
            async for message in stream:
                if isinstance(message, client.End):
                    break
            await stream.set_decoding("threshold=0.2")
            await stream.send(text)
            await stream.finish()
            return [message async for message in stream]

    messages = asyncio.run(speak())
    written = [(m.text, m.delay - 2) for m in messages if isinstance(m, client.Write)]
    assert written == expected(text, "threshold=0.2")


def test_the_end_of_a_line_is_the_end_of_a_sentence(start: Start) -> None:
    server = start()
    said = list(client.iterate(server.url, ["ab", "cd", "\n", "\n", "ef"]))
    assert [m.words for m in said if isinstance(m, client.End)] == [2, 3]
    assert [m for m in said if isinstance(m, str)] == ["ab", "cd", "\n", "\n", "ef"]


def test_whoever_types_sees_the_translation_before_the_next_line(start: Start) -> None:
    """A line of nothing visible has no translation, and is not waited for."""
    server, seen, asked = start(), list[object](), list[tuple[str, int]]()

    def typed() -> Iterator[str]:
        for word in ("ab", "cd", "\n", "\u200b", "\n", "\n", "ef", "\n"):
            asked.append((word, sum(isinstance(item, client.End) for item in seen)))
            yield word

    for item in client.iterate(server.url, typed(), in_turn=True):
        seen.append(item)
    assert [ends for word, ends in asked if word in ("\u200b", "ef")] == [1, 1]
    assert [m.words for m in seen if isinstance(m, client.End)] == [2, 3]


def test_the_address_of_the_page_will_do(start: Start) -> None:
    server = start()
    place = f"127.0.0.1:{server.port}"
    for url in (server.http, server.http + "/", place, f"HTTP://{place}", f"{place}?x=ws://y#z"):
        said = list(client.iterate(url, ["ab"]))
        assert [m.words for m in said if isinstance(m, client.End)] == [1]


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://example.org/de", "wss://example.org/de/ws"),
        ("HTTPS://example.org/de/", "wss://example.org/de/ws"),
        ("http://[::1]:8000/ws", "ws://[::1]:8000/ws"),
        ("http://example.org/de/?key=a/b", "ws://example.org/de/ws?key=a/b"),
        ("example.org:8000/de?from=http://a", "ws://example.org:8000/de/ws?from=http://a"),
        ("http://example.org/#token=a", "ws://example.org/ws"),  # a browser keeps it to itself, too
        ("WSS://example.org", "wss://example.org/ws"),
        ("wss://example.org/stream/?key=a", "wss://example.org/stream/?key=a"),
    ],
)
def test_where_the_websocket_of_a_page_is(url: str, wanted: str) -> None:
    assert websocket(url) == wanted


def test_nobody_listens() -> None:
    with socket.socket() as held:  # a port that is taken, and does not listen
        held.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{held.getsockname()[1]}/ws"
        with pytest.raises(client.ServerError, match=f"{url}: no simultan server"):
            list(client.iterate(url, ["ab"]))


@pytest.mark.parametrize("url", ["foo:bar:baz", "http://[::1"])
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(client.ServerError, match=re.escape(f"{url}") + ".*: no simultan server"):
        list(client.iterate(url, ["ab"]))


@pytest.mark.parametrize(("languages", "count"), [(("zh", ""), 4), (("", "zh"), 1), (("", ""), 1)])
def test_the_client_counts_words_as_the_server_if_a_language_is_unknown(
    start: Start, monkeypatch: pytest.MonkeyPatch, languages: tuple[str, str], count: int
) -> None:
    codec = replace(CODEC, pipeline=Pipeline("bpe", *languages))
    monkeypatch.setattr(running_servers, "TRANSLATOR", Translator(MODEL, Config(), codec))
    server = start()

    async def speak() -> tuple[int, list[int]]:
        async with client.Stream(server.url) as stream:
            await stream.send("日月山水")
            await stream.finish()
            ends = [message.words async for message in stream if isinstance(message, client.End)]
            return stream.words, ends

    assert asyncio.run(speak()) == (count, [count])


def test_the_client_waits_for_room_in_characters(start: Start) -> None:
    server = start(queue_characters=400)
    words = ["abcdef" * 8] * 60

    async def speak() -> int:
        return len([w async for w in client.translate(server.url, [" ".join(words)])])

    assert asyncio.run(speak()) == len(expected(" ".join(words)))
    assert Client(server.url).translate("ab!") == expected("ab!")


def test_a_server_that_refuses_the_same_message_again_and_again() -> None:
    async def handler(line: ServerConnection) -> None:
        await line.recv()
        await line.send(json.dumps(STARTED))
        await line.recv()
        error = {"type": "error", "code": "too-fast", "message": "no", "fatal": False, "seq": 0}
        await line.send(json.dumps(error))

    with pytest.raises(client.ServerError, match="too-fast"):
        asyncio.run(ask(handler, timeout=PATIENCE))
