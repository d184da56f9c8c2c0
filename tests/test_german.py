"""The paper's second pair: its plan, late verbs, and the way from a plan to a page, on a toy."""

from __future__ import annotations

import importlib.util
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.harness import ablation, agents, compare, curves, figures, plan, tables, verbs
from experiments.harness.experiment import Experiment, Options
from experiments.harness.measure import all_scores, read_predictions
from experiments.harness.verbs import Key, digest, forms, judge, read_keys, tally
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair, read_lines
from simultan.data.text import Pipeline
from simultan.data.toy import write_toy
from simultan.data.vocabulary import Vocabulary
from simultan.evaluation.instances import Instance, with_texts
from simultan.latency import METRICS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments" / "mma2020-de-en"
NEWSTEST = os.environ.get("SIMULTAN_NEWSTEST")
needs_newstest = pytest.mark.skipif(
    NEWSTEST is None, reason="SIMULTAN_NEWSTEST names no folder with newstest2015.de and .en"
)


# --- verbs that come late


@pytest.mark.parametrize(
    ("verb", "wanted"),
    [
        ("stop", {"stop", "stops", "stopped", "stopping"}),
        ("deny", {"deny", "denies", "denied", "denying"}),
        ("organise", {"organise", "organised", "organising", "organize", "organized", "organizes"}),
        ("reach", {"reach", "reaches", "reached", "reaching"}),
        ("begin", {"begin", "begins", "began", "begun", "beginning"}),
        ("open", {"open", "opens", "opened", "opening"}),
        ("lie", {"lie", "lies", "lay", "lying"}),
    ],
)
def test_forms_of_a_verb(verb, wanted):
    assert wanted <= forms(verb)


def test_forms_are_not_other_verbs():
    assert "sitting" not in forms("site")
    assert "found" in forms("find")
    assert "founded" not in forms("find")


def instance(index: int, text: str, delays: list[float]) -> Instance:
    return Instance(index=index, prediction=text, delays=delays, elapsed=[0.0] * len(delays))


def key(line: int, accepted: str, position: int = 5, kind: str = "prefix") -> Key:
    return Key("toy", line, "", position, kind, "x", tuple(accepted.split("; ")))


def test_a_verb_is_found_where_it_stands():
    log = [
        instance(0, "He Denied, it.", [1, 4, 5]),
        instance(1, "They set their boats off early.", [1, 2, 3, 5, 6, 6]),
        instance(2, "The set of boats was far too small to go off.", [1] * 11),
        instance(3, "Nothing.", [7]),
    ]
    keys = [
        key(1, "refuse; deny"),
        key(2, "set off"),
        key(3, "set off", kind="clause"),
        key(4, "deny"),
    ]
    judged = judge(keys, log)
    assert [one.delay for one in judged] == [4, 6, None, None]
    assert [one.foreseen for one in judged] == [True, False, False, False]
    found = tally(judged)
    assert (found.keys, found.found, found.foreseen, found.lag) == (4, 0.5, 0.25, 1.0)
    assert found.by_kind == {"prefix": pytest.approx(2 / 3), "clause": 0.0}


def test_two_systems_are_compared_key_by_key():
    keys = [key(n, "go") for n in range(1, 41)]
    good = judge(keys, [instance(n, "they went", [1, 2]) for n in range(40)])
    bad = judge(keys, [instance(n, "they went" if n % 4 else "they", [1, 2]) for n in range(40)])
    apart, low, high = verbs.difference(good, bad)
    assert (apart, low > 0.1, high < 0.45) == (0.25, True, True)
    assert verbs.difference(good, good) == (0.0, 0.0, 0.0)
    assert "| x | a | b | +25.0 |" in verbs.difference_table([("x", "a", "b", (apart, low, high))])


def test_a_form_alone():
    log = [instance(0, "The backing fell back.", [1, 2, 3, 4])]
    assert judge([key(1, "=back")], log)[0].delay == 4
    assert judge([key(1, "back")], log)[0].delay == 2


def test_a_log_without_the_sentence_is_an_error():
    with pytest.raises(ValueError, match="no sentence 9 of toy"):
        judge([key(9, "go")], [instance(0, "a", [1])])


def test_levels_lie_between_points():
    text = verbs.level_table({"A": [(2.0, 0.4), (4.0, 0.6)], "B": []}, (3.0, 5.0))
    assert "| A | 50.0 |  |" in text
    assert "| B | not yet run |  |" in text


def test_the_command_of_verbs(tmp_path, monkeypatch, capsys):
    keys, log = tmp_path / "keys.tsv", tmp_path / "log.jsonl"
    keys.write_text("# a comment\ntoy\t1\tabc\t2\tclause\tgehen\tgo; =walk\n")
    log.write_text(json.dumps({"index": 0, "prediction": "He went", "delays": [1, 3]}) + "\n")
    monkeypatch.setattr("sys.argv", ["verbs", str(keys), str(log)])
    assert verbs.main() == 0
    assert "100.0" in capsys.readouterr().out
    keys.write_text("toy\t1\tabc\t2\tnoun\tgehen\tgo\n")
    assert verbs.main() == 2
    assert "line 1: no kind 'noun'" in capsys.readouterr().err


def test_the_list_of_verbs():
    keys = read_keys(FOLDER / "verbs.tsv")
    assert len(keys) == len({k.line for k in keys}) == 200
    assert {k.set for k in keys} == {"newstest2015"}
    assert min(sum(k.kind == kind for k in keys) for kind in verbs.KINDS) >= 35
    for one in keys:
        assert len(one.digest) == 12
        assert one.position >= 6, "it comes late"
        assert max(len(word.split()) for word in one.accepted) <= 2, "verbs, no text"


@needs_newstest
def test_the_verbs_are_those_of_newstest():
    sources, references = (
        compare.find_text(Path(NEWSTEST), [f"newstest2015.{side}"]) for side in ("de", "en")
    )
    keys = read_keys(FOLDER / "verbs.tsv")
    assert all(digest(sources[k.line - 1]) == k.digest for k in keys)
    assert all(k.position <= len(sources[k.line - 1].split()) for k in keys)
    log = [instance(i, text, [1.0] * len(text.split(" "))) for i, text in enumerate(references)]
    assert tally(judge(keys, log)).found == 1.0
    shifted = [instance(i, log[i - 100].prediction, log[i - 100].delays) for i in range(len(log))]
    assert tally(judge(keys, shifted)).found < 0.05  # by chance


# --- the plan


def test_the_plan():
    """Every system that is asked for has its points, alike in size, on the same data."""
    german = plan.load(FOLDER / "plan.toml")
    assert (german.valid, german.test, german.quality) == ("newstest2013", "newstest2015", "bleu")
    assert german.counts_subwords
    groups = {name: [r for r in german.runs if r.group.name == name] for name in german.groups}
    for name in ("mma-il", "mma-h", "milk", "one-head"):
        assert len({run.settings for run in groups[name]}) >= 4
    assert len(groups["wait-k"][0].points) >= 4
    for family in ("agents", "box"):
        assert {p.agent.split(":")[0] for r in groups[family] for p in r.points if p.agent} == {
            "wait-k", "static", "align-att", "ed-att", "agreement", "hold",
            "wait-if-worse", "wait-if-diff",
        }  # fmt: skip
        trained = {p.agent.split("/")[-1] for r in groups[f"{family}-trained"] for p in r.points}
        assert {name.split("-")[0].split(":")[0] for name in trained} == {
            "reinforced", "predict", "imitation",
        }  # fmt: skip
    for name in ("ablation-offline", "ablation-mma-h"):
        shapes = {(r.labels["layers"], r.labels["heads"]) for r in groups[name]}
        assert shapes == {(n, h) for n in (1, 3, 6) for h in (1, 4, 8, 16)}
    listed = [run.name for name in german.lists for run in german.select([name])]
    known = {path.stem for path in (FOLDER / "results").glob("*.json")}
    missing = {r.name for r in german.runs if r.group.part == 1 and r.recipe} - known
    assert missing <= set(listed), "what part one lacks comes next"
    for number, run in enumerate(map(german.run, listed)):
        assert not run.init_from or run.init_from in listed[:number], "its start is trained first"
    offline = german.run("offline").config().model
    for run in german.runs:
        assert run.group.deviations, "every deviation stands beside its number"
        if run.recipe is None or run.labels.keys() & {"layers"}:
            continue
        config = run.config()
        assert config.train.accumulate == 1
        if config.model.architecture == "transformer":
            assert config.model == offline
        if run.group.name in ("mma-h-screening", "undecided", "shapes-start"):  # they say so
            continue
        # three epochs since the offline model, in a chain
        updates, before = config.train.updates, run
        while before.init_from and "offline" not in before.init_from:
            before = german.run(before.init_from)
            updates += before.config().train.updates
        assert updates >= 5_799, run.name


def test_shapes_stand_for_each_way_to_stream_them():
    """MMA-H has a row and a line by its threshold and one undecided; offline has one."""
    german = plan.load(FOLDER / "plan.toml")

    def result(*points: tuple[str, float]) -> dict:
        scores = {"al": 1.0, "dal": 2.0, "span": None}
        return {
            "points": [
                {"point": name, "valid": {"bleu": b, **scores}, "test": {"bleu": b + 1, **scores}}
                for name, b in points
            ]
        }

    results = {
        "layers1-heads1-offline": result(("", 18.0)),
        "layers1-heads4-offline": result(("", 19.0)),
        "layers1-heads1-mma-h": result(("threshold=0.5", 11.0), ("mass=0.7", 15.0)),
        "layers6-heads4-offline": result(("", 20.0)),
    }
    lines = ablation.ablation(german, results, "valid").splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[:5] for row in rows] == [
        ["1", "1", "18.00", "19.00", "threshold=0.5"],
        ["1", "1", "18.00", "19.00", "mass=0.7"],
        ["1", "4", "19.00", "20.00", ""],
        ["6", "4", "20.00", "21.00", ""],
    ]
    assert [row[5] for row in rows] == ["11.00", "15.00", "", ""]
    offline, quality, latency = figures.draw_ablation(german, results).axes
    assert [list(line.get_ydata()) for line in offline.lines] == [[18.0, 19.0], [20.0]]
    assert [list(line.get_ydata()) for line in quality.lines] == [[11.0], [15.0]]
    assert [list(line.get_ydata()) for line in latency.lines] == [[2.0], [2.0]]


# --- from a plan to a page

TOY = f"""
name = "toy"
quality = "bleu"
set = ["data.batch_tokens=500", "model.decoder_layers=1", "train.average=1"]
[corpora.toy]
folder = "toy"
tokenized = false
subwords = true

[groups.offline]
title = "offline"
figure = "offline"
paper = 99.0
corpus = "toy"
recipe = "{ROOT}/recipes/toy/offline.toml"
set = ["train.updates=60", "train.warmup=10"]
deviations = ["a toy"]

[groups.mma-h]
title = "MMA-H"
figure = "MMA-H"
corpus = "toy"
recipe = "{ROOT}/recipes/toy/mma-h.toml"
set = ["train.updates=8", "train.warmup=2", "loss.lambda_var=0.1"]
init_from = "offline"

[groups.wait-k]
title = "wait-k"
figure = "wait-k"
corpus = "toy"
recipe = "{ROOT}/recipes/toy/wait-k.toml"
set = ["train.updates=8", "train.warmup=2", "policy.k=[1, 3]"]
init_from = "offline"

[groups.agents]
title = "agents"
part = 3
corpus = "toy"
use = "offline"

[groups.box]
title = "agents over a model that this plan does not train"
part = 4
corpus = "toy"
model = "FOLDER/runs/offline/final"

[[runs]]
name = "offline"
group = "offline"

[[runs]]
name = "mma-h-var0.1"
group = "mma-h"

[[runs]]
name = "wait-k"
group = "wait-k"
points = ["k=1", "k=3"]

[[runs]]
name = "agents-wait-k"
group = "agents"
points = ["wait-k:1", "wait-k:2"]

[[runs]]
name = "box-wait-k"
group = "box"
points = ["wait-k:1", "wait-k:2"]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A toy experiment over Moses tokens and subwords, measured in words and in subwords."""
    folder = tmp_path_factory.mktemp("german")
    write_toy(folder / "text", 300)
    pairs = {
        name: TextPair(*(folder / "text" / f"{name}.{side}" for side in ("en", "fr")))
        for name in ("train", "valid", "test")
    }
    for name in ("valid", "test"):  # a few sentences are enough
        for path in (pairs[name].source, pairs[name].target):
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:8]))
    parts = [pairs["train"]], pairs["valid"], pairs["test"]
    prepare(folder / "data" / "toy", *parts, pipeline="moses-bpe", vocabulary=300)
    (folder / "plan.toml").write_text(TOY.replace("FOLDER", str(folder)))
    toy = plan.load(folder / "plan.toml")
    options = Options(out=folder, results=folder, device="cpu", revision="abc")
    summary = Experiment(options, lambda line: None).run(toy, list(toy.runs))
    assert not summary.failed
    assert len(summary.done) == 5
    return folder


def results(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((folder / "results").glob("*.json"))]


def test_stored_predictions_score_the_same_in_words_and_in_subwords(finished):
    sources, references = (
        list(read_lines(finished / "text" / f"test.{side}")) for side in ("en", "fr")
    )
    for result in results(finished):
        for point in result["points"]:
            scores = point["test"]
            assert scores["al_subwords"] != scores["al"]  # a word has several pieces
            file = finished / point["predictions"]
            log = with_texts(read_predictions(file), sources, references)
            again = all_scores(log, tokenized=False, subwords=True)
            for name in ("bleu", *METRICS, *(f"{metric}_subwords" for metric in METRICS)):
                assert again[name] == pytest.approx(scores[name], abs=1e-9), name
            kept = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]
            wanted = {"index", "prediction", "delays", "token_delays", "source_subwords"}
            assert all(line.keys() - {"spans"} == wanted | {"reference_tokens"} for line in kept)


def test_a_model_that_no_plan_trains_is_measured_like_that_of_a_run(finished):
    known = {one["name"]: one for one in results(finished)}
    ours, theirs = known["agents-wait-k"], known["box-wait-k"]
    assert theirs["uses"] == f"{finished}/runs/offline/final"
    assert [p["test"] for p in ours["points"]] == [p["test"] for p in theirs["points"]]
    toy = plan.load(finished / "plan.toml")
    table = agents.agents(toy, known, "box")
    assert table == agents.agents(toy, known)
    assert f"| wait-k:2 | {theirs['points'][1]['test']['bleu']:.2f} |" in table


def test_the_page_is_made_of_results_and_predictions(finished):
    spec = importlib.util.spec_from_file_location("german_report", FOLDER / "report.py")
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    report.NEAR = 99.0  # whatever latency a toy has
    sources = list(read_lines(finished / "text" / "test.en"))
    written = "=" + sources[0].split()[0]  # found or not: a key is judged
    (finished / "verbs.tsv").write_text(
        "\n".join(
            "\t".join(["toy", str(n + 1), digest(line), "2", kind, "gehen", f"go; {written}"])
            for n, (line, kind) in enumerate(zip(sources, verbs.KINDS, strict=False))
        )
        + "\n"
    )
    document = finished / "page.md"
    document.write_text("a\n<!-- de-en-offline: begin -->\n<!-- de-en-offline: end -->\nb\n")
    document.write_text(document.read_text() + "<!-- goals: begin -->\nc\n<!-- goals: end -->\n")
    files = report.write_report(finished, document, None)
    before = {file: file.read_bytes() for file in files}
    bleu = next(r for r in results(finished) if r["name"] == "offline")["points"][0]["test"]["bleu"]
    page = (finished / "README.md").read_text()
    assert f"| offline | 99.00 | {bleu:.2f} |" in document.read_text()
    assert "<!-- goals: begin -->\nc\n" in document.read_text(), "another experiment's block"
    assert "| run | AL | BLEU | verbs, % |" in page
    assert "verbs, points" in page, "MMA-H beside wait-k"
    assert "AL, tokens" in page
    assert "{{" not in page
    report.write_report(finished, document, None)
    assert before == {file: file.read_bytes() for file in files}


def test_paired_bootstrap(finished):
    from sacrebleu.metrics.bleu import BLEU

    references = list(read_lines(finished / "text" / "test.fr"))
    ones = ["wait-k@k=1", "wait-k@k=3", {"wait-k@k=1": 0.25, "wait-k@k=3": 0.75}, "nothing"]
    pairs = [("claim", "offline", other) for other in ones]
    compare.compare(finished, pairs, references, BLEU(force=True), draws=50)
    found = json.loads((finished / "comparisons.json").read_text())
    assert [one["other"] for one in found] == [*ones[:2], "wait-k@k=1 and wait-k@k=3"]
    assert all(one["low"] <= one["difference"] <= one["high"] for one in found)
    first, second, between = (one["difference"] for one in found)
    assert between == pytest.approx(0.25 * first + 0.75 * second, abs=2e-3)


def test_a_point_beside_the_line_of_another_system(finished, tmp_path):
    toy = plan.load(finished / "plan.toml")
    known = {one["name"]: one for one in results(finished)}
    line = tables.rows_of([toy.run("wait-k")], known)
    (row,) = tables.rows_of([toy.run("mma-h-var0.1")], known)
    for al, one in zip((2.0, 4.0), line, strict=True):
        one.test["al"] = al
    assert curves.shares(line, "al", 2.5) == {"wait-k@k=1": 0.75, "wait-k@k=3": 0.25}
    assert curves.shares(line, "al", 4.5) is None
    assert curves.shares(line, "al", None) is None
    line[0].test["al"] = None
    assert curves.shares(line, "al", 2.5) is None
    line[0].test["al"] = 2.0
    row.test.update({"bleu": 9.0, "al": 2.5, "dal": 3.5})
    found = {"claim": curves.equal("wait-k", "al"), "one": curves.point_name(row)}
    found |= {"other": "", "difference": 1.0, "low": -0.5, "high": 2.0}
    (tmp_path / "comparisons.json").write_text(json.dumps([found]))
    columns = [("wait-k", "al"), ("wait-k", "dal_subwords")]
    text = curves.equal_table(tmp_path / "comparisons.json", [row], columns)
    assert "| minus wait-k at equal AL | minus wait-k at equal DAL, tokens |" in text
    assert "| mma-h-var0.1 | 9.00 | 2.50 | 3.50 | +1.00 [-0.50, 2.00] |  |" in text
    assert curves.equal_table(tmp_path / "none.json", [row], columns) == tables.not_run()


@pytest.mark.parametrize(
    ("al", "cell"),
    [(2.5, "| +3.00 |"), (1.5, "| +4.00 (k = 1 is slower) |"), (0.5, ""), (9.0, "")],
)
def test_a_point_without_another_near_is_not_compared(finished, al, cell):
    toy = plan.load(finished / "plan.toml")
    known = {one["name"]: one for one in results(finished)}
    for point, latency, bleu in zip(known["wait-k"]["points"], (2, 4), (5, 9), strict=True):
        for part in ("test", "valid"):
            point[part].update({"bleu": bleu} | dict.fromkeys(METRICS, latency))
    for part in ("test", "valid"):
        scores = {"bleu": 9.0} | dict.fromkeys(METRICS, al)
        known["mma-h-var0.1"]["points"][0][part].update(scores)
    text = curves.equal_latency(toy, known, ("mma-h",), "wait-k")
    alone = f"(test): mma-h-var0.1 (9.00 at {al:.2f})."
    assert (cell in text, alone in text) == (True, not cell)


# --- on a machine that keeps nothing


def test_what_a_call_cannot_bring_at_once_comes_in_parts(tmp_path):
    def on_gpu(*arguments: str) -> str:
        places = {"WORK": str(tmp_path / "work"), "OUT": str(tmp_path), "PYTHON": sys.executable}
        script = str(ROOT / "experiments/harness/on_gpu.sh")
        done = subprocess.run(
            [script, *arguments], env=os.environ | places, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "data" / "toy").mkdir(parents=True)
    (tmp_path / "data" / "toy" / "tokens").write_bytes(os.urandom(5_000))
    words = Vocabulary.learn_words({"It": 1, "is.": 1}, min_count=1)
    Codec(Pipeline("words"), words, words).save(tmp_path / "data" / "toy")
    (tmp_path / "site" / "no_such_package").mkdir(parents=True)
    (tmp_path / "site" / "json").mkdir()
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        for name in ("data", "site"):
            archive.add(tmp_path / name, name)
    packed = (tmp_path / "all.tar.xz").read_bytes()
    for number, part in enumerate((packed[:3_000], packed[3_000:]), 1):
        (tmp_path / f"carry{number}").mkdir()
        (tmp_path / f"carry{number}" / f"all.tar.xz.0{number}").write_bytes(part)
        on_gpu("keep", str(tmp_path / f"carry{number}"))
    said = on_gpu("unpack")
    assert "toy: text is read and written" in said
    tokens = tmp_path / "work" / "data" / "toy" / "tokens"
    assert tokens.read_bytes() == (tmp_path / "data" / "toy" / "tokens").read_bytes()
    assert "added no_such_package" in said
    assert "added json" not in said, "the machine has it"


@pytest.mark.skipif(shutil.which("xz") is None, reason="xz is not installed")
def test_parts_are_packed_and_results_taken_at_home(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "experiments" / "some").mkdir(parents=True)
    (work / "data" / "toy").mkdir(parents=True)
    tokens = os.urandom(5_000)
    (work / "data" / "toy" / "tokens").write_bytes(tokens)

    def at_home(*arguments: str) -> None:
        script = str(ROOT / "experiments/harness/at_home.sh")
        places = {"PART": "3000", "PYTHON": sys.executable}
        subprocess.run([script, *arguments], cwd=home, env=os.environ | places, check=True)

    subprocess.run(["git", "init", "-q", str(home)], check=True)
    at_home("pack", str(work), "all", "data/toy")
    parts = sorted((home / ".carry").glob("all.*/*"))
    names = ["all.1/all.tar.xz.01", "all.2/all.tar.xz.02"]
    assert [str(part.relative_to(home / ".carry")) for part in parts] == names
    with lzma.open(io.BytesIO(b"".join(part.read_bytes() for part in parts))) as whole:
        assert tokens in whole.read()
    (work / "results").mkdir()
    (work / "results" / "a.json").write_text("{}")
    with tarfile.open(work / "some.tar", "w") as archive:
        archive.add(work / "results", "results")
    (work / "a.tar.01").write_text("weights")
    at_home("site", str(work))  # it works by itself, elsewhere
    check = """if True:
        import sys
        before = set(sys.modules)
        import sacremoses
        assert sacremoses.MosesTokenizer("en").tokenize("It is.") == ["It", "is", "."]
        places = {n: getattr(m, "__file__", None) for n, m in list(sys.modules.items())}
        others = {n.split(".")[0] for n in places.keys() - before if "-packages" in str(places[n])}
        print(others - {"regex", "numpy", "psutil"})  # sacrebleu's, and such as are not needed
    """
    places = {"PYTHONPATH": str(work / "site")}
    done = subprocess.run(
        [sys.executable, "-c", check], env=os.environ | places, capture_output=True, text=True
    )
    assert done.stdout == "set()\n", done.stderr
    at_home("take", "some", str(work))
    assert (home / "experiments" / "some" / "results" / "a.json").read_text() == "{}"
    assert (home / ".carry" / "models" / "a.tar.01").read_text() == "weights"


HARNESS = """#!/bin/sh
# in the place of Python: the harness, which takes its time, and `simultan export`
case "$*" in
    *experiments.harness*)
        work=$(echo "$*" | sed 's/.*--out \\([^ ]*\\) .*/\\1/')
        echo "[ 1 s] first: trained"
        echo '{"finished": true}' > "$work/trained/first.json"
        echo '{"finished": false}' > "$work/trained/second.json"
        mkdir -p "$work/runs/first/final" && echo '{}' > "$work/results/first.json"
        until [ -e "$work/stop" ]; do sleep 0.1; done
        echo "done 1: first" ;;
    *export*) mkdir -p "$5" && head -c 60000000 /dev/urandom > "$5/weights" ;;
esac
"""


@pytest.fixture
def call(tmp_path) -> Callable[..., tuple[str, list[str]]]:
    """A call of a machine on which a stand-in plays the harness: what it says and brings."""
    fake = tmp_path / "python"
    fake.write_text(HARNESS)
    fake.chmod(0o755)

    def calling(*arguments: str, code: int = 0) -> tuple[str, list[str]]:
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        places = {"WORK": str(tmp_path / "work"), "OUT": str(out), "PYTHON": str(fake)}
        script = str(ROOT / "experiments/harness/on_gpu.sh")
        done = subprocess.run(
            [script, *arguments], env=os.environ | places, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout, sorted(path.name for path in out.iterdir())

    return calling


def test_a_plan_goes_on_between_calls(tmp_path, call):
    """Calls bring results and each piece of a model once; a second process is refused."""
    work = tmp_path / "work"
    name = "mma2020-de-en"
    assert "started" in call("start", name, "next")[0]
    assert "running already" in call("start", name, "next", code=1)[0]
    while not (work / name / "results" / "first.json").exists():
        time.sleep(0.05)
    said, files = call("wait", name, "0", "first,second")
    assert "first: trained" in said
    assert "4 pieces of 5, 1 not brought yet" in said, "the second is not trained"
    assert files == [*(f"first.tar.0{n}" for n in (1, 2, 3, 4)), "log.txt", f"{name}.tar"]
    (work / name / "stop").touch()
    said, files = call("wait", name, "600", "first,second")
    assert "first: trained" not in said, "that was told"
    assert "done 1: first" in said
    assert "has ended" in said
    assert files == ["first.tar.05", "log.txt", f"{name}.tar"]
    assert call("ship", "first", "3")[1] == ["first.tar.04", "first.tar.05"]


def test_a_failure_ends_the_call_and_the_plan_goes_on_with_other_code(tmp_path, call):
    name, work = "mma2020-de-en", tmp_path / "work"
    call("start", name, "next")
    with (work / name / "log.txt").open("a") as log:
        log.write("[ 2 s] second: FAILED: ValueError: no\n")
    said, files = call("wait", name, "600")  # the harness itself goes on
    assert "second: FAILED" in said
    assert "is running" in said
    assert f"{name}.tar" in files
    assert "has ended" in call("stop", name)[0]
    assert "started" in call("start", name, "next")[0]
    assert "has ended" in call("stop", name)[0]


def test_parts_of_another_machine_are_missed(tmp_path, call):
    (tmp_path / "carry").mkdir()
    (tmp_path / "carry" / "corpus.tar.xz.02").write_bytes(b"the end")
    call("keep", str(tmp_path / "carry"))
    assert "FAILED: parts are missing" in call("unpack", code=1)[0]


# --- what is stored


@needs_newstest
def test_stored_predictions_of_newstest_score_as_the_tables_say():
    texts = [compare.find_text(Path(NEWSTEST), [f"newstest2015.{side}"]) for side in ("de", "en")]
    for result in results(FOLDER):
        for point in result["points"]:
            log = with_texts(read_predictions(FOLDER / point["predictions"]), *texts)
            again = all_scores(log, tokenized=False, subwords=True)
            for name in ("bleu", "length_ratio", *METRICS, "al_subwords", "dal_subwords"):
                assert again[name] == pytest.approx(point["test"][name], abs=5e-3), result["name"]
