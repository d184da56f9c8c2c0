"""Models of `transformers`: Marian (OPUS-MT), M2M100 and NLLB, mBART, T5."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from simultan.data.codec import Codec
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.backends import folders
from simultan.streaming.backends.framing import Family, frame_for, language_tokens
from simultan.streaming.backends.names import Name
from simultan.streaming.backends.pieces import PieceCodec, PieceVocabulary, Spelling
from simultan.streaming.backends.rereading import VIEWS, Engine, Frame, View, present

_MODELS = {  # model_type: the class in transformers
    "marian": "MarianMTModel",
    "m2m_100": "M2M100ForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
}


class HuggingFace(Engine):
    """Encodes the source again for each word that is read, and the target for each token."""

    def __init__(self, model: Any, codec: Codec, frame: Frame, spelling: Spelling | None) -> None:
        self.model, self.codec, self.frame, self.spelling = model, codec, frame, spelling
        self.encoder, self.decoder = model.get_encoder(), model.get_decoder()
        self.pad: int = model.config.pad_token_id
        self.device = model.device
        config = model.config
        layers = getattr(config, "decoder_layers", None) or config.num_decoder_layers
        self.attention_layers: int = layers

    def score(self, views: list[View], attention: bool) -> Scores:
        missing = [
            view for view in views if (view.source, view.target, attention) not in view.memory
        ]
        if missing:
            self._compute(missing, attention)
        found = [view.memory[view.source, view.target, attention] for view in views]
        pairs = list(zip(found, views, strict=True))
        logits = torch.stack([logits for logits, _, _ in found])
        weights = None
        if attention:
            over = [self._over_tokens(seen, view) for (_, _, seen), view in pairs]
            weights = pad_sequence(over, batch_first=True).movedim(1, -1)
        hidden = torch.stack([hidden for _, hidden, _ in found])
        return Scores(present(self.spelling, logits, views), hidden, weights)

    def _compute(self, views: list[View], attention: bool) -> None:
        encoded = self._encode(views)
        states, source_mask = pad_sequence(encoded, batch_first=True), self._mask(encoded)
        target = self._batch([view.target for view in views])
        output = self.decoder(
            input_ids=target,
            encoder_hidden_states=states,
            encoder_attention_mask=source_mask,
            use_cache=False,
            output_attentions=attention,
        )
        last = torch.tensor([len(view.target) - 1 for view in views], device=self.device)
        rows = torch.arange(len(views), device=self.device)
        hidden = output.last_hidden_state[rows, last]  # [R, D]
        logits = self._project(hidden).float()
        for i, view in enumerate(views):
            seen = None
            if attention:
                seen = torch.stack([layer[i, :, last[i]] for layer in output.cross_attentions])
            key = view.source, view.target, attention
            view.remember(key, (logits[i], hidden[i], seen), 3 * VIEWS)

    def _encode(self, views: list[View]) -> list[Tensor]:
        """What the encoder makes of each source, [S, D]; kept while the source is the same."""
        new = [view for view in views if view.source not in view.memory]
        if new:
            ids = [view.source for view in new]
            output = self.encoder(input_ids=self._batch(ids), attention_mask=self._mask(ids))
            for view, states in zip(new, output.last_hidden_state, strict=True):
                view.remember(view.source, states[: len(view.source)], 3 * VIEWS)
        return [view.memory[view.source] for view in views]

    def _project(self, hidden: Tensor) -> Tensor:
        """The logits, as the model's own forward makes them of the decoder's last state."""
        config = self.model.config
        if getattr(config, "scale_decoder_outputs", False):
            hidden = hidden * config.d_model**-0.5
        logits: Tensor = self.model.lm_head(hidden)
        bias = getattr(self.model, "final_logits_bias", None)
        return logits if bias is None else logits + bias

    def _over_tokens(self, layers: Tensor, view: View) -> Tensor:
        """[S, L, H] over the tokens that a session counts, of which the end may be one."""
        begin = len(self.frame.before)
        seen = layers[:, :, begin : begin + view.visible - view.forgotten]
        return torch.nn.functional.pad(seen, (view.forgotten, 0)).movedim(-1, 0)

    def _batch(self, ids: Sequence[tuple[int, ...]]) -> Tensor:
        tokens = [torch.tensor(row, device=self.device) for row in ids]
        return pad_sequence(tokens, batch_first=True, padding_value=self.pad)

    def _mask(self, rows: Sequence[Sized]) -> Tensor:
        kept = [torch.ones(len(row), dtype=torch.long, device=self.device) for row in rows]
        return pad_sequence(kept, batch_first=True)


def load(name: Name, folder: Path, device: torch.device) -> tuple[HuggingFace, PieceCodec]:
    """A folder of `transformers`, after a look at what is in it."""
    config = folders.inspect(folder, name.trusts_pickles)
    kind = config.get("model_type")
    if kind not in _MODELS:
        raise ValueError(f"{name}: a model of type {kind!r}; known are {', '.join(_MODELS)}")
    try:
        import transformers
    except ImportError:
        raise ValueError(f'{name}: it needs a package: pip install "simultan[hf]"') from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        model, tokenizer = _open(transformers, kind, name, folder)
    except Exception as error:  # of any kind: what they say is said in one line
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(f"{name}: transformers cannot load it ({reason})") from error
    return _assemble(name, model.to(device).eval(), tokenizer)


def _open(transformers: Any, kind: str, name: Name, folder: Path) -> tuple[Any, Any]:
    model, report = getattr(transformers, _MODELS[kind]).from_pretrained(
        str(folder),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=not name.trusts_pickles,
        weights_only=True,
        attn_implementation="eager",
        dtype=torch.float32,
        output_loading_info=True,
    )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(f"{len(missing)} weights are missing, such as {missing[0]}")
    tokenizer = _tokenizer_class(transformers, kind, folder).from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    return model, tokenizer


def _tokenizer_class(transformers: Any, kind: str, folder: Path) -> Any:
    path = folder / "tokenizer_config.json"
    noted = str(folders.read_json(path).get("tokenizer_class")) if path.exists() else ""
    if kind == "marian":
        return transformers.MarianTokenizer
    if kind == "m2m_100":
        return transformers.NllbTokenizer if "Nllb" in noted else transformers.M2M100Tokenizer
    if kind == "mbart":
        return transformers.MBart50Tokenizer if "50" in noted else transformers.MBartTokenizer
    return transformers.T5Tokenizer


def _assemble(name: Name, model: Any, tokenizer: Any) -> tuple[HuggingFace, PieceCodec]:
    separate = getattr(tokenizer, "separate_vocabs", False)
    vocabulary = {**tokenizer.get_vocab(), **getattr(tokenizer, "lang_token_to_id", {})}
    written = dict(tokenizer.target_encoder) if separate else vocabulary
    size: int = model.lm_head.weight.shape[0]
    pieces = _listed(written, size)
    known = {vocabulary[piece] for piece in language_tokens(vocabulary).values()}
    special = {*tokenizer.all_special_ids, *known} - {tokenizer.unk_token_id}
    never = special | {id for id, piece in enumerate(pieces) if not piece}
    encode = _encoder(tokenizer)
    source = PieceVocabulary(_listed(vocabulary, max(vocabulary.values()) + 1), encode, special)
    target = PieceVocabulary(pieces, _encoder(tokenizer, target=True), special)
    alone = type(tokenizer).__name__.startswith("MBartTokenizer")
    start = model.generation_config.decoder_start_token_id
    start = model.config.decoder_start_token_id if start is None else start
    family = Family(
        eos=tokenizer.eos_token_id,
        unknown=tokenizer.unk_token_id,
        start=() if alone or start is None else (start,),
        language_last=alone or bool(getattr(tokenizer, "legacy_behaviour", False)),
        longest=min(500, getattr(model.config, "max_position_embeddings", 500)),
    )
    prefix = [id for word in name.prefix.split() for id in encode(word)]
    frame = frame_for(name, family, vocabulary, prefix)
    languages = (
        name.source or getattr(tokenizer, "source_lang", None) or "",
        name.target or getattr(tokenizer, "target_lang", None) or "",
    )
    codec = PieceCodec.of(source, target, languages)
    spelling = Spelling(pieces, tokenizer.eos_token_id, never, codec.target_language)
    return HuggingFace(model, codec, frame, spelling), codec


def _listed(vocabulary: dict[str, int], size: int) -> list[str]:
    """The first pieces by their ids."""
    pieces = {id: piece for piece, id in vocabulary.items()}
    return [pieces.get(id, "") for id in range(size)]


def _encoder(tokenizer: Any, target: bool = False) -> Callable[[str], list[int]]:
    """A word to ids; text never spells a special token or a language."""
    fast = getattr(tokenizer, "_tokenizer", None)
    if fast is not None:
        fast.encode_special_tokens = True
        return lambda word: list(fast.encode(word, add_special_tokens=False).ids)
    side = "target" if target else "source"
    model = getattr(tokenizer, f"spm_{side}", None) or tokenizer.sp_model
    vocabulary = tokenizer.encoder
    if target and getattr(tokenizer, "separate_vocabs", False):
        vocabulary = tokenizer.target_encoder
    unknown = vocabulary[tokenizer.unk_token]
    return lambda word: [
        vocabulary.get(piece, unknown) for piece in model.encode(word, out_type=str)
    ]
