"""Who may import whom: one chain, downwards only, read from the syntax tree of every file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "simultan"
CHAIN = [  # a layer imports itself and the layers below it; siblings do not import each other
    ["__main__"],
    ["cli"],
    ["verbs"],
    ["display"],
    ["client"],
    ["server", "simuleval_agent", "captions"],
    ["train"],
    ["evaluation", "marian"],
    ["streaming", "ct2"],
    ["checkpoint"],
    ["losses", "model", "layout"],
    ["ops", "latency", "data"],
    ["config", "boxed", "cues", "starter", "memory", "atomic"],
    ["hub"],
]
DEPTH = {name: depth for depth, layer in enumerate(CHAIN) for name in layer}
# what simultan/__init__.py gives away: the only file outside the chain, and no lower than streaming
PUBLIC = {"load", "Session", "Decoding", "__version__", "expected_alignment", "expected_attention"}
OWNERS = {  # module: the only places of ours that may import it
    "fastapi": "server",
    "starlette": "server",
    "uvicorn": "server",
    "prometheus_client": "server",
    "websockets": "client server/guard.py",
    "pydantic": "server",
    "ray": "contrib",
    "simuleval": "simuleval_agent",
    "huggingface_hub": "hub",
    "torch.distributed": "train/distributed.py",
}
OUTSIDE = {"experiments", "benchmarks", "tests"}


def imports(tree: ast.AST, lazy: bool = False) -> Iterator[tuple[str, bool, int]]:
    """(dotted name, inside a function or only for the type checker, line) of all that is used."""
    for node in ast.iter_child_nodes(tree):
        deferred = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        deferred |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            names = ["torch.distributed"]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            names = [text_of(argument) for argument in node.args[:1]] or ["."]
        for name in names:
            yield name, deferred, node.lineno
        yield from imports(node, deferred)


def text_of(node: ast.expr) -> str:
    """A text as far as it is spelled out; "." if it is not."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return str(first.value).rstrip(".") if isinstance(first, ast.Constant) else "."


def violations(path: str, text: str) -> list[str]:
    """What a file, named relative to src/simultan, imports against the rules."""
    layer = path.removesuffix(".py").split("/")[0]
    if layer not in DEPTH:
        return [] if path == "__init__.py" else [f"{path}: {layer!r} has no place in the chain"]
    found = []
    for name, lazy, line in imports(ast.parse(text)):
        parts = name.split(".")
        other = parts[1] if parts[0] == "simultan" and len(parts) > 1 else ""
        wrong = ""
        if name.startswith("."):
            wrong = "is not spelled out from `simultan`"
        elif parts[0] == "simultan":
            target = "streaming" if other in PUBLIC or not other else other
            if target not in DEPTH:
                wrong = "has no place in the chain"
            elif target != layer and (layer in ("ops", "latency") or not below(layer, target)):
                wrong = f"is not below {layer}"
            elif layer == "cli" and target != "cli" and not lazy:
                wrong = "must be imported when it is needed"
        elif parts[0] in OUTSIDE:
            wrong = "depends on us, never the reverse"
        elif layer == "config" and parts[0] == "torch":
            wrong = "is too heavy for config"
        for module, owner in OWNERS.items():
            if (name + ".").startswith(module + ".") and not {layer, path} & {*owner.split()}:
                wrong = f"belongs to {owner} alone"
        if wrong:
            found.append(f"{path}:{line}: {name} {wrong}")
    return found


def below(layer: str, target: str) -> bool:
    return layer == "cli" or DEPTH[layer] < DEPTH[target]


FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


def test_every_layer_file_is_seen() -> None:
    assert {"__init__.py", "config.py", "ops/__init__.py", "train/distributed.py"} <= set(FILES)


def test_exports_are_listed_where_others_look() -> None:
    """`__all__` stands in packages and in the modules of the reference, and nowhere else."""
    reference = (SOURCE.parents[1] / "docs" / "reference.md").read_text(encoding="utf-8")
    modules = {path: "simultan." + path.removesuffix(".py").replace("/", ".") for path in FILES}
    listed = [
        path
        for path, module in modules.items()
        if "\n__all__ = " in (SOURCE / path).read_text(encoding="utf-8")
        and not path.endswith("__init__.py")
        and f"::: {module}" not in reference
    ]
    assert listed == []


@pytest.mark.parametrize("path", FILES)
def test_imports_go_downwards(path: str) -> None:
    assert violations(path, (SOURCE / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("data/text.py", "from simultan.model import build"),
        ("data/text.py", "def f():\n    import simultan.train.loop"),
        ("data/text.py", "from simultan import latency"),
        ("data/text.py", "from importlib import import_module\nimport_module('simultan.losses')"),
        ("data/text.py", "from .vocabulary import PAD"),
        ("losses.py", "from simultan import config, model"),
        ("checkpoint.py", "import simultan"),
        ("model/state.py", "from simultan import load"),
        ("ops/reference.py", "from simultan.config import Config"),
        ("latency.py", "from simultan import config"),
        ("captions.py", "from simultan.server.protocol import Message"),
        ("captions.py", "import simultan.cli"),
        ("server/app.py", "from simultan.client import Stream"),
        ("client.py", "import uvicorn"),
        ("server/app.py", "from websockets.asyncio.client import connect"),
        ("display.py", "import websockets"),
        ("server/run.py", "def f():\n    from ray import serve"),
        ("cli.py", "def verb():\n    import ray"),
        ("cli.py", "from simultan.train.loop import fit"),
        ("cli.py", "class Verb:\n    from simultan import config"),
        ("cli.py", "import importlib\nimportlib.import_module('simultan.verbs.train')"),
        ("data/text.py", "import importlib\nimportlib.import_module(f'simultan.verbs.{name}')"),
        ("data/text.py", "import importlib\nimportlib.import_module(name)"),
        ("captions.py", "from simultan.verbs.options import Machine"),
        ("streaming/session.py", "def f():\n    from starlette.websockets import WebSocket"),
        ("train/loop.py", "import fastapi"),
        ("evaluation/evaluate.py", "from simuleval.utils import entrypoint"),
        ("train/loop.py", "import torch.distributed.fsdp as fsdp"),
        ("train/loop.py", "from torch.distributed.tensor import DTensor"),
        ("train/loop.py", "from torch import distributed"),
        ("train/loop.py", "import torch\nx = torch.distributed.get_rank()"),
        ("config.py", "from torch import Tensor"),
        ("train/loop.py", "from experiments.mma2020 import tables"),
        ("model/policy.py", "from tests.conftest import poisoned"),
        ("extras/thing.py", ""),
        ("train/loop.py", "import simultan.extras"),
    ],
)
def test_a_violation_is_caught(path: str, text: str) -> None:
    assert len(violations(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("__init__.py", "from simultan.streaming import load"),
        ("cli.py", "def verb():\n    from simultan.server.app import serve"),
        ("cli.py", "if TYPE_CHECKING:\n    from simultan.train.loop import fit"),
        ("cli.py", "def f(x):\n    importlib.import_module(f'simultan.verbs.{x}')"),
        ("verbs/train.py", "from simultan.train.loop import fit"),
        ("simuleval_agent.py", "import simultan\nimport simuleval.utils"),
        ("server/app.py", "import uvicorn\nfrom simultan.server.batcher import Batcher"),
        ("server/guard.py", "import uvicorn\nfrom websockets.frames import Frame"),
        ("client/stream.py", "import websockets\nfrom simultan.server.protocol import Start"),
        ("train/distributed.py", "import torch.distributed as dist"),
        ("train/loop.py", "from simultan.train import distributed"),
        ("model/state.py", "from simultan.data.batching import Batch"),
    ],
)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert violations(path, text) == []
