"""Words of a text: white space parts them or, where a language is written without it, characters.

Chinese, Japanese and Thai have no spaces between words. There a character (with the marks that
belong to it) is a word: for sessions, delays and vocabularies alike. Latin letters and digits in
such a text stay together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from simultan.data.languages import row

# Thai, CJK signs and punctuation, kana, Bopomofo, Han with extensions, full-width forms
_UNSPACED = (
    "\u0e00-\u0e7f\u2e80-\u303f\u3040-\u30ff\u3100-\u312f\u31c0-\u31ff\u3200-\u33ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003134f"
)
_PART = re.compile(f"[{_UNSPACED}]|[^{_UNSPACED}]+")
_LETTER = re.compile(f"[{_UNSPACED}]")


def split_words(text: str, language: str = "") -> list[str]:
    """The words of a text in this language ("zh", "ja-JP", ...)."""
    if row(language).spaced:
        return text.split()
    words: list[str] = []
    for chunk in text.split():
        fresh = len(words)  # a mark never goes to a word before the space
        for part in _PART.findall(chunk):
            if len(words) > fresh and unicodedata.category(part[0])[0] == "M":
                words[-1] += part
            else:
                words.append(part)
    return words


def gap(before: str, after: str, language: str = "") -> str:
    """What stands between two words: nothing beside a character that is written without spaces.

    In a language that has spaces such a character is a quotation, and has them, too. The language
    may be unknown.
    """
    if not before:
        return ""
    if language and row(language).spaced:
        return " "
    return "" if _LETTER.match(before[-1]) or _LETTER.match(after) else " "


def join_words(words: Iterable[str], language: str = "") -> str:
    """A sentence of these words of a language, if it is known."""
    text = ""
    for word in words:
        text += gap(text, word, language) + word
    return text
