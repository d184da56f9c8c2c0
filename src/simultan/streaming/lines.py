"""The text of whole lines: to tokens, and from what was translated back to words.

Both are what a session does that hears a line to its end before it writes, but a line takes
microseconds: GPUs write faster than Python can look at each token. Worker processes (without
PyTorch, which is slow to import) do it for files.
"""

from __future__ import annotations

import gzip
import lzma
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple, Self

from simultan.data.codec import Codec
from simultan.data.languages import row
from simultan.data.ragged import Array, Ragged
from simultan.data.vocabulary import EOS, UNK
from simultan.data.words import join_words
from simultan.data.writer import LONGEST_WORD
from simultan.streaming.copying import Copies, Sieve
from simultan.streaming.guards import Guard
from simultan.streaming.numbers import Numbers, digit_groups

KEPT = 200_000  # words whose tokens, or tokens whose word, are remembered
MOST = Guard().most  # tokens that a session writes without reading more


class Known(NamedTuple):
    """What is known of a source word."""

    tokens: list[int]  # that the model reads
    simple: bool  # it is read as it stands, and no number


class Written(NamedTuple):
    """The translation of a line."""

    words: list[str]
    delays: list[int]  # source words read, for each word
    tokens: Sequence[int]  # as many as count


class LineText:
    """Text <-> tokens for whole lines.

    `careful`: as a session does, words that no model should translate are copied, numbers are put
    right, and what repeats itself is cut. Otherwise the model reads and writes everything.
    """

    def __init__(self, codec: Codec, careful: bool = True) -> None:
        self.codec, self.careful = codec, careful
        self.alphabet = codec.alphabet
        vocabulary = codec.target_vocabulary
        self.begins = [vocabulary.begins_word(id) for id in range(len(vocabulary))]
        self.ends = [vocabulary.ends_word(id) for id in range(len(vocabulary))]
        self.by_itself = codec.pipeline.name != "moses-bpe"  # a word depends on its pieces alone
        language = codec.target_language
        self.spaced = bool(language) and row(language).spaced
        self.known: dict[str, Known] = {}
        self.spelled: dict[tuple[int, ...], str] = {}

    def encode(self, text: str) -> list[int]:
        """The tokens that the model reads; end-of-sequence alone, if there are none."""
        return self._read(text)[0]

    def _read(self, text: str) -> tuple[list[int], bool, int]:
        """The same, whether all words are simple, and their number."""
        words, known = self.codec.split_source(text), self.known
        found = [known.get(word) or self._learn(word) for word in words]
        simple = all([word.simple for word in found])
        if simple or not self.careful:
            tokens = [token for word in found for token in word.tokens]
        else:
            sieve, tokens = Sieve(self.alphabet), []
            for word in words:
                tokens += self._encode_word(sieve.sift(word).text)
        tokens.append(EOS)
        return tokens, simple, len(words)

    def _learn(self, word: str) -> Known:
        text, simple = word, True
        if self.careful:
            heard = Sieve(self.alphabet).sift(word)
            text = heard.text
            simple = not (heard.copy or not text or word[0] == "[" or digit_groups(text))
            tokens = self._encode_word(text)
        else:
            tokens = self.codec.encode_source_word(word)
        known = Known(tokens, simple)
        if len(self.known) < KEPT and len(word) <= 64:
            self.known[word] = known
        return known

    def _encode_word(self, text: str) -> list[int]:
        return (self.codec.encode_source_word(text)[:LONGEST_WORD] or [UNK]) if text else []

    def decode(self, text: str, tokens: Sequence[int]) -> Written:
        """The words of a line's translation, end-of-sequence left out."""
        source, simple, heard = self._read(text)
        if not self.careful:
            words = self.codec.pipeline.split_target(" ".join(self._spell(tokens)))
            return Written(words, [heard] * len(words), tokens)
        if not simple or len(tokens) >= MOST or repeats(tokens):
            return self._decode_carefully(text, tokens, len(source))
        words = self._spell(tokens)
        if len(words) >= 2 * heard + 3:
            return self._decode_carefully(text, tokens, len(source))
        return Written(words, [heard] * len(words), tokens)

    def join(self, words: list[str]) -> str:
        """A line of words."""
        return " ".join(words) if self.spaced else join_words(words, self.codec.target_language)

    def _spell(self, tokens: Sequence[int]) -> list[str]:
        """Words of tokens, of which nothing is cut."""
        if not self.by_itself:
            writer = self.codec.writer()
            return [word for token in tokens for word in writer.push(token)] + writer.flush()
        begins, ends, words = self.begins, self.ends, []
        start = 0
        for i, token in enumerate(tokens):
            if begins[token] and i > start:
                words.append(self._spell_word(tuple(tokens[start:i])))
                start = i
            if ends[token]:
                words.append(self._spell_word(tuple(tokens[start : i + 1])))
                start = i + 1
        if start < len(tokens):
            words.append(self._spell_word(tuple(tokens[start:])))
        return [word for word in words if word]

    def _spell_word(self, pieces: tuple[int, ...]) -> str:
        word = self.spelled.get(pieces)
        if word is None:
            word = self.codec.target_vocabulary.decode_word(pieces)
            if len(self.spelled) < KEPT:
                self.spelled[pieces] = word
        return word

    def _decode_carefully(self, text: str, tokens: Sequence[int], source: int) -> Written:
        """As a session does it (streaming/session.py), with `source` tokens read."""
        sieve, copies, guard = Sieve(self.alphabet), Copies(), Guard()
        numbers = Numbers(self.codec.source_language, self.codec.target_language)
        writer = self.codec.writer()
        words: list[str] = []
        delays: list[int] = []
        kept: list[int] = []
        read = heard = last = written = 0  # words, those the model reads, the place of the last

        def say(new: list[str], delay: int) -> None:
            found = " ".join(new).split()
            words.extend(found)
            delays.extend([max(delay, delays[-1] if delays else 0)] * len(found))

        def write(new: list[str]) -> None:
            nonlocal written
            if new:
                due = copies.due(heard, written)
                written += len(new)
                say(due + [numbers.check(word, last) for word in new], last)

        for word in self.codec.split_source(text):
            sifted = sieve.sift(word)
            read += 1
            if sifted.text:
                heard, last = heard + 1, read
                numbers.hear(sifted.text, read)
            if sifted.copy:
                copies.hear(read, heard - sifted.leads, sifted.copy)
            say(copies.first(), read)
        if not heard:
            return Written(words, delays, [])
        most = min(MOST, 2 * source + 30)  # the guard's other reason to cut
        guarded = len(tokens) > most or repeats(tokens)  # it takes longer than all the rest
        for token in tokens:
            if written >= 2 * heard + 3 and writer.is_between(token):
                break
            if guarded:
                if guard.stuck(token, source - 1):
                    break
                guard.note(token, source - 1)
            write(writer.push(token))
            kept.append(token)
        write(writer.flush())
        say(copies.rest() + numbers.rest(), read)
        return Written(words, delays, kept)


def repeats(tokens: Sequence[int]) -> bool:
    """Whether a session would cut these tokens because the same ones come again and again."""
    guard = Guard()
    if len(tokens) - len(set(tokens)) < guard.times + 2:  # so many of any repetition
        return False
    for size in range(1, guard.longest + 1):
        times = guard.times if size > 1 else 2 * guard.times
        run = 0
        for one, other in zip(tokens, tokens[size:], strict=False):
            run = run + 1 if one == other else 0
            if run >= size * (times - 1):
                return True
    return False


# --- worker processes ---


class LineWorkers:
    """Encodes and decodes many lines, in other processes or, with none of them, at once."""

    def __init__(self, codec: Codec, careful: bool, workers: int) -> None:
        self.codec, self.careful, self.workers = codec, careful, workers
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if not self.workers:
            _start(self.codec, self.careful)
            return self
        self.folder = tempfile.TemporaryDirectory(prefix="simultan-")
        self.codec.save(self.folder.name)
        # not a fork, which would take over a GPU's context
        self.pool = ProcessPoolExecutor(
            self.workers,
            multiprocessing.get_context("spawn"),
            initializer=_start_process,
            initargs=(self.folder.name, self.careful),
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.folder.cleanup()

    def encode(self, lines: list[str]) -> Future[Ragged]:
        return self._submit(_encode, lines)

    def decode(
        self, lines: list[str], found: Ragged, fits: Array, suffix: str
    ) -> Future[tuple[bytes, int]]:
        """The lines of a file, compressed if its name ends so, and the number of their words.

        fits [N] False: the line has no translation, and is empty.
        """
        return self._submit(_decode, lines, found, fits, suffix)

    def _submit(self, function: Any, *arguments: Any) -> Future[Any]:
        if self.pool is not None:
            return self.pool.submit(function, *arguments)
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


_text: LineText | None = None  # of this process


def _start(codec: Codec, careful: bool) -> None:
    global _text
    _text = LineText(codec, careful)


def _start_process(folder: str, careful: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    threading.Thread(target=_follow_parent, daemon=True).start()
    _start(Codec.load(folder), careful)


def _follow_parent() -> None:
    """A main process that is killed tells nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode(lines: list[str]) -> Ragged:
    assert _text is not None
    return Ragged.of([_text.encode(line) for line in lines])


def _decode(lines: list[str], found: Ragged, fits: Array, suffix: str) -> tuple[bytes, int]:
    assert _text is not None
    texts, words = [], 0
    for line, tokens, fit in zip(lines, found.lists(), fits.tolist(), strict=True):
        new = _text.decode(line, tokens).words if fit else []
        words += len(new)
        texts.append(_text.join(new) + "\n")
    return compress("".join(texts).encode(), suffix), words


def compress(data: bytes, suffix: str) -> bytes:
    """A part of a file that can stand alone: parts of such files, joined, are such a file."""
    if suffix == ".gz":
        return gzip.compress(data, 6, mtime=0)
    return lzma.compress(data, preset=2) if suffix == ".xz" else data
