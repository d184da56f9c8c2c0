"""The command line of a verb, read from the signature of its function.

    def evaluate(
        model: Annotated[str, "Folder or name of the model."],
        *,
        rows: Annotated[int, Bound(1), "Translate this many sentences side by side."] = 32,
        machine: Machine = Machine(),
    ) -> None:

Positional parameters become arguments and keyword-only ones become options. The text is the help;
"--name" gives an option other names, "$NAME" an environment variable and "<NAME>" a name for its
value (N for a number and FILE for a path by default). A parameter that is a dataclass stands for
all of its fields that have a help text, and `**options: Annotated[Any, function]` for such
parameters of the function that the verb calls.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from simultan.config import Bound

Function = Callable[..., Any]
METAVARS: dict[Any, str] = {int: "N", Path: "FILE"}  # what an option's value is called


def expand(verb: Function) -> Function:
    """The verb as typer reads it: no dataclasses, and typer's own annotations."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}  # of dataclasses, by parameter
    hints = get_type_hints(verb, include_extras=True)
    for parameter in inspect.signature(verb).parameters.values():
        kind = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parameters += _options(get_args(kind)[1], {p.name for p in parameters})
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            fields = list(_options(kind, set(), parameter.default))
            parameters += fields
            groups[parameter.name] = parameter.default, [field.name for field in fields]
        else:
            parameters.append(_translated(parameter, kind))
    lists = {p.name for p in parameters if get_origin(get_args(p.annotation)[0]) is list}

    def call(**values: Any) -> Any:
        values = {k: tuple(v or ()) if k in lists else v for k, v in values.items()}
        for name, (given, fields) in groups.items():
            own = {field: values.pop(field) for field in fields}
            values[name] = dataclasses.replace(given, **own)
        return verb(**values)

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    # Options without a default come first, as Python wants it of no keyword-only parameter.
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def _options(owner: Function, taken: set[str], given: Any = None) -> Iterator[inspect.Parameter]:
    """The parameters of a function, or fields of a dataclass, that have a help text and are not
    taken; defaults are those of `given`, if any."""
    hints = get_type_hints(owner, include_extras=True)
    for parameter in inspect.signature(owner).parameters.values():
        if parameter.name in taken or not _help(hints[parameter.name]):
            continue
        default = parameter.default if given is None else getattr(given, parameter.name)
        option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=default)
        yield _translated(option, hints[parameter.name])


def _help(kind: Any) -> str:
    texts = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, str)]
    return next((text for text in texts if text[0] not in "-$<"), "")


def _translated(parameter: inspect.Parameter, kind: Any) -> inspect.Parameter:
    """The parameter as typer's Argument or Option."""
    plain, notes = get_args(kind)[0], get_args(kind)[1:]
    if get_origin(plain) is tuple:  # tuple[Path, ...]: an option that can be repeated
        plain = list[get_args(plain)[0]]  # type: ignore[misc]
    texts = [note for note in notes if isinstance(note, str)]
    names = [text for text in texts if text.startswith("-")]
    settings: dict[str, Any] = {"help": _help(kind)}
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        kinds = plain, *get_args(plain)  # Path, Path | None, list[Path]
        settings["metavar"] = next((METAVARS[kind] for kind in kinds if kind in METAVARS), None)
    for text in texts:
        if text.startswith("$"):
            settings["envvar"] = text[1:]
        elif text.startswith("<"):
            settings["metavar"] = text[1:-1]
    for bound in (note for note in notes if isinstance(note, Bound) and not note.above):
        settings["min"] = bound.low
        settings["max"] = None if bound.high == math.inf else bound.high
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        return parameter.replace(annotation=Annotated[plain, typer.Argument(**settings)])
    if not names and (plain is not bool or parameter.default is False):
        # bool: without a --no-...; others: some versions of typer take the metavar for the name
        names = [f"--{parameter.name.replace('_', '-')}"]
    return parameter.replace(annotation=Annotated[plain, typer.Option(*names, **settings)])
