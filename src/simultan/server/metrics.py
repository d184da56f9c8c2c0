"""What /metrics tells."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)


class Metrics:
    """Counts and times; nothing of what was said."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.sessions = Gauge("simultan_sessions", "Open sessions", registry=registry)
        self.connections = Gauge("simultan_connections", "Open websockets", registry=registry)
        self.followers = Gauge("simultan_followers", "Followers of channels", registry=registry)
        self.started = Counter("simultan_started", "Sessions started", registry=registry)
        self.resumed = Counter("simultan_resumed", "Sessions resumed", registry=registry)
        self.heard = Counter("simultan_words_heard", "Source words taken", registry=registry)
        self.writes = Counter("simultan_writes", "Writes sent", registry=registry)
        self.slowed = Counter("simultan_slowed", "Messages that had to wait", registry=registry)
        self.errors = Counter("simultan_errors", "Errors told", ["code"], registry=registry)
        self.rows = Histogram(
            "simultan_turn_rows",
            "Rows in a step of the model",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=registry,
        )
        self.seconds = Histogram(
            "simultan_turn_seconds",
            "Seconds of a step of the model",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
            registry=registry,
        )
        self.wait = Histogram(
            "simultan_wait_seconds",
            "From a source word to the write that needed it",
            buckets=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
            registry=registry,
        )
        ProcessCollector(registry=registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
