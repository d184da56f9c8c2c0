"""The command line: each verb opens what it needs only when it is called."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, measure and run simultaneous machine translation.",
)


@app.callback()
def _root() -> None:
    """Keeps the verbs verbs even while there is only one of them."""


def main() -> None:
    """Run a verb; bad input ends in one line that says what to do, not in a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"simultan: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
