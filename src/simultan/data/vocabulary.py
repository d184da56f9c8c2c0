"""Word and subword vocabularies: learn, save, load, encode, decode.

A subword vocabulary is character BPE with byte fallback. A word's last piece ends in "▁", so
a writer knows that a word is complete without waiting for the next one, and a word's pieces
depend on that word alone.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from simultan.data.text import MARKER

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_FIRST_BYTE = len(SPECIAL)
_FIRST_PIECE = _FIRST_BYTE + len(BYTES)
SMALLEST_BPE = _FIRST_PIECE + 1  # the marker of a word's end, too
_ENTITY = re.compile(r"&(?:[a-zA-Z]+|#[0-9]+);")
_LEARNING_WORDS = 20_000_000  # BPE is learnt on counts scaled down to this many words
_RARE_CHARACTER = 5  # characters seen less often are spelled in bytes


@lru_cache(maxsize=65_536)
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def units(word: str) -> list[str]:
    """The parts of a word that no piece may cross: leading and trailing punctuation, the rest.

    "house," -> "house", ","; an inner apostrophe, hyphen or dot stays ("don't", "z.B"), and so
    does an entity of tokenised text ("&apos;s"). "<" and ">" always stand apart, so that text
    can never spell a special piece.
    """
    start, stop = 0, len(word)
    while start < stop and _is_punctuation(word[start]):
        if word[start] == "&" and _ENTITY.match(word, start):
            break
        start += 1
    while stop > start and _is_punctuation(word[stop - 1]):
        ampersand = word.rfind("&", start, stop) if word[stop - 1] == ";" else -1
        if ampersand >= 0 and _ENTITY.fullmatch(word, ampersand, stop):
            break
        stop -= 1
    parts = [word[:start], *re.split("([<>]+)", word[start:stop]), word[stop:]]
    return [part for part in parts if part]


class Vocabulary:
    """Pieces and their ids; ids 0 to 3 are padding, begin, end and unknown.

    Without merges the pieces are whole words; with merges they are subwords, and ids 4 to 259
    are the 256 bytes, so nothing is ever unknown.
    """

    def __init__(
        self, pieces: Sequence[str], merges: Sequence[tuple[str, str]] | None = None
    ) -> None:
        self.pieces = list(pieces)
        self.merges = None if merges is None else [(left, right) for left, right in merges]
        if tuple(self.pieces[:_FIRST_BYTE]) != SPECIAL:
            raise ValueError(f"a vocabulary starts with {' '.join(SPECIAL)}")
        self._ids = {piece: id for id, piece in enumerate(self.pieces)}
        if len(self._ids) != len(self.pieces):
            raise ValueError("a vocabulary holds each piece once")
        self._model: models.BPE | None = None
        if self.merges is not None:
            if tuple(self.pieces[_FIRST_BYTE:_FIRST_PIECE]) != BYTES:
                raise ValueError("a subword vocabulary has the 256 bytes at ids 4 to 259")
            self._model = models.BPE(vocab=self._ids, merges=self.merges, byte_fallback=True)
            self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
            self._ends = [piece.endswith(MARKER) for piece in self.pieces]
        else:
            self._ends = [id >= UNK for id in range(len(self.pieces))]

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def is_subword(self) -> bool:
        return self._model is not None

    # -- learn, save, load

    @classmethod
    def learn_words(
        cls, counts: Mapping[str, int], min_count: int = 5, size: int | None = None
    ) -> Vocabulary:
        """Whole words, the most frequent first; words seen less than min_count are unknown."""
        kept = [w for w, n in counts.items() if n >= min_count and w and w not in SPECIAL]
        kept.sort(key=lambda word: (-counts[word], word))
        if size is not None:
            kept = kept[: max(0, size - len(SPECIAL))]
        return cls([*SPECIAL, *kept])

    @classmethod
    def learn_bpe(cls, counts: Mapping[str, int], size: int) -> Vocabulary:
        """Subwords: at most `size` pieces, specials, bytes and single characters included."""
        unit_counts: Counter[str] = Counter()
        for word, count in counts.items():
            for unit in _marked(word):
                unit_counts[unit] += count
        scale = min(1.0, _LEARNING_WORDS / max(1, sum(unit_counts.values())))
        characters: Counter[str] = Counter()
        for unit, count in unit_counts.items():
            for character in unit:
                characters[character] += count
        alphabet = [c for c, n in characters.items() if n >= _RARE_CHARACTER or c == MARKER]
        room = max(1, size - _FIRST_PIECE - 1)
        alphabet = sorted(alphabet, key=lambda c: (-characters[c], c))[:room]
        tokenizer = Tokenizer(models.BPE(byte_fallback=True))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=max(size, SMALLEST_BPE),
            min_frequency=2,
            special_tokens=[*SPECIAL, *BYTES],
            initial_alphabet=sorted({*alphabet, MARKER}),
            limit_alphabet=len({*alphabet, MARKER}),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_repeated(unit_counts, scale), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return cls(pieces, [(left, right) for left, right in model["merges"]])

    def save(self, path: str | Path) -> None:
        """One JSON file; equal vocabularies give equal bytes."""
        text = json.dumps(self._table(), ensure_ascii=False, separators=(",", ":"))
        Path(path).write_text(text + "\n", encoding="utf-8")

    def _table(self) -> dict[str, object]:
        if self.merges is None:
            return {"kind": "words", "pieces": self.pieces}
        return {"kind": "bpe", "pieces": self.pieces, "merges": self.merges}

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        try:
            table = json.loads(Path(path).read_text(encoding="utf-8"))
            if table.get("kind") == "sentencepiece":
                from simultan.data.sentencepieces import SentencePieces

                return SentencePieces.read(table)
            merges = table.get("merges")
            return cls(table["pieces"], None if merges is None else [(a, b) for a, b in merges])
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{path}: no such vocabulary") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a vocabulary ({error})") from error

    # -- encode

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word, without end of sequence; an empty word has none."""
        if self._model is None:
            id = self._ids.get(word, UNK)
            return [id if id > UNK else UNK] if word else []
        return [token.id for unit in _marked(word) for token in self._model.tokenize(unit)]

    def encode(self, words: Sequence[str]) -> list[int]:
        """The ids of words, one after the other."""
        return [id for word in words for id in self.encode_word(word)]

    def sample_word(self, word: str, dropout: float, random: random.Random) -> list[int]:
        """BPE-dropout: the word's pieces when each merge is left out with this probability."""
        if self._model is None or dropout <= 0:
            return self.encode_word(word)
        return [id for unit in _marked(word) for id in self._sample(unit, dropout, random)]

    def _sample(self, unit: str, dropout: float, random: random.Random) -> list[int]:
        ranks, draw = self._ranks, random.random
        pieces: list[str] = []
        for character in unit:
            if character in self._ids:
                pieces.append(character)
            else:
                pieces += [BYTES[byte] for byte in character.encode("utf-8")]
        while len(pieces) > 1:
            best, place = len(ranks), -1
            for i in range(len(pieces) - 1):
                rank = ranks.get((pieces[i], pieces[i + 1]), best)
                if rank < best and draw() >= dropout:
                    best, place = rank, i
            if place < 0:
                break
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return [self._ids[piece] for piece in pieces]

    # -- decode

    def ends_word(self, id: int) -> bool:
        """Whether a word is complete with this piece."""
        return self._ends[id]

    def begins_word(self, id: int) -> bool:
        """Whether the word before this piece is complete because of it; here pieces end words."""
        return False

    def decode_word(self, ids: Iterable[int]) -> str:
        """One word from its pieces; specials give nothing, broken UTF-8 the replacement sign.

        Space and control characters, which only a model's stray bytes can spell, are dropped.
        """
        if self._model is None:
            return "".join(self.pieces[id] for id in ids if id >= UNK)
        raw = bytearray()
        spelled = False
        for id in ids:
            if id >= _FIRST_PIECE:
                raw += self.pieces[id].encode("utf-8")
            elif id >= _FIRST_BYTE:
                raw.append(id - _FIRST_BYTE)
                spelled = True
        word = raw.decode("utf-8", "replace").replace(MARKER, "")
        if spelled and not word.isprintable():
            word = "".join(c for c in word if not c.isspace() and unicodedata.category(c) != "Cc")
        return word

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words; padding, begin and end are dropped; an unfinished last word is given as it is."""
        return [word for word in map(self.decode_word, self._groups(ids)) if word]

    def _groups(self, ids: Iterable[int]) -> Iterator[list[int]]:
        group: list[int] = []
        for id in ids:
            if id in (PAD, BOS, EOS):
                continue
            if group and self.begins_word(id):
                yield group
                group = []
            group.append(id)
            if self.ends_word(id):
                yield group
                group = []
        if group:
            yield group


def _marked(word: str) -> list[str]:
    """The units of a word, the last one with the marker; an empty word has none."""
    if not word.isascii():  # half a surrogate pair cannot be written as UTF-8
        word = word.replace(MARKER, "_").encode("utf-8", "replace").decode("utf-8")
    parts = units(word)
    if parts:
        parts[-1] += MARKER
    return parts


def _repeated(counts: Mapping[str, int], scale: float) -> Iterator[str]:
    """Text in which every unit stands as often as its scaled count says."""
    for unit, count in sorted(counts.items()):
        times = round(count * scale)
        for start in range(0, times, 4096):  # one huge string would only cost memory
            yield " ".join([unit] * min(4096, times - start))
