"""Numbers as they are spoken: 23 is dreiundzwanzig, 14:30 Uhr is vierzehn Uhr dreißig.

A recogniser may write either, so a model should have read both. What could be spoken in several
ways stays in digits: telephone numbers, codes, a lone 1, ordinals outside of dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ONES = [
    *("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"),
    *("zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn"),
    *("achtzehn", "neunzehn"),
]
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_LARGE = (("Milliarde", "Milliarden", 10**9), ("Million", "Millionen", 10**6))
_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
_MONTHS = {
    *("Januar", "Jänner", "Februar", "März", "April", "Mai", "Juni", "Juli", "August"),
    *("September", "Oktober", "November", "Dezember"),
}
_OF_DATES = {"am", "dem", "den", "vom", "zum", "bis", "seit", "ab", "beim"}  # "am dritten Mai"
_UNITS = {"%": "Prozent", "€": "Euro", "$": "Dollar", "£": "Pfund", "°C": "Grad"}
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3}){1,3}|0|[1-9]\d{0,5}")  # 1.250 or 1250
_DECIMAL = re.compile(rf"({_GROUPED.pattern}),(\d{{1,3}})")
_MONEY = {"€", "$", "Euro", "Dollar", "Franken"}
_TIME = re.compile(r"([01]?\d|2[0-4])[:.]([0-5]\d)")
_WORD = re.compile(r"(?P<before>[(„\"'»]*)(?P<core>.*?)(?P<after>[).,;:!?“\"'«]*)")


def spell_number(number: int) -> str:
    """A German cardinal: 1984 is tausendneunhundertvierundachtzig."""
    if not 0 <= number < 10**12:
        raise ValueError(f"{number}: it must be at least 0 and have at most 12 digits")
    parts = []
    for one, many, size in _LARGE:
        count, number = divmod(number, size)
        if count:
            parts.append(f"eine {one}" if count == 1 else f"{_below_million(count)} {many}")
    if number or not parts:
        parts.append(_below_million(number))
    return " ".join(parts)


def _below_million(number: int) -> str:
    for size, name in ((1000, "tausend"), (100, "hundert")):
        count, rest = divmod(number, size)
        if count:
            # what is multiplied says "ein", not "eins": einundzwanzigtausend, hunderteintausend
            head = "" if count == 1 else _below_million(count)
            head = head[:-1] if head.endswith("eins") else head
            return f"{head}{name}{_below_million(rest) if rest else ''}"
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    head = f"{'ein' if ones == 1 else _ONES[ones]}und" if ones else ""
    return head + _TENS[tens - 2]


def spell_year(year: int) -> str:
    """1984 as a year: neunzehnhundertvierundachtzig."""
    if not 1100 <= year <= 1999:
        return spell_number(year)
    hundreds, rest = divmod(year, 100)
    return f"{_ONES[hundreds]}hundert{_below_million(rest) if rest else ''}"


def spell_ordinal(number: int) -> str:
    """The day of a month: 3 is dritte, 21 is einundzwanzigste."""
    return _ORDINALS.get(number, spell_number(number) + ("te" if number < 20 else "ste"))


def _spell_german(text: str) -> str:
    words = text.split()
    result: list[str] = []
    skipped = False
    for place, word in enumerate(words):
        if skipped:  # it was spoken with the word before
            skipped = False
            continue
        following = words[place + 1] if place + 1 < len(words) else ""
        previous = words[place - 1] if place else ""
        spoken, skipped = _spell_word(word, previous, following)
        result.append(spoken)
    return " ".join(result)


def _spell_word(word: str, previous: str, following: str) -> tuple[str, bool]:
    """A word as it is spoken, and whether the next one is spoken with it."""
    if word in _UNITS and previous[-1:].isdigit():
        return _UNITS[word], False
    found = _WORD.fullmatch(word)
    assert found is not None  # every part may be empty
    before, core, after = found["before"], found["core"], found["after"]
    if not core[:1].isdigit():
        return word, False
    if core.isdigit() and after == "." and following.strip(".,;:!?") in _MONTHS:
        return before + _day(int(core), previous), False
    if after == "." and following:  # an ordinal, or the end of a sentence: who knows
        return word, False
    unit = next((unit for unit in _UNITS if core.endswith(unit)), "")  # 5%
    core = core.removesuffix(unit)
    name = f" {_UNITS[unit]}" if unit else ""
    if (time := _TIME.fullmatch(core)) and following.rstrip(".,;:!?") == "Uhr" and not name:
        hour, minute = spell_number(int(time[1])), int(time[2])
        hour = "ein" if hour == "eins" else hour
        end = following.removeprefix("Uhr")
        rest = f" {spell_number(minute)}" if minute else ""
        return f"{before}{hour} Uhr{rest}{end}", True
    if decimal := _DECIMAL.fullmatch(core):
        money = unit or following.rstrip(".,;:!?")
        if money in _MONEY and len(decimal[2]) == 2:
            end = after if unit else following[len(money) :]
            return before + _price(core, _UNITS.get(money, money)) + end, not unit
        whole = spell_number(int(decimal[1].replace(".", "")))
        digits = " ".join(_ONES[int(digit)] for digit in decimal[2])
        return f"{before}{whole} Komma {digits}{name}{after}", False
    if _GROUPED.fullmatch(core) is None or core == "1" or previous[-1:].isdigit():
        return word, False  # the last: 0171 234 567 is no number
    number = int(core.replace(".", ""))
    spoken = spell_year(number) if len(core) == 4 and not name else spell_number(number)
    return f"{before}{spoken}{name}{after}", False


def _price(amount: str, currency: str) -> str:
    """12,50 in euros: zwölf Euro fünfzig."""
    whole, cents = amount.replace(".", "").split(",")
    head = "ein" if whole == "1" else spell_number(int(whole))
    return f"{head} {currency}" + (f" {spell_number(int(cents))}" if int(cents) else "")


def _day(number: int, previous: str) -> str:
    if not 1 <= number <= 31:
        return f"{number}."
    return spell_ordinal(number) + ("n" if previous.lower() in _OF_DATES else "")


_SPELLERS: dict[str, Callable[[str], str]] = {"de": _spell_german}


def speller(language: str) -> Callable[[str], str]:
    """The function that spells the numbers of a text in this language."""
    found = _SPELLERS.get(language.lower().partition("-")[0])
    if found is None:
        known = ", ".join(_SPELLERS)
        raise ValueError(f"numbers can be spelled in {known}, not in {language or 'no language'!r}")
    return found
