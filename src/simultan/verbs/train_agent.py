"""simultan train-agent: an agent learns when an offline model reads and writes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from simultan.verbs.options import Changes, Machine


def train_agent(
    recipe: Annotated[Path, "Recipe of the agent, such as recipes/agents/reinforced.toml."],
    *,
    model: Annotated[str, "Folder of the offline model; it stays as it is.", "<FOLDER>"],
    out: Annotated[Path, "Folder for the agent. An unfinished run there is continued.", "<FOLDER>"],
    changes: Changes = (),
    overwrite: Annotated[bool, "Remove an agent in that folder first."] = False,
    machine: Machine = Machine(),
) -> None:
    """Train an agent over an offline model.

    \b
    simultan train-agent RECIPE.toml --model MODEL --out runs/early
    simultan evaluate MODEL ... --agent runs/early
    """
    from simultan import config
    from simultan.train.agents.loop import fit_agent
    from simultan.train.agents.recipe import AgentRecipe

    if _imitates(recipe):
        from simultan.train.agents.imitation import ImitationRecipe, fit_imitation

        wanted = config.load_as(ImitationRecipe, recipe, changes)
        if fit_imitation(wanted, machine.load(model), out, overwrite, typer.echo) is None:
            typer.echo("stopped; the same command continues", err=True)
            raise typer.Exit(143)
        typer.echo(out)
        return
    settings = config.load_as(AgentRecipe, recipe, changes)
    outcome = fit_agent(settings, machine.load(model), out, overwrite)
    if not outcome.finished:
        typer.echo(f"stopped at update {outcome.update}; the same command continues", err=True)
        raise typer.Exit(143)
    typer.echo(outcome.folder)


def _imitates(recipe: Path) -> bool:
    """Whether the agent learns from an oracle, and not by reinforcement."""
    try:
        table = tomllib.loads(recipe.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return False  # who reads it as a recipe says what is wrong
    agent = table.get("agent")
    return isinstance(agent, dict) and agent.get("name") == "imitation"
