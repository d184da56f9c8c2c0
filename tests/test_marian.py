"""Models of transformers as ours: the same logits, the same words; what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from typer.testing import CliRunner

import simultan
from simultan import checkpoint, cli, marian
from simultan.config import Config, ConfigError, ModelConfig, PolicyConfig
from simultan.data.batching import Batch
from simultan.data.codec import Codec
from simultan.data.vocabulary import EOS, PAD, SPECIAL
from simultan.model import Transformer
from simultan.streaming.generation import Generator
from simultan.streaming.search import Search
from tests.foreign_folders import make_m2m100, make_marian, write_text

KINDS: dict[str, dict[str, Any]] = {
    "marian": {},
    "gelu, not scaled": {"activation_function": "gelu", "scale_embedding": False},
    "separate": {"separate": True, "activation_function": "relu"},
    "languages": {"languages": True},
    "m2m100": {},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return write_text(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, text: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A folder of theirs, and of ours."""
    folder, kind = tmp_path_factory.mktemp("models"), request.param
    theirs, options = folder / "theirs", KINDS[kind]
    arguments = ["import", f"hf:{theirs}", str(folder / "ours")]
    if kind == "m2m100":
        make_m2m100(theirs, text)
        arguments += ["--source", "en", "--target", "fr"]
    else:
        make_marian(theirs, text, **options)
    if kind == "languages":
        arguments += ["--target", "fra"]
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert "offline, bidirectional" in done.output
    return theirs, folder / "ours"


def load_theirs(folder: Path) -> tuple[Any, Any]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def columns(codec: Codec, folder: Path, tokenizer: Any) -> list[int]:
    """Their ids of our target pieces, from end-of-sequence on."""
    table = dict(getattr(tokenizer, "lang_token_to_id", {}))
    name = "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json"
    table.update(json.loads((folder / name).read_text()))
    return [table[piece] for piece in codec.target_vocabulary.pieces[EOS:]]


def pad(rows: list[list[int]], filler: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


@torch.no_grad()
def test_logits(pair: tuple[Path, Path], text: list[list[str]]) -> None:
    theirs, tokenizer = load_theirs(pair[0])
    ours, _, codec = checkpoint.load_model(pair[1])
    assert isinstance(ours, Transformer)
    sources, targets = (lines[:6] for lines in text)
    sources = [*sources, "the §unknown§ cat"]
    targets = [*targets, "le chat ☂"]
    prefix = ">>fra<< " if ours.source_prefix and not ours.target_prefix else ""
    read = [tokenizer(prefix + line)["input_ids"] for line in sources]
    written = [tokenizer(text_target=line)["input_ids"] for line in targets]
    filler, start = theirs.config.pad_token_id, theirs.config.decoder_start_token_id
    inputs = pad(read, filler)
    wanted = theirs(
        input_ids=inputs,
        attention_mask=(pad(read, -1) >= 0).long(),
        decoder_input_ids=pad([[start, *row[:-1]] for row in written], filler),
    ).logits[..., columns(codec, pair[0], tokenizer)]

    source = [codec.encode_source(line) for line in sources]
    target = [codec.encode_target(line) for line in targets]
    languages = len(ours.source_prefix), len(ours.target_prefix)
    assert [len(row) + languages[0] for row in source] == [len(row) for row in read]
    batch = Batch(
        pad(source, PAD),
        torch.tensor([len(row) for row in source]),
        pad(target, PAD),
        torch.tensor([len(row) for row in target]),
    )
    logits = ours.project(ours(batch).hidden)[..., EOS:]
    for row, (line, length) in enumerate(zip(logits, batch.target_lengths, strict=True)):
        there = wanted[row, languages[1] :][:length]
        assert torch.allclose(line[:length], there, atol=1e-4, rtol=0)
    assert logits.std() > 0.5


@torch.no_grad()
def test_same_translation(pair: tuple[Path, Path], text: list[list[str]]) -> None:
    theirs, tokenizer = load_theirs(pair[0])
    ours, _, codec = checkpoint.load_model(pair[1])
    assert isinstance(ours, Transformer)
    ours.prepare_inference()
    table = columns(codec, pair[0], tokenizer)
    prefix = ">>fra<< " if ours.source_prefix and not ours.target_prefix else ""
    sources = [codec.encode_source(line) for line in text[0][:4]]
    searched = Generator(ours, Search(beam=1)).generate(sources).best().lists()
    for line, written in zip(text[0], searched, strict=False):
        tokens = [theirs.config.decoder_start_token_id]
        if ours.target_prefix:
            tokens.append(tokenizer.get_lang_id("fr"))
        first = len(tokens)
        inputs = torch.tensor([tokenizer(prefix + line)["input_ids"]])
        for token in written[:12]:
            logits = theirs(input_ids=inputs, decoder_input_ids=torch.tensor([tokens])).logits
            best = int(logits[0, -1, table].argmax())
            assert best + EOS == token
            tokens.append(table[best])
        assert len(tokens) > first


def test_sessions(pair: tuple[Path, Path], text: list[list[str]]) -> None:
    """Whole sentences as the search has them; live, nothing unread is ever seen."""
    translator = simultan.load(pair[1])
    assert isinstance(translator.model, Transformer)
    codec, lines = translator.codec, text[0][:4]
    generator = Generator(translator.model, Search(beam=1))
    searched = generator.generate([codec.encode_source(line) for line in lines]).best().lists()
    for result, written in zip(translator.translate(lines), searched, strict=True):
        count = min(len(result.tokens), 10)  # a random model repeats itself until it is stopped
        assert count
        assert result.tokens[:count] == written[:count]
    session = translator.session("wait-k:2", segment=False)
    other = translator.session("wait-k:2", segment=False)
    words = lines[0].split()
    for word in words[:3]:
        assert session.feed(word) == other.feed(word)
    assert session.feed("house")
    assert other.feed("sees")
    assert translator.translate(lines[:2], "agreement:2", rows=2)[0].words


def test_words(pair: tuple[Path, Path], text: list[list[str]]) -> None:
    """A vocabulary of SentencePiece gives back what it was given."""
    codec = Codec.load(pair[1])
    for line in text[1][:20]:
        ids = codec.encode_target(line)
        assert ids[-1] == EOS
        assert codec.decode_target(ids) == line
        writer = codec.writer()
        words = [word for id in ids[:-1] for word in writer.push(id)] + writer.flush()
        assert words == line.split()
    assert codec.target_language in ("fr", "fra")
    assert codec.source_vocabulary.pieces[: len(SPECIAL)] == list(SPECIAL)


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
def test_nllb(kind: str, text: list[list[str]], tmp_path: Path) -> None:
    """M2M100's network; its pieces and languages stand in tokenizer.json."""
    folder = make_m2m100(tmp_path / "theirs", text)
    table = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").unlink()
    codes = {"deu_Latn": len(table) + 3, "eng_Latn": len(table) + 5}
    pieces: Any = table if kind == "BPE" else [[piece, -1.0] for piece in table]
    added = [{"content": code, "id": id} for code, id in codes.items()]
    notes = {"model": {"type": kind, "vocab": pieces}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(notes))
    with pytest.raises(ValueError, match="such as deu_Latn, eng_Latn"):
        marian.convert(folder, tmp_path / "ours", "de", "en")
    codec = marian.convert(folder, tmp_path / "ours", "deu_Latn", "eng_Latn")
    model = checkpoint.load_config(tmp_path / "ours").model
    known = codec.source_vocabulary.pieces
    assert [known[id] for id in model.source_prefix + model.target_prefix] == list(codes)
    stored = load_file(folder / "model.safetensors")
    theirs = stored.get("model.shared.weight", stored.get("model.encoder.embed_tokens.weight"))
    assert theirs is not None
    ours = checkpoint.load_weights(tmp_path / "ours")["source_embedding.tokens.weight"]
    ids = [*codes.values(), table["</s>"], table["▁the"]]
    assert torch.equal(ours[[*model.source_prefix, *model.target_prefix, EOS]], theirs[ids[:3]])
    assert torch.equal(ours[known.index("▁the")], theirs[ids[3]])


class Malice:
    """What a pickle can do: make a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_pickles(plain: Path, tmp_path: Path) -> None:
    """They are opened if that is said, and even then nothing in them runs."""
    folder = tmp_path / "theirs"
    shutil.copytree(plain, folder)
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    arguments = ["import", f"hf:{folder}?pickle=trusted", str(tmp_path / "ours")]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert checkpoint.load_config(tmp_path / "ours").model.encoder == "bidirectional"
    torch.save({"a": Malice(tmp_path / "done")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="not loaded"):
        marian.convert(folder, tmp_path / "other", pickled=True)
    assert not (tmp_path / "done").exists()


def test_needs_a_language(text: list[list[str]], tmp_path: Path) -> None:
    make_marian(tmp_path / "theirs", text, languages=True)
    with pytest.raises(ValueError, match="such as fra, deu"):
        marian.convert(tmp_path / "theirs", tmp_path / "ours", target="swe")


def test_a_policy_does_not_look_both_ways() -> None:
    both = ModelConfig(encoder="bidirectional")
    with pytest.raises(ConfigError, match='"mma-il" it must be "unidirectional"'):
        Config(model=both, policy=PolicyConfig(name="mma-il"))
    with pytest.raises(ConfigError, match="without a window"):
        Config(
            model=ModelConfig(encoder="bidirectional", window=8),
            policy=PolicyConfig(name="offline"),
        )
    with pytest.raises(ConfigError, match="need encoder"):
        Config(model=ModelConfig(source_prefix=(5,)), policy=PolicyConfig(name="offline"))


@pytest.fixture(scope="module")
def plain(text: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_marian(tmp_path_factory.mktemp("plain") / "theirs", text)


def change(folder: Path, name: str, **settings: Any) -> None:
    table = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**table, **settings}))


def hostile(kind: str, folder: Path) -> str:
    """Make a folder hostile; returns what must be said of it."""
    weights = folder / "model.safetensors"
    if kind == "pickle":
        weights.rename(folder / "pytorch_model.bin")
        return "if you trust who made it"
    if kind == "path":
        outside = folder.parent / "model-00001-of-00001.safetensors"
        weights.rename(outside)
        index = {"weight_map": {"a": f"../{outside.name}"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return "is no file of weights in this folder"
    if kind == "cut off":
        weights.write_bytes(weights.read_bytes()[:-100])
        return "cut off; download it again"
    if kind == "huge":
        with (folder / "vocab.json").open("r+b") as file:
            file.truncate(10 * 2**30)
        return "no such file of a model has more"
    if kind == "deep":
        (folder / "config.json").write_text("[" * 100_000)
        return "damaged"
    if kind == "type":
        change(folder, "config.json", model_type="bert")
        return "import knows marian"
    if kind == "activation":
        change(folder, "config.json", activation_function="os.system")
        return "its activation is os.system"
    if kind == "heads":
        change(folder, "config.json", encoder_attention_heads=10**9)
        return "must be a multiple"
    if kind == "vocabulary":
        change(folder, "vocab.json", x=10**9)
        return "ids from 0 to 1000000000"
    if kind == "negative":
        change(folder, "config.json", pad_token_id=-5)
        return "ids from -5"
    if kind == "sentencepiece":
        (folder / "target.spm").write_bytes(b"\x08" * 100)
        return "SentencePiece cannot read"
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    ["pickle", "path", "cut off", "huge", "deep", "type", "activation", "heads", "vocabulary",
     "negative", "sentencepiece"],
)  # fmt: skip
def test_hostile_folders(kind: str, plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(plain, folder)
    message = hostile(kind, folder)
    with pytest.raises((ValueError, OSError), match=message) as error:
        marian.convert(folder, tmp_path / "ours")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ours").exists()
