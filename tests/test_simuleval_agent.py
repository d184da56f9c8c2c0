"""The real SimulEval, in its own environment (`make simuleval`), against our numbers."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
from pathlib import Path

import pytest
import torch

from simultan import latency
from simultan.evaluation.instances import Instance, read_log, write_log
from simultan.evaluation.scores import Scores, score

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-simuleval" / "bin" / "python"
NAMES = ("BLEU", "AL", "LAAL", "AP", "DAL")

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no SimulEval: run `make simuleval`")


def run(*arguments: object) -> str:
    """Python in SimulEval's environment."""
    done = subprocess.run(
        [PYTHON, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def simuleval(*arguments: object) -> None:
    """The command `simuleval`, whatever this machine's PATH says."""
    run("-m", "simuleval.cli", "--no-progress-bar", *arguments)


def assert_same(scores: Scores, table: Path) -> None:
    """SimulEval's scores.tsv, rounded to 3 places, and ours."""
    (theirs,) = csv.DictReader(table.open(encoding="utf-8"), delimiter="\t")
    for name in NAMES:
        ours = scores.flat()[name.lower()]
        assert ours == pytest.approx(float(theirs[name]), abs=1e-3), name


def make_log(sentences: int) -> list[Instance]:
    """Sentences of every shape: short, over-long, one word, nothing at all."""
    chance = random.Random(1)
    words = ["the", "cat", "sat", "on", "a", "mat", ",", "under", "one", "roof", "."]
    log = []
    for index in range(sentences):
        source = chance.choices(words, k=chance.choice([1, 2, 9, 20]))
        reference = chance.choices(words, k=chance.choice([1, 8, 21]))
        count = 0 if index == 3 else chance.choice([1, 7, len(reference), 30])
        prediction = [*reference, *chance.choices(words, k=30)][:count]
        delays = sorted(chance.randint(1, len(source)) for _ in range(count))
        log.append(
            Instance(
                index=index,
                prediction=" ".join(prediction),
                delays=delays,
                elapsed=[0.0] * count,
                prediction_length=count,
                reference=" ".join(reference),
                source=" ".join(source),
                source_length=len(source),
                source_tokens=source,  # ours; SimulEval must pass it over
                token_heads=[[[delay]] for delay in delays],
            )
        )
    return log


SCORE = """
import json, pathlib, sys
from simuleval.cli import options
from simuleval.evaluator import SentenceLevelEvaluator
parser = options.general_parser()
options.add_evaluator_args(parser)
options.add_scorer_args(parser)
options.add_dataloader_args(parser)
evaluator = SentenceLevelEvaluator.from_args(parser.parse_args())
evaluator.dump_results()
"""

METRICS = """
import json, sys
from simuleval.evaluator.instance import TextToTextInstance
from simuleval.evaluator.scorers.latency_scorer import LATENCY_SCORERS_DICT
rows = []
for line in open(sys.argv[1]):
    log = json.loads(line)
    if not log["delays"]:
        continue
    instance = TextToTextInstance(0, None, None)
    instance.latency_unit = "word"
    instance.source, instance.reference = log["source"].split(), log["reference"]
    instance.delays = log["delays"]
    names = ("AP", "AL", "LAAL", "DAL", "ATD")
    rows.append([LATENCY_SCORERS_DICT[name]()({0: instance}) for name in names])
print(json.dumps(rows))
"""


def test_simuleval_scores_our_log(tmp_path: Path) -> None:
    log = make_log(60)
    write_log(tmp_path / "instances.log", log)
    (tmp_path / "config.yaml").write_text("source_type: text\ntarget_type: text\n")
    run("-c", SCORE, "--score-only", "--output", tmp_path)
    assert_same(score(log), tmp_path / "scores.tsv")


def test_every_metric_of_every_sentence(tmp_path: Path) -> None:
    # text instances and not a log: from a log SimulEval's ATD takes words for milliseconds
    log = [instance for instance in make_log(80) if instance.delays]
    write_log(tmp_path / "instances.log", log)
    theirs = json.loads(run("-c", METRICS, tmp_path / "instances.log"))
    for instance, wanted in zip(log, theirs, strict=True):
        assert instance.source_length is not None
        assert instance.reference is not None
        arguments = (
            torch.tensor([instance.delays], dtype=torch.float64),
            torch.tensor([instance.source_length]),
            torch.tensor([len(instance.delays)]),
            torch.tensor([len(instance.reference.split())]),
        )
        ours = [
            latency.average_proportion(*arguments),
            latency.average_lagging(*arguments),
            latency.length_adaptive_average_lagging(*arguments),
            latency.differentiable_average_lagging(*arguments),
            latency.average_token_delay(*arguments),
        ]
        assert [value.item() for value in ours] == pytest.approx(wanted, abs=1e-9)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy language's text and a small model trained on it."""
    pytest.importorskip("simultan.streaming.session")
    from simultan import config
    from simultan.data.corpus import prepare
    from simultan.data.sources import TextPair
    from simultan.data.toy import write_toy
    from simultan.train.loop import fit

    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder, pairs=2000)
    train, valid = (TextPair(folder / f"{n}.en", folder / f"{n}.fr") for n in ("train", "valid"))
    prepare(folder / "data", [train], valid, pipeline="bpe", vocabulary=400)
    recipe = config.parse(
        f"""
        [data]
        folder = "{folder / "data"}"
        batch_tokens = 2000
        [model]
        width = 32
        ffn = 64
        heads = 2
        encoder_layers = 1
        decoder_layers = 1
        dropout = 0.0
        [train]
        updates = 200
        lr = 5e-3
        warmup = 50
        validate_every = 0
        """
    )
    fit(recipe, folder / "run", tensorboard=False)
    return folder


@pytest.mark.parametrize("options", [(), ("--decoding", "threshold=0.2"), ("--threshold", "0.8")])
def test_simuleval_runs_our_agent(tmp_path: Path, toy: Path, options: tuple[str, ...]) -> None:
    import simultan
    from simultan.data.sources import read_lines
    from simultan.evaluation.evaluate import evaluate

    model, source, reference = toy / "run" / "final", toy / "test.en", toy / "test.fr"
    simuleval(
        *("--agent-class", "simultan.simuleval_agent.Agent", "--model", model, *options),
        *("--source", source, "--target", reference, "--output", tmp_path / "theirs"),
        *("--latency-metrics", "AL", "LAAL", "AP", "DAL"),
    )
    decoding = {"--decoding": "threshold=0.2", "--threshold": "threshold=0.8"}
    texts = list(read_lines(source)), list(read_lines(reference))
    ours = evaluate(
        simultan.load(model), *texts, tmp_path / "ours", decoding.get((*options, "")[0], "")
    )
    assert ours.bleu is not None
    assert ours.latency["al"] is not None
    if not options:  # it has learned something, and does not wait for the end
        assert ours.bleu > 25
        assert ours.latency["al"] < 4
    assert_same(ours, tmp_path / "theirs" / "scores.tsv")
    their_log, our_log = read_log(tmp_path / "theirs"), read_log(tmp_path / "ours")
    assert_same(score(their_log), tmp_path / "theirs" / "scores.tsv")
    assert [i.prediction for i in their_log] == [i.prediction for i in our_log]
    assert [i.delays for i in their_log] == [i.delays for i in our_log]


def test_the_agent_decodes_in_one_way(toy: Path) -> None:
    code = """
from argparse import ArgumentParser
from simultan.simuleval_agent import Agent
parser = ArgumentParser()
Agent.add_args(parser)
try:
    Agent(parser.parse_args())
except ValueError as error:
    print(error)
"""
    options = ("--model", toy / "run" / "final", "--decoding", "threshold=0.2", "--lag", "4")
    assert run("-c", code, *options) == ("--decoding threshold=0.2 and lag=4: choose one of them\n")
