"""Distillation: one line for each, whatever was there before."""

from __future__ import annotations

import lzma
from pathlib import Path

from small import CODEC, make, sentence
from typer.testing import CliRunner

from simultan import checkpoint, cli
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.sources import read_lines
from simultan.streaming.distill import distill
from simultan.streaming.translator import Translator

LINES = [sentence(n % 7, n) for n in range(20)]  # some of them empty


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    translator = Translator(make("offline", "transformer"), Config(), CODEC)
    wanted = [" ".join(t.words) for t in translator.translate(LINES)]
    told: list[int] = []
    whole = tmp_path / "whole"
    assert distill(translator, LINES, whole, rows=4, progress=told.append) == 20
    assert whole.read_text().split("\n") == [*wanted, ""]
    assert sum(told) == 20
    cut = tmp_path / "cut"
    cut.write_text("\n".join(wanted[:5]) + "\nhalf a li")
    assert distill(translator, LINES, cut, rows=4) == 20
    assert cut.read_bytes() == whole.read_bytes()
    assert distill(translator, LINES, cut, rows=4) == 20


def test_the_verb(tmp_path: Path) -> None:
    model = make("offline", "transformer").float()
    config = Config(
        model=ModelConfig(width=16, ffn=24, heads=2, encoder_layers=1, decoder_layers=2),
        policy=PolicyConfig(name="offline"),
    )
    checkpoint.save(tmp_path / "m", checkpoint.weights_of(model), config, CODEC)
    (tmp_path / "a.xz").write_bytes(lzma.compress("\n".join(LINES).encode()))
    assert list(read_lines(tmp_path / "a.xz")) == LINES
    arguments = ["distill", str(tmp_path / "m"), "--source", str(tmp_path / "a.xz")]
    arguments += ["--out", str(tmp_path / "out"), "--first", "12"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    assert "12 lines" in done.output
    assert len((tmp_path / "out").read_text().splitlines()) == 12
