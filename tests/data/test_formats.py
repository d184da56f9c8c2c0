"""Text in the forms people have it: .tsv, .jsonl, folders, pipes."""

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simultan.data.corpus import prepare
from simultan.data.filters import Filters
from simultan.data.formats import expand_folders, holds_pairs, match_sides, read_pairs
from simultan.data.named import Texts, gather_pairs
from simultan.data.sources import Skips, TextPair

PAIRS = [(1, "ein Haus", "a house"), (2, "zwei Hunde", "two dogs")]


def read(path, columns=""):
    return list(read_pairs(TextPair(path, path), Skips(), columns=columns))


def test_tsv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("ein Haus\ta house\tx\nzwei Hunde\ttwo dogs\r\n", "utf-8")
    assert read(path) == PAIRS
    assert read(path, "2,1") == [(n, target, source) for n, source, target in PAIRS]
    with pytest.raises(ValueError, match=r"a\.tsv:2: 2 columns, where column 3 is wanted"):
        read(path, "1,3")
    for columns, message in (
        ("1", "two of them"),
        ("de,en", "count from 1"),
        ("0,1", "count from"),
    ):
        with pytest.raises(ValueError, match=message):
            read(path, columns)
    with gzip.open(tmp_path / "b.tsv.gz", "wb") as file:
        file.write(path.read_bytes())
    assert read(tmp_path / "b.tsv.gz") == PAIRS


@pytest.mark.parametrize(
    "form",
    [
        lambda de, en: {"source": de, "target": en},
        lambda de, en: {"de": de, "en": en},
        lambda de, en: {"id": 1, "tgt": en, "src": de},
        lambda de, en: {"id": 1, "translation": {"de": de, "en": en}},
    ],
)
def test_jsonl_whose_keys_are_plain(tmp_path, form):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(form(de, en)) + "\n" for _, de, en in PAIRS), "utf-8")
    assert read(path) == PAIRS


def test_jsonl_whose_keys_are_named(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"de": de, "en": en, "fr": "?"}) + "\n" for _, de, en in PAIRS]
    path.write_text("".join(lines), "utf-8")
    assert read(path, "de,en") == PAIRS
    with pytest.raises(ValueError, match=r"a\.jsonl:1: which keys .* of de, en, fr"):
        read(path)
    path.write_text('{"de": 1, "en": "x"}\n', "utf-8")
    with pytest.raises(ValueError, match="which keys"):
        read(path)
    path.write_text('{"de": \n', "utf-8")
    with pytest.raises(ValueError, match=r"a\.jsonl:1: not valid JSON"):
        read(path)


def test_bad_lines_are_counted_and_shift_nothing(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"ein Haus\ta house\n\n\xff\tx\n \ty\nzwei Hunde\ttwo dogs\n")
    skips = Skips()
    found = list(read_pairs(TextPair(path, path), skips))
    assert [pair[0] for pair in found] == [1, 5]
    assert skips.counts == {"empty": 2, "not valid UTF-8": 1}
    assert skips.seen == 5
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="no lines"):
        read(path)


def test_which_files_hold_both_sides():
    names = {"a.tsv": True, "a.jsonl.xz": True, "-": True, "a.de": False, "tsv": False}
    assert {name: holds_pairs(Path(name)) for name in names} == names
    assert match_sides([Path("a.de"), Path("b.tsv")], [Path("a.en")]) == [
        TextPair(Path("a.de"), Path("a.en")),
        TextPair(Path("b.tsv"), Path("b.tsv")),
    ]
    with pytest.raises(ValueError, match="1 --source and 0 --target"):
        match_sides([Path("a.de"), Path("b.tsv")], [])


def test_folders(tmp_path):
    for name in ("de/b.de", "de/a.de", "en/a.en", "en/b.en"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    found = match_sides([tmp_path / "de"], [tmp_path / "en"])
    assert [(p.source.name, p.target.name) for p in found] == [("a.de", "a.en"), ("b.de", "b.en")]
    (tmp_path / "de" / "c.de").write_text("c\n")
    with pytest.raises(ValueError, match="c has no file of the same name"):
        expand_folders(tmp_path / "de", tmp_path / "en")
    with pytest.raises(ValueError, match="two files or two folders"):
        expand_folders(tmp_path / "de", tmp_path / "en" / "a.en")
    with pytest.raises(ValueError, match="a folder for each language"):
        expand_folders(tmp_path, tmp_path)


def test_a_pipe_is_read_as_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.en").write_text("a house\ntwo dogs\n")
    fill = threading.Thread(
        target=(tmp_path / "pipe").write_text, args=("ein Haus\nzwei Hunde\n",), daemon=True
    )
    fill.start()
    found = list(read_pairs(TextPair(tmp_path / "pipe", tmp_path / "a.en"), Skips()))
    fill.join()
    assert found == PAIRS


def test_standard_input():
    code = (
        "from pathlib import Path\n"
        "from simultan.data.formats import read_pairs\n"
        "from simultan.data.sources import Skips, TextPair\n"
        "print(list(read_pairs(TextPair(Path('-'), Path('-')), Skips())))"
    )
    given = "ein Haus\ta house\nzwei Hunde\ttwo dogs\n"
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(PAIRS)


def test_prepare_reads_both_forms(tmp_path):
    (tmp_path / "a.tsv").write_text("ein Haus\ta house\n" * 3, "utf-8")
    (tmp_path / "v.jsonl").write_text('{"source": "ein Haus", "target": "a house"}\n', "utf-8")
    texts = Texts(source=(tmp_path / "a.tsv",), valid_source=tmp_path / "v.jsonl")
    train, valid, test = gather_pairs("", texts)
    done = prepare(tmp_path / "out", train, valid, test, vocabulary=300)
    assert done.pairs == {"train": 3, "valid": 1}
    assert (tmp_path / "out" / "valid.target.txt").read_text() == "a house\n"


def sentences(count, seed=1):
    draw = random.Random(seed)
    for number in range(count):
        length = draw.randint(1, 30)
        year = f" {draw.randint(1000, 9999)}" if number % 5 == 0 else ""
        name = "".join("abcdefghij"[int(digit)] for digit in str(number))  # each pair only once
        yield f"{'ein ' * length}{name}{year}", f"{'a ' * length}{name}{year}"


def filtered(pairs, **settings):
    filters, skips = Filters(**settings), Skips()
    pair = TextPair(Path("a.de"), Path("a.en"))
    numbered = [(n, *texts) for n, texts in enumerate(pairs, 1)]
    return list(filters.apply(numbered, pair, skips)), skips, filters.finish()


def test_repetitions():
    text = list(sentences(50, 2)) * 2
    kept, skips, notes = filtered(text, deduplicate=True)
    assert len(kept) == len(set(text))
    assert skips.counts == {"repeated": len(text) - len(set(text))}
    assert notes == []
    kept, skips, notes = filtered(text)
    assert len(kept) == 100
    assert skips.counts == {}
    assert len(notes) == 1
    assert "--deduplicate" in notes[0]


def test_sides_of_unequal_length():
    text = [("a b c d", "x y"), ("a b c d e", "x y"), ("x", "a b c")]
    kept, skips, _ = filtered(text, max_ratio=2)
    assert [pair[0] for pair in kept] == [1]
    assert skips.counts == {"one side more than 2 times as long": 2}
    with pytest.raises(ValueError, match="at least 1"):
        Filters(max_ratio=0.5)


def test_shuffled_sides_are_noticed():
    text = list(sentences(400))
    assert filtered(text)[2] == []
    targets = [target for _, target in text]
    random.Random(3).shuffle(targets)
    shuffled = [(source, target) for (source, _), target in zip(text, targets, strict=True)]
    kept, _, notes = filtered(shuffled)
    assert len(kept) == 400
    assert len(notes) == 1
    assert "a.de and a.en do not look like translations" in notes[0]
    assert filtered(shuffled[:100])[2] == []  # too few to tell
    equal = [("one two", "eins zwei")] * 5 + [(f"one {n}", f"eins {n}") for n in range(300, 700)]
    assert filtered(equal)[2] == []  # lines of one length tell nothing


def test_numbers_speak_for_a_text_whose_lengths_do_not():
    draw = random.Random(5)
    text = [(f"{n} " + "x " * draw.randint(1, 30), f"{n} " + "y " * draw.randint(1, 30))
            for n in range(1000, 1400)]  # fmt: skip
    assert filtered(text)[2] == []
