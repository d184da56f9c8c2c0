"""A run's folder: config.toml, checkpoints/NNNNNNNN, links last and best, final, metrics.jsonl.

`last` and `best` are links into checkpoints/, moved in one step, so they always name a whole
model. The newest checkpoint is where a run goes on.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path

from simultan import checkpoint
from simultan import config as configuration
from simultan.config import Config, ConfigError

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """Names and upkeep of what a run writes."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        return self.path / "last"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def final(self) -> Path:
        return self.path / "final"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def check(self, config: Config) -> None:
        """Refuse to go on with a run that was started with another configuration."""
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
        self.config.unlink()  # first: what is left after a kill is then no run to go on with
        for path in (self.last, self.best, self.metrics):
            path.unlink(missing_ok=True)
        for path in (self.checkpoints, self.final, self.tensorboard):
            shutil.rmtree(path, ignore_errors=True)

    def create(self, config: Config) -> None:
        """Write the configuration of a new run."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if self.newest() is None:
            partial = self.path / ".config.toml.partial"
            partial.write_text(configuration.dump(config), encoding="utf-8")
            partial.replace(self.config)

    def checkpoint(self, update: int) -> Path:
        return self.checkpoints / f"{update:08d}"

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, oldest first."""
        return sorted(int(path.name) for path in self.checkpoints.glob("[0-9]*"))

    def newest(self) -> Path | None:
        updates = self.updates()
        return self.checkpoint(updates[-1]) if updates else None

    def prune(self, config: Config, best: int | None) -> None:
        """Keep the newest, what the average will need, the best, and where the run goes on."""
        updates = self.updates()
        regular = [update for update in updates if is_regular(config, update)]
        wanted = {*regular[-max(config.train.keep, config.train.average, 1) :], updates[-1], best}
        for update in updates:
            if update not in wanted:
                shutil.rmtree(self.checkpoint(update))

    def finish(self, config: Config, anew: bool) -> None:
        """Average the last checkpoints into the final model; anew: in the place of an older one."""
        if self.final.exists():
            if not anew:
                return
            shutil.rmtree(self.final)
        updates = self.updates()
        regular = [u for u in updates[:-1] if is_regular(config, u)] + updates[-1:]
        chosen = [self.checkpoint(u) for u in regular[-max(config.train.average, 1) :]]
        codec = checkpoint.load_codec(chosen[-1])
        checkpoint.save(self.final, checkpoint.average(chosen), config, codec)


def is_regular(config: Config, update: int) -> bool:
    """Whether a checkpoint is one the recipe asks for, not one left by a stop in between."""
    return update % config.train.save_every == 0 or update == config.train.updates


def _difference(old: Config, new: Config) -> str:
    parts = []
    for section in dataclasses.fields(old):
        before, after = getattr(old, section.name), getattr(new, section.name)
        for key in dataclasses.fields(before):
            one, other = getattr(before, key.name), getattr(after, key.name)
            if one != other:
                parts.append(f"{section.name}.{key.name} = {one!r} (now {other!r})")
    return ", ".join(parts)
