"""The text of the model in the box: composed pairs, evaluation lines kept out, sides exchanged."""

from __future__ import annotations

import json
import lzma
import random
import re
import sys
import tomllib
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from simultan import config
from simultan.data.codec import Codec
from simultan.data.shards import Corpus
from simultan.model import build

RECIPE = Path(__file__).parents[1] / "recipes" / "de-en" / "second"
SMALL = """
vocabulary = 400
tag = "⟲"
[[text]]
name = "talk"
folder = "talk"
documents = "train.meta.xz"
weight = 2.0
use = "box"
[[text]]
name = "closed"
folder = "closed"
weight = 1.0
use = "compare"
[[mono]]
name = "wiki"
file = "wiki/mono.en.xz"
weight = 0.5
[[mono]]
name = "voice"
file = "voice/mono.de.xz"
weight = 3.0
[evaluation]
valid = "news/valid"
test = "news/test"
others = []
"""


@pytest.fixture(scope="module")
def scripts() -> tuple[ModuleType, ModuleType]:
    sys.path.insert(0, str(RECIPE))
    try:
        import compose  # type: ignore[import-not-found]
        import prepare  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(RECIPE))
    return compose, prepare


@pytest.fixture(scope="module")
def pieces(scripts: tuple[ModuleType, ModuleType]) -> ModuleType:
    sys.path.insert(0, str(RECIPE))
    try:
        import pieces  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(RECIPE))
    return pieces


def pack(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(line + "\n" for line in lines).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for side, words in (("de", ("Der Zug fährt ab", "Er ist da")), ("en", ("It leaves", "Here"))):
        talk = [f"{words[0]} {n}." for n in range(2, 12)]
        pack(tmp_path / f"data/talk/train.{side}.xz", *talk, f"{words[0]} heute Nacht.")
        pack(tmp_path / f"data/closed/train.{side}.xz", *(f"{words[1]} {n}." for n in range(5)))
        pack(tmp_path / f"data/news/test.{side}.xz", f"{words[0]} heute nacht")
        pack(tmp_path / f"data/news/valid.{side}.xz", f"{words[1]} nun auch.")
    pack(tmp_path / "data/talk/train.meta.xz", *["a\t1\tx"] * 11)
    pack(tmp_path / "data/wiki/mono.en.xz", "A cat sat there.", "Here nun auch", "It was late.")
    pack(tmp_path / "data/voice/mono.de.xz", "Das ist gut.", "1 2 3")
    (tmp_path / "texts.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path / "data"


def make(scripts: tuple[ModuleType, ModuleType], what: str, data: Path, *options: object) -> Path:
    out = data.parent / "out"
    common = ["--texts", data.parent / "texts.toml", "--composed", 5, "--out", out]
    scripts[1].main([what, str(data), *map(str, common), *map(str, options)])
    return out


def sources(folder: Path) -> list[str]:
    corpus, codec = Corpus(folder), Codec.load(folder)
    lengths = corpus.source.lengths()
    rows = [corpus.source.rows([n], int(lengths[n]))[0].tolist() for n in range(len(corpus))]
    return [" ".join(codec.source_vocabulary.decode(row)) for row in rows]


def test_box_and_compare(scripts: tuple[ModuleType, ModuleType], data: Path) -> None:
    out = make(scripts, "pairs", data)
    assert Corpus(out).weights == [(10, 2.0), (5, 1.0)]  # a line of the test is left out
    assert "heute" not in " ".join(sources(out))
    prepared = json.loads((out / "prepared.json").read_text("utf-8"))
    assert prepared["skipped"]["stands in news/test.de.xz"]["count"] == 1
    assert make(scripts, "pairs", data, "--compare") == out
    assert Corpus(out).weights == [(10, 2.0), (5, 1.0), (5, 1.0)]


def test_what_models_wrote_is_added(scripts: tuple[ModuleType, ModuleType], data: Path) -> None:
    made = data.parent / "made"
    pack(made / "wiki.back.de.xz", "Eine Katze saß da.", "Hier nun", "Es war spät.")
    pack(made / "voice.forward.en.xz", "This is good.", "One two three")
    shards = make(scripts, "pairs", data)
    scripts[1].main(["decode", str(shards), "--out", str(made)])
    assert (made / "talk.de").read_text("utf-8").splitlines() == sources(shards)[:10]
    assert (made / "talk.en").read_text("utf-8").splitlines()[0] == "It leaves 2."
    taught = "".join(f"The train leaves {n}.\n" for n in range(2, 8))  # its time was up then
    made.joinpath("talk.forward.en").write_text(taught, encoding="utf-8")
    out = make(scripts, "pairs", data, "--made", made)
    weights = [(count, round(weight, 9)) for count, weight in Corpus(out).weights]
    mixed = (made / "talk.mixed.en").read_text("utf-8").splitlines()
    assert mixed == taught.splitlines() + [f"It leaves {n}." for n in range(8, 12)]
    assert weights == [(10, 2.0), (5, 1.0), (2, 0.5), (2, 3.0)]  # no evaluation line
    assert sources(out)[-4:-1] == ["⟲ Eine Katze saß da.", "⟲ Es war spät.", "Das ist gut."]
    codec = Codec.load(out)
    assert len(codec.encode_source("⟲")) == 2  # one piece, and the end


def test_what_was_written_is_added(scripts: tuple[ModuleType, ModuleType], data: Path) -> None:
    with (data.parent / "texts.toml").open("a", encoding="utf-8") as file:
        file.write('[[written]]\nname = "own"\nfiles = ["own.tsv.xz"]\nweight = 3.0\n')
        file.write('[[written]]\nname = "lines"\nfiles = ["lines.tsv.xz"]\nweight = 2.0\n')
        file.write('german = "voice/mono.de.xz"\n')
    pack(data.parent / "own.tsv.xz", "Ach so!\tI see!", "Er ist nun auch da.\tHere nun auch.")
    second = zlib.crc32(b"1 2 3")
    pack(data.parent / "lines.tsv.xz", f"2\t{second:08x}\tOne two three")
    out = make(scripts, "pairs", data)
    assert sources(out)[-2:] == ["Ach so!", "1 2 3"]  # no evaluation line
    assert [weight for _, weight in Corpus(out).weights] == [2.0, 1.0, 3.0, 2.0]
    out = make(scripts, "pairs", data, "--written", 0)
    assert len(Corpus(out).weights) == 2
    pack(data.parent / "lines.tsv.xz", f"1\t{second:08x}\tOne two three")
    with pytest.raises(ValueError, match="line 1 of the corpus is another one"):
        make(scripts, "pairs", data)


def test_written_text_has_nothing_of_what_is_judged() -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return set(zip(words, words[1:], words[2:], words[3:], strict=False))

    entries = [e for name in ("sentences", "failures") for e in json.loads(
        (RECIPE.parent / f"{name}.json").read_text("utf-8")
    )]  # fmt: skip
    judged = set().union(*(runs(entry["source"]) for entry in entries))
    found = 0
    for text in tomllib.loads((RECIPE / "texts.toml").read_text("utf-8"))["written"]:
        for name in text["files"]:
            for line in lzma.decompress((RECIPE / name).read_bytes()).decode().splitlines():
                *_, german, english = line.split("\t")
                assert min(len(german.strip()), len(english.strip()))
                assert "german" in text or not runs(german) & judged, line
                found += 1
    assert found > 50_000


def test_swapped_sides(scripts: tuple[ModuleType, ModuleType], data: Path) -> None:
    out = make(scripts, "pairs", data)
    scripts[1].main(["swap", str(out), "--out", str(data.parent / "swapped")])
    there, back = Corpus(out), Corpus(data.parent / "swapped")
    assert (there.source.rows([3], 40) == back.target.rows([3], 40)).all()
    assert (there.target.rows([3], 40) == back.source.rows([3], 40)).all()
    codec = Codec.load(data.parent / "swapped")
    assert (codec.source_language, codec.target_language) == ("en", "de")
    valid = Corpus(data.parent / "swapped", "valid")
    assert valid.text() == (["Here nun auch."], ["Er ist da nun auch."])
    assert back.prepared["tokens"]["train"] == there.prepared["tokens"]["train"][::-1]


def test_composed_pairs_copy_what_must_be_copied(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    scripts[0].main([str(tmp_path / "one"), "--pairs", "2000"])
    scripts[0].main([str(tmp_path / "two"), "--pairs", "2000"])
    german, english = ((tmp_path / "one" / f"train.{s}").read_text("utf-8") for s in ("de", "en"))
    assert (tmp_path / "two" / "train.de").read_text("utf-8") == german
    pairs = list(zip(german.splitlines(), english.splitlines(), strict=True))
    assert len(set(pairs)) == 2000
    for one, two in pairs:
        assert sorted(re.findall(r"\d+", one)) == sorted(re.findall(r"\d+", two))
        assert re.findall(r"\S+@\S+", one) == re.findall(r"\S+@\S+", two)
        assert [c for c in one if ord(c) > 0x2100] == [c for c in two if ord(c) > 0x2100]
    assert "€" in german
    hours = {"zwei": "one", "drei": "two", "acht": "seven", "neun": "eight"}
    told = [(re.search(r"[Uu]m halb (\w+)", one), two) for one, two in pairs]
    found = [(hours[half[1]], two) for half, two in told if half and half[1] in hours]
    assert len(found) > 3
    assert all(f"half past {hour}" in two for hour, two in found)
    countries = dict(scripts[0].read_names("territories"))
    assert countries["Belgien"] == "Belgium"
    assert "Welt" not in countries


def test_every_text_says_whether_the_box_may_have_it() -> None:
    table = tomllib.loads((RECIPE / "texts.toml").read_text("utf-8"))
    texts = [*table["text"], *table["written"], *table["mono"]]
    for text in texts:
        assert text["use"] in ("box", "compare")
        assert text["terms"]
        if "GPL" in text["terms"] and "MIT" not in text["terms"]:
            assert text["use"] == "compare"
    names = [text["name"] for text in texts]
    assert len(set(names)) == len(names)


def test_pieces_hold_what_was_packed(tmp_path: Path) -> None:
    sys.path.insert(0, str(RECIPE))
    try:
        import carry  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(RECIPE))
    noise = random.Random(3).randbytes(300_000)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "noise").write_bytes(noise)
    (tmp_path / "text").write_text("ä" * 1000, encoding="utf-8")
    pieces = carry.pack(tmp_path / "out" / "n", [tmp_path / "in", tmp_path / "text"], 100_000, 1)
    assert [piece.name for piece in pieces] == [f"n.tar.xz.0{n}" for n in range(4)]
    assert all(piece.stat().st_size <= 100_000 for piece in pieces)
    names = carry.unpack(tmp_path / "out" / "n", tmp_path / "back")
    assert names == ["in", "in/deep", "in/deep/noise", "text"]
    assert (tmp_path / "back" / "in" / "deep" / "noise").read_bytes() == noise
    assert (tmp_path / "back" / "text").read_text("utf-8") == "ä" * 1000
    with pytest.raises(FileNotFoundError, match="no pieces"):
        carry.unpack(tmp_path / "out" / "other", tmp_path)


@pytest.mark.parametrize("name", ["back", "teacher", "offline", "mma-il", "wait-k"])
def test_stages_build(name: str) -> None:
    recipe = config.load(RECIPE / f"{name}.toml")
    student = config.load(RECIPE / "offline.toml")
    if recipe.train.init_from:
        assert recipe.train.init_from == "runs/de-en2/offline/final"
        assert (recipe.model, recipe.data) == (student.model, student.data)
    assert recipe.train.warmup + recipe.train.cooldown < recipe.train.updates
    assert (recipe.model.encoder == "bidirectional") == (name in ("back", "teacher"))
    with torch.device("meta"):
        built = build(recipe, 24_000, 24_000)
    size = sum(p.numel() for p in built.parameters())
    assert name == "teacher" or size < 54e6  # as int8, beside ends.safetensors: within 60 MiB


def rows(folder: Path) -> list[tuple[list[int], list[int]]]:
    corpus = Corpus(folder)
    sides = [
        [side.rows([n], int(side.lengths()[n]))[0].tolist() for n in range(len(corpus))]
        for side in (corpus.source, corpus.target)
    ]
    return list(zip(*sides, strict=True))


def test_a_folder_that_travelled_is_whole(
    scripts: tuple[ModuleType, ModuleType], pieces: ModuleType, data: Path
) -> None:
    out, slim = make(scripts, "pairs", data), data.parent / "slim"
    pieces.main(["slim", str(out), "--out", str(slim)])
    assert not list(slim.glob("train.*.offsets.npy"))
    pieces.main(["restore", str(slim)])
    assert rows(slim) == rows(out)


def test_pieces_put_together_are_the_whole(
    scripts: tuple[ModuleType, ModuleType],
    pieces: ModuleType,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decoded, cut, prepared again and joined: nothing is lost where nothing is to be changed."""
    pairs, out = make(scripts, "pairs", data), data.parent / "pieces"
    monkeypatch.setattr(pieces, "PIECE", 4)
    monkeypatch.setattr(pieces, "SPEECH", {})
    monkeypatch.setattr(pieces, "ProcessPoolExecutor", lambda workers: ThreadPoolExecutor(1))
    pieces.main(["speak", str(pairs), "--out", str(out)])
    assert len(list(out.glob("*/prepared.json"))) == 5  # 10 pairs and 5
    pieces.main(["join", str(pairs), "--pieces", str(out), "--out", str(data.parent / "all")])
    joined = data.parent / "all"
    assert rows(joined) == rows(pairs)
    assert Corpus(joined).weights == Corpus(pairs).weights
    assert Corpus(joined, "valid").text() == Corpus(pairs, "valid").text()
    assert not list(out.glob("*.de"))


def test_pieces_are_joined_within_documents(
    scripts: tuple[ModuleType, ModuleType],
    pieces: ModuleType,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack(data / "talk/train.meta.xz", *["a\t1\tx"] * 4, *["a\t2\tx"] * 7)
    pairs, out = make(scripts, "pairs", data), data.parent / "pieces"
    assert np.flatnonzero(np.load(pairs / "train.begins.npy")).tolist()[:3] == [0, 4, 10]
    monkeypatch.setattr(pieces, "SPEECH", {"join": 1.0, "longest_run": 8})
    monkeypatch.setattr(pieces, "ProcessPoolExecutor", lambda workers: ThreadPoolExecutor(1))
    pieces.main(["speak", str(pairs), "--out", str(out)])
    pieces.main(["join", str(pairs), "--pieces", str(out), "--out", str(data.parent / "all")])
    runs = [
        [int(n) for n in re.findall(r"ab (\d+)", text)] for text in sources(data.parent / "all")
    ]
    runs = [run for run in runs if run]
    assert sorted(number for run in runs for number in run) == list(range(2, 12))
    assert max(len(run) for run in runs) > 1
    assert not any(5 in run and 6 in run for run in runs)  # the fourth and the fifth line


def test_what_was_translated_back_is_checked_where_it_is_made(
    scripts: tuple[ModuleType, ModuleType],
    pieces: ModuleType,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs, out = make(scripts, "pairs", data), data.parent / "pieces"
    made = data.parent / "made"
    made.mkdir()  # the second line's English is one of the valid set; time was up for the third
    (made / "wiki.back.de").write_text("Eine Katze saß da.\nHier nun\n", encoding="utf-8")
    monkeypatch.setattr(pieces, "ProcessPoolExecutor", lambda workers: ThreadPoolExecutor(1))
    monkeypatch.setattr(pieces, "SPEECH", {})
    options = ["--texts", data.parent / "texts.toml", "--made", made, "--like", pairs]
    pieces.main(["speak", str(pairs), "--out", str(out)])
    pieces.main(["made", str(data), "--out", str(out), *map(str, options)])
    join = ["join", str(pairs), "--pieces", str(out), "--out"]
    pieces.main([*join, str(data.parent / "speech")])
    pieces.main([*join, str(data.parent / "spoken"), "--without-made"])
    assert sources(data.parent / "speech")[-1] == "⟲ Eine Katze saß da."
    weights = [(10, 2.0), (5, 1.0)]
    assert Corpus(data.parent / "spoken").weights == weights
    assert Corpus(data.parent / "speech").weights == [*weights, (1, 0.5)]
    found = json.loads((data.parent / "speech" / "prepared.json").read_text("utf-8"))
    assert found["skipped"]["stands in news/valid.en.xz"]["count"] == 1
