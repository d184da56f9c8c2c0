"""A server in a thread, and the type of what opens pages on it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from simultan.streaming.translator import Translator

Opener = Callable[..., Any]  # a path and options of the browser's context -> a page


class Process:
    """`simultan serve` as a process, that can be killed and started again at the same port."""

    def __init__(self, model: Path, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}/"
        self.model = model
        self.running: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "simultan", "serve", str(self.model)]
        self.running = subprocess.Popen(
            [*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True
        )
        assert self.running.stdout is not None
        said = self.running.stdout.readline()  # when it listens, or has ended
        assert self.url.rstrip("/") in said, "the server did not start"

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.communicate()


class Running:
    """A server in a thread of its own; with a port, one that takes another's place."""

    def __init__(self, translator: Translator, port: int = 0, **options: Any) -> None:
        from simultan.server.run import make_server
        from simultan.server.settings import Settings

        settings = Settings(**{"rows": 32, "drain_seconds": 0.2, **options})
        self.server = make_server(translator, settings, "127.0.0.1", port)
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self) -> Running:
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    def change(self, **settings: Any) -> None:
        """Other settings from now on."""
        live = self.server.live
        live.settings = live.batcher.settings = replace(live.settings, **settings)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.should_exit = True
        self.thread.join()
