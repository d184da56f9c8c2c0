"""simultan init and the commands that simultan prepare suggests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simultan import config, starter
from simultan.cli import app
from simultan.data.toy import write_toy


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("size", ["laptop", "one-gpu", "many-gpus"])
def test_a_project_has_recipes_that_belong_together(tmp_path, size):
    folder = tmp_path / "mine"
    done = run("init", folder, "--source", "fr", "--target", "nl", "--size", size)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].endswith(f"make -C {folder}")
    offline, streaming = (config.load(folder / f"{step}.toml") for step in starter.STEPS)
    assert offline.data.folder == streaming.data.folder == "work/corpus"
    assert streaming.train.init_from == "runs/offline/final"
    makefile = (folder / "Makefile").read_text()
    assert "data/train.fr" in makefile
    assert ("torchrun" in makefile) == (size == "many-gpus")
    assert "train.nl" in (folder / "data" / "README.txt").read_text()
    for step in starter.STEPS:
        comments, _, _ = (folder / f"{step}.toml").read_text().partition("\n\n")
        assert comments.count("\n") + 1 == (4 if size == "many-gpus" else 2)
        assert "--" not in comments  # no command, nor the rest of one


def test_a_project_is_not_written_over_something(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    done = run("init", tmp_path)
    assert "is not empty" in str(done.exception)
    for languages in (("de", "de"), ("../x", "en")):
        with pytest.raises(ValueError, match=r"two languages|not the code"):
            starter.lay_out(tmp_path / "new", *languages, "laptop")
    assert not (tmp_path / "new").exists()


@pytest.fixture
def project(tmp_path):
    """A project with a little text, and a function that says `make` there."""
    folder = tmp_path / "mine"
    starter.lay_out(folder, "en", "fr", "laptop")
    settings = {
        "train.updates": 4, "train.warmup": 1, "train.cooldown": 0, "train.validate_every": 0,
        "model.width": 16, "model.ffn": 16, "model.heads": 2,
    }  # fmt: skip
    options = " ".join(f"--set {key}={value}" for key, value in settings.items())
    source = Path(__file__).parents[1] / "src"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(source)}

    def make(more=""):
        call = ["make", "-C", folder, f"SIMULTAN={sys.executable} -m simultan"]
        call.append(f"OPTIONS={options} {more}")
        return subprocess.run(call, env=environment, capture_output=True, text=True, timeout=900)

    return folder, make


def test_make_leads_from_text_to_scores_and_continues(project):
    """A run whose time was up is continued by the same command; a complete one is left alone."""
    folder, make = project
    write_toy(folder / "data", 200, 1)
    scores = folder / "runs" / "test" / "scores.json"
    checkpoints = folder / "runs" / "mma-il" / "checkpoints"
    first = make("--minutes 0.0001")
    assert first.returncode == 0, first.stdout[-2000:] + first.stderr[-2000:]
    assert scores.is_file()
    assert "next, with" not in first.stdout  # make goes on by itself
    assert [path.name for path in checkpoints.iterdir()] == ["00000001"]
    for time in (1, 2):
        again = make()
        assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
        assert "00000004" in {path.name for path in checkpoints.iterdir()}
        assert ("simultan evaluate" in again.stdout) == (time == 1)


def test_make_says_which_text_is_missing(project):
    folder, make = project
    write_toy(folder / "data", 20, 1)
    (folder / "data" / "test.fr").unlink()
    done = make()
    assert done.returncode
    assert "data/test.fr is missing: put it there" in done.stderr
    assert "-m simultan" not in done.stdout  # before any work is done


def test_prepare_says_what_is_next(tmp_path):
    write_toy(tmp_path / "text", 20, 1)
    text = tmp_path / "text"
    done = run(
        "prepare", "--source", text / "train.en", "--target", text / "train.fr",
        "--vocabulary", 300, "--out", tmp_path / "mine",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()[-2:]
    assert f"laptop/offline.toml --set data.folder={tmp_path / 'mine'} --out" in first
    assert "--set train.init_from=runs/mine/offline/final --out runs/mine/mma-il" in second


def test_prepare_knows_the_toy_and_can_be_silent(tmp_path):
    write_toy(tmp_path, 20, 1)
    call = ["prepare", "--source", tmp_path / "train.en", "--target", tmp_path / "train.fr"]
    call += ["--pipeline", "words", "--min-count", 1, "--out", tmp_path / "toy", "--overwrite"]
    *_, head, last = run(*call).output.splitlines()
    assert head == "next, with the recipes for a corpus of this size:"
    folder = f"--set data.folder={tmp_path / 'toy'}"
    assert last.endswith(f"toy/mma-il.toml {folder} --out runs/toy/mma-il")
    assert "next" not in run(*call, "--no-suggest").output


def test_the_recipe_grows_with_the_corpus():
    sizes = [starter.size_for(pairs) for pairs in (100, 100_000, 100_001, 2_000_000, 5_000_000)]
    assert sizes == ["laptop", "laptop", "one-gpu", "one-gpu", "many-gpus"]
    assert "torchrun" in starter.next_commands(Path("work/x"), 5_000_000)[0]


def test_prepare_shows_what_it_noticed(tmp_path):
    (tmp_path / "a.tsv").write_text("one house\tein Haus\n" * 20)
    arguments = ["prepare", "--source", tmp_path / "a.tsv", "--vocabulary", 300, "--out"]
    done = run(*arguments, tmp_path / "one")
    assert done.exit_code == 0, done.output
    assert "note: 19 of the first 20 pairs are repetitions" in " ".join(done.output.split())
    done = run(*arguments, tmp_path / "two", "--deduplicate")
    assert "left out: 19 pairs, repeated" in done.output
