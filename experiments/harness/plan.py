"""The plan of an experiment: which runs, from which recipe and start, measured at which points.

A plan is a TOML file. `set` above all tables changes every recipe, `[corpora.NAME]` says what to
prepare, `[groups.NAME]` what runs have in common, `[[runs]]` adds to its group; `matrix` makes one
run of every combination of its values and puts them where {key} stands; `seeds` makes one run of
every seed. `[lists]` gives names of runs and groups, in an order, a name of their own.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simultan import config as configuration
from simultan.config import Config, ConfigError
from simultan.streaming.decoding import Decoding

__all__ = [
    "CorpusPlan",
    "Group",
    "Plan",
    "PlannedRun",
    "find_plan",
    "label",
    "load",
]


@dataclass(frozen=True)
class CorpusPlan:
    """A prepared folder and how it is made of a named corpus."""

    folder: str
    named: str = ""
    tokenized: bool = True  # its text is in tokens: BLEU must not split it again
    subwords: bool = False  # latency is counted in subwords, too
    prepare: Mapping[str, Any] = field(default_factory=dict)  # arguments of data.corpus.prepare


@dataclass(frozen=True)
class Group:
    """What runs have in common, and how tables and figures call them."""

    name: str
    title: str
    part: int = 1
    claim: str = ""  # what the paper says of it
    paper: float | None = None  # the paper's BLEU
    figure: str = ""  # the curve this group is a part of; empty: none
    deviations: tuple[str, ...] = ()  # from the paper


@dataclass(frozen=True)
class PlannedRun:
    """One run: a recipe with changes, a start, and what is measured of it."""

    name: str
    group: Group
    corpus: str
    recipe: Path | None = None  # None: nothing is trained, the model is that of `use` or `model`
    use: str = ""
    model: str = ""  # one that no plan trains: a model's name, or a folder from where one runs it
    quantize: str | None = None  # "int8": how a CPU translates with it
    settings: tuple[str, ...] = ()
    seed: int = 1
    stage: int = 0  # how many runs stand before it, each started from the one before
    init_from: str = ""  # the name of the run whose final model it starts from
    init_parts: tuple[str, ...] = ()  # only weights whose names begin so; empty: all
    points: tuple[Decoding, ...] = (Decoding(),)  # ways to translate with the trained model
    saves: int = 8  # checkpoints in the course of the run
    validated: int = 0  # sentences of the validation set that are translated; 0: all
    candidates: int = 0  # last checkpoints that may be chosen instead of the averaged model
    dal_range: tuple[float, float] = (0.0, 1e9)  # where the chosen one must lie on validation
    predictions: bool = True  # whether translations of the test set are kept
    labels: Mapping[str, str | int | float] = field(default_factory=dict)  # of its matrix
    deviations: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        return self.use or self.init_from

    def config(self, changes: Iterable[str] = (), scale: float = 1.0) -> Config:
        """The configuration, but for folders; `scale` shortens the run evenly."""
        if self.recipe is None:
            raise ConfigError(f"{self.name} trains nothing")
        # another seed for each stage: its start has seen the batches and masks of its own
        seed = self.seed + 100 * self.stage
        settings = [*self.settings, f"train.seed={seed}", "train.validate_every=0", *changes]
        planned = configuration.load(self.recipe, [*settings, "train.init_from="])
        updates = max(1, round(planned.train.updates * scale))
        every = max(1, updates // max(1, self.saves))
        settings += [
            f"train.updates={updates}",
            f"train.save_every={every}",
            f"train.keep={max(1, self.candidates, planned.train.average)}",
            f"train.log_every={max(1, min(500, updates // 5))}",
            f"train.warmup={max(1, round(planned.train.warmup * scale))}",
            f"train.cooldown={round(planned.train.cooldown * scale)}",
        ]
        return configuration.load(self.recipe, [*settings, "train.init_from="])


@dataclass(frozen=True)
class Plan:
    """A whole experiment."""

    name: str
    folder: Path
    corpora: Mapping[str, CorpusPlan]
    groups: Mapping[str, Group]
    runs: tuple[PlannedRun, ...]
    valid: str = "valid"  # what the validation set is called
    test: str = "test"
    quality: str = "bleu_lowercased"  # the score that systems are compared by
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what to run together

    @property
    def counts_subwords(self) -> bool:
        return any(corpus.subwords for corpus in self.corpora.values())

    def select(self, only: Sequence[str] = ()) -> list[PlannedRun]:
        """The runs of these names, groups, parts ("part1") or lists, in this order, then the
        plan's."""
        only = [name for given in only for name in self.lists.get(given, [given])]
        known = {name for run in self.runs for name in _names(run)}
        for name in only:
            if name not in known:
                groups = ", ".join([*self.groups, *self.lists])
                raise ConfigError(f"the plan has no run or group {name!r}; its groups: {groups}")
        if not only:
            return list(self.runs)
        chosen = [run for run in self.runs if _names(run) & set(only)]
        return sorted(chosen, key=lambda run: min(only.index(n) for n in _names(run) & set(only)))

    def run(self, name: str) -> PlannedRun:
        return next(run for run in self.runs if run.name == name)


def _names(run: PlannedRun) -> set[str]:
    return {run.name, run.group.name, f"part{run.group.part}"}


def label(decoding: Decoding) -> str:
    """The name of a point: what a plan writes, an agent's folder by its name; else nothing."""
    return "" if decoding == Decoding() else str(decoding).rstrip("/").rpartition("/")[2]


def _decoding(text: str) -> Decoding:
    try:
        return Decoding.parse(text)
    except ValueError as error:
        raise ConfigError(f"point {text!r}: {error}") from error


def find_plan(experiment: str) -> Path:
    """The plan file of a name ("mma2020": below experiments/), a folder or a file."""
    for path in (Path(experiment), Path("experiments") / experiment):
        file = path / "plan.toml" if path.is_dir() else path
        if file.is_file():
            return file
    raise ConfigError(
        f"no plan of {experiment!r}: name a folder of experiments/, in the repository's root,"
        " or a plan file"
    )


def load(path: str | Path) -> Plan:
    """Read a plan; recipes are named relative to it."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        return _plan(path, table)
    except (ConfigError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _plan(path: Path, table: Mapping[str, Any]) -> Plan:
    shared = table.get("groups", {})
    group_keys = {f.name for f in dataclasses.fields(Group)} - {"name", "deviations"}
    groups = {
        name: Group(
            name=name,
            deviations=tuple(group.get("deviations", ())),
            **{key: value for key, value in group.items() if key in group_keys},
        )
        for name, group in shared.items()
    }
    runs: list[PlannedRun] = []
    for entry in table.get("runs", ()):
        group = entry["group"]
        if group not in groups:
            raise ConfigError(f"run {entry.get('name')!r}: there is no [groups.{group}]")
        rest = {k: v for k, v in shared[group].items() if k not in group_keys | {"deviations"}}
        settings = [*table.get("set", ()), *rest.get("set", ()), *entry.get("set", ())]
        merged = {**rest, **entry, "set": settings}
        runs += _expand(merged, groups[group], path.parent)
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        if run.name in seen:
            raise ConfigError(f"two runs are called {run.name!r}")
        if run.needs and run.needs not in seen:
            raise ConfigError(f"{run.name} needs {run.needs!r}, which does not stand before it")
        if run.corpus not in table.get("corpora", {}):
            raise ConfigError(f"{run.name}: there is no [corpora.{run.corpus}]")
        stage = seen[run.init_from].stage + 1 if run.init_from else 0
        seen[run.name] = dataclasses.replace(run, stage=stage)
    corpora = {name: CorpusPlan(**corpus) for name, corpus in table["corpora"].items()}
    names = {key: table[key] for key in ("valid", "test", "quality", "lists") if key in table}
    name = table.get("name", path.parent.name)
    plan = Plan(name, path.parent, corpora, groups, tuple(seen.values()), **names)
    for names_of_runs in plan.lists.values():
        plan.select(names_of_runs)  # a name that is not known is an error
    return plan


def _expand(entry: Mapping[str, Any], group: Group, folder: Path) -> Iterator[PlannedRun]:
    """One run for every combination of the matrix and every seed."""
    known = {f.name for f in dataclasses.fields(PlannedRun)} - {"stage"}
    known |= {"matrix", "seeds", "set", "range"}
    unknown = sorted(entry.keys() - known)
    if unknown:
        raise ConfigError(f"run {entry.get('name')!r}: unknown key {unknown[0]!r}")
    trains_nothing = "use" in entry or "model" in entry
    matrix = entry.get("matrix", {})
    seeds = entry.get("seeds", [entry.get("seed", 1)])
    for values in itertools.product(*matrix.values()):
        labels = dict(zip(matrix, values, strict=True))

        def fill(text: str, labels: Mapping[str, Any] = labels) -> str:
            for key, value in labels.items():
                text = text.replace("{" + key + "}", str(value))
            return text

        for number, seed in enumerate(int(fill(str(seed))) for seed in seeds):
            name = fill(entry["name"]) + (f"-seed{seed}" if number else "")
            yield PlannedRun(
                name=name,
                group=group,
                corpus=entry["corpus"],
                recipe=None if trains_nothing else folder / fill(entry["recipe"]),
                use=fill(entry.get("use", "")),
                model=entry.get("model", ""),
                quantize=entry.get("quantize"),
                settings=tuple(fill(item) for item in entry["set"]),
                seed=seed,
                init_from=fill(entry.get("init_from", "")),
                init_parts=tuple(entry.get("init_parts", ())),
                points=tuple(_decoding(fill(p)) for p in entry.get("points", [""])),
                saves=entry.get("saves", 8),
                validated=entry.get("validated", 0),
                candidates=entry.get("candidates", 0),
                dal_range=tuple(entry.get("range", (0.0, 1e9))),
                predictions=entry.get("predictions", True),
                labels={**labels, **({"seed": seed} if len(seeds) > 1 else {})},
                deviations=tuple(fill(text) for text in entry.get("deviations", ())),
            )
