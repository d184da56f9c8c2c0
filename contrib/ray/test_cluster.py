"""Two replicas under Ray Serve on one machine: many streams, resumes, a replica that is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_servers import Client, expected, text_of
from websockets.exceptions import ConnectionClosed

pytest.importorskip("ray")
SCRIPT = Path(__file__).with_name("cluster.py")

STREAMS = 20
TAG = 8  # characters of a session id that name its replica
PATIENCE = 300.0  # seconds; a start takes ten on an idle machine


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"it did not happen: {what}"
        time.sleep(0.05)


class Cluster:
    """cluster.py with everything Ray starts for it."""

    def __init__(self, folder: Path) -> None:
        self.temporary = tempfile.mkdtemp(prefix="ray-")  # short: paths of sockets have a limit
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/ws"
        command = f"{SCRIPT} {folder} --port {self.port} --replicas 2:2 --rows 24"
        self.log = Path(self.temporary) / "output"
        with self.log.open("w") as log:
            own = {
                "RAY_ADDRESS": "",  # a cluster of its own, whatever else runs here
                "RAY_TMPDIR": self.temporary,
            }
            self.process = subprocess.Popen(
                [sys.executable, *command.split()],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own},
            )
        try:
            wait_for(self._ready, "two replicas")
        except BaseException:
            self.close()
            raise

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "Ctrl-C" in self.log.read_text()

    def processes(self) -> dict[int, str]:
        """Ours: they know the folder, in an argument or in their environment."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if self.temporary.encode() in command + (folder / "environ").read_bytes():
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode()
        return found

    def replicas(self) -> set[int]:
        return {pid for pid, command in self.processes().items() if "ServeReplica" in command}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    running = Cluster(folder)
    yield running
    running.close()


def replica(client: Client) -> str:
    return str(client.started["session"])[:TAG]


def half(client: Client, number: int) -> str:
    """Say the first half of a text and hear of it; the other half."""
    words = text_of(number).split()
    for word in words[:9]:
        client.say(word)
    while client.until("read")["words"] < 9:
        pass
    return " ".join(words[9:])


def test_twenty_streams_at_once(cluster: Cluster) -> None:
    clients = [Client(cluster.url) for _ in range(STREAMS)]
    assert len({replica(client) for client in clients}) == 2
    rest = [half(client, number) for number, client in enumerate(clients)]
    for number, client in enumerate(clients):
        assert client.translate(rest[number]) == expected(text_of(number))
        assert client.close_code() == 1000


def test_a_resume_finds_its_replica(cluster: Cluster) -> None:
    """Whichever replica the connection reaches: of 16, hardly all reach their own by chance."""
    firsts = [Client(cluster.url) for _ in range(8)]
    rest = [half(client, number) for number, client in enumerate(firsts)]
    for client in firsts:
        client.cut()
    for number, first in enumerate(firsts):
        session, written = first.started["session"], first.written()
        resume = {"session": session, "last": first.last}
        again = Client(cluster.url, resume=resume)
        assert (again.started["session"], again.started["resumed"]) == (session, True)
        third = Client(cluster.url, resume=resume)  # takes it over
        assert again.error() == ("replaced", 4409)
        third.number = third.started["ack"]
        assert third.number == 9
        assert written + third.translate(rest[number]) == expected(text_of(number))
        assert third.close_code() == 1000
    client = Client(cluster.url, begin=False)
    resume = {"session": "a" * TAG + "b", "last": 0}
    assert client.begin(resume=resume)["code"] == "unknown-session"
    assert client.close_code() == 4404


def test_a_killed_replica_takes_only_its_own_streams_along(cluster: Cluster) -> None:
    clients = [Client(cluster.url) for _ in range(STREAMS)]
    rest = [half(client, number) for number, client in enumerate(clients)]
    killed, other = sorted(cluster.replicas())
    os.kill(killed, signal.SIGKILL)
    dead: set[str] = set()
    spared: set[str] = set()
    for number, client in enumerate(clients):
        try:
            written = client.translate(rest[number])
        except ConnectionClosed:  # at once, not after a timeout
            dead.add(replica(client))
            lost = Client(cluster.url, begin=False)
            resume = {"session": client.started["session"], "last": client.last}
            assert lost.begin(resume=resume)["code"] == "unknown-session"
            assert lost.close_code() == 4404
            written = Client(cluster.url).translate(text_of(number))
        else:
            spared.add(replica(client))
        assert written == expected(text_of(number))
    assert len(dead) == len(spared) == 1
    assert dead != spared

    def both_used() -> bool:
        clients = [Client(cluster.url) for _ in range(8)]
        tags = {replica(client) for client in clients}
        for client in clients:
            client.socket.close(1000)
        return len(tags) == 2

    wait_for(both_used, "a new replica in place of the killed one")
    assert other in cluster.replicas()


def test_followers_are_told_that_there_are_no_channels(cluster: Cluster) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as error:
        urllib.request.urlopen(f"http://127.0.0.1:{cluster.port}/v1/follow/abc")
    assert b"cannot be followed" in error.value.read()
    client = Client(cluster.url, channel="a-secret-of-the-hall")
    assert client.started["channel"] == ""
    client.socket.close(1000)


def test_stopping_tells_clients_and_leaves_nothing_behind(cluster: Cluster) -> None:
    client = Client(cluster.url)
    client.say("a")
    cluster.process.send_signal(signal.SIGTERM)
    while (message := client.receive())["type"] != "going-away":
        assert message["type"] in ("write", "read")
    assert client.close_code() == 1001
    assert cluster.process.wait(PATIENCE) == 0, cluster.log.read_text()
    wait_for(lambda: not cluster.processes(), "all processes gone")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--replicas some", "MIN:MAX"),
        ("--replicas 3:2", "MIN <= MAX"),
        ("--port 0", "needs a --port"),
        ("--decoding much", "decoding"),
    ],
)
def test_bad_options_are_refused_before_ray_starts(
    folder: Path, options: str, message: str
) -> None:
    command = [sys.executable, str(SCRIPT), str(folder), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert message in done.stderr
