"""What a run measures of itself: as it streams, and beside it the losses it is trained by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import torch

from simultan import losses
from simultan.config import Config, DataConfig, LossConfig
from simultan.data.batching import Batches
from simultan.data.codec import Codec
from simultan.data.shards import Corpus
from simultan.model import TranslationModel
from simultan.streaming.translator import Translator


def evaluate_model(model: TranslationModel, config: Config, codec: Codec) -> Mapping[str, float]:
    """Quality and latency on the validation set, and the losses there.

    L_avg stands beside DAL: expected delays are trained, hard ones stream, and where the two are
    far apart the latency weights steer something else than what is heard.
    """
    folder, sentences = config.data.folder, config.train.validate_sentences
    found = evaluate_translator(Translator(model, config, codec), folder, sentences)
    return found | teacher_forced(model, config.loss, folder, sentences)


def evaluate_translator(
    translator: Translator, folder: str, sentences: int, decoding: str = ""
) -> dict[str, float]:
    """Quality and latency of about so many validation pairs; 0: all.

    They are translated word by word as they would be spoken.
    """
    from simultan.evaluation.evaluate import evaluate
    from simultan.evaluation.scoring import Scoring

    model, (sources, references) = translator.model, Corpus(folder, "valid").text()
    gpu = isinstance(model, TranslationModel) and next(model.parameters()).is_cuda
    every = max(1, len(sources) // (sentences or len(sources)))
    scores = evaluate(
        translator,
        sources[::every],  # all through the set, not one talk
        references[::every],
        decoding=decoding,
        rows=256 if gpu else 32,
        scoring=Scoring(tokenized=translator.codec.pipeline.name == "words"),
    )
    found = {"BLEU": scores.bleu, "chrF": scores.chrf, "length_ratio": scores.length_ratio}
    found |= {name.upper(): value for name, value in scores.latency.items()}
    found |= {"guesses": scores.guesses, "guesses_right": scores.guesses_right}
    return {name: value for name, value in found.items() if value is not None}


@torch.inference_mode()
def teacher_forced(
    model: TranslationModel, config: LossConfig, folder: str | Path, sentences: int = 0
) -> dict[str, float]:
    """nll per token, l_avg and l_var per sentence of about so many validation pairs; 0: all."""
    device = next(model.parameters()).device
    # Few tokens to a batch: only a set of many batches is cut into many shapes.
    data = DataConfig(batch_tokens=800, max_length=256, length_step=4)
    batches = Batches(Corpus(folder, "valid"), data, epochs=1, prefetch=0)
    once = dataclasses.replace(config, rdrop=0.0)  # without dropout two passes are one
    total = losses.LossTerms(*[torch.zeros(())] * len(losses.LossTerms._fields))
    for batch in batches:
        terms = losses.terms(model, batch.to(device), once)
        pairs = zip(total, terms, strict=True)
        total = losses.LossTerms(*(one + other.double().cpu() for one, other in pairs))
        if sentences and total.sentences >= sentences:
            break
    found = {"nll": float(total.nll / total.tokens)}
    if model.policy.learned:
        found["l_avg"] = float(total.latency_average / total.sentences)
        found["l_var"] = float(total.latency_variance / total.sentences)
    return found
