"""Tiny random models of transformers, for the toy language: folders of Marian and M2M100."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers

from simultan.data.toy import write_toy

SIZES: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 64,
}


def write_text(folder: Path) -> list[list[str]]:
    """The toy language; returns the training lines of both sides."""
    write_toy(folder, 2000)
    return [
        (folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")
    ]


def _learn(path: Path, lines: list[str], kind: str, size: int) -> list[str]:
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            vocab_size=size,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(id) for id in range(3, len(model))]


def make_marian(
    folder: Path, text: list[list[str]], *, languages: bool = False, separate: bool = False,
    std: float = 0.2, **settings: Any,
) -> Path:  # fmt: skip
    """`languages`: a model with several targets; `separate`: two vocabularies, nothing tied."""
    folder.mkdir(parents=True)
    tables: list[dict[str, int]] = [{"</s>": 0, "<unk>": 1} for _ in range(1 + separate)]
    for number, side in enumerate(("source", "target")):
        table = tables[number if separate else 0]
        for piece in _learn(folder / f"{side}.spm", text[number], "unigram", 120):
            table.setdefault(piece, len(table))
    for table in tables:
        if languages:
            for code in ("fra", "deu"):
                table[f">>{code}<<"] = len(table)
        table["<pad>"] = len(table)
    pad = tables[0]["<pad>"]
    if separate:  # one number for both sides
        tables[1]["<pad>"] = pad = max(pad, tables[1]["<pad>"])
        tables[0]["<pad>"] = pad
    for name, table in zip(("vocab.json", "target_vocab.json"), tables, strict=False):
        (folder / name).write_text(json.dumps(table), encoding="utf-8")
    notes = {"source_lang": "en", "target_lang": "fr", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(notes))
    chosen = {"activation_function": "swish", "scale_embedding": True, **SIZES, **settings}
    if separate:
        chosen |= {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
        chosen["decoder_vocab_size"] = pad + 1
    config = transformers.MarianConfig(
        vocab_size=pad + 1, pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
        bos_token_id=None, forced_eos_token_id=None, **chosen,
    )  # fmt: skip
    model = _random(transformers.MarianMTModel(config), std)
    model.final_logits_bias.normal_(std=std)
    model.save_pretrained(folder)
    return folder


def make_m2m100(folder: Path, text: list[list[str]]) -> Path:
    folder.mkdir(parents=True)
    pieces = _learn(folder / "sentencepiece.bpe.model", text[0] + text[1], "bpe", 130)
    table = {piece: id for id, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (folder / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), "en", "fr"
    )
    config = transformers.M2M100Config(
        vocab_size=len(table) + len(tokenizer.lang_code_to_id) + 8, decoder_start_token_id=2,
        encoder_layerdrop=0.0, decoder_layerdrop=0.0, activation_function="relu",
        scale_embedding=True, **SIZES,
    )  # fmt: skip
    _random(transformers.M2M100ForConditionalGeneration(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _random(model: Any, std: float = 0.2) -> Any:
    """Livelier than what transformers starts with."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=std / 2 if parameter.dim() == 1 else std)
            if "norm.weight" in name:
                parameter += 1
    return model.eval()
