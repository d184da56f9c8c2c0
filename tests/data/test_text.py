import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer

from simultan.data.text import MARKER, Pipeline, normalise

ANY = st.text(max_size=40)


@given(ANY)
def test_normalise_is_clean_and_idempotent(text):
    clean = normalise(text)
    assert normalise(clean) == clean
    assert MARKER not in clean
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in clean)
    assert clean == " ".join(clean.split())
    clean.encode("utf-8")


@given(ANY, ANY)
def test_normalise_works_word_by_word(left, right):
    assert (
        normalise(f"{left} {right}").split() == normalise(left).split() + normalise(right).split()
    )


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("", ""),
        (" \t\n", ""),
        ("a\u00a0b\u2028c", "a b c"),
        ("a\x00b\u200bc\ufeff", "abc"),
        ("cafe\u0301", "café"),
        ("a▁b", "a_b"),
        ("x\ud800", "x\ufffd"),
        ("नमस्ते 世界 مرحبا 🙂", "नमस्ते 世界 مرحبا 🙂"),
    ],
)
def test_normalise_by_hand(text, clean):
    assert normalise(text) == clean


def test_words_and_bpe_leave_words_alone():
    for name in ("words", "bpe"):
        pipeline = Pipeline(name)
        assert pipeline.split_source(" Hello ,  don't\n") == ["Hello", ",", "don't"]
        assert pipeline.tokens("don't,") == ["don't,"]
        assert pipeline.tokens("") == []
        detokenizer = pipeline.detokenizer()
        assert detokenizer.push("Hello") == ["Hello"]
        assert detokenizer.push(",") == [","]
        assert detokenizer.push("") == []
        assert detokenizer.flush() == []


def test_unknown_pipeline():
    with pytest.raises(ValueError, match="choose one of words, moses-bpe, bpe"):
        Pipeline("spm")


SENTENCES = {
    "en": [
        "He said: \"It's the Jones' house, isn't it?\" (Mr. Smith paid $5.50.)",
        "In 1,000 years ... nothing; really -- 'nothing' -- changed!",
        "'Tis the U.S. way of life, e.g. 50% off.",
    ],
    "de": ["Das ist, z.B. am 3. Mai, „gut“ (oder nicht)!", 'Er sagte: "Ja." und ging\'s an.'],
    "fr": ["L'homme qu'il a vu, c'est lui ! Vraiment ? Oui : 50 %."],
    "cs": ["Řekl: „Ano“ a odešel."],
    "zh": ["我 喜欢 北京 and Paris 。"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_detokeniser_equals_moses(language):
    pipeline = Pipeline("moses-bpe", language, language)
    reference = MosesDetokenizer(language)
    for sentence in SENTENCES[language]:
        words = normalise(sentence).split()
        for tokens in (
            [token for word in words for token in pipeline.target_tokens(word)],
            MosesTokenizer(language).tokenize(sentence, escape=False),
        ):
            assert pipeline.detokenize(tokens) == reference.detokenize(tokens, unescape=False)


QUOTES = ["'", '"', "''", "``", "„", "“", "”"]
SIGNS = [",", ".", "!", "?", ":", "%", "$", "(", ")", "[", "]", "-", "€"]
PARTS = ["a", "s", "Jones", "'s", "n't", "l'", "世", "界", "世a", "5"]
TOKENS = st.lists(st.sampled_from(QUOTES + SIGNS + PARTS), max_size=15)


@pytest.mark.parametrize("language", ["en", "de", "fr", "it", "ko", "zh"])
@given(tokens=TOKENS)
def test_detokeniser_equals_moses_on_any_tokens(language, tokens):
    expected = MosesDetokenizer(language).detokenize(tokens, unescape=False)
    assert Pipeline("moses-bpe", "en", language).detokenize(tokens) == expected


@given(tokens=TOKENS)
def test_what_is_given_never_changes(tokens):
    """Whatever comes later, the words already given begin the finished sentence."""
    pipeline = Pipeline("moses-bpe", "de", "en")
    detokenizer = pipeline.detokenizer()
    given_words = []
    for end, token in enumerate(tokens, 1):
        given_words += detokenizer.push(token)
        prefix = pipeline.detokenize(tokens[:end]).split()
        assert prefix[: len(given_words)] == given_words
        assert len(prefix) - len(given_words) <= 1
    given_words += detokenizer.flush()
    assert " ".join(given_words) == pipeline.detokenize(tokens)
    assert detokenizer.push("fresh") == []
    assert detokenizer.flush() == ["fresh"]


def test_moses_tokens_of_a_word_are_those_in_a_sentence():
    pipeline = Pipeline("moses-bpe", "en", "de")
    sentence = "Mr. Smith's dog, \"Rex\", didn't bark at the Jones' house (twice)."
    tokens = [token for word in sentence.split() for token in pipeline.tokens(word)]
    assert tokens == MosesTokenizer("en").tokenize(sentence, escape=False)


def test_moses_survives_odd_words():
    pipeline = Pipeline("moses-bpe", "en", "de")
    for word in ("x" * 10_000, "." * 10_000, "世" * 500, "\u0301", "'", "A"):
        assert "".join(pipeline.tokens(word)) == word
    assert pipeline.tokens("") == []
