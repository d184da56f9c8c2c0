"""Corpora that are known by name: found in folders, or downloaded from their public homes."""

from __future__ import annotations

import shutil
import tarfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

from simultan import atomic
from simultan.data.formats import holds_pairs, match_sides
from simultan.data.sources import Progress, TextPair

Given = TypeVar("Given")
_SUFFIXES = ("", ".xz", ".gz")


@dataclass(frozen=True)
class NamedCorpus:
    """A public corpus, as corpora.toml has it."""

    source: str
    target: str
    train: Sequence[str]  # patterns of file names, without the language
    valid: Sequence[str]
    test: Sequence[str]
    lines: dict[str, Sequence[int]]  # by part, or by a training file's name
    urls: Sequence[str]  # files, or archives that hold them
    sets: dict[str, str] = field(default_factory=dict)  # file name -> test set of sacrebleu


@dataclass(frozen=True)
class Texts:
    """The files that a user names."""

    folders: Annotated[
        tuple[Path, ...],
        "Take the files of the named corpus from this folder; can be repeated. By default, they"
        " are downloaded.",
        "--from",
        "<FOLDER>",
    ] = ()
    source: Annotated[
        tuple[Path, ...],
        "Read training text: a file or a folder, plain, .gz or .xz. A .tsv, a .jsonl and -"
        " (standard input) hold both sides. Can be repeated.",
    ] = ()
    target: Annotated[tuple[Path, ...], "Read its translation, line by line; can be repeated."] = ()
    weight: Annotated[
        tuple[float, ...],
        "See the pairs of a text this often in an epoch; give one for each text. 1 by default.",
        "<WEIGHT>",
    ] = ()
    documents: Annotated[
        tuple[str, ...],
        "Read from a file to which document each line belongs; give one for each text, - for none.",
        "<FILE>",
    ] = ()
    document_columns: Annotated[
        int, "Name a document by the first columns of that file; 0 takes all."
    ] = 0
    tag: Annotated[
        tuple[str, ...],
        "Put this word before every source of a text, such as back-translated ones; give one for"
        " each text, - for none.",
        "<WORD>",
    ] = ()
    valid_source: Annotated[Path | None, "Read validation text."] = None
    valid_target: Annotated[Path | None, "Read its translation."] = None
    test_source: Annotated[Path | None, "Read test text."] = None
    test_target: Annotated[Path | None, "Read its translation."] = None


CORPORA = {
    name: NamedCorpus(**table)
    for name, table in tomllib.loads(
        (Path(__file__).parent / "corpora.toml").read_text("utf-8")
    ).items()
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

    def find(part: str, stems: Sequence[str]) -> list[TextPair]:
        if found := _find(corpus, folders, stems):
            return found
        where = " and ".join(str(folder) for folder in folders)
        wanted = " or ".join(f"{stem}.{corpus.source}" for stem in stems)
        raise FileNotFoundError(
            f"{where}: no {wanted} (plain, .xz or .gz) with its other side: {name} needs it as its"
            f" {part} set"
        )

    train = [
        replace(pair, lines=frozenset(corpus.lines.get(_stem(pair.source, corpus.source), ())))
        for pair in find("train", corpus.train)
    ]
    valid, test = (
        replace(find(part, stems)[0], lines=frozenset(corpus.lines[part]))
        for part, stems in (("valid", corpus.valid), ("test", corpus.test))
    )
    return train, valid, test


def gather_pairs(
    name: str, texts: Texts, cache: Path | None = None, progress: Progress | None = None
) -> tuple[list[TextPair], TextPair | None, TextPair | None]:
    """The text that a user has named: a named corpus (from folders, or downloaded), files, or both.

    Files add to a named corpus's training text; its valid and test sets give way to files.
    """
    given, folders = match_sides(texts.source, texts.target), texts.folders
    held: list[TextPair | None] = [None, None]
    train: list[TextPair] = []
    if name:
        named(name)
        if not folders:
            folders = ((cache or Path.home() / ".cache" / "simultan") / name,)
            download(name, folders[0], progress)
        train, *held = locate(name, folders)
    elif folders:
        raise ValueError(f"--from needs a named corpus: {', '.join(CORPORA)}")
    train += given
    for number, part in enumerate(("valid", "test")):
        source, target = getattr(texts, f"{part}_source"), getattr(texts, f"{part}_target")
        if source is not None and (target is not None or holds_pairs(source)):
            held[number] = TextPair(source, target or source)
        elif source is not None or target is not None:
            raise ValueError(f"--{part}-source and --{part}-target go together")
    names = ", ".join(pair.source.name for pair in train)
    weights = _one_each("--weight", texts.weight, 1.0, len(train), names)
    documents = _one_each("--documents", texts.documents, "-", len(train))
    tags = _one_each("--tag", texts.tag, "-", len(train))
    if odd := next((tag for tag in tags if len(tag.split()) != 1), None):
        raise ValueError(f"--tag {odd!r}: a tag is one word")
    train = [
        replace(
            pair,
            weight=weight,
            documents=None if file == "-" else Path(file),
            document_columns=texts.document_columns,
            tag="" if tag == "-" else tag,
        )
        for pair, weight, file, tag in zip(train, weights, documents, tags, strict=True)
    ]
    return train, held[0], held[1]


def _one_each(
    option: str,
    given: Sequence[Given],
    default: Given,
    count: int,
    hint: str = "one for each, - for a text without",
) -> Sequence[Given]:
    """What was given for each of so many training texts."""
    if given and len(given) != count:
        raise ValueError(f"{len(given)} {option} for {count} training texts: {hint}")
    return given or [default] * count


def _stem(path: Path, language: str) -> str:
    """europarl-v7.de-en.de.xz -> europarl-v7.de-en."""
    return path.name.removesuffix(".xz").removesuffix(".gz").removesuffix(f".{language}")


def _find(corpus: NamedCorpus, folders: Sequence[Path], stems: Sequence[str]) -> list[TextPair]:
    """Pairs, ordered by pattern, then folder, then name; the first suffix that is found counts."""
    found: dict[tuple[Path, str], TextPair] = {}
    for stem in stems:
        for folder in folders:
            for suffix in _SUFFIXES:
                ending = f".{corpus.source}{suffix}"
                for file in sorted(folder.glob(stem + ending)):
                    base = file.name.removesuffix(ending)
                    others = [folder / f"{base}.{corpus.target}{s}" for s in _SUFFIXES]
                    target = next((path for path in others if path.is_file()), None)
                    if target is not None:
                        found.setdefault((folder, base), TextPair(file, target))
    return list(found.values())


def download(name: str, folder: Path, progress: Progress | None = None) -> None:
    """Fetch a named corpus from its public home into a folder; files that are there are kept."""
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
    path = folder / name
    if not path.exists():
        with (
            atomic.place(path) as partial,
            urllib.request.urlopen(url, timeout=60) as answer,
            open(partial, "wb") as file,
        ):
            size, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(1 << 20):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(f"downloading {name}", done / size if size else 0.0)
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
                    with atomic.place(folder / base) as partial, open(partial, "wb") as file:
                        shutil.copyfileobj(content, file)


def _fetch_test_set(stem: str, test_set: str, corpus: NamedCorpus, folder: Path) -> None:
    from sacrebleu.utils import get_reference_files, get_source_file

    pair = f"{corpus.source}-{corpus.target}"
    try:
        files = get_source_file(test_set, pair), get_reference_files(test_set, pair)[0]
    except Exception as error:  # sacrebleu lets many kinds through
        raise urllib.error.URLError(f"{stem} through sacrebleu: {error}") from error
    for file, language in zip(files, (corpus.source, corpus.target), strict=True):
        shutil.copyfile(file, folder / f"{stem}.{language}")
