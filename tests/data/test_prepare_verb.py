from typer.testing import CliRunner

from simultan.cli import app
from simultan.data.codec import Codec
from simultan.data.shards import Corpus


def run(*arguments):
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


def files(folder):
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (folder / name).write_text("one two three\n\nfour five\n" * 5)
    return [
        *("--source", folder / "a.en", "--target", folder / "a.de"),
        *("--source", folder / "b.en", "--target", folder / "b.de"),
    ]


def test_prepare(tmp_path):
    text = files(tmp_path)
    (tmp_path / "v").write_text("one four\n")
    result = run(
        *text, "--weight", 1, "--weight", 2.5, "--out", tmp_path / "out", "--vocabulary", 300,
        "--valid-source", tmp_path / "v", "--valid-target", tmp_path / "v",
        "--bpe-dropout", 0.1, "--samples", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "left out: 10 pairs, empty (a.en:2" in result.output
    assert Corpus(tmp_path / "out").weights == [(10, 1.0), (10, 2.5)]
    assert Codec.load(tmp_path / "out").pipeline.target_language == "de"
    again = run(*text, "--out", tmp_path / "two", "--like", tmp_path / "out")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "two" / "vocabulary.source.json").read_bytes() == (
        tmp_path / "out" / "vocabulary.source.json"
    ).read_bytes()


def test_errors_are_values(tmp_path):
    text = files(tmp_path)
    for arguments, message in (
        ((*text, "--strict"), "a.en:2: empty"),
        (text[:4] + text[4:6], "each text needs both sides"),
        (("nonsense", "--from", tmp_path), "no corpus 'nonsense'"),
        (("iwslt15-en-vi", "--from", tmp_path), "no train.en"),
        ((), "no training text"),
    ):
        result = run(*arguments, "--out", tmp_path / "out")
        assert isinstance(result.exception, ValueError | OSError)
        assert message in str(result.exception)
    assert run(*text, "--out", tmp_path / "x", "--pipeline", "spm").exit_code == 2
