"""What is said of the package in several places is the same in all of them."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

INSTALLED = ("dev", "docs", "serve", "hf", "ct2")


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["cff-version"] == "1.2.0"


def test_everything_that_make_installs_has_a_pin():
    lines = (ROOT / "constraints.txt").read_text("utf-8").split()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    extras = [PROJECT["optional-dependencies"][name] for name in INSTALLED]
    assert f".[{','.join(INSTALLED)}]" in (ROOT / "Makefile").read_text("utf-8")
    for need in [*PROJECT["dependencies"], *(need for extra in extras for need in extra)]:
        name = need.partition(">")[0].partition("[")[0].lower().replace("_", "-")
        assert name in pinned, f"{name} is not in constraints.txt"


def test_an_sdist_holds_what_a_wheel_is_built_from():
    manifest = (ROOT / "MANIFEST.in").read_text("utf-8")
    for folder in ("models", "recipes/starter"):
        assert f"graft {folder}\n" in manifest
        assert (ROOT / folder).is_dir()
