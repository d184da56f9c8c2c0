"""Codec: a pipeline and its two vocabularies, text <-> ids for both sides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from simultan.data.alphabet import Alphabet
from simultan.data.text import Pipeline
from simultan.data.vocabulary import BYTES, EOS, SPECIAL, Vocabulary
from simultan.data.writer import WordWriter

_CACHED_WORDS = 200_000
_LONGEST_CACHED = 64  # characters; longer words are rare and must not fill the cache


@dataclass(frozen=True)
class Codec:
    """Text <-> ids. With a joint vocabulary both names stand for one object."""

    pipeline: Pipeline
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    _cache: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def alphabet(self) -> Alphabet | None:
        """The letters of the source's pieces; None for whole words, of which any may be unknown."""
        pieces = self.source_vocabulary.pieces
        if self.source_vocabulary.merges is None:
            return None
        return Alphabet(piece for piece in pieces if piece not in {*SPECIAL, *BYTES})

    @property
    def source_language(self) -> str:
        return self.pipeline.source_language

    @property
    def target_language(self) -> str:
        return self.pipeline.target_language

    def split_source(self, text: str) -> list[str]:
        """The source words of a text."""
        return self.pipeline.split_source(text)

    def writer(self) -> WordWriter:
        """What joins the target tokens of one sentence to words."""
        return WordWriter(self.target_vocabulary, self.pipeline.detokenizer())

    def encode_source_word(self, word: str) -> list[int]:
        """The ids of one raw source word (from pipeline.split_source), no end of sequence."""
        ids = self._cache.get(word)
        if ids is None:
            ids = self.source_vocabulary.encode(self.pipeline.tokens(word))
            if len(word) <= _LONGEST_CACHED and len(self._cache) < _CACHED_WORDS:
                self._cache[word] = ids
        return list(ids)

    def encode_source(self, text: str) -> list[int]:
        """Raw source text with end of sequence."""
        words = self.pipeline.split_source(text)
        return [id for word in words for id in self.encode_source_word(word)] + [EOS]

    def encode_target(self, text: str) -> list[int]:
        """Raw target text with end of sequence."""
        vocabulary, tokens = self.target_vocabulary, self.pipeline.target_tokens
        words = self.pipeline.split_target(text)
        return [id for word in words for id in vocabulary.encode(tokens(word))] + [EOS]

    def decode_target(self, ids: list[int]) -> str:
        """A finished target sentence as text."""
        return self.pipeline.detokenize(self.target_vocabulary.decode(ids))

    def save(self, folder: str | Path) -> None:
        """vocabulary.source.json, vocabulary.target.json and pipeline.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.source_vocabulary.save(folder / "vocabulary.source.json")
        self.target_vocabulary.save(folder / "vocabulary.target.json")
        text = json.dumps(asdict(self.pipeline), indent=1)
        (folder / "pipeline.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Codec:
        """The codec of a prepared corpus or of a model folder."""
        folder = Path(folder)
        path = folder / "pipeline.json"
        try:
            pipeline = Pipeline(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{path}: not there; {folder} is neither a prepared corpus nor a model"
            ) from error
        except TypeError as error:
            raise ValueError(f"{path}: not a pipeline ({error})") from error
        paths = folder / "vocabulary.source.json", folder / "vocabulary.target.json"
        source = Vocabulary.load(paths[0])
        joint = paths[1].exists() and paths[0].read_bytes() == paths[1].read_bytes()
        return cls(pipeline, source, source if joint else Vocabulary.load(paths[1]))
