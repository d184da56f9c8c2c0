"""The command line: a table of verbs; each is a typed function in verbs/, imported when called."""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

# verb: what it does. Its function has the same name, but for dashes, and lives in verbs/VERB.py; a
# name that means something to Python has a _ behind it there.
VERBS = {
    "translate": "Translate words from standard input while they come.",
    "captions": "Translate captions as if they were being spoken.",
    "serve": "Translate live for many: a page, a websocket and an HTTP API.",
    "demo": "Play a short talk and translate it live.",
    "init": "Lay out a folder for a model of your own.",
    "prepare": "Turn parallel text into vocabularies and shards.",
    "train": "Train a model from a recipe.",
    "adapt": "Teach a model your own text.",
    "train-agent": "Train an agent that decides when to read and write.",
    "evaluate": "Translate a test set, log it and score the log.",
    "score": "Score a log, ours or another system's.",
    "plot": "Draw quality against latency, or one sentence's path.",
    "export": "Write a model to ship.",
    "import": "Turn a model of transformers into one of ours.",
    "push": "Upload a model to the Hugging Face hub.",
    "ends": "Teach a model to hear where sentences end without full stops.",
    "distill": "Translate training text with a teacher.",
    "toy": "Write a toy language pair to try everything with.",
}
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class Verbs(TyperGroup):
    """Lists the verbs from the table, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name in VERBS else command, rest


app = typer.Typer(
    cls=Verbs,
    context_settings=SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is easier to read at 80 columns
    help="Train, measure and run simultaneous machine translation.",
    epilog="simultan VERB --help says what a verb can do.",
    subcommand_metavar="VERB [ARGUMENTS]...",
)
for _verb, _line in VERBS.items():
    app.command(_verb, help=_line)(lambda: None)


def load_verb(name: str) -> Any:
    """The command of a verb, made from its function's signature."""
    from simultan.verbs.parameters import expand

    home = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
    verb = getattr(importlib.import_module(f"simultan.verbs.{home}"), home)
    own = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    own.command(name, context_settings=SETTINGS)(expand(verb))
    return typer.main.get_command(own)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        import simultan

        typer.echo(f"simultan {simultan.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit


def main() -> None:
    """Run a verb; bad input ends in one line that says what to do, not in a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed before we began
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        app(prog_name="simultan")
    except ModuleNotFoundError as error:
        message = f"{error}; servers and their clients need pip install -e '.[serve]'"
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{error.filename}: {reason}" if error.filename else reason
        if error.errno == errno.ENOSPC:
            message += "; what was being written may be incomplete: make room and run this again"
    except ValueError as error:
        message = str(error)
    else:
        return
    typer.echo(f"simultan: {message}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
