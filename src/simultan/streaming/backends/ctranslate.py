"""Models that were converted for CTranslate2, with the tokeniser of the original beside them.

CTranslate2 keeps nothing between two calls. So one call decodes some tokens ahead, and as long as
a session writes what was foreseen no other call is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from simultan.data.codec import Codec
from simultan.data.vocabulary import EOS
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.backends import folders
from simultan.streaming.backends.framing import Family, frame_for, language_tokens
from simultan.streaming.backends.names import Name
from simultan.streaming.backends.pieces import PieceCodec, PieceVocabulary, Spelling
from simultan.streaming.backends.rereading import Engine, Frame, View, present

AHEAD = 8  # tokens that one call decodes
_SPECIAL, _BYTE = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]"), re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SENTENCEPIECE = "sentencepiece.bpe.model", "spiece.model", "sentencepiece.model"


@dataclass
class _Foreseen:
    """What the model goes on with, after one source."""

    tokens: tuple[int, ...]  # the target so far, its beginning, and what follows
    ended: bool  # after the last of them

    def after(self, target: tuple[int, ...]) -> int | None:
        """The token that follows a target; -1 for the end, None if it is not known."""
        if self.tokens[: len(target)] != target:
            return None
        if len(self.tokens) > len(target):
            return self.tokens[len(target)]
        return -1 if self.ended else None


class _LazyScores(Scores):
    """The best token is known; logits are computed if anybody looks at them."""

    def __init__(self, best: list[int], compute: Callable[[], Tensor]) -> None:
        self.hidden = self.attention = None
        self.__dict__["best"], self._compute = best, compute

    def __getattr__(self, name: str) -> Any:
        if name != "logits":
            raise AttributeError(name)
        self.logits = self._compute()
        return self.logits


class CTranslate2(Engine):
    """A Translator of CTranslate2, greedy."""

    def __init__(
        self,
        engine: Any,
        codec: Codec,
        frame: Frame,
        pieces: tuple[list[str], list[str]],
        spelling: Spelling | None,
    ) -> None:
        """`pieces` by id, of source and target. Without a spelling the ids are a codec's own."""
        self.engine, self.codec, self.frame, self.spelling = engine, codec, frame, spelling
        self.sources, self.targets = pieces
        self.ids = {piece: id for id, piece in enumerate(self.targets)}
        self.eos = EOS if spelling is None else spelling.eos

    def score(self, views: list[View], attention: bool) -> Scores:
        known = [self._known(view) for view in views]
        missing = [view for view, id in zip(views, known, strict=True) if id is None]
        if missing:
            self._look_ahead(missing)
            known = [self._known(view) for view in views]
        said = [self._say(view, id) for view, id in zip(views, known, strict=True)]
        if None in said:  # the best token must not be written now: the best of the others is
            scores = Scores(self._logits(views))
            said = [
                token if other is None else other
                for token, other in zip(scores.best, said, strict=True)
            ]
        return _LazyScores([token or 0 for token in said], lambda: self._logits(views))

    def _known(self, view: View) -> int | None:
        found = view.memory.get(view.source)
        return found.after(view.target) if found is not None else None

    def _say(self, view: View, id: int | None) -> int | None:
        if id is None or id == -1:
            return EOS
        return id if self.spelling is None else self.spelling.says(id, view.begun, view.fresh)

    def _look_ahead(self, views: list[View]) -> None:
        for view, tokens in zip(views, self._go_on(views), strict=True):
            ended = bool(tokens) and tokens[-1] == self.eos
            view.remember(view.source, _Foreseen(tokens[:-1] if ended else tokens, ended))

    def _go_on(self, views: list[View]) -> list[tuple[int, ...]]:
        """Each target, and what the model goes on with."""
        length = max(len(view.target) for view in views)
        results = self._translate(views, max_decoding_length=length + AHEAD)
        return [tuple(self.ids[piece] for piece in result.hypotheses[0]) for result in results]

    def _logits(self, views: list[View]) -> Tensor:
        """Log probabilities of the next token."""
        length = max(len(view.target) for view in views) + 1
        results = self._translate(views, max_decoding_length=length, return_logits_vocab=True)
        rows = [
            torch.from_numpy(numpy.array(result.logits[0][len(view.target)]))
            for view, result in zip(views, results, strict=True)
        ]
        return present(self.spelling, torch.stack(rows).float(), views)

    def _translate(self, views: list[View], **options: Any) -> Any:
        try:
            return self.engine.translate_batch(
                [[self.sources[id] for id in view.source] for view in views],
                [[self.targets[id] for id in view.target] for view in views],
                beam_size=1,
                max_input_length=0,
                return_end_token=True,
                **{"min_decoding_length": 0, **options},
            )
        except RuntimeError as error:  # such as more positions than the model has
            raise ValueError(f"CTranslate2: {str(error).partition(chr(10))[0]}") from error


def load(
    name: Name, folder: Path, device: torch.device, quantize: str | None
) -> tuple[CTranslate2, Codec]:
    """A folder of CTranslate2: model.bin, config.json, vocabularies, and a tokeniser's files."""
    config = folders.read_json(folder / "config.json", folders.MOST_INDEX)
    sources, targets = _vocabularies(folder)
    if (folder / "pipeline.json").exists():  # one of ours, exported
        own = Codec.load(folder)
        frame = Frame((), () if config.get("add_source_eos") else (EOS,), (), offset=0)
        return CTranslate2(
            _open(name, folder, device, quantize), own, frame, (sources, targets), None
        ), own
    encode_source, encode_target = _tokenizers(name, folder, sources, targets)
    eos, unknown = str(config.get("eos_token", "</s>")), str(config.get("unk_token", "<unk>"))
    vocabulary = {piece: id for id, piece in enumerate(sources)}
    if eos not in vocabulary or eos not in targets:
        raise ValueError(f"{folder}: its vocabulary has no {eos}, its end of sentences")
    family = Family(
        eos=vocabulary[eos],
        unknown=vocabulary.get(unknown, 0),
        language_last=config.get("decoder_start_token") is None,
        adds_end=bool(config.get("add_source_eos")),
    )
    prefix = [id for word in name.prefix.split() for id in encode_source(word)]
    frame = frame_for(name, family, vocabulary, prefix)
    noted, never = _noted_languages(folder), _never(targets, unknown)
    codec = PieceCodec.of(
        PieceVocabulary(sources, encode_source, _never(sources, unknown) | {vocabulary[eos]}),
        PieceVocabulary(targets, encode_target, never | {targets.index(eos)}),
        (name.source or noted[0], name.target or noted[1]),
    )
    spelling = Spelling(targets, targets.index(eos), never, codec.target_language)
    engine = _open(name, folder, device, quantize)
    return CTranslate2(engine, codec, frame, (sources, targets), spelling), codec


def _open(name: Name, folder: Path, device: torch.device, quantize: str | None) -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise ValueError(f'{name}: it needs a package: pip install "simultan[ct2]"') from None
    try:
        return ctranslate2.Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            compute_type=quantize or "default",
            intra_threads=torch.get_num_threads(),
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{name}: CTranslate2 cannot load it ({reason})") from error


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Pieces by id, of both sides."""
    shared = folder / "shared_vocabulary.json"
    if shared.exists():
        pieces = _pieces(shared)
        return pieces, pieces
    return _pieces(folder / "source_vocabulary.json"), _pieces(folder / "target_vocabulary.json")


def _pieces(path: Path) -> list[str]:
    pieces = folders.read_json(path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(f"{path}: damaged (it is no list of pieces)")
    return pieces


def _noted_languages(folder: Path) -> tuple[str, str]:
    """Of a pair, if the original's settings are there, too."""
    path = folder / "tokenizer_config.json"
    noted = folders.read_json(path, folders.MOST_INDEX) if path.exists() else {}
    return str(noted.get("source_lang") or ""), str(noted.get("target_lang") or "")


def _never(pieces: list[str], unknown: str) -> set[int]:
    """Ids of languages and of special tokens, which look like <this>."""
    languages = set(language_tokens({piece: id for id, piece in enumerate(pieces)}).values())
    return {
        id
        for id, piece in enumerate(pieces)
        if piece in languages
        or piece.startswith("madeupword")
        or (piece != unknown and _SPECIAL.fullmatch(piece) and not _BYTE.fullmatch(piece))
    }


def _tokenizers(
    name: Name, folder: Path, sources: list[str], targets: list[str]
) -> tuple[Callable[[str], list[int]], Callable[[str], list[int]]]:
    """What cuts a word into ids, on both sides: of the files that lie beside the model."""
    pair = [folder / "source.spm", folder / "target.spm"]
    if not pair[0].exists():
        found = [folder / file for file in _SENTENCEPIECE if (folder / file).exists()]
        pair = [found[0], found[0]] if found else []
    elif not pair[1].exists():
        pair[1] = pair[0]
    tokenizer = folder / "tokenizer.json"
    if not pair and not tokenizer.exists():
        files = ", ".join(("source.spm and target.spm", *_SENTENCEPIECE, "tokenizer.json"))
        raise FileNotFoundError(f"{name}: copy the original's tokeniser to it: {files}")
    cutters = [_sentencepiece(name, path) for path in pair] or [_fast(tokenizer)] * 2
    return _to_ids(cutters[0], sources), _to_ids(cutters[1], targets)


def _sentencepiece(name: Name, path: Path) -> Callable[[str], list[str]]:
    try:
        import sentencepiece
    except ImportError:
        raise ValueError(f'{name}: it needs a package: pip install "simultan[ct2]"') from None
    folders.check_size(path)
    model = sentencepiece.SentencePieceProcessor()
    try:
        model.load_from_serialized_proto(path.read_bytes())
    except RuntimeError:
        raise ValueError(f"{path}: damaged (no SentencePiece model)") from None
    return lambda word: list(model.encode(word, out_type=str))


def _fast(path: Path) -> Callable[[str], list[str]]:
    from tokenizers import Tokenizer

    folders.read_json(path)  # its size, and that it is JSON
    try:
        model = Tokenizer.from_file(str(path))
    except Exception as error:  # the library's own is a plain Exception
        raise ValueError(f"{path}: damaged ({str(error).partition(chr(10))[0]})") from None
    model.encode_special_tokens = True
    return lambda word: list(model.encode(word, add_special_tokens=False).tokens)


def _to_ids(cut: Callable[[str], list[str]], pieces: list[str]) -> Callable[[str], list[int]]:
    ids = {piece: id for id, piece in enumerate(pieces)}
    unknown = next((ids[piece] for piece in ("<unk>", "[UNK]") if piece in ids), 0)
    return lambda word: [ids.get(piece, unknown) for piece in cut(word)]
