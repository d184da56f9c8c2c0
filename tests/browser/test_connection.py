"""What a person sees and keeps when the line breaks, the server goes, or there is no room."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from driving import (
    SENTENCE,
    SOCKETS,
    expect_words,
    paste,
    ready,
    state,
    translation,
    type_text,
    words,
)
from playwright.sync_api import expect
from ports import held_port
from running import Opener, Process, Running

import simultan
from simultan.streaming.translator import Translator


def test_a_place_is_held_by_those_who_speak(open_page: Opener, translator: Translator) -> None:
    """An open page holds none; Enter ends a sentence and not the session."""
    with Running(translator) as server:
        page = open_page(url=server.url, script=SOCKETS)
        state(page, "ready")
        expect(page.locator("#pair")).to_have_text("English to French")
        page.wait_for_function("document.readyState === 'complete'")
        for _ in range(3):
            type_text(page, "the moon likes a book")
            page.keyboard.press("Enter")
        expect(page.locator("#closed .pair")).to_have_count(3)
        state(page, "live")
        kinds = page.evaluate("sent")
        assert kinds.count("start") == 2  # to look at the server, and to speak
        page.wait_for_function("sockets[0].readyState === WebSocket.CLOSED")
        assert page.evaluate("sockets.map((socket) => socket.readyState)") == [3, 1]
        assert kinds.count("end-sentence") == 3
        assert "finish" not in kinds
        page.close()


def test_a_cut_connection_is_resumed(open_page: Opener, translator: Translator) -> None:
    page = open_page(script=SOCKETS)
    ready(page)
    for part in re.findall(r"\S+ \S+ ?", SENTENCE + " "):
        type_text(page, part)
        page.evaluate("sockets.at(-1).close(4000)")
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))
    assert page.evaluate("sockets.length") > 2


def test_a_server_that_forgot_everything(
    open_page: Opener, translator: Translator, errors: list[str]
) -> None:
    """The open sentence is said again as a whole, what stands above it stays, and one is told."""
    above = translation(translator, "a moon likes the cat.")
    with held_port() as port:
        with Running(translator, port) as first:
            page = open_page(url=first.url)
            type_text(page, "a moon likes the cat.")
            page.keyboard.press("Enter")
            expect(page.locator("#closed .pair")).to_have_count(1)
            type_text(page, "now the young ")
            expect_words(page, [*above, "maintenant"])
        type_text(page, "dog sees ")
        gone = re.compile("^(leaving|away)$")
        expect(page.locator("#state")).to_have_attribute("data-kind", gone)
        expect(page.locator("#open-source .unheard").last).to_have_css(
            "text-decoration-style", "dotted"
        )
        with Running(translator, port):
            state(page, "live")
            type_text(page, "a red house and the calm cat")
            page.keyboard.press("Enter")
            expect_words(page, [*above, *translation(translator)])
            expect(page.locator("#notice-text")).to_contain_text("had lost the open sentence")
            assert words(page, "source") == ["a", "moon", "likes", "the", "cat.", *SENTENCE.split()]
            page.close()
    assert all("WebSocket" in error for error in errors)
    errors.clear()


def test_a_server_that_was_killed(open_page: Opener, model: Path, errors: list[str]) -> None:
    translator = simultan.load(model)
    with contextlib.ExitStack() as stack:
        server = Process(model, stack.enter_context(held_port()))
        stack.callback(server.kill)
        server.start()
        page = open_page(url=server.url)
        type_text(page, "now the young dog sees ")
        expect(page.locator(".target .word").first).to_have_text("maintenant")
        server.kill()
        state(page, "away")
        expect(page.locator("#notice-text")).to_contain_text("does not answer")
        type_text(page, "a red ")
        server.start()
        state(page, "live")
        type_text(page, "house and the calm cat")
        page.keyboard.press("Enter")
        expect_words(page, translation(translator))
        expect_words(page, SENTENCE.split(), "source")
        expect(page.locator("#notice-text")).to_contain_text("had lost the open sentence")
        page.close()
    assert all("WebSocket" in error for error in errors)
    errors.clear()


OUTAGE = """window.outage = false;
window.WebSocket = class extends WebSocket {
  constructor(url) { super(window.outage ? url + '/nothing' : url); window.socket = this; }
};"""


def test_an_outage_that_outlives_the_session(
    open_page: Opener, translator: Translator, errors: list[str]
) -> None:
    with Running(translator, resume_seconds=0.1, tick_seconds=0.05) as server:
        page = open_page(url=server.url, script=OUTAGE)
        type_text(page, "now the young dog sees ")
        expect(page.locator(".target .word").first).to_have_text("maintenant")
        page.evaluate("outage = true; socket.close(4000)")
        state(page, "away")
        page.evaluate("outage = false")
        type_text(page, SENTENCE.removeprefix("now the young dog sees "))
        page.keyboard.press("Enter")
        expect_words(page, translation(translator))
        expect(page.locator("#notice-text")).to_contain_text("had lost the open sentence")
        page.close()
    assert all("WebSocket" in error for error in errors)
    errors.clear()


def test_a_full_server_stays_full(open_page: Opener, translator: Translator) -> None:
    """It is called full until there is room, not away; what was typed comes then."""
    with Running(translator, max_sessions=1) as small:
        first = open_page(url=small.url)
        type_text(first, "now the ")
        state(first, "live")
        second = open_page(url=small.url)
        type_text(second, "the moon likes a book")
        second.keyboard.press("Enter")
        state(second, "busy")
        notice = second.locator("#notice-text")
        expect(notice).to_contain_text("All places on this server are taken")
        for _ in range(4):  # it tries again, and says the same
            second.get_by_role("button", name="Try now").click()
            expect(notice).to_contain_text(re.compile(r"tries again in \d+ s"))
            state(second, "busy")
        first.click("#clear")
        second.get_by_role("button", name="Try now").click()
        expect_words(second, translation(translator, "the moon likes a book"))
        expect(second.locator("#notice")).to_be_hidden()
        for page in (first, second):
            page.close()


def test_a_small_window_is_acknowledged_in_time(open_page: Opener, translator: Translator) -> None:
    with Running(translator, window=16, slow_seconds=1e6) as server:
        page = open_page(url=server.url)
        ready(page)
        paste(page, " ".join([SENTENCE + "."] * 5) + " ")
        expect(page.locator("#closed .pair")).to_have_count(5)
        page.close()


MUTE = """window.mute = false;
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { if (!window.mute) send.call(this, data); };"""


def test_words_that_nobody_confirms_are_shown(open_page: Opener, translator: Translator) -> None:
    """A line that is dead without being closed."""
    page = open_page(script=MUTE)
    type_text(page, "now the young ")
    expect_words(page, ["maintenant"])
    page.evaluate("mute = true")
    type_text(page, "dog sees ")
    state(page, "stalled")
    word = page.locator("#open-source .word").last
    expect(word).to_have_css("text-decoration-style", "dotted")
    page.evaluate("mute = false")
    state(page, "live")  # it has given the dead connection up and resumed on another
    expect(word).not_to_have_css("text-decoration-style", "dotted")
    type_text(page, SENTENCE.removeprefix("now the young dog sees "))
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))


HELD = """window.held = [];
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { held.push(() => send.call(this, data)); };
window.release = () => {
  WebSocket.prototype.send = send;
  for (const go of held) go();
};"""


def test_a_refusal_does_not_take_the_keys_of_who_is_typing(
    open_page: Opener, translator: Translator
) -> None:
    with Running(translator, token="secret") as locked:
        page = open_page(url=locked.url, script=HELD)
        type_text(page, "no")
        page.evaluate("release()")
        expect(page.get_by_label("Access token")).to_be_visible()
        page.keyboard.type("w ")
        expect_words(page, ["now"], "source")
        page.close()


def test_a_token_is_asked_for(open_page: Opener, translator: Translator) -> None:
    with Running(translator, token="secret") as locked:
        page = open_page(url=locked.url)
        expect(page.get_by_label("Access token")).to_be_focused()
        type_text(page, "now the young dog sees ")
        expect(page.locator("#notice-text")).to_contain_text("asks for an access token")
        page.get_by_label("Access token").fill("guessed")
        page.keyboard.press("Enter")
        expect(page.locator("#notice-text")).to_contain_text("did not accept this token")
        page.get_by_label("Access token").fill("secret")
        page.keyboard.press("Enter")
        state(page, "live")
        expect(page.locator("#notice")).to_be_hidden()
        expect(page.locator("#typing")).to_be_focused()
        expect(page.locator(".target .word").first).to_have_text("maintenant")
        page.close()
