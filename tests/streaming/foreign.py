"""Small models of transformers: folders of Marian, M2M100, T5, mBART and NLLB, made here.

Three of them learn the toy language for some seconds, so that they say something.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from simultan.data.toy import translate, write_toy

SIZES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "dropout": 0.0,
}
Pairs = list[tuple[str, str]]


def toy_pairs(folder: Path, pairs: int = 2400) -> Pairs:
    write_toy(folder, pairs)
    sources = (folder / "train.en").read_text(encoding="utf-8").splitlines()
    return [(source, translate(source)) for source in sources]


def toy_tests(folder: Path, count: int) -> list[str]:
    return (folder / "test.en").read_text(encoding="utf-8").splitlines()[:count]


def learn_pieces(path: Path, lines: list[str], size: int, **options: Any) -> list[str]:
    """A SentencePiece model; returns its pieces."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            vocab_size=size,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(id) for id in range(len(model))]


def teach(
    model: Any, encode: Callable[[str, bool], list[int]], pairs: Pairs, rate: float, rows: int
) -> None:
    """Each pair four times; `encode` gives the ids of a text, of the target if asked for that."""
    torch.manual_seed(1)
    chance = random.Random(1)
    data = [(encode(source, False), encode(target, True)) for source, target in pairs]
    data.sort(key=lambda pair: len(pair[0]))
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    pad = model.config.pad_token_id
    steps = 4 * len(pairs) // rows
    model.train()
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 30) * (1 - step / steps)
        first = chance.randrange(len(data) - rows)
        batch = data[first : first + rows]
        sources, targets = (_pad([pair[side] for pair in batch], pad) for side in (0, 1))
        loss = model(
            input_ids=sources,
            attention_mask=(sources != pad).long(),
            labels=targets.masked_fill(targets == pad, -100),
        ).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.eval()


def _pad(rows: list[list[int]], pad: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def make_marian(folder: Path, pairs: Pairs) -> Path:
    folder.mkdir(parents=True)
    vocabulary = {"</s>": 0, "<unk>": 1}
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in pairs]
        for piece in learn_pieces(folder / f"{name}.spm", lines, 70)[3:]:
            vocabulary.setdefault(piece, len(vocabulary))
    vocabulary["<pad>"] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"})
    )
    pad = vocabulary["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
        forced_eos_token_id=None, max_position_embeddings=512, activation_function="swish",
        scale_embedding=True, static_position_embeddings=True, num_beams=1, bos_token_id=None,
        **SIZES,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():  # the decoder starts from nothing, as Marian's does
        model.model.shared.weight[pad] = 0
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    teach(model, lambda text, target: _ids(tokenizer, text, target), pairs, 5e-3, 24)
    with torch.no_grad():
        model.model.shared.weight[pad] = 0
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return folder


def _ids(tokenizer: Any, text: str, target: bool) -> list[int]:
    if target:
        return list(tokenizer(text_target=text)["input_ids"])
    return list(tokenizer(text)["input_ids"])


def make_m2m100(folder: Path, pairs: Pairs) -> Path:
    folder.mkdir(parents=True)
    lines = [text for pair in pairs for text in pair]
    pieces = learn_pieces(folder / "sentencepiece.bpe.model", lines, 110, model_type="bpe")[3:]
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    vocabulary = {piece: id for id, piece in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    languages = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    config = transformers.M2M100Config(
        vocab_size=len(vocabulary) + len(languages) + 8, max_position_embeddings=512,
        decoder_start_token_id=2, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        activation_function="relu", scale_embedding=True, **SIZES,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(config)
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), "en", "fr",
        additional_special_tokens=languages,
    )  # fmt: skip
    teach(model, lambda text, target: _ids(tokenizer, text, target), pairs, 1e-2, 24)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_t5(folder: Path, pairs: Pairs) -> Path:
    folder.mkdir(parents=True)
    lines = [text for pair in pairs for text in pair] + ["translate English to French:"] * 50
    learn_pieces(
        folder / "spiece.model", lines, 120, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        model_type="unigram",
    )  # fmt: skip
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder, extra_ids=3)
    config = transformers.T5Config(
        vocab_size=len(tokenizer) + 5, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2,
        dropout_rate=0.0, decoder_start_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)

    def encode(text: str, target: bool) -> list[int]:
        return list(
            tokenizer(text if target else f"translate English to French: {text}")["input_ids"]
        )

    teach(model, encode, pairs, 5e-3, 24)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
