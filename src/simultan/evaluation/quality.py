"""Translation quality: BLEU and chrF through sacrebleu, with the signatures that say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from simultan.data.languages import row


@dataclass(frozen=True)
class Quality:
    """Corpus scores, 0 to 100."""

    bleu: float
    bleu_lowercased: float
    chrf: float
    length_ratio: float  # tokens written to tokens of the reference, as BLEU counts them
    bleu_signature: str
    bleu_lowercased_signature: str
    chrf_signature: str


def measure(
    predictions: Sequence[str],
    references: Sequence[str],
    tokenized: bool = False,
    language: str = "",
) -> Quality:
    """Score detokenised text, or text that is in tokens already (`tokenized`).

    sacrebleu's tokeniser is 13a unless the language needs another one: zh for Chinese, ja-mecab for
    Japanese (characters, if MeCab is not installed), characters for Thai.
    """
    if len(predictions) != len(references):
        raise ValueError(
            f"{len(predictions)} translations against {len(references)} references: "
            "give one reference line for each"
        )
    if not predictions:
        raise ValueError("no translation to score")
    tokenize = "none" if tokenized else _tokeniser(language)
    # force: only silences a warning about text that looks tokenised
    bleu = BLEU(tokenize=tokenize, force=True)
    lower = BLEU(tokenize=tokenize, lowercase=True, force=True)
    chrf = CHRF()
    cased = bleu.corpus_score(predictions, [references])
    return Quality(
        bleu=cased.score,
        bleu_lowercased=lower.corpus_score(predictions, [references]).score,
        chrf=chrf.corpus_score(predictions, [references]).score,
        length_ratio=cased.sys_len / max(cased.ref_len, 1),
        bleu_signature=str(bleu.get_signature()),
        bleu_lowercased_signature=str(lower.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def _tokeniser(language: str) -> str:
    name = row(language).bleu
    return "char" if name == "ja-mecab" and find_spec("MeCab") is None else name
