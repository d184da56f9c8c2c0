"""What a call of the harness is told, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Options", "Summary"]


@dataclass(frozen=True)
class Options:
    """Where things lie and how far to go."""

    out: Path  # checkpoints and what is under way
    results: Path  # results/, predictions/ and RUNS.md go here
    data: Path | None = None
    minutes: float = 0.0  # everything ends by then; 0: no limit
    train_minutes: float = 0.0  # training ends by then
    tiny: bool = False
    device: str = ""
    jobs: int = 0  # processes that measure; 0: this one does, on the training's device
    redo: bool = False
    scale: float = 1.0
    revision: str = ""
    command: str = ""
    wait: float = 0.0  # seconds, for a corpus or a model that another process is making
    compiled: Path | None = None  # folder of compiled code, taken over and added to


@dataclass
class Summary:
    """What became of the runs, by name."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # there was a result
    left: list[str] = field(default_factory=list)  # for the next call
    failed: list[str] = field(default_factory=list)
