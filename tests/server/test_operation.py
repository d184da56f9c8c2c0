"""What an operator relies on: rights, names, headers, logs, and a stop that loses nothing."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from running_servers import (
    PATIENCE,
    Client,
    Process,
    Running,
    expected,
    heed_interrupts,
    text_of,
    wait_until,
)

from simultan.server.access import Access
from simultan.server.batcher import Batcher
from simultan.server.run import check_address
from simultan.server.settings import Settings

Start = Callable[..., Running]
Launch = Callable[..., Process]
TOKENS = """
[speaker]
token = "speaker-1234"
rights = ["translate", "publish"]
[typist]
token = "typist-1234"
rights = ["translate"]
[reader]
token = "reader-1234"
rights = ["follow"]
[prometheus]
token = "metrics-1234"
rights = ["metrics"]
"""
SECRET = "a-secret-of-the-hall"


def ask(
    port: int, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(line):
        line.request(method, path, body, headers)
        answer = line.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()


def code_of(server: Running, **start: object) -> str:
    one = Client(server.url, begin=False)
    return str(one.begin(**start).get("code", "started"))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_opens_what_its_rights_say(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(TOKENS)
    server = start(tokens_file=path)
    assert code_of(server, token="speaker-1234", channel=SECRET) == "started"
    assert code_of(server, token="reader-1234") == "unauthorized"
    for channel in (None, SECRET):  # who resumes a session writes its channel
        more = {} if channel is None else {"channel": channel}
        session = Client(server.url, token="speaker-1234", **more).started["session"]
        resume = {"session": session, "last": 0}
        wanted = "started" if channel is None else "unauthorized"
        assert code_of(server, token="typist-1234", resume=resume) == wanted
        assert code_of(server, token="speaker-1234", resume=resume) == "started"
    assert code_of(server) == "unauthorized"
    port, text = server.port, b'{"text": "ab!"}'
    assert ask(port, "/metrics", **bearer("metrics-1234"))[0] == 200
    assert ask(port, "/metrics", **bearer("speaker-1234"))[0] == 401
    assert ask(port, "/metrics")[0] == 401
    assert ask(port, "/healthz")[0] == 200
    assert ask(port, "/v1/translate", "POST", text, **bearer("speaker-1234"))[0] == 200
    assert ask(port, "/v1/translate", "POST", text, **bearer("metrics-1234"))[0] == 401
    follow = f"{server.http}/v1/follow/{'x' * 22}?token="
    with urllib.request.urlopen(follow + "reader-1234", timeout=PATIENCE) as answer:
        assert answer.readline() == b"event: following\n"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(follow + "metrics-1234", timeout=PATIENCE)


def test_tokens_are_changed_without_a_restart(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(TOKENS)
    server = start(tokens_file=path)
    running = Client(server.url, token="speaker-1234")
    path.write_text(TOKENS.replace("speaker-1234", "another-12345"))
    assert code_of(server, token="speaker-1234") == "unauthorized"
    assert code_of(server, token="another-12345") == "started"
    assert running.translate("ab!") == expected("ab!")  # who is in stays in
    path.write_text("[speaker]\ntoken = 3")
    assert code_of(server, token="another-12345") == "started"  # a mistake locks nobody out
    assert "needs a token" in caplog.text
    path.unlink()
    assert code_of(server, token="another-12345") == "started"
    assert code_of(server, token="nothing-at-all") == "unauthorized"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nrights = ['follow']", "needs a token"),
        ("[a]\ntoken = 'short'\nrights = ['follow']", "at least 8"),
        ("[a]\ntoken = 'long enough'", "needs rights"),
        ("[a]\ntoken = 'long enough'\nrights = ['all']", "translate, publish"),
        ("a = 3", "needs a token"),
        ("[a", "tokens.toml"),
    ],
)
def test_a_wrong_file_of_tokens_is_told_at_the_start(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Access(Settings(tokens_file=path))


def test_wrong_tokens_are_logged_and_slowed(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    server = start(token="sesame-open-up", wrong_token_seconds=7.0)
    monkeypatch.setattr("simultan.server.access.sleep", sleep)
    assert code_of(server, token="wrong") == "unauthorized"
    monkeypatch.undo()
    assert slept == [7.0]
    assert "127.0.0.1: wrong token" in caplog.text
    assert code_of(server) == "unauthorized"  # who gives none has guessed none: at once


def test_a_page_that_takes_our_address_for_its_name_is_refused(start: Start) -> None:
    server = start(allowed_hosts=("good.example",))
    for name, status in (
        ("127.0.0.1", 200), ("localhost", 200), ("[::1]", 200), ("10.0.0.7", 200),
        ("good.example", 200), ("GOOD.example", 200), (socket.gethostname(), 200),
        ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421), ("[", 421),
    ):  # fmt: skip
        found = ask(server.port, "/", Host=f"{name}:{server.port}" if name else name)
        assert found[0] == status, name
    guarded = start(token="sesame-open-up")  # the page does not know the token
    assert ask(guarded.port, "/healthz", Host="any.example")[0] == 200


def test_headers_of_the_page(start: Start) -> None:
    server = start()
    for path in ("/", "/overlay", "/healthz", "/static/style.css", "/nowhere", "/docs"):
        _, headers, _ = ask(server.port, path)
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "'unsafe-eval'" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-cache"
        assert "server" not in headers
    _, headers, body = ask(server.port, "/", **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    for wanted in ("gzip;q=0", "br, gzip ; q=0.000, identity"):
        assert "content-encoding" not in ask(server.port, "/", **{"Accept-Encoding": wanted})[1]
    assert "content-encoding" in ask(server.port, "/", **{"Accept-Encoding": "gzip;q=0.5"})[1]
    assert len(body) < len(ask(server.port, "/")[2]) / 2


def test_head_works_where_get_does(start: Start) -> None:
    server = start()
    for path in ("/", "/overlay", "/healthz", "/metrics", "/docs", "/static/style.css"):
        status, headers, body = ask(server.port, path, "HEAD")
        assert (status, body) == (200, b""), path
        assert headers["content-type"] == ask(server.port, path)[1]["content-type"]


def test_event_streams_are_not_held_back_by_a_proxy(start: Start) -> None:
    server = start()
    sse = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    _, headers, _ = ask(server.port, "/v1/translate", "POST", b'{"text": "ab!"}', **sse)
    assert headers["x-accel-buffering"] == "no"
    assert headers["cache-control"] == "no-store"
    assert "content-encoding" not in headers
    with urllib.request.urlopen(f"{server.http}/v1/follow/abc", timeout=PATIENCE) as answer:
        assert answer.headers["x-accel-buffering"] == "no"


def test_a_full_server_says_when_to_come_again(start: Start) -> None:
    server = start(max_sessions=1)
    one = Client(server.url)
    status, headers, _ = ask(server.port, "/v1/translate", "POST", b'{"text": "ab!"}')
    assert (status, headers["retry-after"]) == (503, "5")
    one.cut()


def test_addresses_behind_a_proxy_are_believed_only_of_the_proxy(start: Start) -> None:
    behind = start(proxies=("127.0.0.1",), per_address=1)
    first = Client(behind.url, additional_headers={"X-Forwarded-For": "192.0.2.1"})
    second = Client(behind.url, additional_headers={"X-Forwarded-For": "192.0.2.2"})
    assert {s.address for s in behind.live.sessions.values()} == {"192.0.2.1", "192.0.2.2"}
    third = Client(behind.url, begin=False, additional_headers={"X-Forwarded-For": "192.0.2.2"})
    assert third.begin()["code"] == "busy"
    direct = start()
    liar = Client(direct.url, additional_headers={"X-Forwarded-For": "192.0.2.1"})
    assert {s.address for s in direct.live.sessions.values()} == {"127.0.0.1"}
    for one in (first, second, liar):
        one.cut()


def test_while_sentences_end_the_server_says_so_and_takes_no_more(launch: Launch) -> None:
    process = launch("--drain-seconds", str(PATIENCE))
    speaker, silent = Client(process.url), Client(process.url)
    speaker.say("ab cd")
    speaker.until("read")
    process.signal(signal.SIGTERM)
    wait_until(lambda: ask(process.port, "/healthz")[0] == 503)
    status, headers, body = ask(process.port, "/v1/translate", "POST", b'{"text": "ab!"}')
    assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, "5", "busy")
    late = Client(process.url, begin=False)
    assert late.begin()["type"] == "going-away"
    speaker.say("ef!")  # the open sentence may still end
    end = speaker.until("end")
    assert end["words"] == 3
    while speaker.receive()["type"] != "going-away":
        pass
    assert speaker.written() == expected("ab cd ef!")
    assert silent.receive()["type"] == "going-away"
    assert process.wait()[0] == -signal.SIGTERM


def test_a_text_under_way_is_not_cut_without_a_word(launch: Launch) -> None:
    process = launch("--drain-seconds", "0.2", "--words-per-second", "5")
    body = json.dumps({"text": text_of(1, sentences=500)}).encode()
    line = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
    line.request("POST", "/v1/translate", body)
    metrics = lambda: ask(process.port, "/metrics")[2]  # noqa: E731
    wait_until(lambda: b"simultan_sessions 1.0" in metrics())
    process.signal(signal.SIGTERM)
    answer = line.getresponse()
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert json.loads(answer.read())["code"] == "busy"
    assert process.wait()[0] == -signal.SIGTERM


def test_ctrl_c_does_not_wait_for_sentences(launch: Launch) -> None:
    process = launch("--drain-seconds", "1000")
    speaker = Client(process.url)
    speaker.say("ab cd")
    speaker.until("read")
    process.signal(signal.SIGINT)
    while speaker.receive()["type"] != "going-away":
        pass
    status, output = process.wait()
    assert status == 130
    assert "Traceback" not in output


def test_who_is_told_twice_to_stop_waits_for_nothing(launch: Launch) -> None:
    process = launch("--drain-seconds", str(PATIENCE))
    speaker = Client(process.url)
    speaker.say("ab cd")
    speaker.until("read")
    process.signal(signal.SIGTERM)
    wait_until(lambda: ask(process.port, "/healthz")[0] == 503)
    process.signal(signal.SIGINT)
    status, output = process.wait()
    assert status == -signal.SIGTERM
    assert "Traceback" not in output


def test_a_server_that_is_not_warm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer sends nobody to it; who comes all the same is served when it is."""
    warm_up, go = Batcher._warm_up, threading.Event()

    def wait(batcher: Batcher) -> None:
        assert go.wait(PATIENCE)
        warm_up(batcher)

    monkeypatch.setattr(Batcher, "_warm_up", wait)
    server = Running(Settings(rows=2), cold=True)
    try:
        assert ask(server.port, "/healthz")[::2] == (503, b"starting\n")
        early = Client(server.url)
        early.say("ab!")
        early.finish()
        go.set()
        early.until("finished")
        assert early.written() == expected("ab!")
        assert ask(server.port, "/healthz")[::2] == (200, b"ok\n")
    finally:
        go.set()
        server.stop()


def test_the_log_has_addresses_and_sizes_and_no_words(launch: Launch) -> None:
    process = launch("--log-level", "info", "--token", "sesame-open-up")
    Client(process.url + "?secretquery", token="sesame-open-up").translate("secretword ab!")
    one = Client(process.url, begin=False)
    assert one.begin(token="secrettoken")["code"] == "unauthorized"
    ask(process.port, "/v1/follow/secretchannel?token=secrettoken")
    ask(process.port, "/secretpath%0aFAKE")
    with socket.create_connection(("127.0.0.1", process.port)) as line:
        line.sendall(b"\x00secretnoise\r\n\r\n")
        line.recv(100)
    wait_until(lambda: ask(process.port, "/healthz")[0] == 200)
    process.signal(signal.SIGTERM)
    _, output = process.wait()
    assert "127.0.0.1 session finished: 2 words" in output
    assert "127.0.0.1: wrong token" in output
    assert "127.0.0.1 GET /healthz 200: 3 bytes" in output
    assert "127.0.0.1 GET /v1/follow/... 401" in output
    assert "127.0.0.1 400: no HTTP request" in output
    assert "secret" not in output
    assert "FAKE" not in output
    assert "sesame" not in output


def test_the_address_is_printed_when_the_port_is_ours(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "simultan", "serve", str(folder), "--port", str(port)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ}
        )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"simultan: cannot listen at 127.0.0.1, port {port}: something listens")


def serve_command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "simultan", "serve", str(folder), "--port", "0", *options]


def test_a_full_disk_for_the_address_is_told(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            serve_command(folder), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )
    assert done.stderr == "simultan: standard output: No space left on device\n"
    assert done.returncode == 2


def test_a_log_that_nobody_reads_stops_nothing(folder: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        serve_command(folder, "--log-level", "info"), stdout=subprocess.PIPE, stderr=writing,
        text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    os.close(writing)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        line = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE)
        for _ in range(300):  # 80 bytes of log, each
            line.request("GET", "/overlay")
            assert line.getresponse().read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM
        assert b"GET /overlay 200" in os.read(reading, 4096)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reading)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.name.invalid", "2001:db8::1"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=f"cannot listen at {host}, port 0: .*; choose another"):
        check_address(host, 0)


def test_a_check_of_the_address_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen(*_: object) -> None:
        raise AssertionError("who connects now takes a server for ready that has no model yet")

    monkeypatch.setattr(socket.socket, "listen", listen)
    check_address("127.0.0.1", 0)


def test_a_short_token_is_warned_of(launch: Launch) -> None:
    for token, warned in (("1234567", True), ("12345678", False)):
        process = launch("--token", token)
        process.signal(signal.SIGINT)
        _, output = process.wait()
        assert ("a token of fewer than 8 characters can be guessed" in output) == warned
        assert token not in output


def test_an_open_address_without_a_token_is_warned_of(launch: Launch) -> None:
    for options, warned in (
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--token", "sesame-open-up"), False),
        ((), False),
    ):
        process = launch(*options)
        process.signal(signal.SIGINT)
        _, output = process.wait()
        assert ("no token" in output) == warned
