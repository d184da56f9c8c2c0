import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan.data.codec import Codec
from simultan.data.text import MARKER, Pipeline
from simultan.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, units

TEXT = (
    "the house , the mouse and the houses of the mice don't eat &apos;s well-known häuser "
    "house, mouse. 2015 1,000 (the) <unk> <0x41> a<0x41>b không được"
)
COUNTS = Counter({word: 10 + number for number, word in enumerate(TEXT.split())})
BPE = Vocabulary.learn_bpe(COUNTS, 340)
WORDS = Vocabulary.learn_words(Counter(["a", "a", "a", "b", "b", "c"]), min_count=2)

WORD = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"], exclude_characters=MARKER),
    min_size=1,
    max_size=12,
)


@given(st.lists(WORD | st.sampled_from(TEXT.split()), max_size=6))
def test_round_trip_of_any_words(words):
    ids = BPE.encode(words)
    assert BPE.decode(ids) == words
    assert BPE.decode([BOS, *ids, EOS, PAD]) == words
    assert UNK not in ids
    # a word's pieces depend on that word alone, and only the last one ends it
    assert ids == [id for word in words for id in BPE.encode_word(word)]
    for word in words:
        ends = [BPE.ends_word(id) for id in BPE.encode_word(word)]
        assert ends == [False] * (len(ends) - 1) + [True]


@given(WORD, st.integers(0, 99), st.floats(0.01, 0.99))
def test_dropout_spells_the_same_word(word, seed, dropout):
    ids = BPE.sample_word(word, dropout, random.Random(seed))
    assert BPE.decode(ids) == [word]
    assert sum(map(BPE.ends_word, ids)) == 1


@given(WORD | st.sampled_from(TEXT.split()))
def test_no_dropout_equals_encoding(word):
    assert BPE.sample_word(word, 1e-300, random.Random(0)) == BPE.encode_word(word)
    assert BPE.sample_word(word, 0.0, random.Random(0)) == BPE.encode_word(word)


def test_dropout_differs_and_is_reproducible():
    draws = [BPE.sample_word("houses", 0.5, random.Random(seed)) for seed in range(20)]
    assert len({tuple(ids) for ids in draws}) > 3
    assert draws == [BPE.sample_word("houses", 0.5, random.Random(seed)) for seed in range(20)]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("house,", ["house", ","]),
        ("(don't)", ["(", "don't", ")"]),
        ("&apos;s", ["&apos;s"]),
        ("&quot;", ["&quot;"]),
        ("(&amp;)", ["(", "&amp;", ")"]),
        ("z.B.", ["z.B", "."]),
        ("...", ["..."]),
        ("a<0x41>b", ["a", "<", "0x41", ">", "b"]),
        ("हिन्दी।", ["हिन्दी", "।"]),
        ("", []),
    ],
)
def test_no_piece_crosses_punctuation(word, parts):
    assert units(word) == parts
    assert "".join(parts) == word


def test_pieces_do_not_merge_words_with_punctuation():
    pieces = [BPE.pieces[id] for id in BPE.encode_word("house,")]
    assert pieces[-1] == "," + MARKER


def test_text_cannot_spell_special_pieces():
    for word in ("<unk>", "<pad>", "</s>", "<0x41>"):
        assert BPE.decode(BPE.encode_word(word)) == [word]
        assert min(BPE.encode_word(word)) > UNK
        assert WORDS.encode_word(word) == [UNK]


def test_odd_words_have_a_defined_result():
    assert BPE.encode_word("") == []
    assert BPE.decode([]) == []
    long = "houses" * 2_000
    assert BPE.decode(BPE.encode_word(long)) == [long]
    assert BPE.decode(BPE.encode_word("a▁b")) == ["a_b"]
    assert BPE.decode(BPE.encode_word("x\ud800")) == ["x?"]


def test_stray_model_output():
    byte = BPE.pieces.index("<0xFF>")
    space, newline = BPE.pieces.index("<0x20>"), BPE.pieces.index("<0x0A>")
    marker = BPE.pieces.index(MARKER)
    assert BPE.decode([byte, marker]) == ["\ufffd"]
    assert BPE.decode([space, newline, marker, marker]) == []
    assert BPE.decode([UNK, *BPE.encode_word("the")]) == ["the"]
    unfinished = BPE.encode_word("houses")[:-1]
    assert len(unfinished) > 0
    assert "houses".startswith(BPE.decode(unfinished)[0])


def test_words():
    assert WORDS.pieces == ["<pad>", "<s>", "</s>", "<unk>", "a", "b"]
    assert WORDS.encode(["a", "c", "b", ""]) == [4, UNK, 5]
    assert WORDS.decode([BOS, 4, UNK, EOS]) == ["a", "<unk>"]
    assert [WORDS.ends_word(id) for id in range(6)] == [False, False, False, True, True, True]
    assert len(Vocabulary.learn_words(Counter(["a", "a", "b"]), min_count=1, size=5)) == 5


def test_learning_is_deterministic_and_bounded():
    again = Vocabulary.learn_bpe(Counter(dict(reversed(COUNTS.items()))), 340)
    assert (again.pieces, again.merges) == (BPE.pieces, BPE.merges)
    assert len(BPE) <= 340


def test_rare_characters_are_bytes():
    vocabulary = Vocabulary.learn_bpe(Counter({"abc": 50, "ж": 1}), 300)
    assert "ж" not in vocabulary.pieces
    assert vocabulary.decode(vocabulary.encode(["ж"])) == ["ж"]
    empty = Vocabulary.learn_bpe(Counter(), 300)
    assert empty.decode(empty.encode(["abc"])) == ["abc"]


@pytest.mark.parametrize("vocabulary", [BPE, WORDS])
def test_save_and_load(tmp_path, vocabulary):
    vocabulary.save(tmp_path / "v.json")
    loaded = Vocabulary.load(tmp_path / "v.json")
    assert loaded.pieces == vocabulary.pieces
    assert loaded.encode(TEXT.split()) == vocabulary.encode(TEXT.split())


def test_load_errors(tmp_path):
    with pytest.raises(OSError, match="no such vocabulary"):
        Vocabulary.load(tmp_path / "v.json")
    for content in ("[1]", "{", '{"pieces": ["a"]}', '{"pieces": 3}'):
        (tmp_path / "v.json").write_text(content)
        with pytest.raises(ValueError):
            Vocabulary.load(tmp_path / "v.json")


@pytest.mark.parametrize("name", ["bpe", "moses-bpe"])
def test_codec(tmp_path, name):
    codec = Codec(Pipeline(name, "en", "de"), BPE, BPE)
    codec.save(tmp_path)
    loaded = Codec.load(tmp_path)
    assert loaded.source_vocabulary is loaded.target_vocabulary
    assert loaded.pipeline == codec.pipeline
    text = "The house, (a mouse).  ▁\x00"
    words = loaded.pipeline.split_source(text)
    streamed = [id for word in words for id in loaded.encode_source_word(word)]
    assert [*streamed, EOS] == loaded.encode_source(text) == codec.encode_source(text)
    assert loaded.decode_target(loaded.encode_target(text)) == "The house, (a mouse). _"
    assert loaded.encode_source("") == [EOS]
    assert loaded.decode_target([EOS]) == ""


def test_codec_errors(tmp_path):
    with pytest.raises(OSError, match="neither a prepared corpus nor a model"):
        Codec.load(tmp_path)
    (tmp_path / "pipeline.json").write_text('{"nome": "bpe"}')
    with pytest.raises(ValueError, match="not a pipeline"):
        Codec.load(tmp_path)
