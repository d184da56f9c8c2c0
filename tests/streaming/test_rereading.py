"""Pieces become words, and words pieces, whatever model is behind them."""

from __future__ import annotations

import pytest
import torch
from small import feed_all, writes

from simultan.data.vocabulary import EOS
from simultan.data.writer import WORD_END
from simultan.streaming.agents import Scores
from simultan.streaming.backends import Backend, OfflineModel
from simultan.streaming.backends.pieces import (
    OFFSET,
    PieceCodec,
    PieceVocabulary,
    Spelling,
    language_of,
)
from simultan.streaming.backends.rereading import Frame, Rereading, View
from simultan.streaming.session import Session

PIECES = ["</s>", "<unk>", "▁a", "▁b", "▁c", "x", "y", "."]
IDS = {piece: id for id, piece in enumerate(PIECES)}


def cut(word: str) -> list[int]:
    return [IDS.get(f"▁{word[0]}", 1), *(IDS.get(letter, 1) for letter in word[1:])]


class Parrot(OfflineModel):
    """Says each source word again, piece by piece, and notes what it saw."""

    attention_layers = 0

    def __init__(self, language: str = "", longest: int = 500) -> None:
        vocabulary = PieceVocabulary(PIECES, cut, {0})
        self.codec = PieceCodec.of(vocabulary, vocabulary, ("", language))
        self.frame = Frame((), (0,), (), unknown=1, longest=longest)
        self.spelling = Spelling(PIECES, 0, {0}, language)
        self.views: list[View] = []

    def backend(self, rows: int) -> Backend:
        return Rereading(self, rows)

    def score(self, views: list[View], attention: bool) -> Scores:
        self.views += views
        logits = torch.zeros(len(views), len(PIECES))
        for row, view in zip(logits, views, strict=True):
            row[view.source[min(len(view.target), len(view.source) - 1)]] = 1
        return Scores(
            self.spelling.present(logits, [v.begun for v in views], [v.fresh for v in views])
        )


@pytest.mark.parametrize("k", [1, 2, 3])
def test_wait_k_counts_complete_words(k: int) -> None:
    """No piece says that a word is complete; it is when the next piece begins another."""
    model, words = Parrot(), ["axy", "b", "cx", "ay", "c"]
    session = Session(model, model.codec, f"wait-k:{k}", segment=False)
    said = writes(feed_all(session, words))
    assert [write.text for write in said] == words
    assert [write.delay for write in said] == [min(5, i + k) for i in range(5)]
    seen = {
        view.target: len([id for id in view.source if PIECES[id][0] == "▁"]) for view in model.views
    }
    assert seen[()] == k  # a word's first piece is chosen when its turn has come
    assert seen[tuple(cut("axy"))] == k + 1


def test_a_word_waits_for_its_last_piece() -> None:
    model = Parrot()
    session = Session(model, model.codec, "agreement:2", segment=False)
    assert [write.text for write in writes(session.feed("axy"))] == []
    assert [write.text for write in writes(session.feed("b"))] == ["axy"]
    assert [write.text for write in writes(session.finish())] == ["b"]


def test_nothing_is_added_to_a_word_that_is_written() -> None:
    spelling = Spelling(PIECES, 0, {0}, "")
    logits = torch.tensor([[0.0, 1, 2, 3, 4, 9, 8, 7]]).repeat(3, 1)
    begun, fresh = [True, False, False], [False, False, True]
    logits[:, 0] = 5  # the end: then the word that is being written is complete, too
    first, closed, start = spelling.present(logits, begun, fresh)
    assert first[WORD_END] == 5
    assert int(first.argmax()) == OFFSET + IDS["x"]
    assert int(closed.argmax()) == EOS
    assert closed[OFFSET + IDS["▁c"]] == 4
    assert closed[OFFSET + IDS["x"]] == -torch.inf
    assert int(start.argmax()) == OFFSET + IDS["x"]  # a sentence may begin with anything
    assert [first[EOS], closed[EOS], start[EOS]] == [-torch.inf, 5, 5]
    for logit, is_begun, is_fresh in zip((first, closed, start), begun, fresh, strict=True):
        best = int(logits[0].argmax())
        assert spelling.says(best, is_begun, is_fresh) in (int(logit.argmax()), None)


def test_text_never_spells_a_special_piece() -> None:
    vocabulary = PieceVocabulary(PIECES, lambda word: [0, IDS["x"]], {0})
    assert vocabulary.encode_word("</s>x") == [OFFSET + IDS["x"]]


def test_of_a_long_source_the_last_tokens_are_read() -> None:
    model = Parrot(longest=4)
    session = Session(model, model.codec, "wait-k:9", segment=False)
    feed_all(session, ["a", "b", "c", "a", "b"])
    assert {len(view.source) for view in model.views} == {4}
    assert model.views[0].source == (IDS["▁c"], IDS["▁a"], IDS["▁b"], 0)
    assert all(len(view.target) < 4 for view in model.views)


HAN = ["</s>", "<unk>", "▁", "我们", "爱", "▁A", "B", "<0xE4>", "<0xBD>", "<0xA0>"]


def test_a_target_without_spaces_is_written_piece_by_piece() -> None:
    """ "我们" has two words; Latin letters stay together."""
    vocabulary = PieceVocabulary(HAN, lambda word: [3], {0})
    writer = PieceCodec.of(vocabulary, vocabulary, ("eng_Latn", "zho_Hans")).writer()
    spelling = Spelling(HAN, 0, {0}, "zh")
    assert spelling.begins.tolist() == [piece[0] in "▁我爱" for piece in HAN]
    assert writer.push(OFFSET + 2) == []
    assert writer.push(OFFSET + 3) == []
    assert writer.push(WORD_END) == ["我", "们"]
    assert writer.push(OFFSET + 5) == []
    assert writer.push(OFFSET + 6) == []
    assert writer.push(WORD_END) == ["AB"]
    for id in (7, 8, 9):
        assert writer.push(OFFSET + id) == []
    assert writer.flush() == ["你"]


def test_a_source_without_spaces_is_cut_anew_with_each_character() -> None:
    ids = {"我": [3], "们": [4], "我们": [5]}
    pieces = ["</s>", "<unk>", "▁", "▁我", "▁们", "▁我们"]
    source = PieceVocabulary(pieces, lambda text: ids.get(text, [1]), {0})
    codec = PieceCodec.of(source, source, ("zh", "en"))
    assert codec.split_source("我们") == ["我", "们"]
    tokens = [id - OFFSET for word in "我们" for id in codec.encode_source_word(word)]
    assert codec.reread(tokens[:1]) == [3]
    assert codec.reread(tokens) == [5]


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("deu_Latn", "de"),
        ("de_DE", "de"),
        ("de", "de"),
        ("zho_Hans", "zh"),
        ("cmn", "zh"),
        ("", ""),
    ],
)
def test_languages(code: str, language: str) -> None:
    assert language_of(code) == language
