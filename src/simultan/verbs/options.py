"""Options that several verbs share, each written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from simultan import boxed
from simultan.config import Bound

if TYPE_CHECKING:
    from simultan.streaming.decoding import Decoding
    from simultan.streaming.translator import Translator

__all__ = ["Decode", "DecodeSentences", "Machine", "Model", "Scoring", "default_model"]

Model = Annotated[str, "Folder or name of the model. Without it, the model in the box (de-en)."]


@dataclass(frozen=True)
class Decode:
    """How a stream is decoded: at most one of these."""

    lag: Annotated[
        float | None,
        "Stay this many words behind the speaker. The model must have a lags.json, as de-en has.",
        "<WORDS>",
    ] = None
    threshold: Annotated[
        float | None,
        "Let a head stop where its probability exceeds this: lower is faster. For learned"
        " policies; 0.5 by default.",
        "<P>",
    ] = None
    k: Annotated[
        int | None,
        "Read this many tokens before the first word. For wait-k models; the k of their recipe by"
        " default.",
        "<TOKENS>",
    ] = None
    agent: Annotated[
        str | None,
        "Let an agent decide when an offline model writes, such as wait-k:3 or agreement:2;"
        " docs/policies.md lists them all.",
        "--agent",
        "--rule",
        "<AGENT>",
    ] = None

    def decoding(self) -> Decoding:
        from simultan.streaming.decoding import Decoding

        return Decoding(self.threshold, self.lag, self.k, self.agent)


@dataclass(frozen=True)
class DecodeSentences(Decode):
    """The same for whole sentences, which an offline model can search."""

    beam: Annotated[
        int | None,
        "Search with this many beams. For offline models; 1, greedy, by default.",
        Bound(1),
        "<N>",
    ] = None

    def decoding(self) -> Decoding:
        from simultan.streaming.decoding import Decoding

        beam = None if self.beam == 1 else self.beam
        return Decoding(self.threshold, self.lag, self.k, self.agent, beam)


@dataclass(frozen=True)
class Machine:
    """What the model runs on."""

    device: Annotated[str, "Run on cpu or cuda.", "<DEVICE>"] = "cpu"
    threads: Annotated[
        int, Bound(0), "Use this many CPU threads; 0 leaves the choice to PyTorch.", "<N>"
    ] = 0
    quantize: Annotated[
        Literal["int8"] | None, "Round the weights to int8, which is faster on a CPU."
    ] = None

    def load(self, model: str) -> Translator:
        """The model, or the one in the box, ready to translate."""
        import simultan

        self.set_threads()
        return simultan.load(model or default_model(), device=self.device, quantize=self.quantize)

    def set_threads(self) -> None:
        import torch

        if self.threads:
            torch.set_num_threads(self.threads)


@dataclass(frozen=True)
class Scoring:
    """How a log is scored."""

    tokenized: Annotated[bool, "Take text as tokens that are joined by spaces, for BLEU."] = False
    language: Annotated[
        str,
        "Count words and tokenise for BLEU as this target language needs it: zh, ja and th have"
        " no spaces. By default, the model's.",
        "<CODE>",
    ] = ""
    latency_unit: Annotated[
        Literal["words", "subwords"], "Count delays in words or in subwords."
    ] = "words"
    words_per_second: Annotated[
        float, "Assume this speaking rate for al_ca, which counts computing time.", "<RATE>"
    ] = 2.5
    system: Annotated[str, "Give the system this name in figures.", "<NAME>"] = ""


def default_model() -> str:
    """The model in the box, where there is one."""
    if not (name := boxed.default()):
        raise ValueError("which model? `make toy-demo` trains one: runs/toy/mma-il/final")
    return name
