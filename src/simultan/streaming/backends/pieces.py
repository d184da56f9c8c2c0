"""Pieces of other people's models: SentencePiece's, where a word's first piece has the marker.

Such a piece says that a word begins, and none says that one is complete. So a backend tells it
with a token of its own, WORD_END, if the model's next piece begins another word or is the end. The
tokens of a session are the model's ids behind our four special ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from simultan.data.codec import Codec
from simultan.data.languages import row
from simultan.data.sentencepieces import SpacedPieces
from simultan.data.text import MARKER, Pipeline, StreamingDetokenizer
from simultan.data.vocabulary import EOS, SPECIAL, UNK
from simultan.data.words import join_words, split_words
from simultan.data.writer import WORD_END, WordWriter

OFFSET = len(SPECIAL)
_CODES = {  # of three letters, as NLLB has them, for languages of which we know something
    "ces": "cs", "cmn": "zh", "dan": "da", "deu": "de", "eng": "en", "fin": "fi", "fra": "fr",
    "ita": "it", "jpn": "ja", "nld": "nl", "pol": "pl", "por": "pt", "spa": "es", "swe": "sv",
    "tha": "th", "yue": "zh", "zho": "zh",
}  # fmt: skip


def language_of(code: str) -> str:
    """The language of a model's code: "deu_Latn", "de_DE" and "de" are German."""
    short = code.strip("_<>").partition("_")[0]
    return _CODES.get(short, short)


class PieceVocabulary(SpacedPieces):
    """Pieces of one side, and how a word is cut into them."""

    def __init__(
        self, pieces: Sequence[str], encode: Callable[[str], list[int]], never: set[int]
    ) -> None:
        """`never`: special ids, which text must not spell."""
        self.pieces = [*SPECIAL, *pieces]  # the model's own specials may stand there once more
        self.merges = None
        self._encode, self._never = encode, never

    def encode_word(self, word: str) -> list[int]:
        return [OFFSET + id for id in self._encode(word) if id not in self._never] or [UNK]

    def ends_word(self, id: int) -> bool:
        return id == WORD_END

    def decode(self, ids: Sequence[int]) -> list[str]:  # type: ignore[override]
        words: list[list[int]] = []
        for id in ids:
            if not words or self.pieces[id].startswith(MARKER):
                words.append([])
            words[-1].append(id)
        return [word for word in map(self.decode_word, words) if word]


class _Splitter(StreamingDetokenizer):
    """What stands between two spaces becomes words; where there are no spaces, characters."""

    def __init__(self, language: str) -> None:
        self.language = language

    def push(self, token: str) -> list[str]:
        return split_words(token, self.language)


@dataclass(frozen=True)
class PieceCodec(Codec):
    """Words in, words out, with the pieces of another system."""

    @classmethod
    def of(
        cls,
        source: PieceVocabulary,
        target: PieceVocabulary,
        languages: tuple[str, str] = ("", ""),
    ) -> PieceCodec:
        return cls(Pipeline("bpe", *map(language_of, languages)), source, target)

    def writer(self) -> WordWriter:
        return WordWriter(self.target_vocabulary, _Splitter(self.target_language))

    def decode_target(self, ids: list[int]) -> str:
        return join_words(self.target_vocabulary.decode(ids))

    @cached_property
    def _is_spaced(self) -> bool:
        return row(self.source_language).spaced

    def reread(self, ids: list[int]) -> list[int]:
        """A model's ids of the source so far. Where words are characters, pieces cross them."""
        if self._is_spaced:
            return ids
        words = [self.source_vocabulary.decode_word([OFFSET + id]) for id in ids]
        text = join_words(split_words(" ".join(words), self.source_language))
        parts = text.split()
        return [id - OFFSET for part in parts for id in self.source_vocabulary.encode_word(part)]


class Spelling:
    """Which target ids of a model begin a word, and which are never written."""

    def __init__(self, pieces: Sequence[str], eos: int, never: set[int], language: str) -> None:
        self.eos = eos
        begins = [piece.startswith(MARKER) for piece in pieces]
        if not row(language).spaced:  # nearly every character does
            begins = [_begins_unspaced(piece, language) for piece in pieces]
        allowed = [id not in never and id != eos for id in range(len(pieces))]
        self.begins, self.allowed = torch.tensor(begins), torch.tensor(allowed)

    def says(self, id: int, begun: bool, fresh: bool) -> int | None:
        """The session's token for the model's best id; None if that id must not be written now.

        `begun`: some word is being written; `fresh`: nothing is written yet.
        """
        if id == self.eos:
            return WORD_END if begun else EOS
        if id >= len(self.allowed) or not self.allowed[id]:
            return None
        if self.begins[id]:
            return WORD_END if begun else OFFSET + id
        return OFFSET + id if begun or fresh else None

    def present(self, logits: Tensor, begun: Sequence[bool], fresh: Sequence[bool]) -> Tensor:
        """Scores of the model's ids [R, V] -> of the session's tokens [R, OFFSET + V]."""
        known = len(self.allowed)
        result = logits.new_full((len(logits), OFFSET + known), -torch.inf)
        body = result[:, OFFSET:]
        body[:, self.allowed] = logits[:, :known][:, self.allowed]
        result[:, EOS] = logits[:, self.eos]
        for scores, line, is_begun, is_fresh in zip(result, body, begun, fresh, strict=True):
            if is_begun:  # the word is complete if what comes next begins another, or nothing does
                scores[WORD_END] = torch.maximum(line[self.begins].amax(), scores[EOS])
                scores[EOS] = line[self.begins] = -torch.inf
            elif not is_fresh:  # a complete word is written, and nothing may be added to it
                line[~self.begins] = -torch.inf
        return result


def _begins_unspaced(piece: str, language: str) -> bool:
    """Whether the first character is a word of its own: it does not join an "a" before it."""
    return piece.startswith(MARKER) or len(split_words(f"a{piece[:1]}", language)) == 2
