"""How to decode: one value that goes from the command line, the page or a caller to the model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from simultan.streaming.agents import AGENTS, forms, is_folder, load_agent

if TYPE_CHECKING:
    from simultan.model.policy import Policy
    from simultan.streaming.lags import Lags

__all__ = ["DEFAULT", "Decoding", "Sampling"]

THRESHOLD = 0.5  # of a learned policy, unless another is given
MASS = 0.7  # of one that streams undecided
_NUMBERS: dict[str, type[int] | type[float]] = {
    "threshold": float,
    "lag": float,
    "mass": float,
    "k": int,
    "beam": int,
}
MOST_BEAMS = 16  # of a stream


def _short(value: float) -> str:
    """As few digits as say the same."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True)
class Sampling:
    """Tokens are drawn at random, as likely as the model says."""

    temperature: float = 1.0  # below 1, likely tokens become likelier
    top_k: int = 0  # of so many tokens, the likeliest; 0: of all
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature}: it must be above 0")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k}: it must be a number of tokens; 0 is all")

    @classmethod
    def parse(cls, text: str) -> Sampling:
        """Of "1", "0.8,10" or "0.8,10,3": temperature, top k, seed."""
        temperature, *rest = text.split(",")
        if len(rest) > 2:
            raise ValueError(f"{text!r}: at most three numbers")
        return cls(float(temperature), *map(int, rest))

    def __str__(self) -> str:
        return f"{_short(self.temperature)},{self.top_k},{self.seed}"


@dataclass(frozen=True)
class Decoding:
    """At most one of these is given, a beam beside any but `sample`; without any, the model decodes
    in its default way.

    A field with a help text is an option of every verb that decodes.
    """

    threshold: Annotated[
        float | None,
        "Let a head stop where its probability exceeds this: lower is faster. For learned"
        " policies; 0.5 by default, but for mma-h.",
        "<P>",
    ] = None
    lag: Annotated[
        float | None,
        "Stay this many words behind the speaker. The model must have a lags.json, as de-en has.",
        "<WORDS>",
    ] = None
    mass: Annotated[
        float | None,
        "Let a head attend to all tokens where it may stop, as in training, and read on until it"
        " has stopped with this probability. For learned policies that were trained softly; 0.7 by"
        " default for mma-h.",
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
    beam: Annotated[
        int | None,
        "Search with this many beams: where the best token is not sure, weigh so many by what would"
        " follow. Offline models without an agent search whole sentences (--in FILE). 1 is greedy.",
        "<BEAMS>",
    ] = None
    sample: Sampling | None = None  # offline models: draw whole sentences at random

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.sample is None and len(given) > 1:
            given.pop("beam", None)
        if len(given) > 1:
            shown = " and ".join(f"{name}={value}" for name, value in given.items())
            raise ValueError(f"{shown}: choose one of them")
        for name, share in (("threshold", self.threshold), ("mass", self.mass)):
            if share is not None and not 0 < share < 1:
                raise ValueError(f"{name}={share}: it must lie between 0 and 1")
        if self.lag is not None and not math.isfinite(self.lag):
            raise ValueError(f"lag={self.lag}: it must be a number of words")
        for name, value in (("k", self.k), ("beam", self.beam)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}={value}: it must be a whole number of at least 1")
        if self.agent is not None and not is_folder(self.agent):
            load_agent(self.agent)

    @classmethod
    def parse(cls, text: str | Decoding) -> Decoding:
        """Of "threshold=0.5", "lag=4", "mass=0.7", "k=3", "beam=4", "sample=1", "wait-k:3",
        "lag=4,beam=2"; "" and "default" are none."""
        if isinstance(text, Decoding):
            return text
        if not isinstance(text, str):
            raise TypeError(f"decoding is text or a Decoding, not {type(text).__name__}")
        searched = re.fullmatch(r"(.*),\s*beam=\s*(\d+)\s*", text)
        if searched:
            who = cls.parse(searched[1])
            if who.beam is not None:
                raise ValueError(f"{text}: beam is there twice")
            return replace(who, beam=int(searched[2]))
        key, equals, value = text.strip().partition("=")
        if not equals and key in ("", "default"):
            return cls()
        if not equals and (":" in key or key in AGENTS or is_folder(key)):
            return cls(agent=key)
        if key == "agent":
            return cls(agent=value)
        try:
            if key == "sample":
                return cls(sample=Sampling.parse(value))
            number = _NUMBERS[key](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"decoding {text!r}: write threshold=0.5, lag=4, mass=0.7, k=3, beam=4, default"
                f" or an agent: {', '.join(forms())}"
            ) from None
        return cls(**{key: number})  # type: ignore[arg-type]

    def __str__(self) -> str:
        """The text that parse() reads."""
        without = replace(self, beam=None)
        if self.beam is not None and without != DEFAULT:
            return f"{without},beam={self.beam}"
        if self.agent is not None:
            return f"agent={self.agent}" if "=" in self.agent else self.agent
        if self.sample is not None:
            return f"sample={self.sample}"
        for name in _NUMBERS:
            value = vars(self)[name]
            if value is not None:
                return f"{name}={_short(value)}"
        return "default"

    def resolve(self, policy: Policy, lags: Lags) -> Decoding:
        """The same for one model: a learned policy gets its threshold or mass, and others keep
        theirs.

        A model that cannot decode like this raises ValueError.
        """
        who = replace(self, beam=None)
        takes: tuple[str, ...]
        if policy.learned:
            takes = ("threshold", "lag", "mass")
            ways = "threshold=0.5" + ", lag=4" * bool(lags.points) + " or mass=0.7"
        elif policy.name == "wait-k":
            takes, ways = ("k",), "k=3"
        else:
            takes, ways = ("agent", "sample"), "beam=4 or an agent such as wait-k:3"
        if who != DEFAULT and all(vars(who)[name] is None for name in takes):
            why = " (an agent decides for offline models)" if self.agent else ""
            raise ValueError(f"{self}: this model's policy is {policy.name}; it takes {ways}{why}")
        if policy.learned and self.lag is not None:
            who = Decoding(threshold=lags.threshold(self.lag))
        elif policy.learned and who == DEFAULT:
            who = Decoding(mass=MASS) if policy.undecided else Decoding(threshold=THRESHOLD)
        elif policy.lags and self.beam is not None and who == DEFAULT:
            who = Decoding(k=policy.lags[0])
        usual = lags.beam if policy.learned else None
        beam = usual if self.beam is None else self.beam
        if beam is not None and beam > MOST_BEAMS and who != DEFAULT:
            raise ValueError(f"{self}: a stream has {MOST_BEAMS} beams at most")
        return replace(who, beam=None if beam == 1 and usual is None else beam)

    @property
    def whole(self) -> bool:
        """Whether it is for sentences that are there as a whole, not for streams; if resolved."""
        return self.sample is not None or (
            self.beam is not None and self == Decoding(beam=self.beam)
        )


DEFAULT = Decoding()
