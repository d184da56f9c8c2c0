"""All sessions of a server: how they start, which connection they have, what ends them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from simultan.server.access import Access, Token, channel_of
from simultan.server.batcher import Batcher
from simultan.server.channels import Channels
from simultan.server.connection import Connection
from simultan.server.metrics import Metrics
from simultan.server.protocol import (
    ClientMessage,
    GoingAway,
    Numbered,
    Ping,
    ProtocolError,
    Start,
    Started,
    Words,
    Write,
)
from simultan.server.rates import Places
from simultan.server.session import Session
from simultan.server.settings import Settings
from simultan.server.texts import TextJob
from simultan.server.words import split_words
from simultan.streaming.decoding import Decoding
from simultan.streaming.translator import Translator

if TYPE_CHECKING:
    from simultan.server.answers import Text

logger = logging.getLogger(__name__)
access_log = logging.getLogger("simultan.access")
SLOTS = 256  # tokens of a row that caches have room for: a segment and one more word
STUCK_SECONDS = 30.0  # no turn takes as long: the model's thread hangs
# agents and beams are the operator's to choose, and so is how whole sentences are searched
_CHOICE = re.compile(r"((threshold|lag|mass)=-?(\d+\.?\d*|\.\d+)(e-?\d+)?|k=-?\d{1,9})", re.ASCII)
_LONGEST = 32  # characters of one


class Live:
    """The sessions of one model."""

    def __init__(self, translator: Translator, settings: Settings) -> None:
        self.settings, self.metrics, self.access = settings, Metrics(), Access(settings)
        pipeline = translator.codec.pipeline
        languages = (pipeline.source_language, pipeline.target_language)
        # clients count words by the source, so it is told even if the target is unknown: "zh-"
        self.pair = "-".join(languages) if any(languages) else ""
        assert isinstance(settings.decoding, Decoding)
        self.default = settings.decoding
        model = self.model = translator.session(self.default, rows=settings.rows)
        self.beam = self.default.beam  # the operator's, too, whatever a client chooses
        if self.default == Decoding(beam=self.beam) and model.policy.undecided:
            self.default = self.default.resolve(model.policy, model.lags)  # the slider moves this
        self.layers, self.heads = model.decider.layers, model.decider.heads
        state = getattr(model.decider, "state", None)
        if state is not None and model.cuts:
            state.make_room(SLOTS)
        self.batcher = Batcher(model, settings, self.metrics)
        self.learned = model.policy.learned
        self.choices: dict[str, float] = {}  # of clients, with an example for each
        if self.learned:
            self.choices = {"threshold": 0.5, "lag": 4, "mass": 0.7}
            if not model.lags.points:
                del self.choices["lag"]
        elif model.policy.name == "wait-k":
            self.choices = {"k": 3}
        each, metrics = settings.per_address, self.metrics
        self.sessions_of = Places("session", settings.sessions, each, metrics.sessions.set)
        followers = Places("follower", settings.max_followers, each, metrics.followers.set)
        self.channels = Channels(self.pair, settings.heartbeat_seconds, followers)
        self.sessions: dict[str, Session] = {}
        self.connections: set[Connection] = set()
        self.jobs: set[TextJob] = set()
        self.tag = ""  # session ids begin with it: of a server among others
        self.followable = True  # False: followers may come to another server
        self.draining = False  # no new sessions
        self.stopping = False  # no new words
        self._ticker: asyncio.Task[None] | None = None

    # --- the server's life ---

    def start(self) -> None:
        self.batcher.start(asyncio.get_running_loop())
        self._ticker = asyncio.create_task(self._tick())

    @property
    def condition(self) -> str:
        """`ok`, or why nobody should come now."""
        if self.draining or not self.batcher.alive or self.batcher.stuck(STUCK_SECONDS):
            return "stopping"
        return "ok" if self.batcher.warm else "starting"

    @property
    def healthy(self) -> bool:
        return self.condition == "ok"

    async def drain(self, seconds: float) -> None:
        """No new sessions. Those that are open get so long to come to the end of a sentence."""
        self.draining = True
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stopping:
            connected = [s for s in self.sessions.values() if s.connection is not None]
            if not self.jobs and all(session.queue.at_rest for session in connected):
                return
            await asyncio.sleep(0.05)

    async def finish(self) -> None:
        """No more words; what was received is written; everybody is told."""
        if self.stopping:
            return
        self.draining = self.stopping = True
        until = time.monotonic() + self.settings.flush_seconds
        quiet = 0
        while quiet < 3 and time.monotonic() < until:  # idle, and what was written is sent
            unsent = any(c.session and c.session.unsent() for c in self.connections)
            quiet = quiet + 1 if self.batcher.idle and not unsent else 0
            await asyncio.sleep(0.02)
        self.channels.stop()
        for job in self.jobs:
            job.stop()
        for connection in list(self.connections):
            connection.end(GoingAway(ack=connection.received))
        until = time.monotonic() + 1
        while (self.connections or self.jobs) and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.finish()
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker
        await asyncio.to_thread(self.batcher.stop)

    # --- sessions ---

    def split(self, text: str) -> list[str]:
        return split_words(text, self.model.codec.split_source)

    def choose(self, text: str) -> Decoding:
        """How a client wants to be translated, if this model can do it."""
        if text in ("", "default"):
            return self.default
        known = len(text) <= _LONGEST and _CHOICE.fullmatch(text)
        if not known or text.partition("=")[0] not in self.choices:
            forms = ", ".join(["default", *(f"{n}={v}" for n, v in self.choices.items())])
            raise ProtocolError("malformed", f"decoding must be one of: {forms}")
        try:
            decoding = replace(Decoding.parse(text), beam=self.beam)
            decoding.resolve(self.model.policy, self.model.lags)
        except ValueError as error:
            raise ProtocolError("malformed", f"decoding: {error}") from None
        return decoding

    def choose_for(self, wanted: Start | Text) -> Decoding:
        """The same for what begins; refused if it is meant for another server."""
        if wanted.pair and wanted.pair != self.pair:
            raise ProtocolError("unknown-pair", f"this server translates {self.pair or 'one pair'}")
        if wanted.decoding is None and wanted.threshold is not None and self.learned:
            return Decoding(threshold=wanted.threshold, beam=self.beam)
        return self.choose(wanted.decoding or "")

    def take_place(self, address: str) -> None:
        """A place for a session or a text, or `busy`."""
        if self.draining:
            raise ProtocolError("busy", "the server stops; try again")
        self.sessions_of.take(address)

    def open(self, start: Start, address: str) -> Session:
        decoding = self.choose_for(start)
        channel = "" if start.channel is None else channel_of(start.channel)
        self.take_place(address)
        queue = self.batcher.open(
            lambda message: self._deliver(session, message), decoding, address=address
        )
        session = Session(self, queue, decoding, address)
        self.sessions[session.id] = session
        if channel and self.followable:
            session.channel = channel
            self.channels.open(channel, session.id)
        self.metrics.started.inc()
        return session

    def publishes(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        return session is not None and bool(session.channel)

    def resume(self, session_id: str, last: int) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise ProtocolError("unknown-session", "there is no such session, or no longer")
        session.resume(last)
        if session.connection is not None:
            session.connection.fail("replaced", "another connection has resumed this session")
        self.metrics.resumed.inc()
        return session

    def describe(self, session: Session, resumed: bool, token: Token | None) -> Started:
        """How things stand, for `started`. `token` is the one that the client has given."""
        lags = self.model.lags
        threshold = session.decoding.resolve(self.model.policy, lags).threshold
        follow = token.follow_key(session.channel) if token and session.channel else ""
        return Started(
            session=session.id,
            pair=self.pair,
            decoding=str(replace(session.decoding, beam=None)),
            default=str(replace(self.default, beam=None)),
            layers=self.layers,
            heads=self.heads,
            limits=self.settings.limits,
            resumed=resumed,
            learned=self.learned,
            lag=None if threshold is None else lags.lag(threshold),
            lags=lags.points,
            channel=session.channel,
            follow=follow,
            threshold=threshold,
        )

    def take(self, connection: Connection, message: ClientMessage) -> None:
        """A message of a connection that has started."""
        session = connection.session
        if session is None:
            return
        if isinstance(message, Start):
            raise ProtocolError("malformed", "start comes once, and first")
        if isinstance(message, Ping):
            connection.answer_ping()
        elif self.stopping and message.seq:
            return
        before = session.words
        if session.receive(message) and isinstance(message, Words):
            self.metrics.heard.inc(session.words - before)

    def lose(self, session: Session) -> None:
        """The connection is gone, the session stays for a while."""
        session.connection, session.lost = None, time.monotonic()

    def forget(self, session: Session, why: str) -> None:
        """The session is over."""
        if self.sessions.pop(session.id, None) is None:
            return
        self._free(session, why)
        self.channels.close(session.channel, session.id)

    def _free(self, session: Session, why: str) -> None:
        """Its place is free, once; a session that is done stays only to be fetched."""
        if session.queue.closed:
            return
        session.queue.close()
        self.sessions_of.give_back(session.address)
        access_log.info(
            "%s session %s: %d words, %d messages, %.1f s",
            session.address, why, session.words, session.produced,
            time.monotonic() - session.started,
        )  # fmt: skip

    def _deliver(self, session: Session, message: Numbered | ProtocolError) -> None:
        if isinstance(message, ProtocolError):
            self._fail(session, message.code, str(message))
            return
        session.add(message)
        if session.channel:
            self.channels.publish(session.channel, session.id, message)
        if isinstance(message, Write):
            self.metrics.writes.inc()
        if session.done:
            self._free(session, "finished")
        if session.connection is not None:
            session.connection.wake.set()

    def _fail(self, session: Session, code: str, message: str) -> None:
        if session.connection is not None:
            session.connection.fail(code, message)
        self.forget(session, code)

    # --- clocks ---

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.tick_seconds)
            now = time.monotonic()
            for session in list(self.sessions.values()):
                self._look_at(session, now)
            for job in list(self.jobs):
                job.look(now, self.settings.slow_seconds)
            self.channels.look(now, self.settings.slow_seconds)

    def _look_at(self, session: Session, now: float) -> None:
        """The clocks of one session."""
        settings = self.settings
        full = session.queue.seconds_full(now)
        if session.connection is None:
            keep = settings.resume_seconds if session.received else settings.unused_seconds
            if now - session.lost > min(keep, settings.resume_seconds):
                self.forget(session, "lost")
        elif full > settings.slow_seconds:
            message = f"{settings.window} messages were not acknowledged: resume, and read faster"
            session.connection.fail("slow-reader", message)
        elif now - session.spoken > settings.idle_seconds and not session.finishing:
            self._fail(session, "idle", f"nothing was said for {settings.idle_seconds:g} seconds")
