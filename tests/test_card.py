"""The model card is made of what was measured, and of nothing else."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import simultan
from simultan import checkpoint
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary
from simultan.model import build

RECIPE = Path(__file__).parents[1] / "recipes" / "de-en"
TERMS = {  # of these texts
    "europarl": "European Parliament",
    "tatoeba": "CC BY 2.0",
    "libreoffice": "MPL-2.0",
    "wikipedia.back": "CC BY-SA, Wikipedia contributors; its German",
}
SETS = ["newstest2013", "newstest2015", "europarl", "tatoeba", "covost2"]
WORDS = Vocabulary([*SPECIAL, *"abcdefghABCDEFGH", "a.", "H,"])


@pytest.fixture(scope="module")
def scripts() -> tuple[ModuleType, ModuleType]:
    sys.path.insert(0, str(RECIPE))
    try:
        import card  # type: ignore[import-not-found]
        import measure  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(RECIPE))
    return measure, card


def model(policy: str, folder: Path) -> Path:
    config = Config(
        model=ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=2),
        policy=PolicyConfig(name=policy, k=(1, 3)),  # type: ignore[arg-type]
    )
    torch.manual_seed(5)
    fresh = build(config, len(WORDS), len(WORDS))
    with torch.no_grad():
        fresh.output.weight[: UNK + 1] = 0
    codec = Codec(Pipeline("words"), WORDS, WORDS)
    checkpoint.save(folder / policy, checkpoint.weights_of(fresh), config, codec)
    return folder / policy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, scripts: tuple[ModuleType, ModuleType]) -> Path:
    """A folder in which three models have been measured on five small sets."""
    folder = tmp_path_factory.mktemp("card")
    models = {policy: model(policy, folder) for policy in ("offline", "wait-k", "mma-il")}
    checkpoint.export([models["mma-il"]], folder / "de-en", "int8")
    sources = ["a b A C d a.", "H, G F e d c", "b a H,", "A B C D E F G H", "c d e a."] * 3
    (folder / "tests").mkdir()
    references = [" ".join(t.words) for t in simultan.load(models["offline"]).translate(sources)]
    for name in SETS:  # what the offline model says counts as right
        for language, lines in (("de", sources), ("en", references)):
            packed = lzma.compress("".join(f"{line}\n" for line in lines).encode())
            (folder / "tests" / f"{name}.{language}.xz").write_bytes(packed)
    (folder / "run").mkdir()
    (folder / "run" / "config.toml").touch()
    steps = [{"kind": "train", "update": u, "epoch": u // 2, "tokens_per_second": 100.0 * u}
             for u in (1, 2, 3)]  # fmt: skip
    (folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(s) + "\n" for s in steps))
    measure = scripts[0]
    shipped = ("mma-il", folder / "de-en")
    int8 = ["--quantize", "int8"]
    for (system, path), *options in [
        *((item,) for item in models.items()),
        (shipped,), (shipped, *int8), (shipped, *int8, "--beam", "2"),
    ]:  # fmt: skip
        measure.main(
            [str(path), "--system", system, "--out", str(folder / "measured"),
             "--tests", str(folder / "tests"), "--every", "3", "--ks", "1,3,9",
             "--training", str(folder / "run"), *options]
        )  # fmt: skip
    for name in TERMS:
        (folder / f"{name}.de").write_text("Eins, zwei.\nDrei.\n" * 9)
        (folder / f"{name}.en").write_text("One, two.\nThree.\n" * 9)
    pairs = [TextPair(folder / f"{n}.de", folder / f"{n}.en", 0.5 + i) for i, n in enumerate(TERMS)]
    prepare(folder / "data", pairs, vocabulary=300, join=0.5, asr=0.5)
    (folder / "data" / "names.json").write_text(json.dumps(list(TERMS)))
    return folder


def test_the_card(place: Path, scripts: tuple[ModuleType, ModuleType]) -> None:
    (place / "failures.json").write_text(
        json.dumps([{"source": "a b c", "meaning": "one two", "reason": "It is random."}])
    )
    scripts[1].main(
        [str(place / "measured"), "--model", str(place / "de-en"),
         "--prepared", str(place / "data"),
         "--failures", str(place / "failures.json")]
    )  # fmt: skip
    text = (place / "de-en" / "MODEL_CARD.md").read_text()
    lines = (place / "measured" / "mma-il.int8.jsonl").read_text().splitlines()
    chosen = json.loads((place / "measured" / "thresholds.json").read_text())
    records = [json.loads(line) for line in lines]
    assert {record["threshold"] for record in records} == set(chosen)
    ways = {(record.get("beam"), record.get("quantize")) for record in records}
    assert ways == {(None, None), (None, "int8"), (2, "int8")}
    bleu = {}
    for record in records:
        if not record["spoken"]:
            beams = f", {record['beam']} beams" if "beam" in record else ""
            row = f"| mma-il, threshold {record['threshold']}{beams} | {record['bleu']:.2f} |"
            if "beam" in record or "quantize" not in record:
                assert row in text
            bleu[record["set"], record["threshold"], record.get("beam"), "quantize" in record] = (
                record["bleu"]
            )
    for threshold in chosen:
        greedy, searched = (bleu["newstest2015", threshold, beam, True] for beam in (None, 2))
        change = f"| {greedy:.2f} | {searched:.2f} | {searched - greedy:+.2f} |"
        assert f"| WMT newstest2015 | {threshold} {change}" in text
    assert "| offline, same size, greedy | 100.00 |" in text
    assert "k = 1:" in text
    assert "stored as int8" in text
    assert "| BLEU float32 | BLEU int8 |" in text
    sources = json.loads((place / "data" / "prepared.json").read_text())["sources"]
    for source, (name, terms) in zip(sources, TERMS.items(), strict=True):
        assert f"| {name} | {source['pairs']} | {source['weight']:g} | {terms}" in text
    assert "| 3 | 2 | 200 | " in text  # updates, epochs, the median speed
    said = " ".join(simultan.load(place / "de-en").translate(["a b c"])[0].words)
    assert f"- *a b c*\n  **{said}**\n  Meant: one two It is random." in text
    assert "(not measured)" not in text


def test_a_rule_over_the_offline_model(
    place: Path, tmp_path: Path, scripts: tuple[ModuleType, ModuleType]
) -> None:
    measure, card = scripts
    measure.main(
        [str(place / "offline"), "--system", "wait-k", "--out", str(tmp_path),
         "--tests", str(place / "tests"), "--agents", "wait-k:1", "wait-k:3"]
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "wait-k.float32.jsonl").open()]
    assert [(line["set"], line["agent"]) for line in lines] == [
        *[("newstest2015", "wait-k:1"), ("newstest2015", "wait-k:3")],
        *[("europarl", "wait-k:1"), ("europarl", "wait-k:3")],
    ]
    text = card.tradeoff(card.Measured(tmp_path), "europarl", "int8")
    shown = ", ".join(f"{r['agent']}: {r['al']:.2f} / {r['bleu']:.2f}" for r in lines[2:])
    assert f"wait-k as a rule over the offline model, AL / BLEU: {shown}." in text


def test_lag_between_points(scripts: tuple[ModuleType, ModuleType]) -> None:
    points = [(4.0, 20.0), (2.0, 10.0), (8.0, 22.0)]
    interpolate = scripts[1].interpolate
    assert interpolate(points, 3.0) == pytest.approx(15.0)
    assert interpolate(points, 6.0) == pytest.approx(21.0)
    assert interpolate(points, 8.0) == 22.0
    assert interpolate(points, 1.0) is None
    assert interpolate(points, 9.0) is None


def test_nothing_measured(tmp_path: Path, scripts: tuple[ModuleType, ModuleType]) -> None:
    with pytest.raises(FileNotFoundError, match="nothing was measured"):
        scripts[1].Measured(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"newstest2013\.de"):
        scripts[0].texts(tmp_path, "newstest2013")
