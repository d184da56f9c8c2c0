"""The hub, both ways, against a hub on loopback; what is refused, and that nothing else comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from simultan import boxed, checkpoint, hub
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, UNK, Vocabulary
from simultan.model import build
from tests.fake_hub import TOKEN, Hub, running

WEIGHTS = checkpoint.WEIGHTS
TEXT = "a b c d ij."
# One process with HF_ENDPOINT for all that goes well: huggingface_hub reads it when imported.
BOTH_WAYS = f"""
import json, sys
import simultan
from simultan import boxed
from simultan.cli import app

folder, commit = sys.argv[1:]
app(["push", folder, "someone/tiny", "--license", "apache-2.0"], standalone_mode=False)
told = dict(pinned=str(boxed.resolve(f"hf:someone/tiny@{{commit}}")))
told["folder"] = str(boxed.resolve("hf:someone/tiny"))
told["words"] = simultan.load("hf:someone/tiny").translate(["{TEXT}"])[0].words
told["theirs"] = sorted(path.name for path in boxed.resolve("hf:them/marian").iterdir())
told["errors"] = []
for name in ("hf:nobody/none", "hf:them/marian@v9", "hf:them/pickled", "hf:them/huge",
             "hf:them/empty"):
    try:
        boxed.resolve(name)
    except (ValueError, OSError) as error:
        told["errors"].append(str(error))
print(json.dumps(told))
"""
OFFLINE = """
import sys
from simultan import boxed

print(boxed.resolve(sys.argv[1]))
try:
    boxed.resolve("hf:someone/other")
except OSError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vocabulary = Vocabulary([*SPECIAL, *"abcdefgh", "ij."])
    codec = Codec(Pipeline("words", "de", "en"), vocabulary, vocabulary)
    config = Config(
        model=ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=1),
        policy=PolicyConfig(name="mma-il"),
    )
    torch.manual_seed(3)
    model = build(config, len(vocabulary), len(vocabulary))
    with torch.no_grad():
        model.output.weight[: UNK + 1] = 0
    out = tmp_path_factory.mktemp("hub") / "tiny"
    checkpoint.save(out, checkpoint.weights_of(model), config, codec, trainer={"update": 1})
    (out / "secret.txt").write_text("not for others")
    return out


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Hub]:
    with running() as server:
        old = {name: (folder / name).read_bytes() for name in ("config.toml", WEIGHTS)}
        server.repositories["someone/tiny"] = [old]
        plain = {"config.json": b"{}", "vocab.json": b"{}", "README.md": b"#"}
        code = {"modeling.py": b"import os", "../up.json": b"{}", "sub/config.json": b"{}"}
        weights = {
            "model-00001-of-00002.safetensors": b"1",
            "model-evil0-of-00002.safetensors": b"2",
        }
        server.repositories["them/marian"] = [
            {**plain, **code, **weights, "pytorch_model.bin": b"pickle", "config.yml": b"a: 1"}
        ]
        server.repositories["them/pickled"] = [{**plain, "pytorch_model.bin": b"pickle"}]
        server.repositories["them/huge"] = [
            {**plain, "model.safetensors": b"", "model.safetensors.index.json": b""}
        ]
        server.repositories["them/empty"] = [plain]
        server.sizes["model.safetensors.index.json"] = 10 * 2**30
        yield server


def python(script: str, cache: Path, *arguments: str, **environment: str) -> list[str]:
    settings = {**os.environ, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    settings.pop("HF_TOKEN", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**settings, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_both_ways(folder: Path, served: Hub, tmp_path: Path) -> None:
    first = served.commit("someone/tiny", 0)
    output = python(BOTH_WAYS, tmp_path, str(folder), first,
                    HF_ENDPOINT=served.address, HF_TOKEN=TOKEN)  # fmt: skip
    told = json.loads(output[-1])

    pushed = served.repositories["someone/tiny"][-1]
    assert output[0] == f"{served.address}/someone/tiny"
    assert pushed[WEIGHTS] == (folder / WEIGHTS).read_bytes()
    card = pushed["README.md"].decode()
    assert card.startswith("---\n")
    assert "license: apache-2.0\n" in card
    assert "language:\n- de\n- en\n" in card
    assert "- mma-il\n---\n# tiny\n" in card
    assert not {"trainer.pt", "secret.txt"} & pushed.keys()

    assert told["pinned"].endswith(first)
    assert told["folder"].endswith(served.commit("someone/tiny", 1))
    assert told["words"] == _translate(folder)

    assert told["theirs"] == sorted(
        ["config.json", "vocab.json", "README.md", "model-00001-of-00002.safetensors"]
    )
    assert not any(name in " ".join(served.requests) for name in ("modeling", "up.json", "bin"))
    missing, revision, pickled, huge, empty = told["errors"]
    assert "no such model on the hub" in missing
    assert "no revision v9" in revision
    assert "pickle" in pickled
    assert "10,240 MiB" in huge
    assert "no weights" in empty

    lines = python(OFFLINE, tmp_path, "hf:someone/tiny", HF_ENDPOINT="http://127.0.0.1:9")
    assert lines[0] == told["folder"]
    assert "not in the cache, and the hub cannot be reached" in lines[1]
    lines = python(OFFLINE, tmp_path, f"hf:someone/tiny@{first}", HF_HUB_OFFLINE="1")
    assert lines[0] == told["pinned"]
    assert len(lines) == 2


def _translate(folder: Path) -> list[str]:
    import simultan

    return simultan.load(folder).translate([TEXT])[0].words


def test_push_without_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ValueError, match="needs a token of the hub"):
        hub.push(folder, "someone/tiny", "card")
    with pytest.raises(ValueError, match="write OWNER/NAME"):
        hub.push(folder, "tiny", "card")


def test_card_of_the_folder(folder: Path, tmp_path: Path) -> None:
    from simultan.verbs.push import make_card

    config, codec = checkpoint.load_config(folder), Codec.load(folder)
    (tmp_path / "MODEL_CARD.md").write_text("# Mine\n")
    card = make_card(tmp_path, "someone/tiny", config, codec, "")
    assert card.endswith("---\n# Mine\n")
    assert "license" not in card
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# As it is\n")
    assert make_card(tmp_path, "someone/tiny", config, codec, "").startswith("---\nlicense: mit")


@pytest.mark.parametrize(
    "name",
    ["hf:", "hf:../up/there", "hf:a/b/c", "hf:a/..", "hf:a/b@", "hf:a b/c", "hf:a/b@../x",
     "hf:a/b@-x", "hf:.hidden/x"],
)  # fmt: skip
def test_no_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"neither a folder nor|no revision"):
        hub.parse(name)


def test_folders_of_this_machine(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a@b c"
    odd.mkdir()
    assert hub.parse(f"hf:{odd}") == (str(odd), None)
    with pytest.raises(FileNotFoundError, match="no model"):
        hub.kind_of(odd)
    (odd / "config.json").write_text("{}")
    assert hub.kind_of(odd) == "transformers"
    assert boxed.resolve(f"hf:{folder}") == folder
    assert hub.kind_of(folder) == "simultan"
    assert hub.parse("hf:a/b@v1.0") == ("a/b", "v1.0")
    assert hub.parse("hf:a/b@refs/pr/3") == ("a/b", "refs/pr/3")


def test_too_large() -> None:
    with pytest.raises(ValueError, match="download it yourself"):
        hub.choose({"config.json": 10, "model.safetensors": 21 * 2**30}, "a/b")
    assert hub.choose({"config.json": 1, hub.PICKLED: 2}, "a/b", pickled=True) == [
        "config.json",
        hub.PICKLED,
    ]
