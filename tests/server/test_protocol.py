"""The protocol, thousands of times: frames of any kind, connections cut anywhere."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_servers import PATIENCE, Client, Running, expected, text_of
from websockets.exceptions import ConnectionClosed

from simultan.server import protocol
from simultan.server.protocol import (
    CLOSE,
    FATAL,
    Ack,
    DecodingChange,
    End,
    EndSentence,
    Error,
    Finish,
    Finished,
    GoingAway,
    Limits,
    Ping,
    Pong,
    ProtocolError,
    Read,
    Resume,
    Start,
    Started,
    Stats,
    Threshold,
    Words,
    Write,
    encode,
    parse_client,
    parse_server,
)
from simultan.server.session import Session
from simultan.server.settings import Settings
from simultan.streaming.decoding import Decoding

many = settings(max_examples=1000, deadline=None, derandomize=True, database=None,
                suppress_health_check=list(HealthCheck))  # fmt: skip
some = settings(many, max_examples=400)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
numbers = st.integers(0, 2**53 - 1)
acks = st.none() | numbers
thresholds = st.floats(0, 1, exclude_min=True, exclude_max=True)
texts = st.text(max_size=30)
client_messages = st.one_of(
    st.builds(Start, st.none() | texts, st.none() | thresholds, st.none() | texts,
              st.none() | texts, st.none() | st.builds(Resume, texts, numbers), ack=acks),
    st.builds(Words, st.integers(1, 2**53 - 1), texts, ack=acks),
    st.builds(Threshold, st.integers(1, 2**53 - 1), thresholds, ack=acks),
    st.builds(DecodingChange, st.integers(1, 2**53 - 1), texts, ack=acks),
    st.builds(EndSentence, st.integers(1, 2**53 - 1), ack=acks),
    st.builds(Finish, st.integers(1, 2**53 - 1), ack=acks),
    st.builds(Ack, numbers),
    st.builds(Ping, ack=acks),
)  # fmt: skip
names = [
    "type", "seq", "ack", "text", "value", "threshold", "decoding", "pair", "token", "resume",
    "session", "channel",
]  # fmt: skip
TYPES = ["start", "words", "decoding", "threshold", "end-sentence", "finish", "ack", "ping"]
nearly = st.dictionaries(
    st.sampled_from(names) | st.text(max_size=4),
    values | st.sampled_from(TYPES) | numbers,
    max_size=6,
)


@many
@given(client_messages)
def test_what_a_client_says_is_understood(message: protocol.ClientMessage) -> None:
    assert parse_client(encode(message)) == message


heads = st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=3)
server_messages = st.one_of(
    st.builds(Started, texts, texts, texts, texts, numbers, numbers,
              st.builds(Limits, numbers, numbers, numbers, thresholds, thresholds, numbers,
                        thresholds, thresholds),
              st.booleans(), st.booleans(), st.none() | thresholds,
              st.lists(st.tuples(thresholds, thresholds), max_size=3).map(tuple), texts, texts),
    st.builds(Read, numbers, seq=numbers, ack=numbers),
    st.builds(Write, texts, numbers, heads, numbers, numbers, seq=numbers, ack=numbers),
    st.builds(End, numbers, numbers, seq=numbers, ack=numbers),
    st.builds(Finished, st.builds(Stats, numbers, numbers, numbers, thresholds),
              seq=numbers, ack=numbers),
    st.builds(Error, st.sampled_from(sorted(CLOSE)), texts, st.booleans()),
    st.builds(Pong, ack=numbers),
    st.builds(GoingAway, ack=numbers),
)  # fmt: skip


@some
@given(server_messages)
def test_what_a_server_says_is_understood(message: protocol.ServerMessage) -> None:
    frame = encode(message)
    assert parse_server(frame) == message
    newer = json.dumps(json.loads(frame) | {"field_of_a_later_version": 1})
    assert parse_server(newer) == message
    assert parse_server('{"type":"of a later version","seq":9}') is None


@many
@given(nearly.map(json.dumps) | values.map(json.dumps) | st.text(max_size=40))
def test_anything_else_is_refused_and_not_repeated(frame: str) -> None:
    try:
        message = parse_client(frame)
    except ProtocolError as refusal:
        code, reason = refusal.code, str(refusal)
    else:
        assert parse_client(encode(message)) == message
        return
    assert code == "malformed"
    assert len(reason) < 200
    assert len(frame) < 12 or frame not in reason


class FakeQueue:
    """A batcher that hears two words at a time and writes each of them."""

    def __init__(self) -> None:
        self.heard = 0
        self.words: list[str] = []
        self.values: list[Decoding] = []
        self.finished = self.ended = 0
        self.acked = 0

    def push(self, words: list[str]) -> None:
        self.words += words

    def end_sentence(self) -> None:
        self.ended += 1

    def set_decoding(self, decoding: Decoding) -> None:
        self.values.append(decoding)

    def finish(self) -> None:
        self.finished += 1

    def acknowledge(self, number: int) -> None:
        self.acked = number

    def work(self, session: Session) -> None:
        while self.heard < len(self.words):
            word = self.words[self.heard]
            self.heard += 1
            session.add(Write(word, self.heard, [[self.heard]], 0, 0, seq=session.produced + 1))
        if self.finished and not session.done:
            stats = Stats(self.heard, self.heard, 1, 0.0)
            session.add(Finished(stats, seq=session.produced + 1))


def session_of(queue: FakeQueue, words: int = 10**6, characters: int = 10**6) -> Session:
    limits = Settings(queue=words, queue_characters=characters)
    live = SimpleNamespace(split=str.split, choose=Decoding.parse, settings=limits, tag="")
    return Session(live, queue, Decoding())


class Network:
    """A client and a server as docs/protocol.md has them, and a cable that breaks."""

    def __init__(self, script: list[str]) -> None:
        self.queue = FakeQueue()
        self.session = session_of(self.queue)
        self.script = deque(script)
        self.number = 0
        self.kept: deque[Words | Finish] = deque()
        self.seen: list[Write | Finished] = []
        self.up: deque[str] = deque()
        self.down: deque[str] = deque()

    def say(self) -> None:
        if self.script:
            self.number += 1
            self.post(Words(self.number, self.script.popleft()))

    def post(self, message: Words | Finish) -> None:
        self.kept.append(message)
        self.up.append(encode(message, len(self.seen)))

    def carry_up(self) -> None:
        if self.up:
            message = parse_client(self.up.popleft())
            assert not isinstance(message, Start)
            self.session.receive(message)

    def answer(self) -> None:
        self.queue.work(self.session)
        for message in self.session.unsent():
            self.down.append(encode(message, self.session.received))
            self.session.note_sent(message)

    def carry_down(self) -> None:
        if self.down:
            message = parse_server(self.down.popleft())
            assert isinstance(message, Write | Finished)
            while self.kept and self.kept[0].seq <= message.ack:
                self.kept.popleft()
            if message.seq > len(self.seen):
                self.seen.append(message)

    def cut(self) -> None:
        """What was on its way is lost; the client resumes."""
        self.up.clear()
        self.down.clear()
        self.session.resume(len(self.seen))
        while self.kept and self.kept[0].seq <= self.session.received:
            self.kept.popleft()
        self.up.extend(encode(message, len(self.seen)) for message in self.kept)


near = st.integers(1, 4)
little = st.none() | st.integers(0, 4)
small_messages = st.one_of(
    st.builds(Words, near, st.sampled_from(["", "ab", "ab cd", "ab " * 11]), ack=little),
    st.builds(Threshold, near, thresholds, ack=little),
    st.builds(DecodingChange, near, st.sampled_from(["lag=4", "threshold=0.5"]), ack=little),
    st.builds(EndSentence, near, ack=little),
    st.builds(Finish, near, ack=little),
    st.builds(Ack, st.integers(0, 4)),
    st.builds(Ping, ack=little),
)
ACTIONS = ["say", "carry_up", "answer", "carry_down", "cut"]


@many
@given(
    st.lists(st.text("ab ", max_size=6), max_size=8),
    st.lists(st.sampled_from(ACTIONS), max_size=60),
)
def test_cut_anywhere_nothing_is_lost_and_nothing_comes_twice(
    script: list[str], actions: list[str]
) -> None:
    network = Network(script)
    for action in actions:
        getattr(network, action)()
        assert network.queue.acked <= len(network.seen) <= network.session.produced
    while network.script:
        network.say()
    network.number += 1
    network.post(Finish(network.number))
    for _ in range(200):
        network.carry_up()
        network.answer()
        network.carry_down()
    assert network.queue.words == [word for text in script for word in text.split()]
    assert network.queue.finished == 1
    assert [m.seq for m in network.seen] == list(range(1, len(network.seen) + 1))
    assert [m.text for m in network.seen[:-1] if isinstance(m, Write)] == network.queue.words
    assert isinstance(network.seen[-1], Finished)


@many
@given(st.lists(small_messages, max_size=12), st.integers(0, 3), st.integers(0, 3))
def test_messages_in_any_order_keep_the_session_whole(
    messages: list[Any], produced: int, sent: int
) -> None:
    queue = FakeQueue()
    session = session_of(queue, 20, 40)
    for index in range(produced):
        session.add(Read(0, seq=index + 1))
    for unsent in session.unsent()[:sent]:
        session.note_sent(unsent)
    for message in messages:
        before = session.received, list(queue.words), list(queue.values), queue.finished
        code = ""
        fresh = False
        try:
            fresh = session.receive(message)
        except ProtocolError as refusal:
            code = refusal.code
        if code:
            assert code in ("malformed", "out-of-order", "too-fast")
            assert before == (session.received, queue.words, queue.values, queue.finished)
        assert session.received == before[0] + (fresh and message.seq > 0)
        assert len(queue.words) - queue.heard <= 20
        assert sum(map(len, queue.words[queue.heard :])) <= 40
        assert session.acked <= session.sent == min(sent, produced) <= session.produced
    assert [m.seq for m in session.outbox] == list(range(session.acked + 1, produced + 1))


def test_what_was_produced_but_not_sent_cannot_be_acknowledged() -> None:
    session = session_of(FakeQueue())
    for number in (1, 2, 3):
        session.add(Read(0, seq=number))
    session.note_sent(session.unsent()[0])
    with pytest.raises(ProtocolError, match="never sent"):
        session.receive(Ack(2))
    session.receive(Ack(1))
    assert [m.seq for m in session.unsent()] == [2, 3]
    for message in session.unsent():
        session.note_sent(message)
    session.resume(1)  # another connection: what the first was sent does not count
    with pytest.raises(ProtocolError, match="never sent"):
        session.receive(Ack(3))
    assert [m.seq for m in session.unsent()] == [2, 3]
    with pytest.raises(ProtocolError, match="no number"):
        session.resume(4)


def test_the_queue_counts_characters() -> None:
    queue = FakeQueue()
    session = session_of(queue, 1000, 100)
    session.receive(Words(1, "a" * 60))
    with pytest.raises(ProtocolError, match="characters"):
        session.receive(Words(2, "b" * 60))
    queue.heard = 1
    assert session.receive(Words(2, "b" * 60))


@pytest.fixture(scope="module")
def server() -> Any:
    running = Running(
        Settings(rows=4, tick_seconds=0.02, resume_seconds=0.05, per_address=0, drain_seconds=0.1)
    )
    yield running
    running.stop()


frames = st.lists(
    client_messages.map(encode)
    | nearly.map(json.dumps)
    | st.text(max_size=20)
    | st.sampled_from(
        [encode(Words(1, "ab cd")), encode(Words(2, "ef!")), encode(Finish(2)), encode(Ping())]
    ),
    max_size=6,
)


@settings(some, max_examples=150)
@given(st.booleans(), frames)
def test_frames_of_any_kind_over_a_real_socket(
    server: Running, begin: bool, sent: list[str]
) -> None:
    one = Client(server.url, begin=begin)
    try:
        for frame in sent:
            one.socket.send(frame.encode("utf-8", "replace").decode())
        one.socket.send("the end")
        while (message := one.receive())["type"] not in ("error", "finished"):
            pass
        if message["type"] == "error":
            assert message["fatal"] == (message["code"] in FATAL)
            assert one.close_code() == CLOSE[message["code"]]
    except ConnectionClosed:
        assert one.socket.protocol.close_rcvd is not None
    one.cut()


def test_after_all_that_the_server_works(server: Running) -> None:
    text = text_of(2)
    assert Client(server.url).translate(text) == expected(text)


bodies = st.one_of(
    values.map(json.dumps),
    st.dictionaries(st.sampled_from(["text", "decoding", "threshold", "pair"]), values).map(
        json.dumps
    ),
    st.fixed_dictionaries({"text": st.text(max_size=40)}, optional={"threshold": thresholds}).map(
        json.dumps
    ),
    st.text(max_size=30),
)


@settings(some, max_examples=250)
@given(bodies, st.sampled_from(["*/*", "text/event-stream"]))
def test_bodies_of_any_kind_over_http(server: Running, body: str, accept: str) -> None:
    request = urllib.request.Request(
        f"{server.http}/v1/translate", body.encode("utf-8", "replace"), {"Accept": accept}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            answer.read()
            assert answer.status == 200
            return
    except urllib.error.HTTPError as refusal:
        status, problem = refusal.code, json.loads(refusal.read())
    assert status == 422
    assert problem["code"] in ("malformed", "unknown-pair")
