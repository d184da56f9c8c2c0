"""Who decides what a session writes next: the heads of its model, or agents over an offline one.

Both read source tokens, choose the next target token of the rows that need no more source, and
commit it. What is not committed leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.streaming.agents import READ, WRITE, Agent, Guess, Rest, Scores, Seen, load_agent
from simultan.streaming.ahead import Candidate, LookAhead
from simultan.streaming.backends import Backend
from simultan.streaming.backends.incremental import Incremental
from simultan.streaming.decoding import THRESHOLD, Decoding
from simultan.streaming.row import Choice, Row

LONGEST_GUESS = 16  # pieces of a word that is tried out
END = Guess((EOS,))


class HeadsDecide:
    """The model decides by itself: its policy is learned, or it was trained with a fixed lag."""

    def __init__(self, model: TranslationModel, rows: list[Row]) -> None:
        self.model, self.rows = model, rows
        self.backend = Incremental(model, len(rows))
        self.state = self.backend.state
        self.layers, self.heads = self.state.layers, self.state.heads
        self.thresholds = [THRESHOLD] * len(rows)
        self.masses: list[float | None] = [None] * len(rows)
        self.beams = [1] * len(rows)
        self.look_ahead = LookAhead(model, self.state)

    def set_decoding(self, decoding: Decoding, row: int) -> None:
        self.masses[row], self.beams[row] = decoding.mass, decoding.beam or 1
        if decoding.threshold is not None:
            self.thresholds[row] = decoding.threshold
        elif not self.model.policy.learned:
            self.state.set_lag(row, decoding.k or self.model.policy.lags[0])

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        self.backend.read(rows, tokens, ended)

    def choose(self, rows: Sequence[int]) -> list[Choice]:
        """The next token of the rows whose heads need no more source."""
        last = [self.backend.last[row] for row in rows]
        thresholds = [self.thresholds[row] for row in rows]
        masses = [self.masses[row] for row in rows]
        step = self.model.step(last, self.state, rows, thresholds, mass=masses)
        if not step.rows:
            return []
        tokens = step.best(EOS)  # what comes before it, padding and begin, is never written
        if any(self.beams[row] > 1 for row in step.rows):
            candidates = [
                Candidate(row, token, self.beams[row], self.thresholds[row], self.masses[row])
                for row, token in zip(step.rows, tokens, strict=True)
            ]
            tokens = self.look_ahead.choose(candidates, step.logits)
        return [
            Choice(row, token, heads, max(map(max, heads)) + 1)
            for row, token, heads in zip(step.rows, tokens, step.positions.tolist(), strict=True)
        ]

    def is_ready(self, row: int) -> bool:
        """Heads have looked at all that was read: they wait for more."""
        return False

    def move_on(self, row: int, token: int) -> None:
        """Source tokens before this one are translated; heads scan from this one on."""
        self.state.skip_to(row, token)

    def needed(self, row: int) -> int:
        """The first source token that a head may still look at."""
        return self.state.needed(row)

    def reset(self, row: int) -> None:
        self.backend.reset(row)


class Guessed(NamedTuple):
    """A guess that the model takes for the next source word."""

    tokens: list[int]
    after: int  # the words that it sees before it
    mark: Any  # how to forget it


class AgentsDecide:
    """Agents over an offline model, each row with its own.

    A delay counts what was read to decide: an agent that looks ahead has seen more words than
    the model has. A guess counts nothing.
    """

    layers = heads = 1  # its one head stands on the last source token that the model sees

    def __init__(self, backend: Backend, rows: list[Row], default: Agent) -> None:
        self.backend, self.rows = backend, rows
        self.loaded: dict[str | None, Agent] = {None: default}
        self.agents = [default] * len(rows)
        self.beams = [1] * len(rows)
        self.look_ahead: LookAhead | None = None
        if isinstance(backend, Incremental):
            self.look_ahead = LookAhead(backend.model, backend.state)
        self.visible = [1] * len(rows)  # words of the segment that the model sees
        self.memory: list[dict[str, object]] = [{} for _ in rows]
        self.heard: list[list[int]] = [[] for _ in rows]  # source tokens of the segment
        self.encoded = [0] * len(rows)  # of them, those that the model has read
        self.guessed: list[Guessed | None] = [None] * len(rows)
        # of a row that has read nothing
        self.empty = backend.mark(0) if backend.rewinds and backend.tries else None
        self.on_guess: Callable[[int, bool], None] | None = None  # a row, and whether it was right

    def set_decoding(self, decoding: Decoding, row: int) -> None:
        text, beam = decoding.agent, decoding.beam or 1
        if beam > 1 and self.look_ahead is None:
            raise ValueError(
                f"{decoding}: this model cannot be searched in a stream; leave out beam"
            )
        if text is not None and text not in self.loaded:
            self.loaded[text] = self._check(load_agent(text), text)
        if beam > 1 and self.loaded[text].closes:  # it has seen what would be written
            raise ValueError(f"{decoding}: this agent chooses the words itself; leave out beam")
        self.beams[row] = beam
        if self.loaded[text] is not self.agents[row]:
            self.agents[row], self.memory[row] = self.loaded[text], {}
            self._take_back(row)
            if self._adds_words(self.agents[row]):
                self._read_less(row)

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        """More source tokens. Where an agent guesses, the model reads them one word at a time."""
        for row, new in zip(rows, tokens, strict=True):
            self.heard[row] += new
        now = [row for row in rows if not self._adds_words(self.agents[row])]
        self._encode(now, [len(self.heard[row]) for row in now])

    def _encode(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Let the model read up to so many source tokens of each row."""
        pairs = zip(rows, counts, strict=True)
        new = [(row, count) for row, count in pairs if count > self.encoded[row]]
        if not new:
            return
        self.backend.read(
            [row for row, _ in new],
            [self.heard[row][self.encoded[row] : count] for row, count in new],
            [self.rows[row].ended and count == len(self.heard[row]) for row, count in new],
        )
        for row, count in new:
            self.encoded[row] = count

    @torch.inference_mode()
    def _read_less(self, row: int) -> None:
        """The agent before may have let the model read words beyond those that it is to see."""
        seen = self._tokens(row)
        if self.encoded[row] > seen and self.empty is not None:
            self.backend.rewind(row, self.empty)
            self.encoded[row] = 0
            self._encode([row], [seen])

    def _adds_words(self, agent: Agent) -> bool:
        """Whether a word that was never said may stand after what the model has read."""
        return agent.guesses or self._closes(agent)

    def _closes(self, agent: Agent) -> bool:
        """A model that takes nothing back sees unfinished sentences in its own way."""
        return agent.closes and self.backend.tries and self.backend.rewinds

    def _check(self, agent: Agent, text: str) -> Agent:
        """The agent, unless the model cannot show it what it looks at."""
        layers = self.backend.attention_layers
        if agent.wants_attention and not layers:
            raise ValueError(
                f"{text}: this model does not show its attention over the source; choose an agent"
                " that needs none, such as agreement:2"
            )
        if getattr(agent, "layer", 0) > layers:
            raise ValueError(f"{text}: the decoder of this model has {layers} layers")
        if agent.goes_on and not self.backend.tries:
            raise ValueError(
                f"{text}: this model cannot take back a translation that it tries; choose another"
                " agent, such as agreement:2"
            )
        return agent

    def choose(self, rows: Sequence[int]) -> list[Choice]:
        """The next token of the rows whose agents say WRITE; each is asked once."""
        choices: list[Choice] = []
        asked = [row for row in rows if self.is_ready(row)]
        while asked:
            agent = self.agents[asked[0]]
            self._ask(agent, [row for row in asked if self.agents[row] is agent], choices)
            asked = [row for row in asked if self.agents[row] is not agent]
        return choices

    def is_ready(self, row: int) -> bool:
        """Whether the words that the agent wants to see have been read."""
        ahead = max((0, *self.agents[row].lookahead))
        return self.rows[row].has_words(self.visible[row] + ahead)

    def _ask(self, agent: Agent, rows: list[int], choices: list[Choice]) -> None:
        """Ask one agent about its rows; adds to the choices where it wants to write."""
        ahead = max((0, *agent.lookahead))
        states = [self.rows[row] for row in rows]
        for row in rows:
            self._judge(row)
        ended = {row: self.rows[row].ended and self.visible[row] > self.rows[row].words
                 for row in rows}  # fmt: skip
        if self._closes(agent):
            open_ = [row for row in rows if not ended[row] and self.guessed[row] is None]
            self._guess(dict.fromkeys(open_, END))
        views: dict[int, Scores] = {}

        def score(more: int) -> Scores:
            views[more] = self._score(rows, more, agent.wants_attention)
            return views[more]

        def go_on(chosen: Sequence[int]) -> list[Rest]:
            views.clear()  # the next token is to be scored anew
            return self._go_on([rows[i] for i in chosen])

        def source_words() -> list[list[int]]:
            return [
                state.word_of[: state.tokens_of(self.visible[row])]
                for row, state in zip(rows, states, strict=True)
            ]

        seen = Seen(
            read=[self.visible[row] for row in rows],
            written=[state.writer.words for state in states],
            ended=list(ended.values()),
            memory=[self.memory[row] for row in rows],
            score=score,
            source_words=source_words,
            go_on=go_on if self.backend.tries else None,
            lookahead=agent.lookahead,
            tokens=[state.committed for state in states],
            source=lambda: [self.heard[row][: self._tokens(row)] for row in rows],
            guessed=[self._guessed_tokens(row) for row in rows],
        )
        answers: dict[int, int] = {}
        guesses: dict[int, Guess] = {}
        for row, answer in zip(rows, agent.decide(seen), strict=True):
            if isinstance(answer, Guess):
                if not ended[row] and answer.tokens and self.guessed[row] is None:
                    guesses[row] = answer
                    continue
                answer = READ
            answers[row] = WRITE if ended[row] else max(WRITE, answer)
        self._guess(guesses)
        writing = [row for row, words in answers.items() if words == WRITE]
        best = self._best(rows, writing, views.get(0)) if writing else {}
        for row in writing:
            stop = self._tokens(row) - 1
            delay = self._tokens(row, ahead)
            choices.append(Choice(row, best[row], [[stop]], delay))
        for row, words in answers.items():
            self.visible[row] += words

    def _best(self, rows: list[int], writing: list[int], scores: Scores | None) -> dict[int, int]:
        """What is to be written; `scores` are those of `rows`, if the agent has looked at any."""
        if scores is None:
            rows, scores = writing, self._score(writing, 0)
        best = dict(zip(rows, scores.best, strict=True))
        searched = [row for row in writing if self.beams[row] > 1]
        if searched and self.look_ahead is not None:
            candidates = [
                Candidate(row, best[row], self.beams[row], THRESHOLD, None) for row in searched
            ]
            places = [rows.index(row) for row in searched]
            found = self.look_ahead.choose(candidates, scores.logits[places])
            best |= dict(zip(searched, found, strict=True))
        return best

    def _score(self, rows: list[int], more: int, attention: bool = False) -> Scores:
        visible = [self._tokens(row, more) for row in rows]
        self._encode(rows, visible)
        visible = [n + self._guessed_tokens(row) for row, n in zip(rows, visible, strict=True)]
        return self.backend.score(rows, visible, attention)

    def _go_on(self, rows: list[int]) -> list[Rest]:
        """What each row would write with what its model sees; nothing is kept of it."""
        kept = self.backend.keep(rows)
        written: dict[int, list[int]] = {row: [] for row in rows}
        words, open_ = dict.fromkeys(rows, 0), dict.fromkeys(rows, 0)  # pieces of an open word
        active = rows
        while active:
            tokens = dict(zip(active, self._score(active, 0).best, strict=True))
            active = [row for row in active if tokens[row] != EOS]
            for row in active:
                written[row].append(tokens[row])
                open_[row] += 1
                if self.rows[row].writer.vocabulary.ends_word(tokens[row]):
                    words[row], open_[row] = words[row] + 1, 0
            if active:
                self.backend.commit(active, [tokens[row] for row in active])
            active = [
                row
                for row in active
                if open_[row] < LONGEST_GUESS
                and self.rows[row].writer.words + words[row] < 2 * self.visible[row] + 3
            ]  # a session writes no more than that
        self.backend.restore(rows, kept)
        return [Rest(written[row], words[row] + bool(open_[row])) for row in rows]

    def _tokens(self, row: int, more: int = 0) -> int:
        """The source tokens that the model sees, or would see with so many words more."""
        return self.rows[row].tokens_of(max(1, self.visible[row] + more))

    def _guessed_tokens(self, row: int) -> int:
        guessed = self.guessed[row]
        return len(guessed.tokens) if guessed else 0

    def _guess(self, guesses: dict[int, Guess]) -> None:
        """Let the model take a guess for the next source word of each of these rows."""
        if not guesses:
            return
        if not self.backend.rewinds:
            raise ValueError("this agent guesses source words, which this model cannot take back")
        rows, tokens = list(guesses), [list(guess.tokens) for guess in guesses.values()]
        self._encode(rows, [self._tokens(row) for row in rows])
        for row, word in zip(rows, tokens, strict=True):
            self.guessed[row] = Guessed(word, self.visible[row], self.backend.mark(row))
        self.backend.read(rows, tokens, [word[-1] == EOS for word in tokens])

    def _judge(self, row: int) -> None:
        """Once the next word has been read: a right guess is that word, a wrong one is undone."""
        guessed = self.guessed[row]
        if guessed is None or self.visible[row] == guessed.after:
            return
        start, stop = self.encoded[row], self.rows[row].tokens_of(guessed.after + 1)
        right = self.heard[row][start:stop] == guessed.tokens
        if right:
            self.guessed[row], self.encoded[row] = None, stop
        else:
            self._take_back(row)
        if self.on_guess is not None and self.agents[row].guesses:
            self.on_guess(row, right)

    def _take_back(self, row: int) -> None:
        guessed, self.guessed[row] = self.guessed[row], None
        if guessed is not None:
            self.backend.rewind(row, guessed.mark)

    def move_on(self, row: int, token: int) -> None:
        """Source tokens before this one are translated; the model now sees this one."""
        state = self.rows[row]
        word = state.word_of[token - state.first] if token < state.available else state.words + 1
        self.visible[row] = max(self.visible[row], word)

    def needed(self, row: int) -> int:
        """An offline model looks at the whole segment."""
        return 0

    def reset(self, row: int) -> None:
        guessed = self.guessed[row]
        if guessed is not None and self.rows[row].has_words(guessed.after + 1):
            self.visible[row] = guessed.after + 1
            self._judge(row)
        self.backend.reset(row)
        self.visible[row], self.memory[row], self.guessed[row] = 1, {}, None
        self.heard[row], self.encoded[row] = [], 0
