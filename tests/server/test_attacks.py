"""A hostile client is refused, cut short, slowed down or left alone; everybody else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import socket
import unicodedata
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_servers import CODEC, PATIENCE, Client, Running, expected, text_of, wait_until
from test_faults import bystanders
from uvicorn.protocols.http.flow_control import FlowControl
from websockets.exceptions import ConnectionClosed

from simultan.server.access import channel_of
from simultan.server.connection import Connection
from simultan.server.guard import GuardedHttp
from simultan.server.protocol import Ack, Write
from simultan.server.rates import Arrivals
from simultan.server.settings import Settings
from simultan.server.words import LONGEST_WORD, MOST_MARKS, split_words

Start = Callable[..., Running]
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ELSEWHERE = "127.0.0.2"  # another address of this machine


@contextlib.contextmanager
def raw(server: Running, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE, (source, 0)) as line:
        yield line


@contextlib.contextmanager
def in_a_hurry(server: Running) -> Iterator[socket.socket]:
    """A connection that is there already when the server's clock for requests becomes quick."""
    server.change(start_seconds=PATIENCE)
    before = len(server.server.config.places)
    with raw(server) as line:
        wait_until(lambda: len(server.server.config.places) > before)
        server.change(start_seconds=0.2)
        yield line


def read_all(line: socket.socket) -> bytes:
    """Until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65536):
            found += part
    return found


def sent_until_closed(line: socket.socket, part: bytes, times: int) -> int:
    """How often this could be sent."""
    for index in range(times):
        try:
            line.sendall(part)
        except OSError:
            return index
    return times


def client_from(server: Running, source: str, **options: Any) -> Client:
    line = socket.create_connection(("127.0.0.1", server.port), PATIENCE, (source, 0))
    return Client(server.url, sock=line, **options)


# --- before there is a session ---


def test_a_header_without_end_is_refused(start: Start) -> None:
    server = start()
    with bystanders(server), raw(server) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert sent_until_closed(line, b"a" * 65536, 1000) < 1000
        with contextlib.suppress(ConnectionResetError):
            assert b" 400 " in read_all(line)


@pytest.mark.parametrize("half", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_half_a_request_is_not_waited_for(start: Start, half: bytes) -> None:
    server = start(start_seconds=0.2)
    with raw(server) as line:
        line.sendall(half)
        assert read_all(line) == b""
    wait_until(lambda: not len(server.server.config.places))


def test_half_a_second_request_is_not_waited_for(start: Start) -> None:
    server = start()
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with in_a_hurry(server) as line:
        line.sendall(whole + whole[:20])
        assert read_all(line).count(b"200 OK") == 1
    with in_a_hurry(server) as line:  # nor for the body of one that was answered
        line.sendall(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nab")
        assert b"405" in read_all(line)


def test_a_body_that_does_not_come(start: Start) -> None:
    server = start()
    with in_a_hurry(server) as line:
        head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
        line.sendall(head + b'{"text":')
        assert b'"code":"idle"' in read_all(line)


PAGE = b"GET /static/strings.js HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_answers_that_nobody_reads_are_not_kept(start: Start) -> None:
    """Requests that follow each other: their answers fill the buffers, then the clock runs."""
    server = start(slow_seconds=0.2)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect(("127.0.0.1", server.port))
        line.setblocking(False)
        with contextlib.suppress(OSError):
            line.sendall(PAGE * 10_000)
        wait_until(lambda: server.server.server_state.total_requests > 0)
        wait_until(lambda: not len(server.server.config.places))


class Buffers:
    """A transport, and a clock that is turned by hand."""

    def __init__(self) -> None:
        self.size = 0
        self.aborted = False
        self.clocks: list[tuple[float, Callable[[], None]]] = []

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        entry = (seconds, call)
        self.clocks.append(entry)
        return SimpleNamespace(cancel=lambda: entry in self.clocks and self.clocks.remove(entry))

    def turn(self) -> float:
        seconds, call = self.clocks.pop()
        call()
        return seconds


def guarded(buffers: Buffers, complete: bool) -> GuardedHttp:
    """A connection whose request was answered, or has an answer without end."""
    protocol = GuardedHttp.__new__(GuardedHttp)
    fake: Any = buffers
    protocol.transport, protocol.loop, protocol.flow = fake, fake, FlowControl(fake)
    settings: Any = SimpleNamespace(settings=Settings(start_seconds=1.0, slow_seconds=2.0))
    cycle: Any = SimpleNamespace(response_complete=complete)
    protocol.config, protocol.cycle, protocol.entered = settings, cycle, True
    return protocol


def test_who_reads_slowly_is_not_cut_off_and_who_stops_is() -> None:
    buffers = Buffers()
    protocol = guarded(buffers, complete=False)
    protocol._watch()
    assert not buffers.clocks  # a follower: there may be nothing to read for hours
    buffers.size = 100_000
    protocol.pause_writing()
    for _ in range(3):
        buffers.size -= 1000
        assert buffers.turn() == 2.0
        assert not buffers.aborted
    buffers.size = 10_000
    protocol.resume_writing()
    assert not buffers.clocks
    buffers.size = 100_000
    protocol.pause_writing()
    buffers.turn()
    assert buffers.aborted


def test_the_rest_of_an_answer_is_waited_for_while_it_is_taken() -> None:
    buffers = Buffers()
    protocol = guarded(buffers, complete=True)
    buffers.size = 3000
    protocol._watch()
    for _ in range(3):
        buffers.size -= 1000
        assert buffers.turn() == 1.0
        assert not buffers.aborted
    buffers.turn()  # all is taken, and no other request came
    assert buffers.aborted


BAD_REQUESTS = [
    b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked"
    b"\r\n\r\n0\r\n\r\nG",
    b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: other\r\n\r\n0\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(9000)),
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x00\x01\x02\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def test_requests_that_mean_two_things_are_refused(start: Start) -> None:
    server = start()
    for request in BAD_REQUESTS:
        with in_a_hurry(server) as line:
            sent_until_closed(line, request, 1)
            answer = read_all(line)
        codes = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert all(code.startswith(b"4") for code in codes), request[:60]
        assert len(codes) == 1 or request.startswith(b"PRI")
    server.change(start_seconds=PATIENCE)
    assert Client(server.url).translate("ab!") == expected("ab!")


# --- the benchmark's attacks ---


@pytest.mark.parametrize("reads", [True, False])
def test_the_benchmark_attacks_open_sessions(
    start: Start, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """A websocket that is never started would attack nothing."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    attacks = importlib.import_module("attacks")
    server = start()
    lines = [attacks.Line(server.port, reads).open_websocket() for _ in range(10)]
    wait_until(lambda: len(server.live.sessions) == len(lines))
    for line in lines:
        line.socket.close()


# --- one address ---


def test_one_address_has_so_many_connections(start: Start) -> None:
    server = start(per_address=3)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(raw(server))
        wait_until(lambda: len(server.server.config.places) == 3)
        with raw(server) as line:
            assert read_all(line) == b""  # at once
        other = client_from(server, ELSEWHERE)
        assert other.translate("ab!") == expected("ab!")
    wait_until(lambda: len(server.server.config.places) == 0)
    assert Client(server.url).translate("ab!") == expected("ab!")


def test_one_address_comes_only_so_often(start: Start) -> None:
    """Who connects and leaves again and again holds no place, but the event loop."""
    server = start(per_address=2, connections_per_second=0.001)  # twice the places at once
    for _ in range(4):
        with raw(server):
            wait_until(lambda: len(server.server.config.places) == 1)
        wait_until(lambda: len(server.server.config.places) == 0)
    with raw(server) as line:
        assert read_all(line) == b""
    assert client_from(server, ELSEWHERE).translate("ab!") == expected("ab!")


def test_addresses_that_have_waited_are_forgotten() -> None:
    patient = Arrivals(rate=1e9, burst=2)
    assert all(patient.admit(f"::{number:x}") for number in range(5000))
    assert len(patient.buckets) <= Arrivals.MOST + 1
    strict = Arrivals(rate=1e-9, burst=2)
    assert [strict.admit("::1") for _ in range(4)] == [True, True, False, False]
    assert strict.buckets["::1"].level >= 0  # to be refused does not lengthen the wait


def test_one_address_has_so_many_sessions_and_followers(start: Start) -> None:
    server = start(per_address=4, resume_seconds=60.0)
    for _ in range(4):  # gone at once: what was said keeps them for a minute
        one = Client(server.url)
        one.say("ab")
        one.until("read")
        one.cut()
    wait_until(lambda: len(server.server.config.places) == 0)
    late = Client(server.url, begin=False)
    late.send({"type": "start", "seq": 0})
    assert late.error()[0] == "busy"
    other = client_from(server, ELSEWHERE)
    assert other.translate("ab!") == expected("ab!")
    with contextlib.ExitStack() as stack:
        request = f"GET /v1/follow/{channel_of('some-secret-name')} HTTP/1.1\r\nHost: localhost"
        for number in range(4):
            line = stack.enter_context(raw(server))
            line.sendall(request.encode() + b"\r\n\r\n")
            wait_until(lambda: len(server.live.channels.followers) == number + 1)  # noqa: B023
        line = stack.enter_context(raw(server, ELSEWHERE))
        line.sendall(request.encode() + b"\r\n\r\n")
        wait_until(lambda: len(server.live.channels.followers) == 5)
    wait_until(lambda: not server.live.channels.followers)


def test_who_comes_and_goes_without_a_word_leaves_nothing(start: Start) -> None:
    server = start(rows=2, max_sessions=4, unused_seconds=0.1, resume_seconds=60.0)
    for _ in range(3):
        for _ in range(4):
            Client(server.url).cut()
        wait_until(lambda: not server.live.sessions)
    assert Client(server.url).translate("ab!") == expected("ab!")


def test_pages_that_are_only_open_hold_no_row(start: Start) -> None:
    server = start(rows=2)
    silent = [Client(server.url) for _ in range(6)]
    assert len(server.live.batcher.rows.free) == 2
    assert Client(server.url).translate("ab!") == expected("ab!")
    assert silent[5].translate(text_of(1)) == expected(text_of(1))


# --- frames ---


@pytest.mark.parametrize("token", [None, "sesame-open-up"])
@pytest.mark.parametrize("frame", [b"\x89\x80\0\0\0\0", b"\x8a\x80\0\0\0\0", b"\x00\x80\0\0\0\0"])
def test_a_flood_of_control_frames_is_cut_off(
    start: Start, token: str | None, frame: bytes
) -> None:
    """Pings, pongs and empty fragments; before the token, too."""
    server = start(token=token)
    with raw(server) as line:
        line.sendall(UPGRADE)
        assert b" 101 " in line.recv(1000)
        if frame[0] == 0:
            line.sendall(b"\x01\x80\0\0\0\0")  # a text that goes on
        sent_until_closed(line, frame * 2000, 500)
        read_all(line)  # it was cut off, and not for its silence
    wait_until(lambda: not server.live.connections)
    one = Client(server.url, token=token)
    assert one.socket.ping().wait(PATIENCE)  # a few are fine
    assert one.translate("ab!") == expected("ab!")


FLOODS: list[Callable[[int], dict[str, Any]]] = [
    lambda n: {"type": "ping", "seq": 0},
    lambda n: {"type": "ack", "seq": 0, "ack": 0},
    lambda n: {"type": "decoding", "seq": n, "value": "threshold=0.5"},
    lambda n: {"type": "words", "seq": n, "text": ""},
    lambda n: {"type": "words", "seq": 1, "text": "ab " * 50},  # the same one again and again
    lambda n: {"type": "end-sentence", "seq": n},
]


@pytest.mark.parametrize("kind", range(len(FLOODS)))
def test_a_flood_of_messages_is_slowed_down(start: Start, kind: int) -> None:
    server = start(messages_per_second=50.0, per_address=0)
    flood = Client(server.url)
    with bystanders(server):
        for number in range(1, 1001):
            flood.send(FLOODS[kind](number))
        # twice the rate at once, then the rate; a second takes longer than what was done here
        connection = server.live.sessions[flood.started["session"]].connection
        assert connection is not None
        wait_until(lambda: connection.messages.level < 0)
        assert connection.messages.burst == 100
        assert connection.session is not None
        assert connection.session.received < 1000
    flood.cut()


def test_what_is_not_read_yet_stays_in_the_clients_socket(start: Start) -> None:
    server = start(messages_per_second=1.0)
    with raw(server) as line:
        line.sendall(UPGRADE)
        line.recv(1000)
        text = b'{"type":"start","seq":0}'
        line.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)
        line.settimeout(1.0)
        text = json.dumps({"type": "ping", "seq": 0, "x": "x" * 60_000}).encode()
        frame = b"\x81\xfe" + len(text).to_bytes(2, "big") + b"\0\0\0\0" + text
        # of 600 MB; the kernel's buffers are smaller
        assert sent_until_closed(line, frame, 10_000) < 1000
        line.settimeout(PATIENCE)
        assert line.recv(100)  # it was not cut off


def test_who_sends_on_after_an_error_is_cut_off(start: Start) -> None:
    server = start(slow_seconds=0.5)
    with bystanders(server), raw(server) as line:
        line.sendall(UPGRADE)
        line.recv(1000)
        line.sendall(b"\x81\x82\0\0\0\0{}")  # malformed: the server closes
        text = b'{"type":"ping","seq":0}'
        frame = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text
        assert sent_until_closed(line, frame * 1000, 1000) < 1000
    wait_until(lambda: not server.live.connections)


def test_who_breaks_the_protocol_and_is_answered_is_no_failure(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    one = Client(server.url)
    (connection,), (protocol,) = server.live.connections, server.server.server_state.connections
    loop = server.live.batcher._loop
    assert loop is not None

    def answer_while_it_breaks() -> None:
        connection.answer_ping()
        protocol.data_received(b"\xf3\x80\0\0\0\0")  # no frame has these bits

    loop.call_soon_threadsafe(answer_while_it_breaks)
    assert one.close_code() == 1002
    wait_until(lambda: not server.live.connections)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


# --- words ---


def test_a_long_run_of_marks_is_cut_before_it_is_put_in_order() -> None:
    bomb = "a" + "\u0300" * 15_900 + "\u0323" * 15_900
    (word,) = split_words(bomb, CODEC.split_source)
    assert sum(unicodedata.combining(c) > 0 for c in unicodedata.normalize("NFD", word)) <= (
        MOST_MARKS
    )
    words = split_words(f"{bomb} x{bomb} \U0001e130{bomb}", CODEC.split_source)
    assert [len(word) <= LONGEST_WORD for word in words] == [True] * 3
    honest = "Ça déjà ñandú שָׁלוֹם नमस्ते Việt Z\u0351\u036b\u0343a"
    assert split_words(honest, CODEC.split_source) == CODEC.split_source(honest)


def test_such_words_hold_nobody_up(start: Start) -> None:
    server = start(per_address=0)
    attackers = [Client(server.url) for _ in range(3)]
    bombs = [
        "a" + "\u0300" * 15_900 + "\u0323" * 14_000,
        "\U0001f600" * 8000,
        " ".join(["\U0001f600" * 200] * 60),
    ]
    with bystanders(server):
        for one in attackers:
            for number, text in enumerate(bombs, 1):
                message = {"type": "words", "seq": number, "text": text}
                one.socket.send(json.dumps(message, ensure_ascii=False))  # escaped it is too large
            one.number = len(bombs)
            one.finish()
        for one in attackers:
            one.until("finished")


def test_a_queue_of_huge_words_is_refused(start: Start) -> None:
    server = start(queue_characters=20_000, words_per_second=1.0, messages_per_second=1e6)
    one = Client(server.url)
    with contextlib.suppress(ConnectionClosed):
        for _ in range(1000):
            one.say(" ".join(["x" * 199 + "\U0001f600"] * 20))
    while (message := one.receive())["type"] != "error":
        pass
    assert message["code"] == "too-fast"
    (session,) = server.live.sessions.values()
    assert session.characters <= 20_000
    waiting = list(session.queue.waiting)  # the model's thread takes words from it
    assert sum(len(word.text) for word in waiting) <= 20_000


def test_a_text_whose_client_has_left_is_not_translated(start: Start) -> None:
    server = start(rows=2, words_per_second=20.0)
    body = json.dumps({"text": text_of(1, sentences=500)}).encode()
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    for accept in (b"*/*", b"text/event-stream"):
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                line = stack.enter_context(raw(server))
                line.sendall(head + b"Accept: " + accept + b"\r\n\r\n" + body)
            wait_until(lambda: len(server.live.jobs) == 5)
        wait_until(lambda: not server.live.jobs and not len(server.live.sessions_of))
        wait_until(lambda: not server.live.batcher.queues)
        wait_until(lambda: len(server.live.batcher.rows.free) == 2)


def test_whole_texts_leave_a_row_to_who_speaks(start: Start) -> None:
    server = start(rows=2, words_per_second=20.0)
    body = json.dumps({"text": text_of(1, sentences=500)}).encode()
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(raw(server)).sendall(head % len(body) + body)
        wait_until(lambda: len(server.live.jobs) == 6)
        text = "ab cd ef!"
        assert Client(server.url).translate(text) == expected(text)


# --- acknowledgements ---


def test_an_acknowledgement_ahead_of_what_was_sent_is_refused_and_nothing_spins() -> None:
    """The message is produced, and acknowledged before the sender has had its turn."""
    sent: list[str] = []

    class Socket:
        client = None

        async def send_text(self, text: str) -> None:
            sent.append(text)

    class Owner:
        settings = Settings()

    async def run() -> None:
        from test_protocol import FakeQueue, session_of

        connection = Connection(Socket(), Owner())  # type: ignore[arg-type]
        session = session_of(FakeQueue())
        session.connection, connection.session = connection, session
        sending = asyncio.create_task(connection.send())
        await asyncio.sleep(0)
        session.add(Write("x", 1, [[1]], 0, 0, seq=1))
        with pytest.raises(Exception, match="never sent"):
            session.receive(Ack(1))
        connection.wake.set()
        for _ in range(5):
            await asyncio.sleep(0)  # the loop is alive
        session.receive(Ack(1))
        assert len(sent) == 1
        sending.cancel()

    asyncio.run(run())


def test_guessed_acknowledgements_on_a_real_server(start: Start) -> None:
    server = start()
    refused = 0
    with bystanders(server):
        for seed in range(20):
            one = Client(server.url)
            one.say(text_of(seed))
            with contextlib.suppress(ConnectionClosed):  # a fast server has closed by now
                for number in (*range(1, 6), 10_000):  # and may have sent five
                    one.send({"type": "ack", "seq": 0, "ack": number})
            while (message := one.receive())["type"] != "error":
                pass
            refused += message["code"] == "malformed"
    assert refused == 20
    with urllib.request.urlopen(f"{server.http}/healthz", timeout=PATIENCE) as answer:
        assert answer.status == 200
