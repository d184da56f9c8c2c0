"""Access control: tokens with rights, keys of channels, allowed pages and host names."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import logging
import re
import socket
import tomllib
from asyncio import sleep
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from simultan.server.protocol import ProtocolError
from simultan.server.settings import Settings

logger = logging.getLogger(__name__)
SHORTEST_TOKEN = 8  # characters
RIGHTS = ("translate", "publish", "follow", "metrics")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SECRET = re.compile("[A-Za-z0-9_-]{12,64}")
_CHANNEL = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Token:
    name: str
    secret: bytes = field(repr=False)
    rights: frozenset[str] = frozenset(RIGHTS)

    def follow_key(self, channel: str) -> str:
        """What a follower of this channel gives as its token; it opens nothing else."""
        return _shorten(hmac.digest(self.secret, b"follow " + channel.encode(), "sha256"))


def channel_of(secret: str) -> str:
    """The channel that whoever knows this secret writes; its readers need not know it."""
    if not _SECRET.fullmatch(secret):
        raise ProtocolError(
            "malformed",
            "channel must be a secret: 12 to 64 of the letters a to z and A to Z, digits, - and _",
        )
    return _shorten(hashlib.sha256(b"simultan channel " + secret.encode()).digest())


def check_channel(name: str) -> str:
    if not _CHANNEL.fullmatch(name):
        raise ProtocolError("malformed", "no name of a channel: `started` has it")
    return name


def _shorten(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")


class Access:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        own = [] if settings.token is None else [Token("--token", settings.token.encode())]
        self._own, self._from_file = own, list[Token]()
        self._stamp: tuple[int, int] | None = None
        if settings.tokens_file is not None:
            self._from_file = _read_tokens(settings.tokens_file)
            self._stamp = _stamp(settings.tokens_file)
        name = socket.gethostname().lower()
        self._hosts = {*LOOPBACK, name, f"{name}.local", name.partition(".")[0]}
        self._hosts.update(host.lower() for host in settings.allowed_hosts)
        self._hosts.update(urlsplit(origin).hostname or "" for origin in settings.origins)

    # --- tokens ---

    @property
    def tokens(self) -> list[Token]:
        """Those of today: the file is read again when it has changed."""
        path = self.settings.tokens_file
        if path is not None and (stamp := _stamp(path)) != self._stamp:
            self._stamp = stamp
            try:
                self._from_file = _read_tokens(path)
                logger.info("%s: %d tokens", path, len(self._from_file))
            except (OSError, ValueError) as error:
                logger.error("%s; the tokens from before stay", error)
        return self._own + self._from_file

    @property
    def is_open(self) -> bool:
        """Nobody needs a token."""
        return self.settings.token is None and self.settings.tokens_file is None

    async def check(
        self, right: str, headers: Headers, given: str | None, address: str, channel: str = ""
    ) -> Token | None:
        """The token that gives this right; None: none is needed. A wrong one is answered late."""
        if self.is_open:
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        candidates = [c for c in (given, bearer if scheme.lower() == "bearer" else "") if c]
        known = [t for t in self.tokens for c in candidates if _equal(c, t.secret)]
        for token in known:
            if right in token.rights:
                return token
        if right == "follow":
            for token in self.tokens:
                key = token.follow_key(channel).encode()
                if "publish" in token.rights and any(_equal(c, key) for c in candidates):
                    return token
        if known:
            logger.warning("%s: token %s has no right to %s", address, known[0].name, right)
            raise ProtocolError("unauthorized", f"this token gives no right to {right}")
        if candidates:
            logger.warning("%s: wrong token", address)
            await sleep(self.settings.wrong_token_seconds)
        raise ProtocolError("unauthorized", "the token is missing or wrong")

    # --- pages and names ---

    def check_host(self, headers: Headers) -> None:
        """The name by which the server was called.

        Without tokens, what keeps a foreign page out is that its name is none of ours, although
        its owner can let it lead to our address (DNS rebinding).
        """
        if not self.is_open or "*" in self.settings.allowed_hosts:
            return
        with suppress(ValueError):
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
            if name in self._hosts:
                return
            ipaddress.ip_address(name)
            return
        raise ProtocolError(
            "forbidden-origin", "the server does not know this name of its own (--allowed-host)"
        )

    def check_origin(self, headers: Headers) -> None:
        """A browser says which page it is; only a page of ours, or of a friend, may connect."""
        self.check_host(headers)
        origin = headers.get("origin")
        if origin is None or origin in self.settings.origins or "*" in self.settings.origins:
            return
        with suppress(ValueError):  # an address that is none
            if urlsplit(origin).netloc == headers.get("host", ""):
                return
        raise ProtocolError("forbidden-origin", "this page may not use this server (--origin)")


def _equal(given: str, secret: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read_tokens(path: Path) -> list[Token]:
    """A table for each token: [name], token = "...", rights = ["translate", ...]."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    tokens = []
    for name, table in tables.items():
        secret = table.get("token") if isinstance(table, dict) else None
        rights = table.get("rights", []) if isinstance(table, dict) else []
        if not isinstance(secret, str) or len(secret) < SHORTEST_TOKEN:
            raise ValueError(
                f"{path}: [{name}] needs a token of at least {SHORTEST_TOKEN} characters"
            )
        if not rights or not set(rights) <= set(RIGHTS):
            raise ValueError(f"{path}: [{name}] needs rights, of: {', '.join(RIGHTS)}")
        tokens.append(Token(name, secret.encode(), frozenset(rights)))
    return tokens
