"""A verb's signature as a command line."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner, Result

from simultan.config import Bound
from simultan.verbs.parameters import expand

CALLS: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Group:
    size: Annotated[int, Bound(1), "Use this size.", "<N>"] = 3
    kind: Annotated[Literal["hard", "soft"] | None, "Choose a kind."] = None
    hidden: float = 0.5


def called(
    first: Annotated[int, "Not asked for: the verb gives it."],
    *,
    second: Annotated[float, "Say a second thing.", "--second", "--other"] = 0.25,
    silent: int = 7,
) -> None:
    raise NotImplementedError


def verb(
    name: Annotated[str, "Name of it."],
    rest: Annotated[tuple[Path, ...], "All others."] = (),
    *,
    wanted: Annotated[int, "Say how many."],
    flag: Annotated[bool, "Do it."] = False,
    both: Annotated[bool, "Do both."] = True,
    many: Annotated[tuple[float, ...], "Repeat it."] = (),
    secret: Annotated[str, "Hide it.", "$A_SECRET"] = "",
    group: Group = Group(size=5),  # noqa: B008
    first: Annotated[str, "Say the first thing."] = "",
    **options: Annotated[Any, called],
) -> None:
    """What it does."""
    CALLS.append(locals())


def run(*arguments: object, **environment: str) -> Result:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(expand(verb))
    CALLS.clear()
    return CliRunner().invoke(
        app, [str(a) for a in arguments], env={"COLUMNS": "80", **environment}
    )


def test_defaults() -> None:
    assert run("x", "--wanted", 1).exit_code == 0
    assert [
        {
            "name": "x", "rest": (), "wanted": 1, "flag": False, "both": True, "many": (),
            "secret": "", "group": Group(size=5), "first": "", "options": {"second": 0.25},
        }
    ] == CALLS  # fmt: skip


def test_everything_given() -> None:
    options = "--wanted 2 --flag --no-both --many 1 --many 2.5 --size 9 --kind soft --other 3"
    assert run("x", "a", "b", *options.split(), "--first", "f", A_SECRET="s").exit_code == 0
    assert [
        {
            "name": "x", "rest": (Path("a"), Path("b")), "wanted": 2, "flag": True, "both": False,
            "many": (1.0, 2.5), "secret": "s", "group": Group(9, "soft"), "first": "f",
            "options": {"second": 3.0},
        }
    ] == CALLS  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    ["x", "--wanted 1", "x --wanted one", "x --wanted 1 --size 0", "x --wanted 1 --no-flag"],
)
def test_wrong_use_is_told(arguments: str) -> None:
    assert run(*arguments.split()).exit_code == 2
    assert not CALLS


def test_help() -> None:
    text = run("--help").output
    for wanted in ("What it does.", "Name of it.", "--size N", "Use this size.", "[default: 5",
                   "--second, --other", "A_SECRET", "--both / --no-both"):  # fmt: skip
        assert wanted in text
    for absent in ("hidden", "silent", "--no-flag", "Not asked for"):
        assert absent not in text


def test_every_option_says_its_own_name() -> None:
    """Or a version of typer takes the metavar for it: --DEVICE."""
    for parameter in inspect.signature(expand(verb)).parameters.values():
        (option,) = parameter.annotation.__metadata__
        if isinstance(option, typer.models.OptionInfo) and parameter.default is not True:
            assert option.default.startswith("--")
            assert option.default == option.default.lower()
