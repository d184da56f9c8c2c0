"""The command line as a whole: every verb is there, says what it does, and bad use is one line."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simultan import cli

STREAMING = ("translate", "evaluate", "captions", "demo", "serve", "distill")


def run(*arguments: str, columns: int = 80) -> str:
    done = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_all_verbs_are_listed(arguments: tuple[str, ...]) -> None:
    text = run(*arguments)
    for verb, line in cli.VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(line)}$", text, re.MULTILINE)
    assert "--install-completion" in text


def test_every_file_in_verbs_is_a_verb() -> None:
    folder = Path(cli.__file__).with_name("verbs")
    files = {path.stem.removesuffix("_") for path in folder.glob("[a-z]*.py")}
    assert files - {"parameters", "options"} == {verb.replace("-", "_") for verb in cli.VERBS}


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_is_readable_at_80_columns(verb: str) -> None:
    for flag in ("-h", "--help"):
        text = run(verb, flag)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        options = text.split("Options:")[1]
        assert "<bool>" not in options
        assert "<list" not in options


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_parameter_has_a_sentence(verb: str) -> None:
    command = cli.load_verb(verb)
    for parameter in command.params:
        if parameter.name != "help":
            text = getattr(parameter, "help", "") or ""
            assert re.match(r"[A-Z].*\.$", text), f"{verb} {parameter.name}: {text!r}"
    assert inspect.cleandoc(command.help or "").split("\n\n")[0].endswith(".")


@pytest.mark.parametrize("verb", STREAMING)
def test_every_verb_that_streams_has_the_same_options(verb: str) -> None:
    text = run(verb, "--help", columns=200)
    for option in ("--lag", "--threshold", "--k", "--agent, --rule", "--device", "--threads",
                   "--quantize", "--beam"):  # fmt: skip
        assert re.search(rf"^  {option} ", text, re.MULTILINE), option


def test_the_module_is_the_command() -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "simultan", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    version = call("--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert re.fullmatch(r"simultan \d+\.\d+\.\d+\S*\n", version.stdout)
    alone = call()
    assert alone.returncode == 0
    assert alone.stdout.startswith("Usage: simultan [OPTIONS] VERB")
    wrong = call("trnslate")
    assert wrong.returncode == 2
    assert "Did you mean 'translate'" in wrong.stderr
    missing = call("score", "nowhere")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("simultan: nowhere")
    assert missing.stderr.count("\n") == 1


def test_only_the_verb_that_is_called_is_imported() -> None:
    code = "import sys, simultan.cli as cli; cli.load_verb('train'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
