"""The SimulEval agent: `simuleval --agent-class simultan.simuleval_agent.Agent --model DIR ...`.

In each round SimulEval sends one source word and takes one segment. So the agent writes all that
is ready at once: a word kept for the next round would be charged for a word it did not wait for.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import simuleval.utils
from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction

import simultan
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.session import Write


@simuleval.utils.entrypoint
class Agent(TextToTextAgent):
    """One session for each sentence."""

    def __init__(self, args: Namespace) -> None:
        self.translator = simultan.load(args.model)
        short = Decoding(threshold=args.threshold, lag=args.lag, k=args.k)
        if short != DEFAULT and args.decoding:
            raise ValueError(f"--decoding {args.decoding} and {short}: choose one of them")
        self.decoding = Decoding.parse(args.decoding) if args.decoding else short
        super().__init__(args)  # calls reset()

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """The agent's own options."""
        parser.add_argument("--model", required=True, help="a model's folder or name")
        parser.add_argument(
            "--decoding",
            default="",
            help="how to decode: threshold=0.5, lag=4, mass=0.7, k=3, wait-k:3, agreement:2, ...",
        )
        parser.add_argument("--threshold", type=float, help="the same as --decoding threshold=...")
        parser.add_argument("--lag", type=float, help="the same as --decoding lag=...")
        parser.add_argument("--k", type=int, help="the same as --decoding k=...")

    def reset(self) -> None:
        """Begin a new sentence."""
        super().reset()
        self.session = self.translator.session(self.decoding, segment=False)
        self.fed = 0

    def policy(self) -> Action:
        """Feed the new words and write all that is ready."""
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
