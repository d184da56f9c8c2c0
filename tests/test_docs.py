"""The documentation: it builds, its tables are current, and it leaves nothing out."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from simultan.latency import METRICS
from simultan.streaming.agents import AGENTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_are_those_of_the_code():
    assert (DOCS / "settings.md").read_text("utf-8") == load("tables").render(), (
        "run `python docs/site/tables.py` and commit docs/settings.md"
    )


def test_every_setting_is_explained():
    rows = re.findall(r"^\| `(\w+)` \|.*\|\s*([^|]*?)\s*\|$", load("tables").render(), re.M)
    assert len(rows) > 50
    assert [name for name, text in rows if not text] == [], "a comment beside the field, please"


def test_every_metric_and_agent_is_described():
    metrics, policies = (DOCS / "metrics.md").read_text(), (DOCS / "policies.md").read_text()
    for name, metric in METRICS.items():
        assert f"**{name.upper()}, {metric.label}**" in metrics
    for name, agent in AGENTS.items():
        if not hasattr(agent, "load"):
            assert f"| `{name}:" in policies


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = {page for part in yaml.safe_load(text)["nav"] for page in flat(part)}
    assert {path.name for path in DOCS.glob("*.md")} == pages - {"index.md"}


def flat(part):
    if isinstance(part, str):
        return [part]
    parts = part if isinstance(part, list) else part.values()
    return [page for one in parts for page in flat(one)]


def test_links_lead_to_files_of_the_site():
    hooks = pytest.importorskip("mkdocs") and load("hooks")
    assert hooks.place_of("README.md") == "index.md"
    assert hooks.place_of("docs/maths.md") == "maths.md"
    assert hooks.place_of("models/de-en/MODEL_CARD.md") == "repository/models/de-en/MODEL_CARD.md"
    assert hooks.target_of("../experiments/mma2020", "docs/x.md") == (
        "experiments/mma2020/README.md"
    )
    assert hooks.target_of("../../../etc/passwd", "docs/x.md") is None
    assert hooks.target_of("nothing.md", "docs/x.md") is None


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING -" not in done.stderr, done.stderr[-3000:]
    metrics = (tmp_path / "metrics.html").read_text("utf-8")
    assert metrics.count("<math") > 10
    assert "FORMULA" not in metrics
    assert "expected_alignment" in (tmp_path / "reference.html").read_text("utf-8")
    for page in tmp_path.glob("*.html"):  # nothing is loaded from elsewhere
        tags = re.findall(r"<(?:script|img|link)[^>]+>", page.read_text("utf-8"))
        assert [tag for tag in tags if "https://" in tag] == []
