"""A run's folder: config.toml, checkpoints/NNNNNNNN, links last and best, final, metrics.jsonl.

`last` and `best` are links into checkpoints/, moved in one step, so they always name a whole
model. A run continues from the newest checkpoint.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import torch

from simultan import atomic, checkpoint
from simultan import config as configuration
from simultan.config import Config, ConfigError
from simultan.data.codec import Codec


class RunFolder:
    """Names and upkeep of what a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics = path / "config.toml", path / "metrics.jsonl"
        self.checkpoints, self.tensorboard = path / "checkpoints", path / "tensorboard"
        self.last, self.best, self.final = path / "last", path / "best", path / "final"

    def check(self, config: Config) -> None:
        """Refuse to continue a run that was started with another configuration."""
        if not self.config.exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise ConfigError(f"{self.path} is neither empty nor a run: choose another --out")
            return
        if self.newest() is None:
            return  # it never came to a checkpoint: nothing is lost
        difference = _difference(configuration.load(self.config), config)
        if difference:
            raise ConfigError(
                f"{self.path} holds a run with {difference}: choose another --out,"
                " or --overwrite to remove that run and start anew"
            )

    def clear(self) -> None:
        """Remove a run, and nothing that is not one."""
        if not self.config.exists():
            return
        self.config.unlink()  # first: if we are killed now, the rest is no run to continue
        for path in (self.last, self.best, self.metrics):
            path.unlink(missing_ok=True)
        for path in (self.checkpoints, self.final, self.tensorboard):
            shutil.rmtree(path, ignore_errors=True)

    def create(self, config: Config) -> None:
        """Write the configuration of a new run; remove what a killed one had begun to save."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        atomic.sweep(self.path)
        atomic.sweep(self.checkpoints)
        if self.newest() is None:
            atomic.write_text(self.config, configuration.dump(config))

    def checkpoint(self, update: int) -> Path:
        return self.checkpoints / f"{update:08d}"

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, oldest first."""
        return sorted(int(path.name) for path in self.checkpoints.glob("[0-9]*"))

    def newest(self) -> Path | None:
        updates = self.updates()
        return self.checkpoint(updates[-1]) if updates else None

    def prune(self, config: Config, best: int | None) -> None:
        """Keep the newest, the best, those to average, and the one to continue from."""
        updates = self.updates()
        regular = [update for update in updates if is_regular(config, update)]
        wanted = {*regular[-max(config.train.keep, config.train.average, 1) :], updates[-1], best}
        for update in updates:
            if update not in wanted:
                shutil.rmtree(self.checkpoint(update))

    def finish(self, config: Config) -> None:
        """Average the last checkpoints into the final model, in the place of an older one."""
        updates = self.updates()
        regular = [u for u in updates[:-1] if is_regular(config, u)] + updates[-1:]
        chosen = [self.checkpoint(u) for u in regular[-max(config.train.average, 1) :]]
        weights = checkpoint.average(chosen)
        if self.final.exists():  # of these checkpoints, or of those before a run went on
            known = checkpoint.load_weights(self.final)
            if all(torch.equal(known[name], weights[name]) for name in weights):
                return
            shutil.rmtree(self.final)
        checkpoint.save(self.final, weights, config, Codec.load(chosen[-1]))


def is_regular(config: Config, update: int) -> bool:
    """Whether a checkpoint is one the recipe asks for, not one left by a stop in between."""
    return update % config.train.save_every == 0 or update == config.train.updates


def _difference(old: Config, new: Config) -> str:
    before, after = dataclasses.asdict(old), dataclasses.asdict(new)
    return ", ".join(
        f"{section}.{key} = {value!r} (now {after[section][key]!r})"
        for section, table in before.items()
        for key, value in table.items()
        if value != after[section][key]
    )
