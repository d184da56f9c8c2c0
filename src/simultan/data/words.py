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
_FIRST = re.compile(f"[{_UNSPACED}]")


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


def join_words(words: Iterable[str]) -> str:
    """A sentence of these words: no space between characters that are written without."""
    text = ""
    for word in words:
        if text and not (_FIRST.match(text[-1]) or _FIRST.match(word)):
            text += " "
        text += word
    return text
