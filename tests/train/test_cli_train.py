"""The verbs train and toy."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from simultan import cli
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.verbs import train
from simultan.verbs.train import set_threads

SMALL = """
[data]
batch_tokens = 60
[model]
width = 8
ffn = 8
heads = 2
encoder_layers = 1
decoder_layers = 1
[train]
updates = 3
validate_every = 0
"""


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_toy_then_train(tmp_path):
    assert call("toy", tmp_path / "text", "--pairs", 40)[0] == 0
    pair = TextPair(tmp_path / "text" / "train.en", tmp_path / "text" / "train.fr")
    prepare(tmp_path / "corpus", [pair], pipeline="words", min_count=1)
    (tmp_path / "small.toml").write_text(SMALL)
    command = ["train", tmp_path / "small.toml", "--out", tmp_path / "run", "--device", "cpu"]
    command += ["--set", f"data.folder={tmp_path / 'corpus'}"]
    code, out, _ = call(*command, "--set", "train.lr=1e-3")
    assert code == 0
    assert out.strip() == str(tmp_path / "run" / "final")
    assert (tmp_path / "run" / "tensorboard").is_dir()
    with pytest.raises(ValueError, match=r"train\.lr = 0\.001 \(now 0\.0005\)"):
        call(*command)
    assert call(*command, "--overwrite")[0] == 0
    with pytest.raises(ValueError, match="unknown key 'speed'"):
        call(*command, "--set", "train.speed=9")


def test_a_missing_corpus_is_named(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    with pytest.raises(OSError, match="nowhere"):
        call(
            "train",
            tmp_path / "small.toml",
            "--out",
            tmp_path / "run",
            "--set",
            "data.folder=nowhere",
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    command = ["train", tmp_path / "small.toml", "--out", tmp_path / "run", "--device"]
    with pytest.raises(ValueError, match="'cuda:0': PyTorch finds no GPU here; write cpu"):
        call(*command, "cuda")
    with pytest.raises(ValueError, match="'gpu': write cpu or cuda"):
        call(*command, "gpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "busy", "chosen"), [(0, 0.2, 8), (0, 2.6, 5), (0, 40.0, 1), (3, 40.0, 3)]
)
def test_threads_for_idle_cores(monkeypatch, asked, busy, chosen):
    """A thread that shares its core with another program holds up all others."""
    found = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(train, "busy_cores", lambda: busy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    set_threads(asked)
    assert found == [chosen]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    set_threads(0)
    assert found == [chosen]  # who has chosen is left alone


def test_busy_cores_are_those_of_now(monkeypatch, tmp_path):
    """Of our cores alone, between two readings; without such readings the load counts."""
    before = """cpu  400 0 0 400 0 0 0 0 0 0
cpu0 100 0 0 100 0 0 0 0 0 0
cpu1 100 0 0 100 0 0 0 0 0 0
cpu2 100 0 0 100 0 0 0 0 0 0
cpu3 100 0 0 100 0 0 0 0 0 0
intr 5 0 0
"""
    after = """cpu  480 0 10 490 20 0 0 0 0 0
cpu0 125 0 5 100 0 0 0 0 0 0
cpu1 105 0 0 110 15 0 0 0 0 0
cpu2 100 0 0 130 0 0 0 0 0 0
cpu3 150 0 0 100 0 0 0 0 0 0
intr 9 0 0
"""
    assert train.busy_between(before, after, {0, 1, 2}) == pytest.approx(1 + 1 / 6 + 0)
    assert train.busy_between(before, after, {3}) == 1
    assert train.busy_between(before, before, {0, 3}) == 0  # no tick between them
    monkeypatch.setattr("os.getloadavg", lambda: (2.5, 0.0, 0.0), raising=False)
    monkeypatch.setattr(train, "CORE_TIMES", tmp_path / "none")
    assert train.busy_cores(0) == 2.5
    (tmp_path / "none").write_text("of another kind\n")
    assert train.busy_cores(0) == 2.5
