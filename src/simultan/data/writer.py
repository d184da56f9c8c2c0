"""Target tokens in, finished words out."""

from __future__ import annotations

from simultan.data.text import StreamingDetokenizer
from simultan.data.vocabulary import PAD, Vocabulary

LONGEST_WORD = 1_000  # pieces: no word of any language has more
WORD_END = PAD  # says that a word is complete where pieces do not; no model writes padding


class WordWriter:
    """Joins the pieces of one sentence to words and detokenises them."""

    def __init__(self, vocabulary: Vocabulary, detokenizer: StreamingDetokenizer) -> None:
        self.vocabulary, self.detokenizer = vocabulary, detokenizer
        self.pieces: list[int] = []  # of a word that is not complete
        self.words = 0  # complete words, before detokenisation

    def push(self, token: int) -> list[str]:
        """The words that can be shown with this token."""
        before: list[str] = []
        if self.pieces and self.vocabulary.begins_word(token):
            self.words += 1
            before = self._complete()
        self.pieces.append(token)
        if not self.vocabulary.ends_word(token) and len(self.pieces) < LONGEST_WORD:
            return before
        self.words += 1
        return before + self._complete()

    def is_between(self, token: int) -> bool:
        """Whether no word would be cut in two if the sentence ended before this token."""
        return not self.pieces or self.vocabulary.begins_word(token)

    def flush(self) -> list[str]:
        """The rest, at the end of the sentence."""
        return (self._complete() if self.pieces else []) + self.detokenizer.flush()

    def _complete(self) -> list[str]:
        word = self.vocabulary.decode_word(self.pieces)
        self.pieces = []
        return self.detokenizer.push(word)
