"""Source words that may come next, guessed from counts of training text.

A word is the tuple of its tokens. The next word is the most frequent one after the longest known
context, of two words or one. The final verb is the most probable one given the words so far
(naive Bayes): the last word of a sentence, where that begins with a small letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from simultan.data.vocabulary import UNK, Vocabulary

Word = tuple[int, ...]
RARE = 3  # what was seen less often is not counted on
CUES, VERBS = 5_000, 300  # words that a verb is guessed from, and verbs


def group(tokens: Sequence[int], word_of: Sequence[int]) -> list[Word]:
    """Tokens as words; word_of: the word that each of them belongs to."""
    words: dict[int, list[int]] = {}
    for token, word in zip(tokens, word_of, strict=True):
        words.setdefault(word, []).append(token)
    return [tuple(pieces) for pieces in words.values()]


@dataclass(frozen=True)
class Guesser:
    words: list[Word]  # the frequent ones first; 0 in contexts stands for others
    contexts: Tensor  # [K] pairs of words or single ones, in order
    best: Tensor  # [K] the most frequent word after each
    shares: Tensor  # [K] how often it is that one
    verbs: Tensor  # [V] words; none: final verbs are not guessed
    prior: Tensor  # [V] log probabilities
    given: Tensor  # [C, V] of each of the first C words before each verb

    @classmethod
    def learn(cls, sentences: Iterable[list[Word]], vocabulary: Vocabulary, verbs: bool) -> Guesser:
        """Of sentences as words, the last one of which is the end."""
        kept = list(sentences)
        counts = Counter(word for sentence in kept for word in sentence if UNK not in word)
        words = [word for word, count in counts.most_common() if count >= RARE]
        index = {word: number for number, word in enumerate(words, 1)}
        numbered = [[index.get(word, 0) for word in sentence] for sentence in kept]
        after: dict[int, Counter[int]] = {}
        for sentence in numbered:
            padded = [0, 0, *sentence]
            for before, last, word in zip(padded, padded[1:], sentence, strict=False):
                for context in {last, before * (len(words) + 1) + last} if word else ():
                    after.setdefault(context, Counter())[word] += 1
        contexts = sorted(c for c, found in after.items() if found.total() >= RARE)
        tops = [after[context].most_common(1)[0] for context in contexts]
        shares = [n / after[c].total() for c, (_, n) in zip(contexts, tops, strict=True)]
        texts = {number: vocabulary.decode_word(word) for word, number in index.items()}
        small = {number for number, text in texts.items() if text.isalpha() and text[0].islower()}
        return cls(
            words,
            torch.tensor(contexts, dtype=torch.long),
            torch.tensor([word for word, _ in tops], dtype=torch.long),
            torch.tensor(shares),
            *_learn_verbs(numbered if verbs else [], texts, small, min(CUES, len(words))),
        )

    @cached_property
    def _index(self) -> dict[Word, int]:
        return {word: number for number, word in enumerate(self.words, 1)}

    def next_word(self, words: Sequence[Word]) -> tuple[Word, float]:
        """The word after these, and how often it was that one; nothing and 0 if unknown."""
        before, last = ([0, 0, *(self._index.get(word, 0) for word in words)])[-2:]
        for context in (before * (len(self.words) + 1) + last, last):
            place = int(torch.searchsorted(self.contexts, context))
            if place < len(self.contexts) and int(self.contexts[place]) == context:
                return self.words[int(self.best[place]) - 1], float(self.shares[place])
        return (), 0.0

    def final_verb(self, words: Sequence[Word]) -> tuple[Word, float]:
        """The verb with which the sentence will end, and its probability."""
        if not len(self.verbs):
            return (), 0.0
        known = {self._index.get(word, 0) for word in words}
        cues = [number - 1 for number in sorted(known) if 0 < number <= len(self.given)]
        scores = (self.prior + self.given[cues].float().sum(0)).softmax(-1)
        best = int(scores.argmax())
        return self.words[int(self.verbs[best]) - 1], float(scores[best])

    def save(self, path: Path) -> None:
        lengths = torch.tensor([len(word) for word in self.words], dtype=torch.long)
        flat = torch.tensor([token for word in self.words for token in word], dtype=torch.long)
        tables = {name: getattr(self, name).contiguous() for name in TABLES}
        save_file({"tokens": flat, "lengths": lengths, **tables}, path)

    @classmethod
    def load(cls, path: Path) -> Guesser:
        tables = load_file(path)
        parts = tables["tokens"].split(tables["lengths"].tolist())
        return cls([tuple(part.tolist()) for part in parts], *(tables[name] for name in TABLES))


TABLES = ("contexts", "best", "shares", "verbs", "prior", "given")


def _learn_verbs(
    sentences: list[list[int]], texts: dict[int, str], small: set[int], cues: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The table of final verbs: words, log probabilities, and those of the words before them."""
    ends: list[tuple[list[int], int]] = []  # the words before a verb, and the verb
    for sentence in sentences:
        place = len(sentence) - 1
        while place > 0 and not texts.get(sentence[place], "x").isalpha():
            place -= 1  # the end and full stops
        if sentence[place] in small:
            ends.append((sentence[:place], sentence[place]))
    counts = Counter(verb for _, verb in ends)
    verbs = [verb for verb, count in counts.most_common(VERBS) if count >= RARE]
    column = {verb: number for number, verb in enumerate(verbs)}
    beside = torch.zeros(cues, len(verbs))
    for words, verb in ends:
        if verb in column:
            seen = sorted({word - 1 for word in words if 0 < word <= cues})
            beside[seen, column[verb]] += 1
    total = torch.tensor([float(counts[verb]) for verb in verbs])
    given = (beside + 0.1) / (total + 1.0)
    return torch.tensor(verbs, dtype=torch.long), (total / total.sum()).log(), given.log().half()
