"""What goes wrong on one connection: it gets its error, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ports import held_port
from running_servers import PATIENCE, Client, Process, Running, expected, text_of, wait_until
from websockets.exceptions import ConnectionClosed

from simultan import client
from simultan.server.protocol import CLOSE, FATAL

Start = Callable[..., Running]


@contextlib.contextmanager
def bystanders(server: Running, count: int = 2) -> Iterator[None]:
    """Others translate all the while; what they get is right to the last word."""
    over = threading.Event()
    failures: list[str] = []
    rounds = [0] * count

    def translate(index: int) -> None:
        try:
            while not (over.is_set() and rounds[index]):
                text = text_of(100 * index + rounds[index])
                if Client(server.url).translate(text) != expected(text):
                    failures.append(text)
                rounds[index] += 1
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=translate, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert min(rounds) > 0


def test_a_client_gone_in_mid_word_gives_its_row_back(start: Start) -> None:
    server = start(resume_seconds=0.2)
    with bystanders(server):
        for seed in range(6):
            one = Client(server.url)
            one.say(text_of(seed))
            if seed % 2:
                one.until("write")
            frame = json.dumps({"type": "words", "seq": 2, "text": "abcdef"}).encode()
            one.socket.socket.sendall(bytes([0x81, 0x80 | len(frame), 1, 2, 3, 4]) + frame[:9])
            one.cut()
    wait_until(lambda: not server.live.sessions and not len(server.live.sessions_of))
    wait_until(lambda: sorted(server.live.batcher.rows.free) == list(range(8)))


@pytest.mark.parametrize("seed", range(4))
def test_cut_and_resumed_nothing_is_lost_and_nothing_comes_twice(start: Start, seed: int) -> None:
    server = start()
    text = text_of(seed, sentences=4)
    words = text.split()
    with bystanders(server, 1):
        one = Client(server.url)
        session = one.started["session"]
        kept: list[tuple[int, str]] = []
        known = 0  # words that the server has
        for count, word in enumerate(words, 1):
            kept.append((count, word))
            with contextlib.suppress(ConnectionClosed, OSError):
                one.say(word)
            if count % 3 == seed % 3:  # sometimes before, sometimes after the server has seen it
                if count % 2:
                    one.until("read", acknowledge=seed > 1)
                one.cut()
                again = Client(server.url, resume={"session": session, "last": one.last})
                again.messages = one.messages
                assert again.started["resumed"]
                assert again.started["session"] == session
                assert known <= again.started["ack"] <= count
                known = again.started["ack"]  # it may not have seen the last ones
                kept = [pair for pair in kept if pair[0] > known]
                again.number = count
                repeated = [(known, "twice")] if known else []
                for number, spoken in repeated + kept:
                    again.send({"type": "words", "seq": number, "text": spoken})
                one = again
        one.finish()
        one.until("finished")
    assert one.written() == expected(text)
    assert [m["seq"] for m in one.messages] == list(range(1, len(one.messages) + 1))


def test_a_lost_finished_can_be_fetched(start: Start) -> None:
    server = start()
    one = Client(server.url)
    assert one.translate("ab cd!") == expected("ab cd!")
    assert len(server.live.sessions_of) == 0  # its place is free at once
    last = one.messages[-1]["seq"]
    again = Client(server.url, resume={"session": one.started["session"], "last": last - 1})
    assert again.receive() | {"ack": 0} == one.messages[-1] | {"ack": 0}
    assert again.close_code() == 1000
    again.cut()


def test_who_resumes_takes_over(start: Start) -> None:
    server = start()
    one = Client(server.url)
    one.say("ab cd")
    one.until("read")
    other = Client(server.url, resume={"session": one.started["session"], "last": one.last})
    assert other.started["resumed"]
    assert one.error() == ("replaced", 4409)
    other.number = 1
    other.messages = one.messages
    assert other.translate("ef!") == expected("ab cd ef!")


def test_closing_with_1000_ends_the_session(start: Start) -> None:
    server = start()
    one, other = Client(server.url), Client(server.url)
    one.socket.close(1000)
    wait_until(lambda: len(server.live.sessions) == 1)
    other.socket.close(1001)
    wait_until(lambda: all(s.connection is None for s in server.live.sessions.values()))
    assert len(server.live.sessions) == 1


def resume(session: str, last: int) -> dict[str, Any]:
    return {"type": "start", "seq": 0, "resume": {"session": session, "last": last}}


def words(seq: Any, text: Any = "ab", **more: Any) -> dict[str, Any]:
    return {"type": "words", "seq": seq, "text": text, **more}


FIRST = [  # what comes first, and what it leads to
    (words(1), "malformed"),
    ({"type": "ping", "seq": 0}, "malformed"),
    ({"type": "start", "seq": 1}, "malformed"),
    ({"type": "start", "seq": 0, "threshold": 0}, "malformed"),
    ({"type": "start", "seq": 0, "threshold": True}, "malformed"),
    ({"type": "start", "seq": 0, "decoding": "beam=4"}, "malformed"),
    ({"type": "start", "seq": 0, "decoding": "threshold=2"}, "malformed"),
    ({"type": "start", "seq": 0, "decoding": "agent=/etc"}, "malformed"),
    ({"type": "start", "seq": 0, "channel": "short"}, "malformed"),
    ({"type": "start", "seq": 0, "pair": "xx-yy"}, "unknown-pair"),
    ({"type": "start", "seq": 0, "resume": {"session": "x"}}, "malformed"),
    (resume("nobody", 0), "unknown-session"),
    ([], "malformed"),
    ("start", "malformed"),
]
LATER = [
    (words(2), "out-of-order"),
    (words(2**53), "malformed"),
    (words(0), "malformed"),
    (words(-1), "malformed"),
    (words("1"), "malformed"),
    (words(1.0), "malformed"),
    (words(1, None), "malformed"),
    (words(1, ["ab"]), "malformed"),
    (words(1, ack=1), "malformed"),
    (words(1, "a" * 70_000), "too-large"),
    (words(1, "ä" * 40_000), "too-large"),
    (words(1, "a " * 101), "too-fast"),
    ({"type": "threshold", "seq": 1, "value": 1}, "malformed"),
    ({"type": "threshold", "seq": 1, "value": 10**400}, "malformed"),
    ({"type": "decoding", "seq": 1, "value": "k=3"}, "malformed"),
    ({"type": "decoding", "seq": 1, "value": 0.5}, "malformed"),
    ({"type": "end-sentence", "seq": 0}, "malformed"),
    ({"type": "ack", "seq": 0}, "malformed"),
    ({"type": "ack", "seq": 0, "ack": 1}, "malformed"),
    ({"type": "start", "seq": 0}, "malformed"),
    ({"type": "shout", "seq": 1}, "malformed"),
    ({}, "malformed"),
]


def test_every_wrong_message_gets_its_error(start: Start) -> None:
    server = start(queue=100)
    with bystanders(server):
        for message, code in FIRST:
            one = Client(server.url, begin=False)
            one.socket.send(json.dumps(message))
            assert one.error() == (code, CLOSE[code]), message
        for message, code in LATER:
            one = Client(server.url)
            session = one.started["session"]
            one.socket.send(json.dumps(message, ensure_ascii=False))
            assert one.error() == (code, CLOSE[code]), str(message)[:80]
            assert (session in server.live.sessions) == (code not in FATAL)
        for text in ("", "{", "nul", '{"type":"start","seq":0,"threshold":NaN}', "[" * 50_000):
            one = Client(server.url, begin=False)
            one.socket.send(text)
            assert one.error() == ("malformed", 4400), text[:20]
        one = Client(server.url)  # nothing follows a finish
        one.say("ab cd")
        one.finish()
        one.say("ef")
        with pytest.raises((AssertionError, ConnectionClosed)):  # unless all was done before
            one.until("nothing")
        one = Client(server.url)  # more than any message may have
        with contextlib.suppress(ConnectionClosed):
            one.socket.send("x" * (3 << 20))
        assert one.close_code() == 1009


def test_too_fast_is_no_loss(start: Start) -> None:
    server = start(queue=8)
    one = Client(server.url)
    one.say("ab cd")
    one.say("ab " * 9)
    while (message := one.receive())["type"] != "error":
        pass
    assert (message["code"], message["fatal"], message["ack"]) == ("too-fast", False, 1)
    again = Client(server.url, resume={"session": one.started["session"], "last": one.last})
    again.number, again.messages = 1, one.messages
    assert again.started["ack"] == 1
    again.until("read") if not any(m["type"] == "read" for m in again.messages) else None
    assert again.translate("ef fe!") == expected("ab cd ef fe!")


def test_a_slow_reader_among_fast_ones(start: Start) -> None:
    server = start(window=16)
    text = text_of(7, sentences=20)
    with bystanders(server, 3):
        one = Client(server.url)
        one.say(text)  # and it acknowledges nothing
        one.finish()
        session = server.live.sessions[one.started["session"]]
        wait_until(lambda: session.queue.full_since is not None)
        session.queue.full_since -= 2 * PATIENCE  # for a long time, and it alone
        with pytest.raises(AssertionError, match="slow-reader"):
            one.until("finished", acknowledge=False)
        assert one.close_code() == 4430
        assert len(one.messages) <= 16
        assert len(session.outbox) <= 16
        again = Client(server.url, resume={"session": session.id, "last": one.last})
        again.messages = one.messages
        again.until("finished")
    assert again.written() == expected(text)


def test_a_huge_paste_and_a_silent_client_delay_nobody(start: Start) -> None:
    server = start(words_per_second=1000.0)
    silent = Client(server.url)
    paste = Client(server.url)
    paste.say(text_of(8, sentences=1500))
    long = Client(server.url)
    long.say("abc" * 10_000 + " ab!")  # one word; the server hears its beginning
    with bystanders(server, 3):
        pass
    session = server.live.sessions[paste.started["session"]]
    assert session.queue.heard < 9000  # others were done first
    assert long.until("end")["words"] == 2
    assert silent.translate("ab!") == expected("ab!")
    paste.cut()


def test_a_rate_is_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 words at 200 a second: turns are taken as the clock allows, not all at once."""
    server = start(words_per_second=200.0)
    one = Client(server.url)
    text = text_of(9, sentences=18)
    one.say(text)
    one.finish()
    stats = one.until("finished")["stats"]
    assert one.written() == expected(text)
    assert stats["words"] == 108
    assert stats["seconds"] >= (108 - 8) / 200


def test_more_sessions_than_allowed(start: Start) -> None:
    server = start(rows=1, max_sessions=3)
    one, two, three = (Client(server.url) for _ in range(3))
    four = Client(server.url, begin=False)
    four.send({"type": "start", "seq": 0})
    assert four.error() == ("busy", 4503)
    for index, other in enumerate((one, two, three)):
        assert other.translate(text_of(index)) == expected(text_of(index))
    assert Client(server.url).translate("ab!") == expected("ab!")


def test_wrong_tokens(start: Start) -> None:
    server = start(token="sésame")
    for token in (None, "", "open", "sésam"):
        one = Client(server.url, begin=False)
        one.send({"type": "start", "seq": 0} | ({} if token is None else {"token": token}))
        assert one.error() == ("unauthorized", 4401)
    header = {"Authorization": "Bearer nothing"}
    one = Client(server.url, begin=False, additional_headers=header)
    one.send({"type": "start", "seq": 0})
    assert one.error() == ("unauthorized", 4401)
    right = Client(server.url, token="sésame")
    assert right.translate("ab!") == expected("ab!")
    one = Client(server.url, begin=False)
    one.send(resume(right.started["session"], right.last))
    assert one.error() == ("unauthorized", 4401)


def test_a_token_in_the_header(start: Start) -> None:
    server = start(token="sesame")
    right = Client(server.url, additional_headers={"Authorization": "Bearer sesame"})
    assert right.translate("ab!") == expected("ab!")


def test_foreign_origins(start: Start) -> None:
    server = start(origins=("https://friend.example",))
    own = f"http://127.0.0.1:{server.port}"
    for origin in ("http://elsewhere.example", "null", "http://127.0.0.1:1", "http://[", own[:-1]):
        one = Client(server.url, begin=False, origin=origin)
        assert one.error() == ("forbidden-origin", 4403), origin
    rebound = f"evil.example:{server.port}"  # a name that leads to this machine
    one = Client(f"ws://{rebound}/ws", begin=False, origin=f"http://{rebound}",
                 sock=_connection(server.port))  # fmt: skip
    assert one.error() == ("forbidden-origin", 4403)
    for origin in (own, "https://friend.example", None):
        assert Client(server.url, origin=origin).translate("ab!") == expected("ab!")


def _connection(port: int) -> Any:
    import socket

    return socket.create_connection(("127.0.0.1", port))


def test_silence_ends_a_session(start: Start) -> None:
    server = start(start_seconds=0.2)
    never = Client(server.url, begin=False)
    assert never.error() == ("idle", 4408)
    server.change(start_seconds=PATIENCE)
    one = Client(server.url)
    session = server.live.sessions[one.started["session"]]
    spoken = session.spoken
    one.send({"type": "ping", "seq": 0})
    assert one.receive()["type"] == "pong"
    assert session.spoken == spoken  # a ping says nothing
    server.change(idle_seconds=0.2)
    assert one.error() == ("idle", 4408)
    server.change(idle_seconds=PATIENCE)
    two = Client(server.url)
    server.change(resume_seconds=0.2)
    two.cut()
    wait_until(lambda: not server.live.sessions)
    late = Client(server.url, begin=False)
    late.send(resume(two.started["session"], 0))
    assert late.error() == ("unknown-session", 4404)


def test_resuming_where_nothing_is_kept(start: Start) -> None:
    server = start()
    one = Client(server.url)
    one.say("ab cd")
    one.until("read")
    one.send({"type": "ping", "seq": 0, "ack": one.last})
    one.until("pong")
    for last in (0, one.last + 1):
        other = Client(server.url, begin=False)
        other.send(resume(one.started["session"], last))
        message = other.receive()
        assert (message["code"], message["fatal"]) == ("cannot-resume", False)
        assert other.close_code() == 4410
    assert one.translate("ef!") == expected("ab cd ef!")  # and the session does not suffer


def test_a_model_that_fails_ends_only_its_own_streams(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(batching=False)
    advance = server.live.batcher.session.advance

    def fails(rows: list[int]) -> Any:
        if any(
            "bad" in word for row in rows for word in server.live.batcher.session.rows[row].queue
        ):
            raise RuntimeError("what a client has said: bad")
        return advance(rows)

    monkeypatch.setattr(server.live.batcher.session, "advance", fails)
    with bystanders(server), caplog.at_level(logging.INFO):
        one = Client(server.url)
        one.say("bad")
        assert one.error() == ("internal", 1011)
    assert "RuntimeError" in caplog.text
    assert "a client has said" not in caplog.text


def test_nothing_that_is_said_is_logged(launch: Callable[..., Process]) -> None:
    process = launch("--token", "sesame")
    Client(process.url + "?secretword", token="sesame").translate("secretword ab!")
    one = Client(process.url, begin=False)
    one.socket.send('{"type":"secretword"')
    assert one.error()[0] == "malformed"
    one = Client(process.url, begin=False)
    one.socket.socket.sendall(b"\x81\x8a\x00\x00\x00\x00secretwor\xff")  # no UTF-8
    assert one.close_code() == 1007
    process.signal(signal.SIGTERM)
    status, output = process.wait()
    assert status == -signal.SIGTERM
    assert "secretwor" not in output
    assert "0xff" not in output


def test_sigterm_finishes_what_is_written_and_tells(launch: Callable[..., Process]) -> None:
    process = launch("--drain-seconds", str(PATIENCE))  # it takes as long as the sentences do
    clients = [Client(process.url) for _ in range(3)]
    text = text_of(3, sentences=10)
    for one in clients:
        one.say(text)
        one.receive()
    process.signal(signal.SIGTERM)
    for one in clients:
        while (message := one.receive())["type"] != "going-away":
            pass
        assert message["ack"] == 1
        assert one.close_code() == 1001
        assert one.messages[-1]["type"] == "read"
        assert one.messages[-1]["words"] == len(text.split())
        assert len(one.written()) > 10
    assert process.wait()[0] == -signal.SIGTERM


def test_a_server_killed_with_clients_attached(launch: Callable[..., Process]) -> None:
    seen: list[Any] = []

    def spoken() -> Iterator[str]:
        yield from ["ab", "cd"]
        wait_until(lambda: any(isinstance(item, client.Read) for item in seen))
        process.signal(signal.SIGKILL)
        process.wait()
        launch("--rows", "2", port=port)  # another one in its place
        yield "ef"

    with held_port() as port:
        process = launch("--rows", "2", port=port)
        raw = Client(process.url)
        messages = client.iterate(process.url, spoken(), timeout=4 * PATIENCE)
        with pytest.raises(client.ServerError, match="unknown-session"):
            seen.extend(messages)
        with pytest.raises(ConnectionClosed):
            raw.receive()
