"""Distillation: one line for each, whatever was there before."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest
from small import CODEC, make, sentence
from typer.testing import CliRunner

from simultan import checkpoint, cli
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.sources import read_lines
from simultan.streaming import distill as module
from simultan.streaming.distill import Output, distill
from simultan.streaming.lines import LineText, compress, repeats
from simultan.streaming.translator import Translator

LINES = [sentence(n % 7, n) for n in range(20)]  # some of them empty
TRANSLATOR = Translator(make("offline", "transformer"), Config(), CODEC)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("decoding", ["default", "beam=2", "sample=1.5,8,3"])
def test_a_stopped_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, decoding: str
) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(module, "PART", 2)  # several parts, of several chunks
    wanted = [one.text for one in TRANSLATOR.translate(LINES, decoding)]
    assert any(wanted)
    told: list[int] = []
    whole = tmp_path / f"whole{suffix}"
    done = distill(
        TRANSLATOR, LINES, whole, decoding, rows=4, progress=lambda lines, _: told.append(lines)
    )
    assert (done.lines, done.too_long, sum(told)) == (20, 0, 20)
    assert list(read_lines(whole)) == wanted
    data = whole.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1, len(data)):
        cut = tmp_path / f"cut{suffix}"
        cut.write_bytes(data[:size])  # the process was killed here
        with Output(cut) as file:
            assert file.lines == 20 or size < len(data)
            if file.lines:
                assert list(read_lines(cut)) == wanted[: file.lines]
            else:
                assert not cut.stat().st_size
        assert distill(TRANSLATOR, LINES, cut, decoding, rows=4).lines == 20
        assert list(read_lines(cut)) == wanted


def test_streaming_models_go_on_too(tmp_path: Path) -> None:
    translator = Translator(make("wait-k", "transformer"), Config(), CODEC)
    wanted = [one.text for one in translator.translate(LINES)]
    out = tmp_path / "out.gz"
    out.write_bytes(compress("".join(line + "\n" for line in wanted[:6]).encode(), ".gz")[:-3])
    assert distill(translator, LINES, out, rows=4).lines == 20
    assert list(read_lines(out)) == wanted


def test_sessions_are_seen_to_work() -> None:
    """Whoever watches the lines of a file come need not wait for minutes."""
    translator = Translator(make("wait-k", "transformer"), Config(), CODEC)
    parts = [len(part) for part in module.translate_lines(translator, LINES, rows=1)]
    assert parts == [8, 8, 4]


def test_line_n_stays_line_n(tmp_path: Path) -> None:
    """Empty lines, and lines that are too long for anybody."""
    lines = ["", "a b", "abc " * 40, " \u2028 ", "b", "c " * 400, ""]
    out = tmp_path / "out"
    done = distill(TRANSLATOR, lines, out, rows=2, longest=30)
    assert (done.lines, done.too_long) == (7, 2)
    found = out.read_text().split("\n")
    wanted = [one.text for one in TRANSLATOR.translate(lines)]
    assert [found[i] for i in (0, 1, 3, 4, 6, 7)] == [*(wanted[i] for i in (0, 1, 3, 4, 6)), ""]
    assert found[2] == found[5] == ""
    assert wanted[2]
    assert wanted[5]


def test_no_more_is_read_than_is_being_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(module, "PART", 2)
    out, taken = tmp_path / "out", 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for taken in range(1, 101):
            if taken > 32:  # two parts of eight lines are on their way
                assert taken <= len(out.read_text().splitlines()) + 17
            yield "a"

    distill(TRANSLATOR, lines(), out, rows=4)
    assert taken == 100


def test_workers_write_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(module, "PART", 2)
    for workers in (0, 1):
        distill(TRANSLATOR, LINES, tmp_path / f"{workers}.xz", rows=4, workers=workers)
    assert (tmp_path / "1.xz").read_bytes() == (tmp_path / "0.xz").read_bytes()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lag=3: this model's policy is offline"):
        distill(TRANSLATOR, LINES, tmp_path / "none", "lag=3")
    assert not (tmp_path / "none").exists()
    out = tmp_path / "out.gz"
    out.write_text("no archive\n")
    with pytest.raises(ValueError, match="move it away"):
        distill(TRANSLATOR, LINES, out)
    assert out.read_text() == "no archive\n"
    out.write_bytes(gzip.compress(b"a\nb\n") + b"\0" * 10)  # of a file system that crashed
    with Output(out) as file:
        assert file.lines == 2
    assert out.read_bytes() == gzip.compress(b"a\nb\n")


def test_repetitions() -> None:
    """What a session cuts is found; the rest is left alone."""
    assert repeats([*range(9), *[5] * 8])
    assert not repeats([*range(9), *[5] * 7])
    assert repeats([1, 2, 3, *[4, 5] * 4, 6])
    assert not repeats([1, 2, 3, *[4, 5] * 3, 6, *[4, 5] * 3])
    assert repeats([*[1, 2, 3, 4] * 4])
    assert not repeats([*[1, 2, 3, 4] * 3, 1, 2, 3])
    assert not repeats([*[1, 2, 3, 4, 5] * 4])


def test_words_of_tokens() -> None:
    """Piece by piece as a writer joins them, also of a word that never ends."""
    text = LineText(CODEC, careful=False)
    vocabulary = CODEC.target_vocabulary
    tokens = [id for id in range(260, len(vocabulary))] + [260, 261]
    writer = CODEC.writer()
    wanted = [word for token in tokens for word in writer.push(token)] + writer.flush()
    assert text.decode("a b", tokens).words == wanted
    assert text.decode("a b", tokens).delays == [2] * len(wanted)


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
    arguments += ["--first", "12", "--longest", "5", "--out"]
    done = CliRunner().invoke(cli.app, [*arguments, str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "12 lines; " in done.output
    assert "too long" in done.output
    assert len((tmp_path / "out").read_text().splitlines()) == 12
    texts = []
    for name, options in {"a.gz": ["--seed", "3"], "b.gz": ["--seed", "3"], "c.gz": []}.items():
        options = [*arguments, str(tmp_path / name), "--sample", "--top-k", "5", *options]
        assert CliRunner().invoke(cli.app, options).exit_code == 0
        texts.append(list(read_lines(tmp_path / name)))
    assert texts[0] == texts[1] != texts[2]
    for wrong, message in (
        (["--sample", "--beam", "2"], "choose one of them"),
        (["--sample", "--temperature", "0"], "above 0"),
    ):
        refused = CliRunner().invoke(cli.app, [*arguments, str(tmp_path / "d"), *wrong])
        assert refused.exit_code
        assert message in refused.output + str(refused.exception)
    (tmp_path / "out").write_text("of another text\n" * 30)
    of_all = [one for one in arguments if one not in ("--first", "12")]
    refused = CliRunner().invoke(cli.app, [*of_all, str(tmp_path / "out")])
    assert "it has 30 lines" in str(refused.exception)
