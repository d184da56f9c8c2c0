"""The small model and the plain client of the server's own tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "tests" / "server" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("servers", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
servers = importlib.util.module_from_spec(_SPEC)
sys.modules["servers"] = servers
_SPEC.loader.exec_module(servers)
folder = servers.folder
