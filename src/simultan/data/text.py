"""Text in, text out: normalise, split into words, tokenise, and put written tokens together again.

Every step works on one whitespace-separated word at a time, so text that arrives live gives
exactly the tokens the same text gives in a training file.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from simultan.data.words import split_words

PipelineName = Literal["words", "moses-bpe", "bpe"]

MARKER = "▁"  # ends a word's last piece; in running text it becomes "_"
_INVISIBLE = {0x00AD, 0x200B, 0x2060, 0xFEFF}  # soft hyphen, zero-width space, joiner, BOM
_LONGEST_TOKENISED = 1_000  # characters; a longer word is no language, and Moses is not asked


class _Characters(dict[int, int | str | None]):
    """A translation table that decides about a character when it first sees it."""

    def __missing__(self, code: int) -> int | str | None:
        character = chr(code)
        result: int | str | None = code
        if character.isspace():
            result = " "
        elif character == MARKER:
            result = "_"
        elif code in _INVISIBLE or unicodedata.category(character) == "Cc":
            result = None
        elif unicodedata.category(character) == "Cs":  # half of a surrogate pair
            result = "\ufffd"
        self[code] = result
        return result


_CHARACTERS = _Characters()


def normalise(text: str) -> str:
    """Words with one space between them: NFC, no control or invisible characters, no marker."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFC", text.translate(_CHARACTERS))
    return " ".join(text.split())


@lru_cache(maxsize=8)
def _moses(language: str) -> Any:
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang=language)


@dataclass(frozen=True)
class Pipeline:
    """How raw text becomes the words a vocabulary knows, and back.

    `words`: words as they stand; `bpe`: the same, cut into subwords by the vocabulary;
    `moses-bpe`: Moses tokens of each word, without escaping. Moses is given one word at a
    time, so its rules that look at the next word (an unlisted abbreviation before a small
    letter) do not apply: "ca. zehn" gives "ca", ".", "zehn".
    """

    name: PipelineName = "bpe"
    source_language: str = ""
    target_language: str = ""

    def __post_init__(self) -> None:
        if self.name not in get_args(PipelineName):
            choices = ", ".join(get_args(PipelineName))
            raise ValueError(f"no pipeline {self.name!r}: choose one of {choices}")

    def split_source(self, text: str) -> list[str]:
        """Raw words, the unit in which delays are counted."""
        return split_words(normalise(text), self.source_language)

    def split_target(self, text: str) -> list[str]:
        """The same of the other side."""
        return split_words(normalise(text), self.target_language)

    def tokens(self, word: str) -> list[str]:
        """The vocabulary's words in one raw source word."""
        return self._tokens(word, self.source_language)

    def target_tokens(self, word: str) -> list[str]:
        """The vocabulary's words in one raw target word."""
        return self._tokens(word, self.target_language)

    def _tokens(self, word: str, language: str) -> list[str]:
        if not word:
            return []
        if self.name != "moses-bpe" or len(word) > _LONGEST_TOKENISED:
            return [word]
        # capitals around the word: it is tokenised as in the middle of a sentence
        tokens = _moses(language or "en").tokenize(f"A {word} A", escape=False)[1:-1]
        return [token for token in tokens if token] or [word]  # a word is never lost

    def detokenizer(self) -> StreamingDetokenizer:
        """A fresh detokeniser for one target sentence."""
        if self.name == "moses-bpe":
            return _MosesDetokenizer(self.target_language or "en")
        return StreamingDetokenizer()

    def detokenize(self, tokens: list[str]) -> str:
        """A finished sentence at once."""
        detokenizer = self.detokenizer()
        words = [word for token in tokens for word in detokenizer.push(token)]
        return " ".join(words + detokenizer.flush())


class StreamingDetokenizer:
    """Tokens in, finished output words out; a word that was returned never changes.

    Here every token is a word already.
    """

    def push(self, token: str) -> list[str]:
        """The output words that this token completes."""
        return [token] if token else []

    def flush(self) -> list[str]:
        """What is still held back when the sentence is over."""
        return []


class _MosesDetokenizer(StreamingDetokenizer):
    """The rules of the Moses detokeniser as a state machine: one token decides at a time.

    A word is held back until a token comes that starts the next one, since "." or "'s" may
    still join it. On a finished sentence the result is that of sacremoses' MosesDetokenizer
    (without unescaping), but for two of its rules: "@-@" is not undone (our tokens never
    have it), and its Czech rules for decimals and "-li" are left out.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer
        from sacremoses.util import is_cjk

        self._rules = MosesDetokenizer
        self._is_cjk = is_cjk
        self._language = language
        self._reset()

    def _reset(self) -> None:
        self._word = ""
        self._previous = ""
        self._space = True  # before the next token, unless that token has a rule of its own
        self._quotes: dict[str, int] = {}

    def push(self, token: str) -> list[str]:
        if not token:
            return []
        before, after = self._spaces(token)
        self._previous, self._space = token, after
        if before and self._word:
            complete, self._word = [self._word], token
            return complete
        self._word += token
        return []

    def flush(self) -> list[str]:
        complete = [self._word] if self._word else []
        self._reset()
        return complete

    def _spaces(self, token: str) -> tuple[bool, bool]:
        """Whether a space stands before the token, and whether one may follow it."""
        rules, previous, language = self._rules, self._previous, self._language
        space = self._space
        if (
            language in ("fr", "it", "ga")
            and rules.IS_FRENCH_CONRTACTION.search(previous)
            and rules.STARTS_WITH_ALPHA.search(token)
        ):
            space = False  # l' + homme
        if self._is_cjk(token[0]) and language != "ko":
            return (space and not (previous and self._is_cjk(previous[-1]))), True
        if rules.IS_CURRENCY_SYMBOL.search(token):
            return space, False
        if rules.IS_PUNCT.search(token):
            return language == "fr" and token in ("?", "!", ":", ";", "\\", "%"), True
        if language == "en" and previous and rules.IS_ENGLISH_CONTRACTION.search(token):
            return False, True
        if rules.IS_OPEN_QUOTE.search(token):
            return self._quote(token, space)
        return space, True

    def _quote(self, token: str, space: bool) -> tuple[bool, bool]:
        """Quotes open and close in turn."""
        kind = '"' if set(token) <= set("„“”") else token
        if self._language == "cs" and token in "„“":
            self._quotes[kind] = "„“".index(token)
        count = self._quotes.get(kind, 0)
        if count % 2 == 0:
            if self._language == "en" and token == "'" and self._previous.endswith("s"):
                return False, True  # the Jones' house
            self._quotes[kind] = count + 1
            return space, False
        self._quotes[kind] = count + 1
        return False, True
