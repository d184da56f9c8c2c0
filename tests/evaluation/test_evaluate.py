"""The log and the scores: hand-worked corpora, other people's logs, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import BYTES, MARKER, SPECIAL, Vocabulary
from simultan.evaluation import quality
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.instances import read_log, with_texts, write_log
from simultan.evaluation.scores import score
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.translator import Translation, Translator


class Shouter(Translator):
    """Wait-k over words, each said louder; two pieces to a word; one layer of two heads."""

    def __init__(self, k: int) -> None:
        self.k = k
        # no merges: a word of one letter is the letter and the marker
        vocabulary = Vocabulary([*SPECIAL, *BYTES, *"abcdefABCDEF", MARKER], [])
        self.codec = Codec(Pipeline("bpe"), vocabulary, vocabulary)

    def translate(
        self,
        sentences: Iterable[str],
        decoding: Decoding | str = DEFAULT,
        *,
        rows: int = 32,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        out = []
        for sentence in sentences:
            words = sentence.split()
            delays = [min(i + self.k, len(words)) for i in range(len(words))]
            out.append(
                Translation(
                    words=[word.upper() for word in words],
                    delays=delays,
                    elapsed=[0.2 * (i + 1) for i in range(len(words))],
                    tokens=self.codec.encode_target(sentence.upper())[:-1],
                    token_delays=[2 * delay for delay in delays for _ in range(2)],
                    token_heads=[[[2 * d - 1, 2 * d]] for d in delays for _ in range(2)],
                )
            )
            if progress is not None:
                progress(1)
        return out


SOURCES = ["a b c d", "", "e  f"]
REFERENCES = ["A B C D", "NOTHING", "E F"]


def test_a_test_set(tmp_path: Path) -> None:
    done: list[int] = []
    scores = evaluate(
        Shouter(1),
        SOURCES,
        REFERENCES,
        tmp_path / "run",
        scoring=Scoring(words_per_second=10.0, system="shouter"),
        progress=done.append,
    )
    assert sum(done) == 3
    # sentence 2 wrote nothing and is left out of every mean
    assert (scores.sentences, scores.empty, scores.system) == (3, 1, "shouter")
    assert scores.latency["ap"] == pytest.approx((10 / 16 + 3 / 4) / 2)
    for name in ("al", "laal", "dal", "atd"):
        assert scores.latency[name] == pytest.approx(1.0)
    assert scores.span == pytest.approx(1.0)
    # 0.2 s of computing is two words: the first comes at 1 + 2, then one every two words
    assert scores.al_ca == pytest.approx(((3 + 4 + 5 + 6) / 4 + (3 + 4) / 2) / 2)
    assert scores.bleu is not None
    assert scores.bleu_signature is not None
    assert scores.bleu == pytest.approx(scores.bleu_lowercased)
    assert "tok:13a" in scores.bleu_signature
    assert scores.seconds_per_source_word == scores.seconds_per_target_word

    # the log says all of it
    log = read_log(tmp_path / "run")
    assert [i.index for i in log] == [0, 1, 2]
    assert log[2].source == "e f"
    assert log[2].source_tokens == ["e", "▁", "f", "▁"]
    assert log[2].target_tokens == ["E", "▁", "F", "▁"]
    assert log[2].reference_tokens == 4
    assert log[0].elapsed == [3.0, 5.0, 7.0, 9.0]
    again = score(log, Scoring(words_per_second=10.0, system="shouter"))
    stored = json.loads((tmp_path / "run" / "scores.json").read_text())
    for name, value in stored.items():
        assert scores.flat()[name] == value
        assert again.flat()[name] == (pytest.approx(value) if value is not None else None)
    # and says it in SimulEval's keys
    first = json.loads((tmp_path / "run" / "instances.log").read_text().splitlines()[0])
    assert list(first)[:8] == [
        *("index", "prediction", "delays", "elapsed"),
        *("prediction_length", "reference", "source", "source_length"),
    ]


def test_another_speaking_rate_is_a_matter_of_the_log_alone(tmp_path: Path) -> None:
    evaluate(Shouter(2), SOURCES, REFERENCES, tmp_path, scoring=Scoring(words_per_second=10.0))
    slow = score(read_log(tmp_path), Scoring(words_per_second=0.001))
    # computing is nothing to such a speaker
    assert slow.al_ca == pytest.approx(slow.latency["al"], abs=1e-2)


def test_subwords(tmp_path: Path) -> None:
    scores = evaluate(
        Shouter(1), SOURCES, REFERENCES, tmp_path, scoring=Scoring(latency_unit="subwords")
    )
    # delays 2 2 4 4 6 6 8 8 of 8 pieces: lags 2 1 2 1 2 1 2, tau = 7
    mean = (2 + 1 + 2 + 1 + 2 + 1 + 2) / 7 + (2 + 1 + 2) / 3
    assert scores.latency["al"] == pytest.approx(mean / 2)
    assert scores.latency_unit == "subwords"


def log_line(**changes: object) -> str:
    table: dict[str, object] = {
        "index": 0,
        "prediction": "a b",
        "delays": [1, 2],
        "elapsed": [0, 0],
        "prediction_length": 2,
        "reference": "a b\n",
        "source": "x y",
        "source_length": 2,
    }
    table |= changes
    return json.dumps({k: v for k, v in table.items() if v is not ...}) + "\n"


def test_a_log_of_simuleval(tmp_path: Path) -> None:
    path = tmp_path / "instances.log"
    path.write_text(log_line(index=1) + log_line(reference="A c d b e\n"))
    scores = score(read_log(path))
    assert scores.latency["al"] == pytest.approx((1.0 + (1 + 2 - 2 / 5) / 2) / 2)
    assert scores.al_ca is None
    assert scores.span is None
    assert scores.seconds_per_source_word is None
    assert scores.bleu_lowercased is not None


def test_a_speech_log_has_no_word_delays(tmp_path: Path) -> None:
    path = tmp_path / "instances.log"
    path.write_text(
        log_line(
            source=["samplerate: 16000"],
            source_length=900.0,
            delays=[320, 900],
            elapsed=[400, 1000],
        )
    )
    scores = score(read_log(path))
    assert scores.latency["al"] == pytest.approx((320 + 900 - 450) / 2)
    assert scores.al_ca == pytest.approx((400 + 1000 - 450) / 2)
    assert scores.latency["atd"] is None


def test_texts_from_files(tmp_path: Path) -> None:
    path = tmp_path / "instances.log"
    path.write_text(log_line(reference=..., source=..., source_length=..., elapsed=...))
    log = read_log(path)
    with pytest.raises(ValueError, match="source_length: give the source text"):
        score(log)
    scores = score(with_texts(log, ["x y z"], ["a b c d"]))
    assert scores.latency["al"] == pytest.approx((1 + 2 - 3 / 4) / 2)
    assert score(with_texts(log, ["x y z"])).bleu is None  # latency needs no reference
    with pytest.raises(ValueError, match="0 lines"):
        with_texts(log, [], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (log_line() + "{", "line 2: not JSON"),
        ("[1]\n", "line 1: a JSON object"),
        (log_line(delays=...), "line 1: the key 'delays' is missing"),
        (log_line(delays=["1", 2]), "line 1: 'delays' must be a list of numbers"),
        (log_line(delays=[1, float("nan")]), "line 1: 'delays' must be a list of numbers"),
        (log_line(elapsed=[1.0]), "line 1: 2 delays, but 1 values of 'elapsed'"),
        (log_line(prediction=None), "line 1: 'prediction' must be a text"),
        (log_line(index=-1), "line 1: 'index'"),
        (log_line() + log_line(), "line 2: index 0 appears twice"),
    ],
)
def test_bad_logs_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "instances.log"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_log(path)


def test_other_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "instances.log"
    with pytest.raises(OSError, match="no such file"):
        read_log(path)
    path.write_text(log_line() + log_line(index=1, reference=None))
    with pytest.raises(ValueError, match="index 1 has no reference"):
        score(read_log(path))
    path.write_text(log_line())
    with pytest.raises(ValueError, match="no delays of subwords"):
        score(read_log(path), Scoring(latency_unit="subwords"))
    with pytest.raises(ValueError, match="2 source lines against 1 reference"):
        evaluate(Shouter(1), ["a", "b"], ["A"])
    with pytest.raises(ValueError, match="above 0"):
        score(read_log(path), Scoring(words_per_second=0))


def test_nothing_written_at_all(tmp_path: Path) -> None:
    scores = evaluate(Shouter(1), ["", " "], ["a", "b"], tmp_path)
    assert scores.empty == 2
    assert scores.latency["al"] is None
    assert scores.bleu == 0.0
    json.loads((tmp_path / "scores.json").read_text())  # null, not NaN


def test_round_trip(tmp_path: Path) -> None:
    evaluate(Shouter(2), SOURCES, REFERENCES, tmp_path)
    log = read_log(tmp_path)
    write_log(tmp_path / "copy.log", log)
    assert read_log(tmp_path / "copy.log") == log


def test_quality_variants() -> None:
    predictions, references = ["Hello , World !", "a b c d"], ["hello, world!", "a b c d"]
    plain = quality.measure(predictions, references)
    tokens = quality.measure(predictions, references, tokenized=True)
    assert plain.bleu_lowercased == pytest.approx(100)
    assert plain.bleu < 100
    assert tokens.bleu_lowercased < 100  # "hello," is one token
    assert "tok:none" in tokens.bleu_signature
    assert "case:lc" in tokens.bleu_lowercased_signature
    assert plain.length_ratio == 1
    assert tokens.length_ratio == pytest.approx(8 / 6)
    with pytest.raises(ValueError, match="one reference line"):
        quality.measure(["a"], [])
