"""A toy language pair: word for word, but articles agree with a noun to come, adjectives follow it.

"the red house" -> "la maison rouge": nobody can write the first word before the third is read,
and nothing ever waits for more than two words. Every source sentence has one translation.
"""

from __future__ import annotations

import random
from pathlib import Path

ARTICLES = {"the": ("le", "la"), "a": ("un", "une")}
NOUNS = {  # translation, gender
    "house": ("maison", 1),
    "table": ("table", 1),
    "moon": ("lune", 1),
    "flower": ("fleur", 1),
    "door": ("porte", 1),
    "star": ("étoile", 1),
    "cat": ("chat", 0),
    "dog": ("chien", 0),
    "book": ("livre", 0),
    "bridge": ("pont", 0),
    "train": ("train", 0),
    "garden": ("jardin", 0),
}
ADJECTIVES = {"red": "rouge", "young": "jeune", "clean": "propre", "strange": "étrange"}
ADJECTIVES |= {"sad": "triste", "calm": "calme"}
VERBS = {"sees": "voit", "likes": "aime", "finds": "trouve", "loses": "perd"}
VERBS |= {"draws": "dessine", "follows": "suit"}
ADVERBS = {"often": "souvent", "today": "aujourd'hui", "now": "maintenant"}
JOINING = {"and": "et"}
HELD_OUT = 200  # sentences of valid and of test each
WORDS = VERBS | ADVERBS | JOINING


def translate(source: str) -> str:
    """The one right translation of a toy sentence."""
    words, target = source.split(), []
    index = 0
    while index < len(words):
        if words[index] in WORDS:
            target.append(WORDS[words[index]])
            index += 1
            continue
        article, *middle = words[index : index + 2]
        adjectives = [word for word in middle if word in ADJECTIVES]
        noun, gender = NOUNS[words[index + 1 + len(adjectives)]]
        target += [ARTICLES[article][gender], noun, *(ADJECTIVES[word] for word in adjectives)]
        index += 2 + len(adjectives)
    return " ".join(target)


def write_toy(folder: str | Path, pairs: int, seed: int = 1) -> None:
    """Write train (this many pairs), valid and test, .en and .fr; no sentence occurs twice."""
    folder, chance = Path(folder), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    unique: dict[str, None] = {}
    while len(unique) < pairs + 2 * HELD_OUT:
        unique[_sentence(chance)] = None
    sentences = list(unique)
    cuts = {"train": sentences[:pairs], "valid": sentences[pairs:-HELD_OUT]}
    for name, part in (cuts | {"test": sentences[-HELD_OUT:]}).items():
        for suffix, lines in (("en", part), ("fr", map(translate, part))):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def _sentence(chance: random.Random) -> str:
    """Four to twelve words."""
    words = [chance.choice(list(ADVERBS))] if chance.random() < 0.3 else []
    words += [*_thing(chance), chance.choice(list(VERBS))]
    if chance.random() < 0.7:
        words += _thing(chance)
        if chance.random() < 0.3:
            words += ["and", *_thing(chance)]
    else:
        words.append(chance.choice(list(ADVERBS)))
    return " ".join(words)


def _thing(chance: random.Random) -> list[str]:
    adjectives = [chance.choice(list(ADJECTIVES))] if chance.random() < 0.5 else []
    return [chance.choice(list(ARTICLES)), *adjectives, chance.choice(list(NOUNS))]
