"""The SimulEval agent: `simuleval --agent-class simultan.simuleval_agent.Agent --model DIR ...`.

SimulEval sends one source word and takes one segment in each round, so everything that is ready
is written at once: a word kept for the next round would be charged with a source word that it
did not wait for.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import simuleval.utils
from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction

import simultan
from simultan.streaming.session import Write

__all__ = ["Agent"]


@simuleval.utils.entrypoint
class Agent(TextToTextAgent):
    """One session for each sentence."""

    def __init__(self, args: Namespace) -> None:
        self.translator = simultan.load(args.model)
        self.threshold = args.threshold
        super().__init__(args)  # calls reset()

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """The agent's own options."""
        parser.add_argument("--model", required=True, help="a model's folder or name")
        parser.add_argument(
            "--threshold", type=float, default=0.5, help="a head stops where p is above it"
        )

    def reset(self) -> None:
        """Begin a new sentence."""
        super().reset()
        self.session = self.translator.session(threshold=self.threshold)
        self.fed = 0

    def policy(self) -> Action:
        """Feed what has come and write all that is ready."""
        words = self.states.source[self.fed :]
        self.fed += len(words)
        events = self.session.feed(" ".join(words))
        finished = self.states.source_finished
        if finished:
            events += self.session.finish()
        text = " ".join(event.text for event in events if isinstance(event, Write))
        if text or finished:
            return WriteAction(text, finished=finished)
        return ReadAction()
