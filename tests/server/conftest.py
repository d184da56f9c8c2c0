"""Servers for one test, which are stopped after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_servers import CODEC, MODEL, PATIENCE, Process, Running

from simultan import checkpoint
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.server.settings import Settings


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """start(**settings) -> a running server."""
    servers: list[Running] = []

    def begin(**settings: Any) -> Running:
        # quick where a server waits for its own clock, patient where it waits for a test
        quick = {"tick_seconds": 0.02, "rows": 8, "wrong_token_seconds": 0.0, "drain_seconds": 0.1,
                 "connections_per_second": 1e6, "start_seconds": PATIENCE,
                 "slow_seconds": PATIENCE, "unused_seconds": PATIENCE,
                 "resume_seconds": PATIENCE}  # fmt: skip
        servers.append(Running(Settings(**{**quick, **settings})))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a folder."""
    path = tmp_path_factory.mktemp("served") / "model"

    config = Config(
        model=ModelConfig(
            architecture="transformer", width=16, ffn=24, heads=2, encoder_layers=1,
            decoder_layers=2, dropout=0.0,
        ),
        policy=PolicyConfig(name="mma-il", chunk=2, k=(2,), energy_bias=-0.2),
    )  # fmt: skip
    checkpoint.save(path, checkpoint.weights_of(MODEL), config, CODEC)
    return path


@pytest.fixture
def launch(folder: Path) -> Iterator[Callable[..., Process]]:
    """launch(*options) -> `simultan serve` in a process."""
    processes: list[Process] = []

    def begin(*options: str, port: int = 0) -> Process:
        processes.append(Process(folder, *options, port=port))
        return processes[-1]

    yield begin
    for process in processes:
        process.end()
