"""A live server: what clients get is what a session writes, whatever others do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
from running_servers import CODEC, MODEL, PATIENCE, Client, Running, expected, sentence, text_of
from small import make
from typer.testing import CliRunner
from websockets.sync.client import connect

from simultan import boxed, client
from simultan.cli import app
from simultan.config import Config
from simultan.server.live import Live
from simultan.server.protocol import DecodingChange, ProtocolError
from simultan.server.protocol import Start as StartMessage
from simultan.server.settings import Settings
from simultan.streaming.decoding import Decoding
from simultan.streaming.lags import Lags
from simultan.streaming.session import Session, Write
from simultan.streaming.translator import Translator

Start = Callable[..., Running]


@pytest.mark.parametrize("batching", [True, False])
def test_many_streams_write_what_one_session_writes(start: Start, batching: bool) -> None:
    server = start(rows=6, batching=batching)
    texts = [text_of(i) for i in range(6)]
    assert len({tuple(expected(text)) for text in texts}) == 6
    with ThreadPoolExecutor(6) as pool:
        clients = [Client(server.url) for _ in texts]
        found = list(
            pool.map(lambda pair: pair[0].translate(pair[1]), zip(clients, texts, strict=True))
        )
    assert found == [expected(text) for text in texts]
    for one, text in zip(clients, texts, strict=True):
        finished = one.messages[-1]
        assert finished["stats"]["words"] == len(text.split())
        assert finished["stats"]["segments"] == 3
        assert finished["stats"]["written"] == sum(len(t.split()) for t, _ in expected(text))
        assert one.close_code() == 1000
        writes = [m for m in one.messages if m["type"] == "write"]
        ends = [m for m in one.messages if m["type"] == "end"]
        assert [m["segment"] for m in ends] == [0, 1, 2]
        assert [m["words"] for m in ends] == [6, 12, 18]
        assert {m["segment"] for m in writes} <= {0, 1, 2}
        assert all(a["at"] <= b["at"] for a, b in pairwise(writes))
        shape = (one.started["layers"], one.started["heads"])
        assert all((len(m["heads"]), len(m["heads"][0])) == shape for m in writes)
        assert all(max(map(max, m["heads"])) == m["delay"] for m in writes)


def test_speech_without_full_stops_is_cut_as_a_session_cuts_it(start: Start) -> None:
    text = sentence(160, 3)
    assert Client(start().url).translate(text) == expected(text)
    longer = Session(MODEL, CODEC, "threshold=0.5", longest=128)
    events = longer.feed(text) + longer.finish()
    assert [(e.text, e.delay) for e in events if isinstance(e, Write)] != expected(text)


def test_words_are_written_before_the_sentence_is_over(start: Start) -> None:
    server = start()
    text = next(t for t in map(text_of, range(50)) if expected(t)[0][1] < 6)
    one = Client(server.url)
    for count, word in enumerate(text.split()[:5], 1):
        one.say(word)
        assert one.until("read")["words"] == count
    early = [pair for pair in expected(text) if pair[1] <= 4]
    assert early
    assert one.written()[: len(early)] == early


def test_heads_may_stay_undecided(start: Start) -> None:
    client = Client(start().url, decoding="mass=0.7")
    assert client.started["decoding"] == "mass=0.7"
    assert "threshold" not in client.started
    assert client.translate(text_of(2)) == expected(text_of(2), "mass=0.7")


def test_the_default_of_a_model_that_streams_undecided_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODEL, "policy", replace(MODEL.policy, undecided=True))
    client = Client(start().url)
    assert client.started["decoding"] == client.started["default"] == "mass=0.7"
    assert client.translate(text_of(2)) == expected(text_of(2), "mass=0.7")


def test_decoding_holds_from_when_it_is_set(start: Start) -> None:
    server = start(decoding="threshold=0.3")
    text = text_of(1)
    one = Client(server.url)
    assert one.started["decoding"] == one.started["default"] == "threshold=0.3"
    other = Client(server.url, decoding="threshold=0.7")
    assert other.started["decoding"] == "threshold=0.7"
    assert other.started["default"] == "threshold=0.3"
    other.post("decoding", value="threshold=0.2")
    assert one.translate(text) == expected(text, "threshold=0.3")
    assert other.translate(text) == expected(text, "threshold=0.2")
    back = Client(server.url, decoding="threshold=0.7")
    back.post("decoding", value="default")
    assert back.translate(text) == expected(text, "threshold=0.3")


def test_a_threshold_as_clients_used_to_send_it(start: Start) -> None:
    server = start()
    text = text_of(1)
    one = Client(server.url, threshold=0.7)
    assert (one.started["decoding"], one.started["threshold"]) == ("threshold=0.7", 0.7)
    one.post("threshold", value=0.2)
    assert one.translate(text) == expected(text, "threshold=0.2")


def test_the_operators_lag_reaches_the_client() -> None:
    lags = Lags(((0.2, 2.0), (0.5, 3.0), (0.9, 5.0)))
    live = Live(Translator(MODEL, Config(), CODEC, lags), Settings(rows=2, decoding="lag=4"))

    async def run() -> None:
        session = live.open(StartMessage(), "here")
        started = live.describe(session, False, None)
        assert (started.decoding, started.default, started.lag) == ("lag=4", "lag=4", 4.0)
        assert started.lags == lags.points
        quick = live.describe(live.open(StartMessage(decoding="lag=2"), "here"), False, None)
        assert (quick.decoding, quick.lag, quick.threshold) == ("lag=2", 2.0, pytest.approx(0.2))
        for bad in ("lag=9", "k=3", "beam=4", "wait-k:3", "../folder", "lag=nan", "lag=4 "):
            with pytest.raises(ProtocolError, match="decoding"):
                live.open(StartMessage(decoding=bad), "here")

    asyncio.run(run())


def test_the_operators_beams_are_everybodys() -> None:
    """They cost what the operator pays: no client chooses them, or hears of them."""
    lags = Lags(((0.2, 2.0), (0.5, 3.0), (0.9, 5.0)))
    live = Live(Translator(MODEL, Config(), CODEC, lags), Settings(rows=2, decoding="lag=4,beam=3"))

    async def run() -> None:
        for start in (StartMessage(), StartMessage(decoding="lag=2"), StartMessage(threshold=0.2)):
            session = live.open(start, "here")
            assert session.decoding.beam == 3
            started = live.describe(session, False, None)
            assert "beam" not in started.decoding + started.default
        session.receive(DecodingChange(seq=1, value="lag=3"))
        assert session.decoding == Decoding(lag=3, beam=3)
        for bad in ("lag=4,beam=3", "beam=3"):
            with pytest.raises(ProtocolError, match="decoding must be one of"):
                live.choose(bad)

    asyncio.run(run())


def test_a_server_with_beams_writes_what_a_session_with_beams_writes(start: Start) -> None:
    server = start(rows=4, decoding="beam=3")
    texts = [text_of(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: Client(server.url).translate(text), texts))
    assert found == [expected(text, "beam=3") for text in texts]
    assert found != [expected(text) for text in texts]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("mma-il", "default, threshold=0.5, mass=0.7"),
        ("wait-k", "default, k=3"),
        ("offline", "default"),
    ],
)
def test_a_refused_decoding_is_told_what_this_server_takes(policy: str, wanted: str) -> None:
    """Not what an operator may choose, and not what the client has sent."""
    model = make(policy, "transformer", seed=3)
    live = Live(Translator(model, Config(), CODEC), Settings(rows=2))
    for bad in ("beam=4", "agreement:2", "lag=1e3e", "lag=" + "1" * 40, "threshold=", "k=2.5"):
        with pytest.raises(ProtocolError, match=f"^decoding must be one of: {wanted}$"):
            live.choose(bad)


def test_a_sentence_is_ended_by_hand_and_the_session_goes_on(start: Start) -> None:
    server = start()
    one = Client(server.url)
    text = "ab cd ef"
    one.say(text)
    one.post("end-sentence")
    ended = one.until("end")
    assert (ended["words"], ended["segment"]) == (3, 0)
    while not any(m["type"] == "read" and m["words"] == 3 for m in one.messages):
        one.receive()  # before the end or after it: whichever the server takes first
    one.post("end-sentence")  # there is none: nothing happens
    one.say("fe dc")
    one.post("end-sentence")
    ended = one.until("end")
    assert (ended["words"], ended["segment"]) == (5, 1)
    one.finish()
    stats = one.until("finished")["stats"]
    assert (stats["words"], stats["segments"]) == (5, 2)
    shifted = [(text, delay + 3) for text, delay in expected("fe dc")]
    assert one.written() == expected(text) + shifted
    heads = [m["heads"] for m in one.messages if m["type"] == "write" and m["segment"] == 1]
    assert all(3 < at <= 5 for write in heads for layer in write for at in layer)


def test_an_end_of_sentence_in_the_middle_of_a_queue(start: Start) -> None:
    server = start(rows=1)
    one = Client(server.url)
    for _ in range(5):
        one.say("ab cd ef")
        one.post("end-sentence")
    one.finish()
    stats = one.until("finished")["stats"]
    assert (stats["words"], stats["segments"]) == (15, 5)
    ends = [m["words"] for m in one.messages if m["type"] == "end"]
    assert ends == [3, 6, 9, 12, 15]


def test_ping_is_answered_and_acknowledges(start: Start) -> None:
    server = start()
    one = Client(server.url)
    one.say("ab ac")
    one.until("read")
    one.send({"type": "ping", "seq": 0, "ack": one.last})
    assert one.until("pong")["ack"] == 1
    (session,) = server.live.sessions.values()
    assert not session.outbox


def test_an_empty_stream_finishes(start: Start) -> None:
    one = Client(start().url)
    one.say("   ")
    one.finish()
    assert one.until("finished")["stats"] == {
        "words": 0, "written": 0, "segments": 0, "seconds": one.messages[-1]["stats"]["seconds"],
    }  # fmt: skip


def post(server: Running, body: bytes, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{server.http}/v1/translate", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def get(server: Running, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(server.http + path, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_whole_texts_over_http(start: Start) -> None:
    server = start(token="secret", rows=2)
    text = text_of(4)
    body = json.dumps({"text": text}).encode()
    assert post(server, body)[0] == 401
    assert post(server, body, Authorization="Bearer wrong")[0] == 401
    status, answer = post(server, body, Authorization="Bearer secret")
    found = json.loads(answer)
    assert status == 200
    assert [(w["text"], w["delay"]) for w in found["writes"]] == expected(text)
    assert found["text"].split() == [w for t, _ in expected(text) for w in t.split()]
    assert found["stats"]["segments"] == 3 == len(found["text"].split("\n"))
    headers = {"Authorization": "Bearer secret", "Accept": "text/event-stream"}
    _, stream = post(server, body, **headers)
    events = [
        json.loads(block.split("data: ")[1]) for block in stream.decode().split("\n\n") if block
    ]
    writes = [(e["text"], e["delay"]) for e in events if e["type"] == "write"]
    assert writes == expected(text)
    assert events[-1]["type"] == "finished"
    headers = {"Authorization": "Bearer secret"}
    for bad, status in (
        (b"", 422), (b"[]", 422), (b'{"text": 3}', 422), (b'{"text": "a", "threshold": 1}', 422),
        (b'{"text": "a", "pair": "xx-yy"}', 422), (b'{"text": "' + b"a" * 70_000 + b'"}', 413),
    ):  # fmt: skip
        code, answer = post(server, bad, **headers)
        assert code == status, bad[:40]
        assert json.loads(answer).keys() == {"code", "message"}
    assert post(server, body, Origin="http://elsewhere.example", **headers)[0] == 403
    crowd = [Client(server.url, token="secret") for _ in range(2 * 4)]
    assert post(server, body, **headers)[0] == 503
    for one in crowd:
        one.socket.close(1000)


def test_pages_that_say_how_it_goes(start: Start) -> None:
    server = start()
    assert get(server, "/healthz") == (200, "ok\n")
    Client(server.url).translate("ab ac.")
    _, metrics = get(server, "/metrics")
    assert "simultan_started_total 1.0" in metrics
    assert "simultan_words_heard_total 2.0" in metrics
    status, docs = get(server, "/docs")
    assert status == 200
    assert "/v1/translate" in docs
    assert "http://" not in docs.replace(server.http, "")
    assert "https://" not in docs
    assert "/v1/translate" in json.loads(get(server, "/openapi.json")[1])["paths"]
    assert get(server, "/static/../app.py")[0] == 404


def test_the_python_client(start: Start) -> None:
    server = start(queue=10, window=16)  # smaller than the text: both sides must wait
    text = text_of(5, sentences=12)

    async def run() -> list[tuple[str, int]]:
        found = [w async for w in client.translate(server.url, [text[:40], *text[40:].split(" ")])]
        return [(write.text, write.delay) for write in found]

    text = " ".join([text[:40].strip(), *text[40:].split(" ")])
    assert asyncio.run(run()) == expected(text)
    items = list(client.iterate(server.url, text.split()))
    assert [item for item in items if isinstance(item, str)] == text.split()
    writes = [(item.text, item.delay) for item in items if isinstance(item, client.Write)]
    assert writes == expected(text)
    assert b"slow-reader" not in server.live.metrics.text()  # it has acknowledged in time
    with pytest.raises(client.ServerError, match="unknown-pair"):
        asyncio.run(anext(client.translate(server.url, ["a"], pair="xx-yy")))  # type: ignore[arg-type]


def test_what_goes_wrong_at_the_python_client(start: Start) -> None:
    server = start()

    def spoken() -> Iterator[str]:
        yield "ab"
        raise KeyError("what the user did")

    with pytest.raises(KeyError, match="what the user did"):
        list(client.iterate(server.url, spoken()))
    with pytest.raises(client.ServerError, match="no simultan server"):
        list(client.iterate(server.http.replace("http", "ws") + "/healthz", ["ab"]))
    server.stop()
    with pytest.raises(OSError):
        list(client.iterate(server.url, ["ab"]))


def test_the_python_client_takes_a_lost_connection_up_again(start: Start) -> None:
    server = start()
    text = text_of(6, sentences=8)

    async def run() -> tuple[list[tuple[str, int]], int]:
        found: list[tuple[str, int]] = []
        async with (
            asyncio.timeout(PATIENCE),
            client.Stream(server.url, timeout=4 * PATIENCE) as stream,
        ):

            async def feed() -> None:
                for count, word in enumerate(text.split()):
                    await stream.send(word)
                    await asyncio.sleep(0.002)
                    if count % 10 == 5:
                        while stream.resumed < count // 10:  # it is still taken up again
                            await asyncio.sleep(0.002)
                        assert stream._socket is not None
                        stream._socket.transport.abort()
                await stream.finish()

            feeding = asyncio.create_task(feed())
            async for message in stream:
                if isinstance(message, client.Write):
                    found.append((message.text, message.delay))
            await feeding
            return found, stream.resumed

    found, resumed = asyncio.run(run())
    assert found == expected(text)
    assert resumed == 5


def test_binary_frames_have_no_meaning(start: Start) -> None:
    with connect(start().url) as socket:
        socket.send(b"\x00\x01")
        assert json.loads(socket.recv())["code"] == "malformed"


def simultan(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simultan.cli", *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=PATIENCE)


def test_the_command_line_asks_a_server(start: Start) -> None:
    server = start(token="sesame")
    text = text_of(3)
    done = simultan("translate", "--url", server.url, "--token", "sesame", said=text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [word for part, _ in expected(text) for word in part.split()]
    refused = simultan("translate", "--url", server.url, "--token", "wrong", said=text)
    assert refused.returncode == 2
    assert refused.stderr == "simultan: the token is missing or wrong (unauthorized)\n"


def test_the_command_line_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxed, "BOXES", ())
    with pytest.raises(ValueError, match="which model"):
        CliRunner().invoke(app, ["serve"], catch_exceptions=False)
    with pytest.raises(OSError, match="nowhere"):
        CliRunner().invoke(app, ["serve", "nowhere"], catch_exceptions=False)
