"""What is known of each language: how its sentences end, and which words only look as if they did.

One table, a row for each language; a new language is a new row. A language without a row has
what all of them share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

ENDS = ".!?…。！？؟।"  # letters that end a sentence, in any language
CLOSING = "\"'”’»)]"  # what may stand after them
_LONGEST = 40  # letters looked at: a longer word is no abbreviation


@dataclass(frozen=True)
class Language:
    """One row of the table."""

    abbreviations: str = ""  # without their full stop; capitals count
    closing: str = ""  # quotes that close here, beside those of `CLOSING`
    ordinals: bool = False  # "3." is the third, not the end
    joins: str = ""  # words before which a phrase ends
    numerals: str = ""  # words for 0 to 12, then for the first to the twelfth
    decimal: str = "."  # between whole numbers and tenths
    spaced: bool = True  # white space parts words; if not, every character is one
    bleu: str = "13a"  # sacrebleu's tokeniser
    frequent: str = ""  # words that tell it from other languages


LANGUAGES: dict[str, Language] = {
    "": Language("Dr Prof St vs etc Co Inc Ltd Jr Sr"),
    "cs": Language("např tj tzn apod atd mj tzv resp č str", "“‘«", True, decimal=","),
    "da": Language("bl ca dvs fx f.eks osv pga kl nr stk hr fr", "“‘«", True, decimal=","),
    "de": Language(
        "Abb Abs Abt Aufl Bd bspw bzgl bzw ca cf Chr Dipl Dr dt ebd ehem einschl engl etc ev"
        " evtl exkl Fa ff Fn Fr franz geb gest ggf griech Hbf Hg Hl Hr Hrn Hrsg inkl insb insbes"
        " Ing jew Jh Jhd Jr kath Kap lat lfd lt max med min Mio Mr Mrd Mrs Ms Mwst Nr od orig phil"
        " Pfd Pos Prof rd Ref S Sr sog St Std Str stellv Tel Tsd u.a u.U usf usw v.a vgl vs Ziff"
        " Zs zus zw zzgl",
        "“‘«‹",  # „so“, ‚so‘, »so«: here these close
        True,
        "und aber oder denn sondern dass weil wenn als ob obwohl damit bevor nachdem während bis"
        " der die das mit ohne für von aus nach bei zu in im auf an am über unter zwischen durch",
        decimal=",",
        frequent="der die das den dem und ist nicht ein eine einen zu von mit auf für sich auch wir"
        " ich sie es dass wird sind hat haben werden kann oder wenn bei aus als wie",
    ),
    "en": Language(
        "Mr Mrs Ms Mx Dr Prof St Rev Hon Gen Col Capt Lt Sgt Gov Sen Rep Jr Sr vs etc Nos vol"
        " pp ed eds fig figs al approx dept est Inc Ltd Co Corp Bros Jan Feb Mar Apr Jun Jul Aug"
        " Sept Sep Oct Nov Dec Ave Blvd Rd i.e e.g",
        joins="and but or nor so yet because that which who whom whose when where while if unless"
        " until although though since as than after before with without for from into of on in at"
        " by to about between through",
        numerals="zero one two three four five six seven eight nine ten eleven twelve first second"
        " third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
        frequent="the of and to a is that it for on was are be this with as by not we you i have"
        " has will can from or they if your",
    ),
    "es": Language("Sr Sra Srta Dr Dra Ud Uds pág págs núm art etc aprox ej", decimal=","),
    "fi": Language("esim jne ns mm n klo nk ks ym yms prof tri", "”’»", True, decimal=","),
    "fr": Language("M MM Mme Mlle Dr Me av bd cf chap env etc ex fig p pp St Ste vol", decimal=","),
    "it": Language("Sig Sigg Dott Dr Prof Ing Avv Arch ecc pag art es vol", decimal=","),
    "ja": Language(spaced=False, bleu="ja-mecab"),
    "nl": Language(
        "bv bijv ca dhr mevr mw drs enz evt nl nr o.a t.a.v z.o.z blz", "“‘", decimal=","
    ),
    "pl": Language(
        "np tzn tzw itd itp m.in prof dr hab ul św wg ok godz str", "”«", True, decimal=","
    ),
    "pt": Language("Sr Sra Dr Dra Prof pág etc ex aprox art núm", decimal=","),
    "sv": Language("bl.a t.ex d.v.s dvs ca kl nr osv s.k resp prof", "”’»", True, decimal=","),
    "th": Language(spaced=False, bleu="char"),
    "zh": Language(spaced=False, bleu="zh"),
}
# a row's abbreviations are heard beside those everyone has; German text has "Mr." in it, too
_SHARED = frozenset(LANGUAGES[""].abbreviations.split()) | {"Mr", "Mrs", "Ms"}
_INITIALS = re.compile(r"\w|[^\W\d_]{1,4}(\.\w{1,4})+")  # "A.", "z.B.", "U.S.", "a.D."


def row(language: str) -> Language:
    """The row of a code such as "de" or "de-AT"; one that is not there knows nothing special."""
    return LANGUAGES.get(language.lower().partition("-")[0].partition("_")[0], Language())


@lru_cache(maxsize=64)
def _compiled(language: str) -> tuple[frozenset[str], re.Pattern[str], frozenset[str]]:
    """Abbreviations, the pattern of a sentence's end, and words before which a phrase ends."""
    found = row(language)
    closing = re.escape(CLOSING + found.closing)
    end = re.compile(rf"([{re.escape(ENDS)}]+)[{closing}]*$")
    abbreviations = _SHARED | frozenset(found.abbreviations.split())
    return abbreviations, end, frozenset(found.joins.split())


def ends_phrase(word: str, following: str, language: str = "") -> int:
    """How good it is to part two words: 3 a sentence ends, 2 a clause, 1 the next one joins."""
    if ends_sentence(word, language):
        return 3
    if word[-1:] in ",;:–—-)]}":
        return 2
    return int(following.lower() in _compiled(language)[2])


def ends_sentence(word: str, language: str = "") -> bool:
    """Whether a sentence ends with this word: "home." does, "Dr." and "z.B." do not.

    `language` is a code such as "de" or "de-AT". "3." ends nothing where it is how ordinals are
    written; nor does it where the language is not known.
    """
    abbreviations, end, _ = _compiled(language)
    found = end.search(word[-_LONGEST:])
    if found is None:
        return False
    if found[1] != "." or len(word) > _LONGEST:
        return True
    stem = re.sub(r"^\W+", "", word[: len(word) - len(found[0])])
    if found[0] != ".":  # something closes after it: a sentence, unless it is only a number
        return True
    if stem.isdecimal():
        return len(stem) > 2 or not (row(language).ordinals or not language)
    return not (stem in abbreviations or _INITIALS.fullmatch(stem))


@lru_cache(maxsize=64)
def _frequent(language: str) -> frozenset[str]:
    return frozenset(row(language).frequent.split())


def is_in_other_language(text: str, language: str, other: str) -> bool:
    """Whether a text that should be in one language has more frequent words of the other one.

    At least two different ones: names, titles and code say nothing.
    """
    words = set(text.lower().split())
    count = len(words & _frequent(other))
    return count >= 2 and count > len(words & _frequent(language))
