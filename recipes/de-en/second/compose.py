"""Composes pairs for what text has too little of: numbers, dates, amounts, names, addresses.

    python recipes/de-en/second/compose.py OUT --pairs 20000

writes OUT/train.de and OUT/train.en, always the same for a seed. Names of people are partly made
up, so that only copying can get them right; those of countries and languages are from Unicode's
CLDR (`pip install babel`; Unicode Licence, any use). `simultan prepare --spell-numbers` then speaks
some of the numbers.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

Pair = tuple[str, str]


def _words(text: str) -> list[str]:
    return text.split()


FIRST = _words(
    "Anna Ben Clara David Elif Finn Greta Hassan Ines Jonas Katrin Luca Mehmet Nele Olga Paul"
    " Rosa Sven Tariq Ute Viktor Wiebke Yasmin Zoe Jürgen Jörg Bärbel Günther"
)
LAST = _words(
    "Ahlers Bäcker Czerny Dietrich Eberle Fuchs Grünwald Hofmann Ivanov Jansen Köhler Lehmann"
    " Möller Nowak Öztürk Petersen Quandt Richter Schröder Thiele Uhlig Vogt Weiß Yılmaz"
    " Zimmermann"
)
CITIES = {
    "Göttingen": "Göttingen", "Hannover": "Hanover", "München": "Munich", "Köln": "Cologne",
    "Wien": "Vienna", "Zürich": "Zurich", "Nürnberg": "Nuremberg", "Braunschweig": "Braunschweig",
    "Mainz": "Mainz", "Lübeck": "Lübeck", "Dresden": "Dresden", "Graz": "Graz", "Basel": "Basel",
    "Würzburg": "Würzburg", "Rostock": "Rostock", "Genf": "Geneva", "Prag": "Prague",
    "Warschau": "Warsaw", "Mailand": "Milan", "Brüssel": "Brussels", "Lissabon": "Lisbon",
}  # fmt: skip
MONTHS = {
    "Januar": "January", "Februar": "February", "März": "March", "April": "April", "Mai": "May",
    "Juni": "June", "Juli": "July", "August": "August", "September": "September",
    "Oktober": "October", "November": "November", "Dezember": "December",
}  # fmt: skip
DAYS = {
    "Montag": "Monday", "Dienstag": "Tuesday", "Mittwoch": "Wednesday", "Donnerstag": "Thursday",
    "Freitag": "Friday", "Samstag": "Saturday", "Sonntag": "Sunday",
}  # fmt: skip
THINGS = {
    "Flaschen Wasser": "bottles of water", "Äpfel": "apples", "Stühle": "chairs",
    "Anmeldungen": "registrations", "Teilnehmer": "participants", "Kilometer": "kilometres",
    "Seiten": "pages", "Minuten": "minutes", "Fahrzeuge": "vehicles", "Plätze": "seats",
    "Haushalte": "households", "Verletzte": "people injured", "Gramm Mehl": "grams of flour",
}  # fmt: skip
PRICED = {
    "Das Zimmer": "The room", "Die Fahrkarte": "The ticket", "Der Eintritt": "Admission",
    "Das Buch": "The book", "Die Reparatur": "The repair", "Das Essen": "The meal",
}  # fmt: skip
STREETS = _words("Hauptstraße Lindenweg Bahnhofstraße Goetheallee Mühlgasse Ringstraße Hafenweg")
HOURS = list(
    zip(
        _words("eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
        _words("one two three four five six seven eight nine ten eleven twelve"),
        strict=True,
    )
)
EMOJI = ["😀", "😂", "👍", "🎉", "❤️", "🙈", "☕", "🚀", "😢", "🙏"]
_ONSETS = _words("b br d dr f fl g gr h j k kl kr l m n p r s sch st t tr v w z")
_VOWELS = _words("a e i o u ä ö ü au ei ie")
_ENDS = _words("ck l ll m n nd ng r rt s ss t tz x")


def read_names(kind: str) -> list[Pair]:
    """German and English names of territories or languages."""
    from babel import Locale

    german, english = (getattr(Locale(code), kind) for code in ("de", "en"))
    return [
        (german[key], english[key])
        for key in sorted(german)
        if key in english and key.isalpha() and "(" not in german[key]  # no regions, no remarks
    ]


class Composer:
    """Draws pairs from a seed."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.kinds: list[Callable[[], Pair]] = [
            self.count, self.date, self.time, self.amount, self.share, self.name, self.address,
            self.message, self.call, self.year, self.countries, self.languages, self.told,
        ]  # fmt: skip
        self.names = {kind: read_names(kind) for kind in ("territories", "languages")}

    def pair(self) -> Pair:
        return self.random.choice(self.kinds)()

    def surname(self) -> str:
        """A common one or, as often, one that nobody has."""
        draw = self.random
        if draw.random() < 0.5:
            return draw.choice(LAST)
        syllables = [draw.choice(_ONSETS) + draw.choice(_VOWELS) for _ in range(draw.randint(1, 2))]
        return ("".join(syllables) + draw.choice(_ENDS) + draw.choice(["", "er", "mann"])).title()

    def person(self) -> str:
        return f"{self.random.choice(FIRST)} {self.surname()}"

    def titled(self) -> Pair:
        name = self.surname()
        german, english = self.random.choice(
            [("Frau", "Ms"), ("Herr", "Mr"), ("Frau Dr.", "Dr."), ("Herr Professor", "Professor")]
        )
        return f"{german} {name}", f"{english} {name}"

    def city(self) -> Pair:
        return self.random.choice(list(CITIES.items()))

    def number(self, digits: int = 5) -> int:
        return self.random.randint(2, 10 ** self.random.randint(1, digits) + 1)

    def count(self) -> Pair:
        number, (things, translated) = self.number(), self.random.choice(list(THINGS.items()))
        german, english = self.random.choice(
            [
                ("Wir brauchen noch {} {}.", "We still need {} {}."),
                ("Insgesamt waren es {} {}.", "There were {} {} in total."),
                ("Es sind {} {}, nicht mehr.", "It is {} {}, no more."),
            ]
        )
        written = f"{number:,}"
        return (
            german.format(written.replace(",", "."), things),
            english.format(written, translated),
        )

    def date(self) -> Pair:
        day, year = self.random.randint(1, 28), self.random.randint(1871, 2031)
        month, translated = self.random.choice(list(MONTHS.items()))
        german, english = self.random.choice(
            [
                ("Sie wurde am {} geboren.", "She was born on {}."),
                ("Der Vertrag läuft am {} aus.", "The contract expires on {}."),
                ("Das war am {}, wenn ich mich recht erinnere.",
                 "That was on {}, if I remember correctly."),
                ("Am {} fängt die Schule wieder an.", "School starts again on {}."),
            ]
        )  # fmt: skip
        return german.format(f"{day}. {month} {year}"), english.format(
            f"{translated} {day}, {year}"
        )

    def time(self) -> Pair:
        hour, minute = (
            self.random.randint(0, 23),
            self.random.choice([0, 5, 10, 15, 20, 30, 45, 50]),
        )
        day, translated = self.random.choice(list(DAYS.items()))
        clock = f"{hour}:{minute:02}"
        (place, where), train = self.city(), self.random.randint(2, 24)
        return self.random.choice(
            [
                (f"Am {day} um {clock} Uhr.", f"On {translated} at {clock}."),
                (f"Der Zug nach {place} fährt um {clock} Uhr von Gleis {train} ab.",
                 f"The train to {where} leaves at {clock} from platform {train}."),
                (f"Wir treffen uns {day} um {clock} Uhr vor dem Rathaus.",
                 f"We are meeting on {translated} at {clock} in front of the town hall."),
            ]
        )  # fmt: skip

    def told(self) -> Pair:
        """A time as people say it: "halb sechs" is half past five."""
        hour = self.random.randrange(12)
        german, english = HOURS[hour]
        before = HOURS[hour - 1][1]
        time, translated = self.random.choice(
            [
                (german, english),
                (f"halb {german}", f"half past {before}"),
                (f"Viertel nach {german}", f"a quarter past {english}"),
                (f"Viertel vor {german}", f"a quarter to {english}"),
                (f"zehn nach {german}", f"ten past {english}"),
                (f"fünf vor {german}", f"five to {english}"),
                (f"fünf nach halb {german}", f"twenty-five to {english}"),
            ]
        )
        day, on = self.random.choice(list(DAYS.items()))
        (place, where), person = self.city(), self.person()
        return self.random.choice(
            [
                (f"{person} kommt {day} um {time}.",
                 f"{person} is coming at {translated} on {on}."),
                (f"Am {day} beginnt der Kurs schon um {time}.",
                 f"On {on} the course starts at {translated} already."),
                (f"Wir fahren um {time} in {place} los.", f"We leave {where} at {translated}."),
                (f"Um {time} ist {person} wieder da.", f"{person} will be back at {translated}."),
            ]
        )  # fmt: skip

    def amount(self) -> Pair:
        whole, cents = self.number(4), self.random.choice([0, 0, 20, 50, 80, 95, 99])
        thing, translated = self.random.choice(list(PRICED.items()))
        english = f"{whole:,}" + (f".{cents:02}" if cents else "")
        german = english.translate(str.maketrans(",.", ".,"))
        unit, currency = self.random.choice(
            [("Euro", "euros"), ("€", "euros"), ("Dollar", "dollars")]
        )
        return f"{thing} kostet {german} {unit}.", f"{translated} costs {english} {currency}."

    def share(self) -> Pair:
        value = f"{self.random.randint(0, 99)}.{self.random.randint(1, 9)}"
        up, rose = self.random.choice([("gestiegen", "risen"), ("gesunken", "fallen")])
        what, translated = self.random.choice(
            [("Der Umsatz", "Revenue"), ("Die Miete", "The rent"), ("Der Verbrauch", "Consumption")]
        )
        comma = value.replace(".", ",")
        return (
            f"{what} ist um {comma} Prozent {up}.",
            f"{translated} has {rose} by {value} percent.",
        )

    def name(self) -> Pair:
        person, other = self.person(), self.titled()
        (place, where), (here, there) = self.city(), self.city()
        return self.random.choice(
            [
                (f"{person} aus {place} hat angerufen.", f"{person} from {where} called."),
                (f"{other[0]} kommt heute nicht.", f"{other[1]} is not coming today."),
                (f"Ich heiße {person} und wohne in {place}.",
                 f"My name is {person} and I live in {where}."),
                (f"{other[0]} ist von {place} nach {here} gezogen.",
                 f"{other[1]} has moved from {where} to {there}."),
            ]
        )  # fmt: skip

    def address(self) -> Pair:
        street = f"{self.random.choice(STREETS)} {self.random.randint(1, 240)}"
        code, (place, where) = f"{self.random.randint(1067, 99998):05}", self.city()
        return (
            f"Die Adresse lautet {street}, {code} {place}.",
            f"The address is {street}, {code} {where}.",
        )

    def message(self) -> Pair:
        mail = f"{self.random.choice(FIRST)}.{self.surname()}".lower() + "@example.org"
        mail = mail.translate(str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ı": "i", "ß": "ss"}))
        emoji, first = self.random.choice(EMOJI), self.random.choice(FIRST)
        return self.random.choice(
            [
                (f"Schreib mir bitte an {mail}.", f"Please write to me at {mail}."),
                (f"Bis morgen, {first}! {emoji}", f"See you tomorrow, {first}! {emoji}"),
                (f"Herzlichen Glückwunsch! {emoji} {emoji}", f"Congratulations! {emoji} {emoji}"),
                (f"Mehr dazu auf www.example.org/{first.lower()} {emoji}",
                 f"More about it at www.example.org/{first.lower()} {emoji}"),
            ]
        )  # fmt: skip

    def call(self) -> Pair:
        number = f"0{self.random.randint(30, 991)} {self.random.randint(10000, 9999999)}"
        room, person = self.random.randint(2, 480), self.person()
        return self.random.choice(
            [
                (f"Meine Nummer ist {number}.", f"My number is {number}."),
                (f"Rufen Sie {person} unter {number} an.", f"Call {person} on {number}."),
                (f"{person} sitzt in Zimmer {room}.", f"{person} is in room {room}."),
            ]
        )

    def year(self) -> Pair:
        year, (place, where) = self.random.randint(1105, 2024), self.city()
        return self.random.choice(
            [
                (f"Im Jahr {year} brannte {place} nieder.", f"In {year}, {where} burned down."),
                (
                    f"{place} hat seit {year} eine Brücke.",
                    f"{where} has a bridge since {year}.",
                ),
            ]
        )

    def countries(self) -> Pair:
        some = self.random.sample(self.names["territories"], 3)
        (one, two, three), (first, second, third) = zip(*some, strict=True)
        return self.random.choice(
            [
                (one, first),
                (f"{one}, {two} und {three}", f"{first}, {second} and {third}"),
                (f"Länder: {one}; {two}", f"Countries: {first}; {second}"),
            ]
        )

    def languages(self) -> Pair:
        language, translated = self.random.choice(self.names["languages"])
        return self.random.choice(
            [
                (f"Das Buch gibt es auch auf {language}.",
                 f"The book is also available in {translated}."),
                (f"Sprechen Sie {language}?", f"Do you speak {translated}?"),
                (language, translated),
            ]
        )  # fmt: skip


def compose(out: Path, pairs: int, seed: int = 1) -> None:
    """Write so many different pairs."""
    composer, found = Composer(seed), dict[Pair, None]()
    while len(found) < pairs:
        found[composer.pair()] = None
    out.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("de", "en")):
        text = "".join(pair[side] + "\n" for pair in found)
        (out / f"train.{language}").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    compose(options.out, options.pairs, options.seed)


if __name__ == "__main__":
    main()
