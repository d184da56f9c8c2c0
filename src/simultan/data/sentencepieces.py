"""Vocabularies of imported models: SentencePiece's, where a word's first piece has the marker.

A word's pieces depend on that word alone here too, but only the next word's first piece says that
a word is complete. The model of SentencePiece is kept as it is, as text, in the vocabulary's file.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from simultan.data.text import MARKER
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class SpacedPieces(Vocabulary):
    """Pieces of which the marker is a space, and pieces that spell a byte."""

    @property
    def is_subword(self) -> bool:
        return True

    def decode_word(self, ids: Iterable[int]) -> str:
        raw = b"".join(_bytes_of(self.pieces[id]) for id in ids)
        text = "".join(raw.decode("utf-8", "replace").split())
        return "".join(letter for letter in text if letter.isprintable())


def _bytes_of(piece: str) -> bytes:
    if byte := _BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    return b"" if piece in SPECIAL else piece.replace(MARKER, " ").encode("utf-8", "replace")


class SentencePieces(SpacedPieces):
    """Pieces and their ids, of which ids 0 to 3 are ours; `model` cuts words into pieces."""

    def __init__(self, pieces: Sequence[str], model: bytes) -> None:
        super().__init__(pieces)
        self.model = model
        self._begins = [piece.startswith(MARKER) for piece in self.pieces]

    @cached_property
    def _processor(self) -> Any:
        """Made when it is first used: who only writes this language does not need it."""
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise ValueError(
                'this model\'s vocabulary needs a package: pip install "simultan[hf]"'
            ) from error
        try:
            return SentencePieceProcessor(model_proto=self.model)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"a vocabulary that SentencePiece cannot read ({error})") from error

    def _table(self) -> dict[str, object]:
        model = base64.b64encode(self.model).decode("ascii")
        return {"kind": "sentencepiece", "pieces": self.pieces, "model": model}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> SentencePieces:
        """From what _table() gave."""
        return cls(table["pieces"], base64.b64decode(table["model"], validate=True))

    def encode_word(self, word: str) -> list[int]:
        if not word.isascii():  # half a surrogate pair cannot be written as UTF-8
            word = word.encode("utf-8", "replace").decode("utf-8")
        pieces = self._processor.encode(word, out_type=str)
        return [max(self._ids.get(piece, UNK), UNK) for piece in pieces]

    def sample_word(self, word: str, dropout: float, random: random.Random) -> list[int]:
        if dropout > 0:
            raise ValueError("BPE-dropout is not for a vocabulary of SentencePiece")
        return self.encode_word(word)

    def ends_word(self, id: int) -> bool:
        return False

    def begins_word(self, id: int) -> bool:
        return self._begins[id]
