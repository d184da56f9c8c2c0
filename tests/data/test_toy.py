"""The toy language: one right answer, no sentence twice, nothing waits for more than two words."""

from __future__ import annotations

from simultan.data.toy import translate, write_toy


def test_translations_by_hand():
    assert translate("the red house sees a cat") == "la maison rouge voit un chat"
    assert translate("now a dog likes the sad moon") == "maintenant un chien aime la lune triste"


def test_files(tmp_path):
    write_toy(tmp_path / "one", 300, seed=3)
    write_toy(tmp_path / "two", 300, seed=3)
    seen = set()
    for name, size in (("train", 300), ("valid", 200), ("test", 200)):
        source = (tmp_path / "one" / f"{name}.en").read_text(encoding="utf-8").splitlines()
        target = (tmp_path / "one" / f"{name}.fr").read_text(encoding="utf-8").splitlines()
        assert [translate(line) for line in source] == target
        assert len(source) == size
        assert not seen & set(source)
        seen |= set(source)
        for line, translation in zip(source, target, strict=True):
            assert 4 <= len(line.split()) <= 12
            assert len(line.split()) == len(translation.split())
        for suffix in ("en", "fr"):
            one, two = (tmp_path / n / f"{name}.{suffix}" for n in ("one", "two"))
            assert one.read_bytes() == two.read_bytes()
    assert len(seen) == 700
