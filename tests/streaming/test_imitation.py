"""An agent that imitates: guesses, decisions by hand, the oracle, and what is learned from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small import ARCHITECTURES, CODEC, WORDS, feed_all, make, sentence, writes
from test_agents import K, L, M, run, scripted

from simultan.config import Config
from simultan.data.vocabulary import EOS
from simultan.streaming.agents.guesser import Guesser, Word, group
from simultan.streaming.agents.imitation import COMMIT, FEATURES, NEXT, WAIT, Classifier, Imitation
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator
from simultan.train.agents.imitation import (
    AgentPart,
    ImitationRecipe,
    Oracle,
    OraclePart,
    TokenText,
    fit,
    play,
)

END: Word = (EOS,)


def words(text: str) -> list[Word]:
    return [*(tuple(WORDS.encode_source_word(word)) for word in text.split()), END]


A, B, C, D, E, F = (tuple(WORDS.encode_source_word(letter)) for letter in "abcdef")
TEXT = [words(line) for line in ["a b c"] * 3 + ["a b d"] * 4 + ["f b d"] * 3 + ["e e f ."] * 3]


def test_the_next_word_by_hand(tmp_path: Path) -> None:
    guesser = Guesser.learn(TEXT, WORDS.source_vocabulary, verbs=False)
    guesser.save(tmp_path / "guesser")
    for one in (guesser, Guesser.load(tmp_path / "guesser")):
        assert one.next_word([A]) == (B, 1.0)
        assert one.next_word([A, B]) == (D, pytest.approx(4 / 7))
        assert one.next_word([F, B]) == (D, 1.0)
        assert one.next_word([C, B]) == (D, pytest.approx(7 / 10))  # after b alone
        assert one.next_word([D]) == (END, 1.0)
        assert one.next_word([]) == (A, pytest.approx(7 / 13))
        assert one.final_verb([A]) == ((), 0.0)


def test_the_final_verb_by_hand() -> None:
    guesser = Guesser.learn(TEXT, WORDS.source_vocabulary, verbs=True)
    # c, d and f end sentences; a full stop is no word
    assert {guesser.words[int(n) - 1] for n in guesser.verbs} == {C, D, F}
    assert guesser.final_verb([E])[0] == F
    assert guesser.final_verb([A])[0] == D  # four times, and c three times
    verb, chance = guesser.final_verb([F, B])
    assert verb == D
    assert chance > guesser.final_verb([A, B])[1]


def test_words_of_tokens() -> None:
    assert group([5, 6, 7, 8], [1, 1, 2, 3]) == [(5, 6), (7,), (8,)]
    assert group([], []) == []


def by_rule(**weights: float) -> Classifier:
    """Commits where the weighted sum of features is positive, else guesses if there is a guess."""
    classifier = Classifier(2)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.zero_()
        for name, weight in weights.items():
            if name == "bias":
                classifier.inner.bias[0] = weight
            else:
                classifier.inner.weight[0, FEATURES.index(name)] = weight
        classifier.outer.weight[COMMIT, 0] = 50.0
        classifier.outer.bias[NEXT] = 1.0
    return classifier


NOTHING = Guesser.learn([], WORDS.source_vocabulary, verbs=False)


# three words: contexts of 1, 2 and 3 words, and 3 words with the end
SCRIPT = [
    [{K: 0.6, L: 0.4}, {K: 0.9, L: 0.1}, {K: 0.9, L: 0.1}, {K: 1.0}],
    [{L: 0.7, M: 0.3}, {L: 0.7, M: 0.3}, {L: 0.95, M: 0.05}, {M: 1.0}],
    [{EOS: 1.0}, {EOS: 1.0}, {EOS: 1.0}, {EOS: 1.0}],
]


@pytest.mark.parametrize("chunks", [["a b c"], ["a", "b", "c"]])
@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (0.55, [("k", 1), ("l", 1)]),  # then ends, which are never committed early
        (0.8, [("k", 2), ("l", 3)]),
        (0.97, [("k", 3), ("m", 3)]),  # with the end of the source all is written
    ],
)
def test_commits_where_the_model_is_sure(
    tmp_path: Path, chunks: list[str], least: float, expected: list[tuple[str, int]]
) -> None:
    Imitation(by_rule(probability=100.0, bias=-100 * least), NOTHING, 0.5).save(tmp_path)
    assert run(scripted(SCRIPT), f"{tmp_path}/", chunks) == expected


def test_guesses_the_next_word(tmp_path: Path) -> None:
    guesser = Guesser.learn([words("a b")] * 3, WORDS.source_vocabulary, verbs=False)
    Imitation(by_rule(after_next=100.0, bias=-50.0), guesser, 0.5).save(tmp_path)
    # it commits only with a guess in view: a and b, guessed, are seen as two words
    assert run(scripted(SCRIPT), f"{tmp_path}/", ["a", "b", "c"]) == [("k", 1), ("l", 1)]
    # without anything to guess it waits for the end
    Imitation(by_rule(after_next=100.0, bias=-50.0), NOTHING, 0.5).save(tmp_path / "none")
    waits = run(scripted(SCRIPT), f"{tmp_path / 'none'}/", ["a", "b", "c"])
    assert waits == [("k", 3), ("m", 3)]


def test_other_features_are_refused(tmp_path: Path) -> None:
    Imitation(by_rule(), NOTHING, 0.5).save(tmp_path)
    file = tmp_path / "agent.toml"
    file.write_text(file.read_text().replace('"steady"', '"shaky"'))
    with pytest.raises(ValueError, match="train it again"):
        Imitation.load(tmp_path)


@pytest.mark.parametrize("words", [2, 3])
def test_waits_until_a_token_is_steady(tmp_path: Path, words: int) -> None:
    Imitation(by_rule(steady=100.0, bias=100.0 * (1.5 - words)), NOTHING, 0.5).save(tmp_path)
    # k is the best token with 1, 2, 3 words; l is it, too, but k is written before it
    expected = {2: [("k", 2), ("l", 3)], 3: [("k", 3), ("m", 3)]}
    assert run(scripted(SCRIPT), f"{tmp_path}/", ["a", "b", "c"]) == expected[words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An agent with random weights that guesses often."""
    torch.manual_seed(3)
    place = tmp_path_factory.mktemp("imitation")
    lines = [sentence(6, seed).split() for seed in range(40)]
    text = [[*(tuple(CODEC.encode_source_word(word)) for word in line), END] for line in lines]
    classifier = Classifier(8)
    with torch.no_grad():
        classifier.outer.weight *= 4
    Imitation(classifier, Guesser.learn(text, CODEC.source_vocabulary, True), 0.3).save(place)
    return f"{place}/"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_word_that_was_not_read_changes_nothing(folder: str, architecture: str) -> None:
    for seed in range(4):
        model, text = make("offline", architecture, seed, end=0.9), sentence(7, seed).split()

        def translate(chunks: list[str], model=model):  # type: ignore[no-untyped-def]
            return writes(feed_all(Session(model, CODEC, folder, segment=False), chunks))

        expected = translate(text)
        assert translate([" ".join(text)]) == expected
        for place in range(1, len(text)):
            changed = [*text[:place], *sentence(len(text) - place + 1, seed + 50).split()]
            known = [write for write in expected if write.delay <= place]
            assert [write for write in translate(changed) if write.delay <= place] == known


def test_rows_are_sessions(folder: str) -> None:
    model = make("offline", "transformer", 1, end=0.9)
    texts = [sentence(length, length) for length in (7, 3, 9, 5)]
    translator = Translator(model, Config(), CODEC)
    together = translator.translate(texts, folder, rows=4)
    alone = [translator.translate([text], folder)[0] for text in texts]
    assert [(t.words, t.delays) for t in together] == [(t.words, t.delays) for t in alone]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_oracle_writes_the_translation_of_the_whole_sentence(architecture: str) -> None:
    translator = Translator(make("offline", architecture, 2, end=0.9), Config(), CODEC)
    text = [sentence(6, seed) for seed in range(12)]
    spelled = [[tuple(CODEC.encode_source_word(word)) for word in t.split()] for t in text]
    guesser = Guesser.learn([[*line, END] for line in spelled], CODEC.source_vocabulary, True)
    oracle = Oracle(guesser, OraclePart(explore=0.3, patience=99), seed=1)
    written = play(translator, spelled, oracle)
    whole = translator.translate(text)
    for row, translation in zip(written, whole, strict=True):
        # a guard of the session ends what such a model repeats, here or there
        count = min(len(row), len(translation.tokens))
        assert count >= 3
        assert [choice.token for choice in row[:count]] == translation.tokens[:count]
    early = [c.delay < t.token_delays[0] for r, t in zip(written, whole, strict=True) for c in r]
    assert any(early)
    assert len(oracle.features) == len(oracle.actions)
    assert {WAIT, COMMIT} <= set(oracle.actions)


def test_an_oracle_loses_its_patience() -> None:
    translator = Translator(make("offline", "transformer", 2, end=0.9), Config(), CODEC)
    spelled = [
        [tuple(CODEC.encode_source_word(w)) for w in sentence(6, s).split()] for s in range(12)
    ]
    waited, end = FEATURES.index("waited"), FEATURES.index("end")
    for patience in (1, 99):
        oracle = Oracle(NOTHING, OraclePart(explore=0.3, patience=patience), seed=1)
        play(translator, spelled, oracle)
        late = [
            action
            for features, action in zip(oracle.features, oracle.actions, strict=True)
            if features[waited] >= 1 and not features[end]
        ]
        assert late
        assert (WAIT in late) == (patience == 99)


def test_tokens_are_spelled_without_loss() -> None:
    text = TokenText(CODEC)
    line = [(1, 20, 305), (7,), (EOS,)]
    assert [tuple(text.encode_source_word(w)) for w in text.split_source(text.spell(line))] == line


def test_the_classifier_learns() -> None:
    torch.manual_seed(1)
    features = torch.rand(2_000, len(FEATURES))
    actions = torch.where(features[:, 0] > 0.6, COMMIT, WAIT)
    recipe = ImitationRecipe(agent=AgentPart(threshold=0.5))
    _, found = fit(features, actions, recipe)
    assert found["accuracy"] > 0.97
    assert found["committed_rightly"] > 0.95
