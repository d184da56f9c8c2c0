"""Languages without spaces: a character is a word, in vocabularies, sessions and scores."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan import config, display, model
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.data.text import Pipeline
from simultan.data.words import join_words, split_words
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.instances import Instance
from simultan.evaluation.quality import measure
from simultan.evaluation.scores import score
from simultan.evaluation.scoring import Scoring
from simultan.layout import Shown, close_up, lay_out
from simultan.layout import measure as measure_captions
from simultan.streaming.session import End, Event, Write
from simultan.streaming.translator import Translator

CHINESE = "我在2023年买了iPhone 15。很好！"
CHARACTERS = ["我", "在", "2023", "年", "买", "了", "iPhone", "15", "。", "很", "好", "！"]


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("zh", CHINESE, CHARACTERS),
        ("zh-CN", "你 好", ["你", "好"]),
        ("ja", "東京へ行く。", ["東", "京", "へ", "行", "く", "。"]),
        ("th", "ที่นี่", ["ที่", "นี่"]),  # vowels and tones stay with their consonant
        ("de", "ein Haus", ["ein", "Haus"]),
        ("", CHINESE, ["我在2023年买了iPhone", "15。很好！"]),
        ("ko", "안녕 하세요", ["안녕", "하세요"]),
    ],
)
def test_words(language: str, text: str, words: list[str]) -> None:
    assert split_words(text, language) == words


def test_words_are_joined_as_they_are_written() -> None:
    assert join_words(CHARACTERS) == "我在2023年买了iPhone 15。很好！"
    assert join_words(["ein", "Haus"]) == "ein Haus"
    assert join_words([]) == ""
    assert join_words(CHARACTERS, "zh-CN") == CHINESE
    assert join_words(["the", "sign", "山", "means"], "en") == "the sign 山 means"


@given(st.lists(st.sampled_from([*"我你好。ก็ab1", " "]), max_size=20))
def test_no_character_is_lost(letters: list[str]) -> None:
    text = "".join(letters)
    assert "".join(split_words(text, "zh")) == "".join(text.split())
    assert all(split_words(word, "zh") == [word] for word in split_words(text, "zh"))


def test_bleu_takes_the_tokeniser_of_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["我们很好。"], ["我们都很好。"]
    assert "tok:zh" in measure(*texts, language="zh").bleu_signature
    assert measure(*texts, language="zh").bleu > measure(*texts).bleu
    assert "tok:char" in measure(*texts, language="th").bleu_signature
    assert "tok:13a" in measure(*texts).bleu_signature
    assert "tok:none" in measure(*texts, tokenized=True, language="zh").bleu_signature
    monkeypatch.setitem(sys.modules, "MeCab", None)
    assert "tok:char" in measure(*texts, language="ja").bleu_signature


def test_latency_counts_characters_of_the_reference() -> None:
    one = Instance(
        index=0, prediction="我好", delays=[1, 2], elapsed=[0, 0], prediction_length=2,
        reference="我很好吗", source="a b", source_length=2,
    )  # fmt: skip
    assert score([one], Scoring(language="zh")).latency["ap"] == pytest.approx(3 / (2 * 4))
    assert score([one]).latency["ap"] == pytest.approx(3 / (2 * 1))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A model that has learned nothing, from Chinese to Japanese."""
    folder = tmp_path_factory.mktemp("zh-ja")
    (folder / "a.zh").write_text("我很好。\n你在东京吗？\n" * 20, "utf-8")
    (folder / "a.ja").write_text("私は元気です。\n東京にいますか？\n" * 20, "utf-8")
    prepare(folder / "out", [TextPair(folder / "a.zh", folder / "a.ja")], vocabulary=300)
    codec = Codec.load(folder / "out")
    recipe = config.parse(
        'policy.name = "wait-k"\n[model]\nwidth = 16\nffn = 16\nheads = 2\nencoder_layers = 1\n'
        "decoder_layers = 1"
    )
    built = model.build(recipe, len(codec.source_vocabulary), len(codec.target_vocabulary))
    return Translator(built.eval(), recipe, codec)


def test_each_character_is_a_word_of_the_vocabulary(translator: Translator) -> None:
    codec = translator.codec
    assert codec.pipeline == Pipeline("bpe", "zh", "ja")
    assert len(codec.encode_source("我很好")) >= 4
    ids = codec.encode_target("私は元気です。")
    assert codec.decode_target(ids[:-1]).split() == list("私は元気です。")


def test_a_session_hears_characters(translator: Translator) -> None:
    whole = translator.session("k=2", segment=False)
    events = whole.feed("我很好。你在东京吗？") + whole.finish()
    alone = translator.session("k=2", segment=False)
    one_by_one = [
        e for letter in "我很好。你在东京吗？" for e in alone.feed(letter)
    ] + alone.finish()
    writes = [
        [(e.text, e.delay) for e in es if isinstance(e, Write)] for es in (events, one_by_one)
    ]
    assert writes[0] == writes[1]
    assert whole.rows[0].read == 10


def test_a_stream_is_shown_as_it_is_written() -> None:
    said = [("我", "私"), ("很", "は"), ("好", "GPU X 元"), ("。", "気"), ("", "。")]
    events: list[tuple[str, Event]] = [
        (word, Write(text, at, [[at]])) for at, (word, text) in enumerate(said, 1)
    ]
    for language, shown in (("ja", "私はGPU X元気。"), ("de", "私 は GPU X 元 気 。")):
        out = io.StringIO()
        display.write([*events, ("", End(5))], out, language=language)
        assert out.getvalue() == shown + "\n"
        picture = display.Picture(language=language)
        for word, event in events:
            picture.add(word, event)
        assert join_words(picture.target.values(), language) == shown


def test_captions_have_no_spaces_that_the_language_lacks() -> None:
    letters = "東京は日本の首都であり世界でも有数の大きな都市の一つです。私はそこに住んでいます。"
    words = [Shown(letter, 300 * at, at + 1) for at, letter in enumerate(letters)]
    for layout in ("reading", "instant"):
        cues = lay_out(words, layout, "ja")
        assert measure_captions(cues, words, layout, "ja").captions
        shown = [line for cue in close_up(cues, "ja") for line in cue.text.split("\n")]
        assert not any(" " in line for line in shown)
        assert max(map(len, shown)) <= 21
        if layout == "reading":
            assert "".join(shown) == letters
    german = [Shown("ein", 0, 1), Shown("Haus", 300, 2)]
    assert close_up(lay_out(german, "reading", "de"), "de")[0].text == "ein Haus"


def test_evaluation_counts_characters(translator: Translator, tmp_path: Path) -> None:
    scores = evaluate(translator, ["我很好。"], ["私は元気です。"], tmp_path, "k=2")
    assert "tok:13a" not in scores.bleu_signature
