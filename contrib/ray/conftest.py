"""The small model and the plain client of the server's own tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "tests" / "server" / "conftest.py"
sys.path.append(str(_PATH.parent))  # for what it imports
_SPEC = importlib.util.spec_from_file_location("server_fixtures", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
servers = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(servers)
folder = servers.folder
