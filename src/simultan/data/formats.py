"""The forms in which parallel text comes: two files, a .tsv, a .jsonl, folders, standard input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from simultan.data.sources import UNDECODABLE, Lines, Progress, Skips, TextPair, language_of

STANDARD_INPUT = Path("-")
_KEYS = (("source", "target"), ("src", "tgt"), ("src", "trg"))


def holds_pairs(path: Path) -> bool:
    """Whether one file has both sides: a .tsv or .jsonl (.gz, .xz), or standard input."""
    name = path.name.removesuffix(".xz").removesuffix(".gz")
    return path == STANDARD_INPUT or name.endswith((".tsv", ".jsonl"))


def match_sides(sources: Sequence[Path], targets: Sequence[Path]) -> list[TextPair]:
    """The texts that --source and --target name; a file that holds pairs needs no target."""
    needed = [path for path in sources if not holds_pairs(path)]
    if len(needed) != len(targets):
        raise ValueError(
            f"{len(needed)} --source and {len(targets)} --target: each text needs both sides"
            " (a .tsv or .jsonl has both: it is a --source alone)"
        )
    given = iter(targets)
    pairs = []
    for source in sources:
        target = source if holds_pairs(source) else next(given)
        if source.is_dir() or target.is_dir():
            pairs += expand_folders(source, target)
        else:
            pairs.append(TextPair(source, target))
    return pairs


def expand_folders(source: Path, target: Path) -> list[TextPair]:
    """The files of two folders that have one name but for its ending: a.de beside a.en."""
    if not (source.is_dir() and target.is_dir()):
        raise ValueError(f"{source} and {target}: two files or two folders")
    if source.resolve() == target.resolve():
        raise ValueError(
            f"{source}: a folder for each language, or each file with its own --source and --target"
        )
    sides = []
    for folder in (source, target):
        files = [path for path in sorted(folder.iterdir()) if path.is_file()]
        sides.append({_stem(path): path for path in files if not path.name.startswith(".")})
    alone = sides[0].keys() ^ sides[1].keys()
    if alone:
        raise ValueError(
            f"{source} and {target}: {min(alone)} has no file of the same name on the other side"
        )
    if not sides[0]:
        raise ValueError(f"{source}: no files")
    return [TextPair(path, sides[1][stem]) for stem, path in sides[0].items()]


def _stem(path: Path) -> str:
    """a.de.xz -> a, so that a.en of the other folder is its translation; a.txt -> a.txt."""
    name = path.name.removesuffix(".xz").removesuffix(".gz")
    return Path(name).stem if language_of(path) else name


def read_pairs(
    pair: TextPair, skips: Skips, progress: Progress | None = None, columns: str = ""
) -> Iterator[tuple[int, str, str]]:
    """Line number and both texts of each usable pair; what is wrong is skipped and counted.

    `columns` names the two columns of a .tsv ("2,1"; the first two by default) or the two keys of
    a .jsonl ("de,en").
    """
    names = _parse_columns(columns)
    both = holds_pairs(pair.source)
    with ExitStack() as stack:
        paths = [pair.source] if both else [pair.source, pair.target]
        files = [stack.enter_context(Lines(path)) for path in paths]
        for lines in zip(*files, strict=False):  # how many there are is compared below
            number = files[0].number
            skips.seen += 1
            if progress is not None and number % 20_000 == 0:
                progress(f"reading {pair.source.name}", files[0].fraction)
            texts = _decode(lines, paths, number, skips)
            if texts and both:
                texts = _split(texts[0], names, f"{pair.source}:{number}")
                if not all(text.strip() for text in texts):
                    skips.add("empty", pair.source, number)
                    continue
            if texts:
                yield number, texts[0], texts[1]
        counts = [file.number + sum(1 for _ in file) for file in files]
    if counts[0] != counts[-1]:
        raise ValueError(
            f"{pair.source} has {counts[0]:,} lines and {pair.target} has"
            f" {counts[1]:,}: line n of one must translate line n of the other"
        )
    _check_count(pair, counts[0])


def _decode(
    lines: Sequence[bytes], paths: Sequence[Path], number: int, skips: Skips
) -> Sequence[str]:
    """The text of a line of each file; nothing if one cannot be used, which is counted."""
    texts = []
    for line, path in zip(lines, paths, strict=True):
        try:
            texts.append(line.rstrip(b"\r\n").decode("utf-8"))
        except UnicodeDecodeError:
            skips.add(UNDECODABLE, path, number)
            return ()
    for text, path in zip(texts, paths, strict=True):
        if not text or text.isspace():
            skips.add("empty", path, number)
            return ()
    return texts


def _check_count(pair: TextPair, number: int) -> None:
    """Refuse a text of no lines, or of another number than its corpus or its documents have."""
    if number == 0:
        raise ValueError(f"{pair.source}: no lines")
    if pair.documents is not None:
        with Lines(pair.documents) as lines:
            named = sum(1 for _ in lines)
        if named != number:
            raise ValueError(
                f"{pair.documents} has {named:,} lines and {pair.source} has {number:,}:"
                " line n must name the document of line n"
            )
    if pair.lines and number not in pair.lines:
        wanted = " or ".join(f"{n:,}" for n in sorted(pair.lines))
        raise ValueError(
            f"{pair.source}: {number:,} lines where the corpus has {wanted}; to prepare other"
            " text name its files with --source and --target"
        )


def _parse_columns(columns: str) -> tuple[str, str] | None:
    if not columns:
        return None
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2 or not all(names):
        raise ValueError(f"--columns {columns}: two of them, such as 1,2 or de,en")
    return names[0], names[1]


def _split(line: str, names: tuple[str, str] | None, place: str) -> tuple[str, str]:
    """The two sides of a line: an object of JSON, or columns with a tab between them."""
    if line.startswith("{"):
        return _split_object(line, names, place)
    fields = line.split("\t")
    numbers = [int(name) if name.isdecimal() else 0 for name in names or ("1", "2")]
    if min(numbers) < 1:
        raise ValueError(f"--columns {','.join(names or ())}: columns of a .tsv count from 1")
    if max(numbers) > len(fields):
        raise ValueError(
            f"{place}: {len(fields)} columns, where column {max(numbers)} is wanted (a tab stands"
            " between columns; --columns chooses them)"
        )
    return fields[numbers[0] - 1], fields[numbers[1] - 1]


def _split_object(line: str, names: tuple[str, str] | None, place: str) -> tuple[str, str]:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not valid JSON ({error})") from error
    inner = value.get("translation", value)  # {"translation": {"de": ..., "en": ...}}
    value = inner if isinstance(inner, dict) else value
    if names is None:
        names = next((keys for keys in _KEYS if keys[0] in value and keys[1] in value), None)
    if names is None and len(value) == 2:
        names = tuple(value)
    if names is None or not all(isinstance(value.get(name), str) for name in names):
        keys = ", ".join(value)
        raise ValueError(f"{place}: which keys hold the text? --columns SOURCE,TARGET of {keys}")
    return value[names[0]], value[names[1]]
