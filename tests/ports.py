"""Ports for servers that come and go."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port at which servers can come and go, and which is given to nobody else meanwhile.

    It is bound, so that no connection and no server that takes any port gets it, and nobody
    listens, so that a server that names it can.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
