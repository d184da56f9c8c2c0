"""Rows are for those who have words: given at the first one, taken back, and lost without loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from running_servers import CODEC, MODEL, Client, Running, expected, make, text_of, wait_until

from simultan.model import TranslationModel
from simultan.server.batcher import MOST_TOKENS, Batcher
from simultan.server.metrics import Metrics
from simultan.server.protocol import Finished, ProtocolError, Write
from simultan.server.queue import Queue
from simultan.server.settings import Settings
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import End, Event, Session
from simultan.streaming.session import Write as SessionWrite

Start = Callable[..., Running]
DECODING = Decoding(threshold=0.5)


class Work:
    """A batcher without a thread: turns are taken by hand."""

    def __init__(self, rows: int, model: TranslationModel = MODEL, **options: Any) -> None:
        self.session = Session(model, CODEC, DECODING, rows=rows, segment=True)
        settings = Settings(words_per_second=1e9, **options)
        self.batcher = Batcher(self.session, settings, Metrics())
        self.said: dict[Queue, list[Any]] = {}

    def open(self, **options: Any) -> Queue:
        queue = self.batcher.open(lambda message: None, DECODING, **options)
        self.said[queue] = []
        return queue

    def obey(self) -> None:
        while not self.batcher._commands.empty():
            command = self.batcher._commands.get()
            assert command is not None
            command()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.obey()
            self.batcher._turn()
            for queue, message in self.batcher._out:
                self.said[queue].append(message)
                queue.acknowledge(getattr(message, "seq", 0))
            self.batcher._out = []

    def writes(self, queue: Queue) -> list[tuple[str, int]]:
        return [(m.text, m.delay) for m in self.said[queue] if isinstance(m, Write)]

    def until_done(self, *queues: Queue) -> None:
        for _ in range(5000):
            if all(
                self.said[q] and isinstance(self.said[q][-1], Finished | ProtocolError)
                for q in queues
            ):
                return
            self.turn()
        raise AssertionError("it goes on and on")


def test_a_stream_has_a_row_only_while_it_has_something_to_translate() -> None:
    work = Work(rows=2)
    queue = work.open()
    work.turn()
    assert queue.row is None
    queue.push(["ab", "cd"])
    work.turn(20)
    assert queue.row is not None  # a sentence is open
    queue.push(["ef!"])
    work.turn(40)
    assert queue.row is None
    assert sorted(work.batcher.rows.free) == [0, 1]
    queue.push(["fe", "dc!"])
    queue.finish()
    work.until_done(queue)
    assert work.writes(queue) == expected("ab cd ef! fe dc!")


@pytest.mark.parametrize("seed", range(3))
def test_more_streams_than_rows_all_write_what_one_session_writes(seed: int) -> None:
    work = Work(rows=2, hold_seconds=0.0)  # rows are taken away all the time
    texts = [text_of(10 * seed + i, sentences=3, words=7) for i in range(7)]
    queues = [work.open() for _ in texts]
    for position in range(21):
        for queue, text in zip(queues, texts, strict=True):
            queue.push([text.split()[position]])
            work.turn()
    for queue in queues:
        queue.finish()
    work.until_done(*queues)
    for queue, text in zip(queues, texts, strict=True):
        assert work.writes(queue) == expected(text)
        numbers = [m.seq for m in work.said[queue]]
        assert numbers == list(range(1, len(numbers) + 1))


def test_the_model_has_computed_before_the_first_client(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all rows, long texts, and one row: what is first needed then is there already."""
    steps: list[list[int]] = []
    advance = Session.advance

    def note(session: Session, rows: list[int]) -> list[tuple[int, Event]]:
        steps.append(list(rows))
        return advance(session, rows)

    monkeypatch.setattr(Session, "advance", note)
    server = start(rows=3)
    wait_until(lambda: len(steps) == 3)
    assert steps == [[0, 1, 2], [0, 1, 2], [0]]
    assert Client(server.url).translate("ab cd!") == expected("ab cd!")


def test_a_silent_stream_keeps_its_row_while_nobody_wants_it() -> None:
    work = Work(rows=1, hold_seconds=0.0)
    queue, other = work.open(), work.open()
    queue.push(["ab", "cd"])
    work.turn(30)
    row = queue.row
    assert row is not None
    work.turn(30)
    assert queue.row == row
    other.push(["ab!"])
    other.finish()
    work.until_done(other)
    assert queue.row is None
    queue.push(["ef!"])
    queue.finish()
    work.until_done(queue)
    assert work.writes(queue) == expected("ab cd ef!")


def test_words_that_no_model_reads_do_not_keep_a_row() -> None:
    """They never fill a segment, so it is ended before it cannot be said again."""
    work = Work(rows=1, hold_seconds=0.0)
    queue = work.open()
    for _ in range(6):
        queue.push(["ab", *["\u266a"] * 99])
        work.turn(130)
    assert queue.segment == 1
    other = work.open()
    other.push(["ab!"])
    other.finish()
    work.until_done(other)
    queue.finish()
    work.until_done(queue)
    said = " ".join(text for text, _ in work.writes(queue))
    assert said.count("\u266a") == 594


def poison(work: Work, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Steps fail while a row has read this word."""
    advance, push, reset = work.session.advance, work.session.push, work.session.reset
    bad: set[int] = set()

    def note(text: str, row: int = 0) -> None:
        push(text, row)
        if word in text.split():
            bad.add(row)

    def clean(row: int = 0) -> None:
        reset(row)
        bad.discard(row)

    def fails(rows: list[int]) -> Any:
        if bad & set(rows):
            for row in rows:
                work.session.rows[row].queue.clear()  # it does not stop at a clean place
            raise RuntimeError("what a client has said")
        return advance(rows)

    monkeypatch.setattr(work.session, "push", note)
    monkeypatch.setattr(work.session, "reset", clean)
    monkeypatch.setattr(work.session, "advance", fails)


def test_a_row_that_raises_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(rows=4)
    poison(work, monkeypatch, "zzz")
    texts = [text_of(i, sentences=2) for i in range(3)]
    queues = [work.open() for _ in texts]
    broken = work.open()
    for position in range(12):
        for queue, text in zip(queues, texts, strict=True):
            queue.push([text.split()[position]])
        if position < 8:
            broken.push(["zzz" if position == 4 else "ab"])
        work.turn(2)
    for queue in queues:
        queue.finish()
    work.until_done(*queues)
    assert isinstance(work.said[broken][-1], ProtocolError)
    for queue, text in zip(queues, texts, strict=True):
        assert work.writes(queue) == expected(text)
    assert sorted(work.batcher.rows.free) == [0, 1, 2, 3]


def test_who_speaks_comes_before_who_has_a_text() -> None:
    work = Work(rows=4)
    texts = [work.open(is_text=True) for _ in range(8)]
    for queue in texts:
        queue.push(text_of(1, sentences=200).split())
        queue.finish()
    work.turn(3)
    assert sum(queue.row is not None for queue in texts) == 3  # a row is left for others
    steps: list[int] = []
    work.batcher.metrics.rows.observe = steps.append
    speakers = [work.open() for _ in range(4)]
    for queue in speakers:
        queue.push(["ab", "cd", "ef", "fe", "dc", "ba!"])
        queue.finish()
    work.turn()
    assert all(queue.row is not None for queue in speakers)  # taken from the texts
    work.until_done(*speakers)
    assert max(steps) <= 4  # texts have steps of their own, one at a time
    for queue in speakers:
        assert work.writes(queue) == expected("ab cd ef fe dc ba!")


def test_who_speaks_has_twice_the_time_of_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    now, steps = [0.0], list[list[int]]()
    work = Work(rows=4)
    advance = work.session.advance

    def count(rows: list[int]) -> list[tuple[int, Event]]:
        now[0] += 1.0  # every step takes a second
        steps.append(rows)
        return advance(rows)

    monkeypatch.setattr(work.session, "advance", count)
    monkeypatch.setattr("simultan.server.batcher.time.monotonic", lambda: now[0])
    texts = [work.open(is_text=True) for _ in range(2)]
    for queue in texts:
        queue.push(text_of(1, sentences=200).split())
    speaker = work.open()
    for _ in range(60):
        if not speaker.waiting:
            speaker.push(["ab", "cd"])
        work.turn()
    spoken = sum(speaker.row in rows for rows in steps)
    assert spoken >= 20
    assert spoken / 4 <= len(steps) - spoken <= spoken / 2 + 1


def test_a_text_that_gave_way_is_translated_all_the_same() -> None:
    work = Work(rows=1)
    text = text_of(2, sentences=6)
    bulk = work.open(is_text=True)
    bulk.push(text.split())
    bulk.finish()
    for _ in range(10):
        work.turn(3)
        speaker = work.open()
        speaker.push(["ab!"])
        speaker.finish()
        work.until_done(speaker)
    work.until_done(bulk)
    assert work.writes(bulk) == expected(text)


def test_of_a_long_word_the_beginning_is_heard() -> None:
    work = Work(rows=1)
    word, tokens = work.batcher._shorten("\U0001f600" * 200)
    assert set(word) == {"\U0001f600"}
    assert MOST_TOKENS // 2 < tokens <= MOST_TOKENS
    assert work.batcher._shorten("abc")[0] == "abc"
    queue = work.open()
    queue.push(["\U0001f600" * 200, "ab!"])
    queue.finish()
    work.until_done(queue)
    assert work.said[queue][-1].stats.words == 2


def test_an_acknowledgement_that_crosses_a_full_window_wakes_the_thread() -> None:
    """The thread looks at the window, says that it waits, and looks again."""
    work = Work(rows=1, window=16)
    queue = work.open()
    queue.produced = 16
    assert queue.blocks()
    queue.acknowledge(10)
    assert not work.batcher._commands.empty()  # it was told to wake up
    assert not queue.blocks()

    class Crossing(Queue):
        looks = 0

        @property
        def full(self) -> bool:  # acknowledged between the first look and the second
            self.looks += 1
            return self.looks == 1

    crossing = Crossing(work.batcher, lambda message: None, DECODING, False, "")
    assert not crossing.blocks()


def test_a_command_that_raises_does_not_end_the_thread(start: Start) -> None:
    server = start()

    def fails() -> None:
        raise RuntimeError

    server.live.batcher.post(fails)
    assert Client(server.url).translate("ab!") == expected("ab!")


def test_a_flood_of_commands_leaves_time_for_turns(start: Start) -> None:
    server = start()
    over = threading.Event()

    def commands() -> Iterator[None]:
        while not over.is_set():
            if server.live.batcher._commands.qsize() < 10_000:
                server.live.batcher.post(lambda: None)
            yield

    flood = threading.Thread(target=lambda: [None for _ in commands()])
    flood.start()
    try:
        text = text_of(1)
        assert Client(server.url).translate(text) == expected(text)
    finally:
        over.set()
        flood.join()
    wait_until(lambda: server.live.batcher.idle)


def soft_model() -> TranslationModel:
    """Its heads hesitate: a threshold makes a difference."""
    model = make("mma-il", "transformer", seed=3)
    with torch.no_grad():
        for attention in model.cross_attentions():
            attention.select_query.weight /= 1e7
            attention.select_query.bias /= 1e7
            attention.energy_bias /= 1e7
    return model


SOFT = soft_model()


def changing(words: list[str], *changes: tuple[int, float]) -> list[tuple[str, int]]:
    """What a session that nobody disturbs writes, with these thresholds from these words on."""
    session = Session(SOFT, CODEC, DECODING, segment=True)
    events: list[Event] = []
    for position, word in enumerate(words):
        for _, threshold in filter(lambda change: change[0] == position, changes):
            session.set_decoding(Decoding(threshold=threshold))
        events += session.feed(word)
    events += session.finish()
    return [(e.text, e.delay) for e in events if isinstance(e, SessionWrite)]


@pytest.mark.parametrize(
    "changes", [[(6, 0.3)], [(0, 0.3), (4, 0.6)], [(0, 0.3), (3, 0.6), (6, 0.4), (6, 0.3)]]
)
def test_a_sentence_is_said_again_with_the_decodings_it_was_said_with(
    changes: list[tuple[int, float]],
) -> None:
    words = text_of(1, sentences=2, words=9).split()
    work = Work(rows=1, model=SOFT, hold_seconds=0.0)
    queue = work.open()
    for position, word in enumerate(words):
        for _, threshold in filter(lambda change: change[0] == position, changes):
            queue.set_decoding(Decoding(threshold=threshold))
        queue.push([word])
        work.turn(30)
        other = work.open()  # the row is taken away after every word
        other.push(["ab!"])
        other.finish()
        work.until_done(other)
    queue.finish()
    work.until_done(queue)
    said = changing(words, *changes)
    assert work.writes(queue) == said
    assert said != changing(words, (0, changes[-1][1]))


def test_a_decoding_waits_for_what_is_being_written() -> None:
    """So it counts after which word it came, and nothing else, if the row is lost."""
    words = text_of(1, sentences=1, words=9).split()
    work = Work(rows=1, model=SOFT)
    queue = work.open()
    queue.set_decoding(Decoding(threshold=0.3))
    queue.push(words[:5])
    work.turn(2)
    queue.set_decoding(Decoding(threshold=0.6))
    queue.push(words[5:])
    work.turn()
    assert len(queue.open) == 5  # they are still being translated
    for _ in range(4):
        work.turn(3)
        work.batcher.rows._park(queue)
    queue.finish()
    work.until_done(queue)
    assert work.writes(queue) == changing(words, (0, 0.3), (5, 0.6))


def test_what_a_cut_leaves_over_is_read_anew() -> None:
    """By the row, with what it decodes with now; so it is later said again like that."""
    work = Work(rows=1, model=SOFT)
    queue = work.open()
    queue.push(["ab", "cd"])
    work.turn(30)
    queue.set_decoding(Decoding(threshold=0.6))
    queue.push(["ef"])
    work.turn(30)
    assert [word.decoding for word in queue.open] == [DECODING, DECODING, queue.decoding]
    queue.tell(End(1))
    assert [word.decoding for word in queue.open] == [queue.decoding] * 2


class Hall:
    """Streams that speak on and on, a word each time, on a clock that turns move on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, turn: float = 0.05) -> None:
        self.now, self.turn = 100.0, turn
        monkeypatch.setattr("simultan.server.rows.time.monotonic", lambda: self.now)
        self.work = Work(rows)
        self.said: dict[Queue, list[str]] = {}
        self.next: dict[Queue, float] = {}
        self.longest: dict[Queue, float] = {}  # seconds without a row, but with words

    def open(self, address: str) -> Queue:
        queue = self.work.open(address=address)
        self.said[queue], self.longest[queue] = [], 0.0
        self.next[queue] = self.now + 0.1 * (len(self.next) % 4)
        return queue

    def go_on(self, seconds: float, every: dict[Queue, float], words: list[str]) -> None:
        until = self.now + seconds
        while self.now < until:
            for queue, gap in every.items():
                if self.next[queue] <= self.now:
                    self.next[queue] += gap
                    word = words[len(self.said[queue]) % len(words)]
                    self.said[queue].append(word)
                    queue.push([word])
            self.work.turn()
            self.now += self.turn
            for queue in every:
                if queue.since is not None:
                    self.longest[queue] = max(self.longest[queue], self.now - queue.since)

    def check(self) -> None:
        for queue, words in self.said.items():
            queue.finish()
            for _ in range(5000):
                if self.work.said[queue] and isinstance(self.work.said[queue][-1], Finished):
                    break
                self.work.turn()
                self.now += self.turn
            assert self.work.writes(queue) == expected(" ".join(words))


def test_everybody_who_speaks_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(monkeypatch, rows=2)
    queues = [hall.open(f"address {i}") for i in range(5)]
    hall.go_on(40, dict.fromkeys(queues, 0.4), [*["ab", "cd", "ef", "fe", "dc", "ba"] * 4, "fa!"])
    assert max(hall.longest.values()) < 6  # three wait for two rows that are had for 2 seconds
    assert not any(queue.is_bulk for queue in queues)
    hall.check()


def test_many_talkers_of_one_address_push_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(monkeypatch, rows=4)
    talkers = [hall.open("one") for _ in range(12)]
    hall.go_on(10, dict.fromkeys(talkers, 1.5), ["ab"])
    honest = [hall.open(f"another {i}") for i in range(2)]
    every = {**dict.fromkeys(talkers, 1.5), **dict.fromkeys(honest, 0.4)}
    words = ["ab", "cd", "ef", "fe", "dc", "ba", "ab", "cd", "ef"]
    hall.go_on(5, every, words)
    assert max(hall.longest[queue] for queue in honest) < 3.5
    hall.longest.update(dict.fromkeys(honest, 0.0))
    hall.go_on(35, every, words)
    assert all(hall.longest[queue] == 0 for queue in honest)  # their rows are not taken
    assert max(hall.longest[queue] for queue in talkers) < 20  # they share what is left
    hall.check()


def test_a_row_is_had_until_more_is_written_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saying a long sentence again takes longer here than anybody may have a row."""
    hall = Hall(monkeypatch, rows=1, turn=0.4)
    queues = [hall.open("one"), hall.open("another")]
    hall.go_on(120, dict.fromkeys(queues, 2.0), ["ab", "cd", "ef", "fe", "dc", "ba"])
    for queue in queues:
        assert queue.heard > 15
    hall.check()


def test_who_is_made_to_wait_is_not_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(monkeypatch, rows=1)
    pasted, spoken = hall.open(""), hall.open("")
    pasted.push(["ab"] * 60)
    for _ in range(60):
        spoken.push(["ab"])
        hall.now += 0.4
    hall.work.obey()
    assert pasted.is_bulk
    assert not spoken.is_bulk
