"""Where parallel text comes from: pairs of files (plain, .gz, .xz) and the named corpora."""

from __future__ import annotations

import fnmatch
import gzip
import io
import lzma
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["CORPORA", "NamedCorpus", "Skips", "TextPair", "gather_pairs", "locate", "read_pairs"]

_SUFFIXES = ("", ".xz", ".gz")
_PLACES = 5  # examples kept of each kind of skipped pair
Progress = Callable[[str, float], None]  # what is being done, fraction done


@dataclass(frozen=True)
class TextPair:
    """Two files of which line n of one translates line n of the other."""

    source: Path
    target: Path
    weight: float = 1.0  # how often each pair is seen in an epoch; 2.5: twice, half of them thrice
    lines: frozenset[int] = frozenset()  # the line counts that are right; empty: any


@dataclass
class Skips:
    """Pairs that were left out, counted by reason, with the first places of each."""

    strict: bool = False  # raise at the first one instead
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, path: Path, line: int) -> None:
        if self.strict:
            raise ValueError(f"{path}:{line}: {reason}")
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.places.setdefault(reason, [])
        if len(places) < _PLACES:
            places.append(f"{path.name}:{line}")


def read_pairs(
    pair: TextPair, skips: Skips, progress: Progress | None = None
) -> Iterator[tuple[int, str, str]]:
    """Line number and both texts of each usable pair; what is wrong is skipped and counted.

    Lines end at a line feed and nowhere else, so that odd separators inside a line cannot
    shift one side against the other.
    """
    number = 0
    with _open(pair.source) as (source, raw), _open(pair.target) as (target, _):
        size = max(1, os.path.getsize(pair.source))
        while True:
            try:
                left, right = source.readline(), target.readline()
            except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise ValueError(
                    f"{pair.source} or {pair.target}: damaged after line {number} ({error})"
                ) from error
            if not left or not right:
                break
            number += 1
            if progress is not None and number % 20_000 == 0:
                progress(f"reading {pair.source.name}", raw.tell() / size)
            path = pair.source
            try:
                one = left.rstrip(b"\r\n").decode("utf-8")
                path = pair.target
                two = right.rstrip(b"\r\n").decode("utf-8")
            except UnicodeDecodeError:
                skips.add("not valid UTF-8", path, number)
                continue
            if not one or one.isspace():
                skips.add("empty", pair.source, number)
            elif not two or two.isspace():
                skips.add("empty", pair.target, number)
            else:
                yield number, one, two
        rest = _count(source) + bool(left), _count(target) + bool(right)
    if rest != (0, 0):
        raise ValueError(
            f"{pair.source} has {number + rest[0]:,} lines and {pair.target} has"
            f" {number + rest[1]:,}: line n of one must translate line n of the other"
        )
    if number == 0:
        raise ValueError(f"{pair.source}: no lines")
    if pair.lines and number not in pair.lines:
        wanted = " or ".join(f"{n:,}" for n in sorted(pair.lines))
        raise ValueError(
            f"{pair.source}: {number:,} lines where the corpus has {wanted}; to prepare other"
            " text name its files with --source and --target"
        )


class _open:
    """A file of bytes, decompressed by its suffix, beside the file on disk (for progress)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[io.BufferedIOBase, io.BufferedReader]:
        if not self._path.is_file():
            raise FileNotFoundError(f"{self._path}: no such file")
        self._raw = open(self._path, "rb")
        if self._path.suffix == ".xz":
            return io.BufferedReader(lzma.LZMAFile(self._raw), 1 << 20), self._raw
        if self._path.suffix == ".gz":
            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw), 1 << 20), self._raw
        return self._raw, self._raw

    def __exit__(self, *_: object) -> None:
        self._raw.close()


def _count(stream: io.BufferedIOBase) -> int:
    return sum(1 for _ in stream)


def language_of(path: Path) -> str:
    """train.en.xz -> en."""
    stem = path.name
    for suffix in _SUFFIXES[1:]:
        stem = stem.removesuffix(suffix)
    ending = Path(stem).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending != "txt" else ""


# -- named corpora


@dataclass(frozen=True)
class NamedCorpus:
    """A public corpus: the names its files go by, the line counts they must have, its home."""

    source: str
    target: str
    train: tuple[str, ...]  # patterns of file names, without the language
    valid: tuple[str, ...]
    test: tuple[str, ...]
    lines: dict[str, tuple[int, ...]]  # by part, or by a training file's name
    urls: tuple[str, ...]  # files, or archives that hold them
    sets: dict[str, str] = field(default_factory=dict)  # file name -> test set of sacrebleu


_STANFORD = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"
_STATMT = "https://www.statmt.org/"

CORPORA = {
    "iwslt15-en-vi": NamedCorpus(
        source="en",
        target="vi",
        train=("train",),
        valid=("tst2012", "valid"),
        test=("tst2013", "test"),
        # the release has 133,317 pairs, of which 151 have an empty side
        lines={"train": (133_317, 133_166), "valid": (1_553,), "test": (1_268,)},
        urls=tuple(
            f"{_STANFORD}{stem}.{language}"
            for stem in ("train", "tst2012", "tst2013")
            for language in ("en", "vi")
        ),
    ),
    "wmt15-de-en": NamedCorpus(
        source="de",
        target="en",
        train=("europarl*", "commoncrawl*", "news-commentary*", "train*"),
        valid=("newstest2013",),
        test=("newstest2015",),
        lines={
            "valid": (3_000,),
            "test": (2_169,),
            "europarl-v7.de-en": (1_920_209,),
            "commoncrawl.de-en": (2_399_123,),
            "news-commentary-v10.de-en": (216_190,),
        },
        urls=(
            f"{_STATMT}wmt13/training-parallel-europarl-v7.tgz",
            f"{_STATMT}wmt13/training-parallel-commoncrawl.tgz",
            f"{_STATMT}wmt15/training-parallel-nc-v10.tgz",
        ),
        sets={"newstest2013": "wmt13", "newstest2015": "wmt15"},
    ),
}


def named(name: str) -> NamedCorpus:
    if name not in CORPORA:
        raise ValueError(f"no corpus {name!r}: known are {', '.join(CORPORA)}")
    return CORPORA[name]


def locate(
    name: str, folders: Sequence[Path]
) -> tuple[list[TextPair], TextPair | None, TextPair | None]:
    """Training pairs, validation and test of a named corpus, found in these folders."""
    corpus = named(name)
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder")
    train = _find(corpus, folders, corpus.train)
    where = " and ".join(str(folder) for folder in folders)
    if not train:
        wanted = " or ".join(f"{stem}.{corpus.source}" for stem in corpus.train)
        raise FileNotFoundError(f"{where}: no {wanted} (plain, .xz or .gz) with its other side")
    train = [
        replace(pair, lines=frozenset(corpus.lines.get(_stem(pair.source, corpus.source), ())))
        for pair in train
    ]
    parts = []
    for part, stems in (("valid", corpus.valid), ("test", corpus.test)):
        found = _find(corpus, folders, stems)
        if not found:
            wanted = " or ".join(f"{stem}.{corpus.source}" for stem in stems)
            raise FileNotFoundError(f"{where}: no {wanted}: {name} needs it as its {part} set")
        parts.append(replace(found[0], lines=frozenset(corpus.lines[part])))
    return train, parts[0], parts[1]


def gather_pairs(
    name: str,
    folders: Sequence[Path],
    sources: Sequence[Path],
    targets: Sequence[Path],
    valid: tuple[Path | None, Path | None],
    test: tuple[Path | None, Path | None],
    weights: Sequence[float],
    cache: Path | None = None,
    progress: Progress | None = None,
) -> tuple[list[TextPair], TextPair | None, TextPair | None]:
    """The text a user named: a named corpus (from folders, or downloaded), files, or both.

    Files add to a named corpus's training text; its valid and test sets give way to files.
    """
    if len(sources) != len(targets):
        raise ValueError(
            f"{len(sources)} --source and {len(targets)} --target: each text needs both sides"
        )
    held: list[TextPair | None] = [None, None]
    train: list[TextPair] = []
    if name:
        named(name)
        if not folders:
            folders = [(cache or Path.home() / ".cache" / "simultan") / name]
            download(name, folders[0], progress)
        train, *held = locate(name, folders)
    elif folders:
        raise ValueError(f"--from needs a named corpus: {', '.join(CORPORA)}")
    train += [TextPair(*pair) for pair in zip(sources, targets, strict=True)]
    for number, (part, (source, target)) in enumerate((("valid", valid), ("test", test))):
        if source is not None and target is not None:
            held[number] = TextPair(source, target)
        elif source is not None or target is not None:
            raise ValueError(f"--{part}-source and --{part}-target go together")
    if weights:
        if len(weights) != len(train):
            texts = ", ".join(pair.source.name for pair in train)
            raise ValueError(f"{len(weights)} --weight for {len(train)} training texts: {texts}")
        train = [replace(pair, weight=w) for pair, w in zip(train, weights, strict=True)]
    return train, held[0], held[1]


def _stem(path: Path, language: str) -> str:
    """europarl-v7.de-en.de.xz -> europarl-v7.de-en."""
    return path.name.removesuffix(".xz").removesuffix(".gz").removesuffix(f".{language}")


def _find(corpus: NamedCorpus, folders: Sequence[Path], stems: Sequence[str]) -> list[TextPair]:
    """Pairs by pattern first, then folder, then name; one suffix of each is enough."""
    found: dict[tuple[Path, str], TextPair] = {}
    for stem in stems:
        for folder in folders:
            for suffix in _SUFFIXES:
                ending = f".{corpus.source}{suffix}"
                names = [n for n in os.listdir(folder) if fnmatch.fnmatch(n, stem + ending)]
                for file in sorted(names):
                    base = file.removesuffix(ending)
                    others = [folder / f"{base}.{corpus.target}{s}" for s in _SUFFIXES]
                    target = next((path for path in others if path.is_file()), None)
                    if target is not None:
                        found.setdefault((folder, base), TextPair(folder / file, target))
    return list(found.values())


def download(name: str, folder: Path, progress: Progress | None = None) -> None:
    """Fetch a named corpus from its public home into a folder; what is there stays."""
    corpus = named(name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for url in corpus.urls:
            _fetch(url, folder, (corpus.source, corpus.target), progress)
        for stem, test_set in corpus.sets.items():
            _fetch_test_set(stem, test_set, corpus, folder)
    except (urllib.error.URLError, TimeoutError, ConnectionError, tarfile.TarError) as error:
        raise OSError(
            f"{name} cannot be downloaded ({error}). Fetch {' '.join(corpus.urls)} on a machine"
            f" with network, unpack them into a folder and say --from FOLDER"
        ) from error


def _fetch(url: str, folder: Path, languages: tuple[str, str], progress: Progress | None) -> None:
    name = url.rpartition("/")[2]
    path, partial = folder / name, folder / (name + ".part")
    if not path.exists():
        with urllib.request.urlopen(url, timeout=60) as answer, open(partial, "wb") as file:
            size, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(1 << 20):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(f"downloading {name}", done / size if size else 0.0)
        os.replace(partial, path)
    if name.endswith((".tgz", ".tar.gz")):
        pair = "-".join(languages)
        wanted = {f".{pair}.{language}" for language in languages}
        with tarfile.open(path) as archive:
            for member in archive:
                base = Path(member.name).name  # never a path out of the folder
                if not any(base.endswith(ending) for ending in wanted) or not member.isfile():
                    continue
                content = archive.extractfile(member)
                if content is not None and not (folder / base).exists():
                    with open(partial, "wb") as file:
                        shutil.copyfileobj(content, file)
                    os.replace(partial, folder / base)


def _fetch_test_set(stem: str, test_set: str, corpus: NamedCorpus, folder: Path) -> None:
    from sacrebleu.utils import get_reference_files, get_source_file

    pair = f"{corpus.source}-{corpus.target}"
    try:
        files = get_source_file(test_set, pair), get_reference_files(test_set, pair)[0]
    except Exception as error:  # sacrebleu lets many kinds through
        raise urllib.error.URLError(f"{stem} through sacrebleu: {error}") from error
    for file, language in zip(files, (corpus.source, corpus.target), strict=True):
        shutil.copyfile(file, folder / f"{stem}.{language}")
