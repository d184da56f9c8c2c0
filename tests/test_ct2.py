"""`simultan export --format ctranslate2`: others' program gives our translations."""

from __future__ import annotations

from pathlib import Path

import ctranslate2
import pytest
import torch
from typer.testing import CliRunner

import simultan
from benchmarks.streaming import german
from simultan import boxed, checkpoint, cli
from simultan import model as models
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import EOS, SPECIAL, Vocabulary
from simultan.model import TranslationModel
from simultan.streaming.generation import Generator
from simultan.streaming.search import Search
from simultan.streaming.translator import Translator

SMALL = {"width": 32, "ffn": 48, "heads": 4, "decoder_heads": 2, "encoder_layers": 2,
         "decoder_layers": 2, "dropout": 0.0}  # fmt: skip
KINDS = {
    "offline": ModelConfig(**SMALL),  # type: ignore[arg-type]
    "bidirectional": ModelConfig(**SMALL, encoder="bidirectional", norm="post", tie="none",
                                 positions="marian", activation="swish", output_bias=True,
                                 scale_embeddings=False),  # type: ignore[arg-type]
    "fairseq": ModelConfig(**SMALL, encoder="bidirectional", first_position=2,
                           activation="gelu"),  # type: ignore[arg-type]
}  # fmt: skip


def export(*arguments: object) -> None:
    words = ["export", *map(str, arguments), "--format", "ctranslate2"]
    done = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert done.output.endswith("for CTranslate2\n")


def run(folder: Path, codec: Codec, sources: list[list[int]], longest: int) -> list[list[int]]:
    """Greedy, by CTranslate2, in ids of ours."""
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    pieces = codec.source_vocabulary.pieces
    results = engine.translate_batch(
        [[pieces[id] for id in source] for source in sources],
        beam_size=1,
        max_decoding_length=longest,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )
    ids = {piece: id for id, piece in enumerate(codec.target_vocabulary.pieces)}
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]


def search(model: TranslationModel, sources: list[list[int]]) -> list[list[int]]:
    return Generator(model, Search(beam=1)).generate(sources).best().lists()


@pytest.mark.parametrize("kind", KINDS)
def test_same_probabilities(kind: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIAL, *(f"w{i}" for i in range(40))])
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    config = Config(model=KINDS[kind], policy=PolicyConfig(name="offline"))
    torch.manual_seed(0)
    model = models.build(config, len(vocabulary), len(vocabulary)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
    checkpoint.save(tmp_path / "ours", checkpoint.weights_of(model), config, codec)
    export(tmp_path / "ours", tmp_path / "theirs", "--weights", "float32")
    sources, targets = torch.randint(4, 44, (2, 12, 20)).tolist()
    lengths = torch.randint(2, 20, (2, 12))
    rows = [
        [row[: length - 1] + [EOS] * (21 - length) for row, length in zip(side, many, strict=True)]
        for side, many in ((sources, lengths[0].tolist()), (targets, lengths[1].tolist()))
    ]
    batch = Batch(torch.tensor(rows[0]), lengths[0], torch.tensor(rows[1]), lengths[1])
    with torch.no_grad():
        wanted = model.project(model(batch).hidden).log_softmax(-1)
    wanted = wanted.gather(-1, batch.target[..., None])[..., 0]

    engine = ctranslate2.Translator(str(tmp_path / "theirs"), compute_type="float32")
    pieces = vocabulary.pieces
    there = engine.score_batch(
        [[pieces[id] for id in row[:n]] for row, n in zip(rows[0], lengths[0], strict=True)],
        [[pieces[id] for id in row[: n - 1]] for row, n in zip(rows[1], lengths[1], strict=True)],
    )
    for row, (result, length) in enumerate(zip(there, lengths[1], strict=True)):
        found = torch.tensor(result.log_probs)
        assert torch.allclose(found, wanted[row, :length], atol=1e-4, rtol=0)
    assert wanted.std() > 0.5
    assert Codec.load(tmp_path / "theirs").source_vocabulary.pieces == pieces


def test_the_model_in_the_box(tmp_path: Path) -> None:
    """It decides by itself when to write; without that it is an offline model, ours or theirs."""
    folder = boxed.resolve("de-en")
    config = checkpoint.load_config(folder)
    codec = Codec.load(folder)
    weights = {
        name: value
        for name, value in checkpoint.load_weights(folder).items()
        if not checkpoint.selects(name)
    }
    offline = Config(model=config.model, policy=PolicyConfig(name="offline"))
    model = models.build(offline, len(codec.source_vocabulary), len(codec.target_vocabulary))
    checkpoint.restore(model, weights, "de-en")
    sources = [codec.encode_source(line) for line in german()[:100]]
    wanted = search(model.eval().prepare_inference(), sources)
    export("de-en", tmp_path / "theirs", "--weights", "float32")
    found = run(tmp_path / "theirs", codec, sources, 256)
    same = [one == other for one, other in zip(wanted, found, strict=True)]
    assert len(same) == 100
    assert all(same)
    back = simultan.load(f"ct2:{tmp_path / 'theirs'}").translate(german()[:5], "wait-k:99")
    ours = Translator(model, offline, codec).translate(german()[:5])
    assert [result.words for result in back] == [result.words for result in ours]


@pytest.mark.parametrize(
    ("policy", "model", "reason"),
    [
        ("mma-h", {}, "policy mma-h"),
        ("offline", {"architecture": "recurrent"}, "recurrent"),
        ("offline", {"window": 4}, "window"),
        ("offline", {"positions": "rotary"}, "rotary"),
        ("offline", {"norm": "post"}, "norm = post"),
    ],
)
def test_refused(policy: str, model: dict[str, object], reason: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIAL, "a"])
    codec = Codec(Pipeline("words"), vocabulary, vocabulary)
    config = Config(
        model=ModelConfig(**{**SMALL, **model}),  # type: ignore[arg-type]
        policy=PolicyConfig(name=policy),  # type: ignore[arg-type]
    )
    network = models.build(config, len(vocabulary), len(vocabulary))
    checkpoint.save(tmp_path / "ours", checkpoint.weights_of(network), config, codec)
    with pytest.raises(ValueError, match=reason):
        export(tmp_path / "ours", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
