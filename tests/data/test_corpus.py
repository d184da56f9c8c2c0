import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from simultan.data import named as named_corpora
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.formats import read_pairs
from simultan.data.named import NamedCorpus, Texts, gather_pairs, locate
from simultan.data.shards import Corpus
from simultan.data.sources import Skips, TextPair, language_of, read_lines
from simultan.data.vocabulary import EOS, UNK

SOURCE = ["a b c", "b c , d", "a a, b", "c d e", "a b"]
TARGET = ["x y", "z z y", "x, x", "y", "z x y"]


def write(folder, name, lines):
    path = folder / name
    content = b"".join((x if isinstance(x, bytes) else x.encode()) + b"\n" for x in lines)
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(content)
    return path


def pair(folder, source=SOURCE, target=TARGET, stem="train", suffix="", **options):
    return TextPair(
        write(folder, f"{stem}.en{suffix}", source),
        write(folder, f"{stem}.de{suffix}", target),
        **options,
    )


def sentences(corpus, side, epoch=0):
    rows = getattr(corpus, side)
    lengths = rows.lengths(epoch)
    padded = rows.rows(np.arange(len(rows)), int(lengths.max()) + 2, epoch)
    assert (padded[np.arange(padded.shape[1]) >= lengths[:, None]] == 0).all()
    return [row[:length].tolist() for row, length in zip(padded, lengths, strict=True)]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("pipeline", ["words", "bpe", "moses-bpe"])
def test_shards_hold_what_the_codec_says(tmp_path, suffix, pipeline):
    train = pair(tmp_path, suffix=suffix)
    valid = pair(tmp_path, ["a ñ\u2028b"], ["x  ñ "], stem="valid")
    prepared = prepare(
        tmp_path / "out", [train], valid, pipeline=pipeline, min_count=1, vocabulary=300
    )
    codec = Codec.load(tmp_path / "out")
    assert (codec.pipeline.source_language, codec.pipeline.target_language) == ("en", "de")
    assert (codec.source_vocabulary is codec.target_vocabulary) == (pipeline != "words")
    corpus = Corpus(tmp_path / "out")
    assert sentences(corpus, "source") == [codec.encode_source(line) for line in SOURCE]
    assert sentences(corpus, "target") == [codec.encode_target(line) for line in TARGET]
    held = Corpus(tmp_path / "out", "valid")
    assert sentences(held, "source") == [codec.encode_source("a ñ b")]
    assert held.text() == (["a ñ b"], ["x  ñ "])
    assert prepared.pairs == {"train": 5, "valid": 1}
    assert prepared.tokens["train"][0] == sum(map(len, sentences(corpus, "source")))
    if pipeline == "words":
        assert UNK in sentences(held, "source")[0]
        assert prepared.unknown["valid"] == (pytest.approx(1 / 3), pytest.approx(1 / 2))
    else:
        assert prepared.unknown["valid"] == (0.0, 0.0)
    with pytest.raises(ValueError, match="without a test set"):
        Corpus(tmp_path / "out", "test")


def test_dropout_spells_the_same_sentences_anew_each_epoch(tmp_path):
    source = ["abcabc abcd, dcba", "abcd abcabc"] * 20
    prepare(tmp_path / "out", [pair(tmp_path, source, source)], bpe_dropout=0.4, samples=16)
    corpus, codec = Corpus(tmp_path / "out"), Codec.load(tmp_path / "out")
    epochs = [sentences(corpus, "source", epoch) for epoch in range(3)]
    for epoch in epochs:
        for ids, line in zip(epoch, source, strict=True):
            assert ids[-1] == EOS
            assert codec.source_vocabulary.decode(ids) == line.split()
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] == sentences(Corpus(tmp_path / "out"), "source", 0)
    assert len({tuple(ids) for epoch in epochs for ids in epoch}) > 20
    prepare(tmp_path / "two", [pair(tmp_path, source, source)], bpe_dropout=0.4, samples=16)
    assert sentences(Corpus(tmp_path / "two"), "target") == sentences(corpus, "target")


def test_bad_training_pairs_are_counted_and_nothing_shifts(tmp_path):
    source = ["a b", "", "c d", b"\xff\xfe", "e f", "\u200b", "g " * 50, "i j", "k\u2028l\x85m"]
    target = ["1 2", "3", " \t", "4", b"\xc3\x28", "5", "6", "7 8\r", "9"]
    bad = pair(tmp_path, source, target)
    with pytest.raises(
        ValueError, match=r"2 of 9 pairs are not valid UTF-8 \(train\.en:4, .*iconv"
    ):
        prepare(tmp_path / "out", [bad])
    options = {"pipeline": "words", "min_count": 1, "max_length": 20, "allow_undecodable": True}
    prepared = prepare(tmp_path / "out", [bad], **options)
    assert prepared.pairs["train"] == 3
    assert prepared.skipped == {
        "empty": {"count": 3, "first": ["train.en:2", "train.de:3", "train.en:6"]},
        "not valid UTF-8": {"count": 2, "first": ["train.en:4", "train.de:5"]},
        "longer than 20 tokens": {"count": 1, "first": ["train.en:7"]},
    }
    assert json.loads((tmp_path / "out" / "prepared.json").read_text())["skipped"]
    corpus, codec = Corpus(tmp_path / "out"), Codec.load(tmp_path / "out")
    decoded = [
        [" ".join(getattr(codec, f"{side}_vocabulary").decode(ids)) for ids in rows]
        for side, rows in (
            ("source", sentences(corpus, "source")),
            ("target", sentences(corpus, "target")),
        )
    ]
    assert decoded == [["a b", "i j", "k l m"], ["1 2", "7 8", "9"]]
    with pytest.raises(ValueError, match=r"train\.en:2: empty"):
        prepare(tmp_path / "strict", [bad], strict=True)


@pytest.mark.parametrize(
    ("source", "message"),
    [(["a", ""], r"valid\.en:2: empty"), (["a", b"\xff"], r"valid\.en:2: not valid UTF-8"),
     (["a", "\u200b"], r"valid\.en:2: empty but for")],
)  # fmt: skip
def test_bad_valid_pairs_are_errors(tmp_path, source, message):
    valid = pair(tmp_path, source, ["x", "y"], stem="valid")
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "out", [pair(tmp_path)], valid)
    assert not (tmp_path / "out").exists()


def test_different_line_counts(tmp_path):
    for source, target in ((SOURCE, TARGET[:3]), (SOURCE[:2], TARGET)):
        with pytest.raises(ValueError, match=f"has {len(source)} lines.*has {len(target)}: line n"):
            prepare(tmp_path / "out", [pair(tmp_path, source, target)])
    with pytest.raises(ValueError, match="no lines"):
        prepare(tmp_path / "out", [pair(tmp_path, [], [])])
    with pytest.raises(ValueError, match="no usable pair"):
        prepare(tmp_path / "out", [pair(tmp_path, ["a " * 9], ["b"])], max_length=3)


def test_files_that_cannot_be_read(tmp_path):
    good = pair(tmp_path)
    with pytest.raises(OSError, match="no such file"):
        prepare(tmp_path / "out", [TextPair(tmp_path / "none.en", good.target)])
    broken = pair(tmp_path, stem="cut", suffix=".xz")
    broken.source.write_bytes(broken.source.read_bytes()[:-30])
    with pytest.raises(ValueError, match="damaged after line"):
        list(read_pairs(broken, Skips()))
    broken.source.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged after line 0"):
        list(read_pairs(broken, Skips()))


def test_settings_are_checked(tmp_path):
    train = pair(tmp_path)
    for options, message in (
        ({"bpe_dropout": 1.0}, "BPE-dropout"),
        ({"bpe_dropout": 0.1, "pipeline": "words"}, "needs a subword pipeline"),
        ({"bpe_dropout": 0.1, "samples": 1}, "at least two samples"),
        ({"pipeline": "spm"}, "choose one of"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(tmp_path / "out", [train], **options)
    with pytest.raises(ValueError, match="no training text"):
        prepare(tmp_path / "out", [])
    with pytest.raises(ValueError, match="weight"):
        prepare(tmp_path / "out", [TextPair(train.source, train.target, weight=0)])
    prepare(tmp_path / "out", [train])
    with pytest.raises(ValueError, match="not empty"):
        prepare(tmp_path / "out", [train])
    prepare(tmp_path / "out", [train], pipeline="words", overwrite=True)
    with pytest.raises(ValueError, match="no prepared folder"):
        prepare(tmp_path, [train], overwrite=True)
    with pytest.raises(OSError, match="not a prepared corpus"):
        Corpus(tmp_path)


def test_a_folder_that_is_named_in_another_way(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    prepare(tmp_path / "link", [pair(tmp_path)], pipeline="words", min_count=1)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "prepared.json").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    prepare(".", [pair(tmp_path)], pipeline="words", min_count=1)
    assert (tmp_path / "here" / "prepared.json").exists()
    with pytest.raises(ValueError, match="a disk is mounted there"):
        prepare("/", [pair(tmp_path)], pipeline="words", min_count=1)


def test_vocabularies_of_another_folder(tmp_path):
    prepare(tmp_path / "one", [pair(tmp_path)], pipeline="words", min_count=1)
    codec = Codec.load(tmp_path / "one")
    other = pair(tmp_path, ["a new b"], ["x y"], stem="other")
    prepare(tmp_path / "two", [other], codec=codec)
    with pytest.raises(ValueError, match="needs a subword pipeline"):
        prepare(tmp_path / "three", [other], codec=codec, bpe_dropout=0.1)
    loaded = Codec.load(tmp_path / "two")
    assert loaded.source_vocabulary.pieces == codec.source_vocabulary.pieces
    assert sentences(Corpus(tmp_path / "two"), "source") == [codec.encode_source("a new b")]


def test_several_sources_keep_their_weights(tmp_path):
    one = pair(tmp_path, stem="one", weight=2.0)
    two = pair(tmp_path, ["q", ""], ["r", "s"], stem="two", weight=0.5)
    prepare(tmp_path / "out", [one, two])
    assert Corpus(tmp_path / "out").weights == [(5, 2.0), (1, 0.5)]


# -- named corpora


def released(folder, stems, languages, lines):
    folder.mkdir(exist_ok=True)
    for stem in stems:
        for language in languages:
            write(folder, f"{stem}.{language}.xz", ["a"] * lines)
    return folder


def test_locate_finds_both_layouts(tmp_path):
    for stems in (("train", "valid", "test"), ("train", "tst2012", "tst2013")):
        folder = released(tmp_path / stems[1], stems, ("en", "vi"), 1)
        train, valid, test = locate("iwslt15-en-vi", [folder])
        names = [p.source.name for p in (train[0], valid, test)]
        assert names == [f"{stem}.en.xz" for stem in stems]
        with pytest.raises(ValueError, match="1 lines where the corpus has 133,166 or 133,317"):
            list(read_pairs(train[0], Skips()))


def test_locate_gathers_training_text_of_several_folders(tmp_path):
    one = released(tmp_path / "e", ("train", "valid", "test"), ("de", "en"), 2)
    two = released(tmp_path / "n", ("newstest2013", "newstest2015"), ("de", "en"), 2)
    released(two, ("europarl-v7.de-en", "train-tatoeba"), ("de", "en"), 2)
    train, valid, test = locate("wmt15-de-en", [one, two])
    assert [p.source.name.removesuffix(".de.xz") for p in train] == [
        "europarl-v7.de-en",
        "train",
        "train-tatoeba",
    ]
    assert train[0].lines == {1_920_209}
    assert train[1].lines == frozenset()
    assert valid.source.name.startswith("newstest2013")
    assert test.lines == {2_169}
    with pytest.raises(OSError, match="no newstest2013"):
        locate("wmt15-de-en", [one])
    with pytest.raises(OSError, match="no such folder"):
        locate("wmt15-de-en", [tmp_path / "none"])
    with pytest.raises(OSError, match=r"no europarl\*\.de"):
        locate("wmt15-de-en", [tmp_path])
    with pytest.raises(ValueError, match="known are iwslt15-en-vi, wmt15-de-en"):
        locate("wmt14", [one])


def test_gather_pairs(tmp_path):
    train = pair(tmp_path)
    files = {"source": (train.source,), "target": (train.target,)}
    valid = {"valid_source": train.source, "valid_target": train.target}
    got = gather_pairs("", Texts(**files, **valid, weight=(3.0,)))
    assert got[0] == [TextPair(train.source, train.target, 3.0)]
    assert got[2] is None
    for changes, message in (
        ({"target": ()}, "each text needs both sides"),
        ({"valid_source": train.source}, "--valid-source and --valid-target"),
        ({"weight": (1.0, 2.0)}, "2 --weight for 1 training texts"),
        ({"folders": (tmp_path,)}, "--from needs a named corpus"),
    ):
        with pytest.raises(ValueError, match=message):
            gather_pairs("", Texts(**(files | changes)))


def test_download_from_files_and_archives(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    for stem in ("tst1", "tst2"):
        pair(home, stem=stem)
    with tarfile.open(home / "training.tgz", "w:gz") as archive:
        for name in ("x/corpus.en-de.en", "x/corpus.en-de.de", "x/corpus.en-fr.en", "../../y"):
            content = "\n".join(SOURCE).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    named = NamedCorpus(
        source="en",
        target="de",
        train=("corpus*",),
        valid=("tst1",),
        test=("tst2",),
        lines={"valid": (5,), "test": (5,)},
        urls=tuple(
            (home / name).as_uri()
            for name in ("tst1.en", "tst1.de", "tst2.en", "tst2.de", "training.tgz")
        ),
    )
    monkeypatch.setitem(named_corpora.CORPORA, "mine", named)
    cache = tmp_path / "cache"
    train, valid, _ = gather_pairs("mine", Texts(), cache)
    assert [p.source.name for p in train] == ["corpus.en-de.en"]
    assert valid is not None
    assert len(list(read_pairs(train[0], Skips()))) == 5
    assert not list(cache.rglob("*fr*")) + list(cache.rglob("*.part")) + list(cache.rglob("y"))
    (home / "tst1.en").unlink()
    gather_pairs("mine", Texts(), cache)  # nothing to fetch
    with pytest.raises(OSError, match=r"cannot be downloaded.*say --from FOLDER"):
        gather_pairs("mine", Texts(), tmp_path / "fresh")


def test_a_few_undecodable_pairs_are_left_out(tmp_path):
    lines = [*["a b"] * 38, b"\xff", b"\xff"]  # 5%
    prepared = prepare(tmp_path / "out", [pair(tmp_path, lines, ["x"] * 40)])
    assert prepared.pairs["train"] == 38


def test_a_vocabulary_that_cannot_be_so_small(tmp_path):
    with pytest.raises(
        ValueError, match="10 pieces: one of subwords has at least 261, of which 256"
    ):
        prepare(tmp_path / "out", [pair(tmp_path)], vocabulary=10)
    assert prepare(tmp_path / "out", [pair(tmp_path)], vocabulary=261).vocabulary == (261, 261)


def test_lines_are_read_by_one_rule(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\x85two\r\n\nthree\r".encode() + b"\n\xff four")
    with pytest.raises(ValueError, match=r"a\.txt, line 4: not valid UTF-8"):
        list(read_lines(path))
    assert list(read_lines(path, "replace")) == ["\ufeffone\x85two", "", "three", "\ufffd four"]
    with lzma.open(tmp_path / "a.xz", "wb") as file:
        file.write(b"one\ntwo\n")
    assert list(read_lines(str(tmp_path / "a.xz"))) == ["one", "two"]
    (tmp_path / "b.xz").write_bytes((tmp_path / "a.xz").read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"b\.xz: damaged after line"):
        list(read_lines(tmp_path / "b.xz"))
    with pytest.raises(OSError, match="not a regular file"):
        list(read_lines(tmp_path))


def test_the_language_of_a_file():
    names = {"train.en.xz": "en", "a.src": "", "b.tgt.gz": "", "c.txt": "", "d.de": "de"}
    assert {name: language_of(Path(name)) for name in names} == names
