"""Who decides what a session writes next: the heads of its model, or agents over an offline one.

Both read source tokens, choose the next target token of the rows that need no more source, and
commit it. What is not committed leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.streaming.agents import WRITE, Agent, Scores, Seen, load_agent
from simultan.streaming.backends import Backend
from simultan.streaming.backends.incremental import Incremental
from simultan.streaming.decoding import THRESHOLD, Decoding
from simultan.streaming.row import Choice, Row

__all__ = ["AgentsDecide", "HeadsDecide"]

LONGEST_GUESS = 16  # pieces of a word that is tried out


class HeadsDecide:
    """The model decides by itself: its policy is learned, or it was trained with a fixed lag."""

    def __init__(self, model: TranslationModel, rows: list[Row]) -> None:
        self.model, self.rows = model, rows
        self.backend = Incremental(model, len(rows))
        self.state = self.backend.state
        self.layers, self.heads = self.state.layers, self.state.heads
        self.thresholds = [THRESHOLD] * len(rows)

    def set_decoding(self, decoding: Decoding, row: int) -> None:
        if decoding.threshold is not None:
            self.thresholds[row] = decoding.threshold
        elif not self.model.policy.learned:
            self.state.set_lag(row, decoding.k or self.model.policy.lags[0])

    def choose(self, rows: Sequence[int]) -> list[Choice]:
        """The next token of the rows whose heads need no more source."""
        last = [self.backend.last[row] for row in rows]
        thresholds = [self.thresholds[row] for row in rows]
        step = self.model.step(last, self.state, rows, thresholds)
        if not step.rows:
            return []
        tokens = step.best(EOS)  # what comes before it, padding and begin, is never written
        return [
            Choice(row, token, heads, max(map(max, heads)) + 1)
            for row, token, heads in zip(step.rows, tokens, step.positions.tolist(), strict=True)
        ]

    def move_on(self, row: int, token: int) -> None:
        """Source tokens before this one are translated; heads scan from this one on."""
        self.state.skip_to(row, token)

    def needed(self, row: int) -> int:
        """The first source token that a head may still look at."""
        return self.state.needed(row)

    def reset(self, row: int) -> None:
        self.backend.reset(row)


class AgentsDecide:
    """Agents over an offline model, each row with its own.

    A delay counts what was read to decide: an agent that looks ahead has seen more words than
    the model has.
    """

    layers = heads = 1  # its one head stands on the last source token that the model sees

    def __init__(self, backend: Backend, rows: list[Row], default: Agent) -> None:
        self.backend, self.rows = backend, rows
        self.loaded: dict[str | None, Agent] = {None: default}
        self.agents = [default] * len(rows)
        self.visible = [1] * len(rows)  # words of the segment that the model sees
        self.memory: list[dict[str, object]] = [{} for _ in rows]

    def set_decoding(self, decoding: Decoding, row: int) -> None:
        text = decoding.agent
        if text is not None and text not in self.loaded:
            self.loaded[text] = self._check(load_agent(text), text)
        if self.loaded[text] is not self.agents[row]:
            self.agents[row], self.memory[row] = self.loaded[text], {}

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
        """The next token of the rows whose agents say WRITE."""
        choices: list[Choice] = []
        asked = list(rows)
        while asked := [row for row in asked if self._is_ready(row)]:
            agent = self.agents[asked[0]]
            together = [row for row in asked if self.agents[row] is agent]
            read_on = self._ask(agent, together, choices)
            asked = [row for row in asked if row not in together] + read_on
        return choices

    def _is_ready(self, row: int) -> bool:
        """Whether the words that the agent wants to see have been read."""
        ahead = max((0, *self.agents[row].lookahead))
        return self.rows[row].has_words(self.visible[row] + ahead)

    def _ask(self, agent: Agent, rows: list[int], choices: list[Choice]) -> list[int]:
        """Ask one agent about its rows; returns those in which it wants to read on."""
        ahead = max((0, *agent.lookahead))
        states = [self.rows[row] for row in rows]
        views: dict[int, Scores] = {}

        def score(more: int) -> Scores:
            views[more] = self._score(rows, more, agent.wants_attention)
            return views[more]

        def go_on(chosen: Sequence[int]) -> list[int]:
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
            ended=[
                state.ended and self.visible[row] > state.words
                for row, state in zip(rows, states, strict=True)
            ],
            memory=[self.memory[row] for row in rows],
            score=score,
            source_words=source_words,
            go_on=go_on,
            lookahead=agent.lookahead,
        )
        decided = zip(rows, agent.decide(seen), seen.ended, strict=True)
        answers = {row: WRITE if ended else max(WRITE, words) for row, words, ended in decided}
        writing = [row for row, words in answers.items() if words == WRITE]
        if 0 in views:
            best = dict(zip(rows, views[0].best, strict=True))
        elif writing:  # the agent decided without looking at the scores
            best = dict(zip(writing, self._score(writing, 0).best, strict=True))
        for row in writing:
            stop = self.rows[row].tokens_of(self.visible[row]) - 1
            delay = self.rows[row].tokens_of(self.visible[row] + ahead)
            choices.append(Choice(row, best[row], [[stop]], delay))
        reading = [row for row in rows if answers[row] != WRITE]
        for row in reading:
            self.visible[row] += answers[row]
        return reading

    def _score(self, rows: list[int], more: int, attention: bool = False) -> Scores:
        words = [max(1, self.visible[row] + more) for row in rows]
        visible = [self.rows[row].tokens_of(n) for row, n in zip(rows, words, strict=True)]
        return self.backend.score(rows, visible, attention)

    def _go_on(self, rows: list[int]) -> list[int]:
        """How many words each row would write with what its model sees; nothing is kept of it."""
        kept = self.backend.keep(rows)
        words, open_ = dict.fromkeys(rows, 0), dict.fromkeys(rows, 0)  # pieces of an open word
        active = rows
        while active:
            tokens = dict(zip(active, self._score(active, 0).best, strict=True))
            active = [row for row in active if tokens[row] != EOS]
            for row in active:
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
        return [words[row] + bool(open_[row]) for row in rows]

    def move_on(self, row: int, token: int) -> None:
        """Source tokens before this one are translated; the model now sees this one."""
        state = self.rows[row]
        word = state.word_of[token - state.first] if token < state.available else state.words + 1
        self.visible[row] = max(self.visible[row], word)

    def needed(self, row: int) -> int:
        """An offline model looks at the whole segment."""
        return 0

    def reset(self, row: int) -> None:
        self.backend.reset(row)
        self.visible[row], self.memory[row] = 1, {}
