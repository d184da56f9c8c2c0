"""The page in a real browser, against a real server and a trained toy model."""

from __future__ import annotations

import json
import re
from typing import Any

from driving import (
    SENTENCE,
    expect_words,
    lagging,
    paste,
    ready,
    state,
    translation,
    type_text,
    words,
)
from playwright.sync_api import expect
from running import Opener, Running

from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.model import build
from simultan.streaming.lags import Lags
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator

HALF = "now the young dog sees "


def test_words_come_before_the_sentence_is_over(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    result = translator.translate([SENTENCE])[0]
    type_text(page, HALF)
    expect(page.locator(".target .word").first).to_have_text(result.words[0])
    early = words(page)
    assert 0 < len(early) < len(result.words)
    assert early == result.words[: len(early)]
    type_text(page, SENTENCE.removeprefix(HALF))
    expect_words(page, SENTENCE.split()[:-1], "source")  # the last is not complete
    page.keyboard.press("Enter")
    expect_words(page, result.words)
    expect_words(page, SENTENCE.split(), "source")
    # the figures
    lag = lagging(translator, 0.5)[1]
    expect(page.locator("#measured")).to_have_text(re.compile(rf"measured: {lag:.1f} words, \d"))
    expect(page.locator("#written")).to_have_text(f"{len(result.words)} words")
    page.locator("#figure summary").click()
    assert page.locator("#legend li").count() == 2
    expect(page.locator("#path .heads path:not(.dots)")).to_have_count(4)  # a strand a head
    assert page.locator("#path .stairs").count() >= 1
    # what each word waited for
    for index, delay in enumerate(result.delays):
        page.locator(".target .word").nth(index).hover()
        expect(page.locator(".target .tied")).to_have_text(result.words[index])
        expect(page.locator(".source .awaited")).to_have_text(SENTENCE.split()[delay - 1])
    # and a second sentence goes on from there
    type_text(page, "the moon likes a book")
    page.keyboard.press("Enter")
    expect_words(page, result.words + translation(translator, "the moon likes a book"))
    expect(page.locator("#closed .pair")).to_have_count(2)


def test_each_sentence_stands_beside_its_translation(
    open_page: Opener, translator: Translator
) -> None:
    """However the words came: rows are the sentences that the server has found."""
    said = ["the sad dog sees a house.", "a moon likes the cat.", "the red train follows."]
    rows: list[Any] = []
    for pasted in (False, True):
        page = open_page()
        ready(page)
        if pasted:
            paste(page, " ".join(said))
        else:
            type_text(page, " ".join(said))
        page.locator("#typing").press("Enter")
        expect(page.locator("#closed .pair")).to_have_count(3)
        found = page.locator("#closed .source").all_inner_texts()
        assert [text.strip() for text in found] == said
        rows.append([text.strip() for text in page.locator("#closed .target").all_inner_texts()])
        expect(page.locator("#typing")).to_have_attribute("placeholder", "")
        expect(page.locator("#hint")).to_be_hidden()
    assert rows[0] == rows[1] == [" ".join(translation(translator, text)) for text in said]


def test_a_word_can_be_taken_back(open_page: Opener, translator: Translator) -> None:
    """Backspace over the space; the open sentence is translated again, what is above stays."""
    page = open_page()
    ready(page)
    type_text(page, "a moon likes the cat.")
    page.keyboard.press("Enter")
    expect(page.locator("#closed .pair")).to_have_count(1)
    above = translation(translator, "a moon likes the cat.")
    type_text(page, "now the young cat sees ")
    expect(page.locator("#open-target .word").first).to_be_visible()
    for _ in range(2):
        page.keyboard.press("Backspace")  # the space
        page.keyboard.press("Control+Backspace")  # the word
    expect_words(page, ["a", "moon", "likes", "the", "cat.", "now", "the", "young"], "source")
    page.keyboard.type("dog sees a red house and the calm cat")
    page.keyboard.press("Enter")
    expect(page.locator("#closed .pair")).to_have_count(2)
    expect_words(page, [*above, *translation(translator)])
    assert words(page, "source") == ["a", "moon", "likes", "the", "cat.", *SENTENCE.split()]
    page.keyboard.press("Backspace")  # what is translated is final
    expect(page.locator("#closed .pair")).to_have_count(2)


def test_slider(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    lags = {}
    for key, value in (("Home", 0.05), ("End", 0.95)):
        expect(page.locator("#delay")).to_be_visible()
        page.focus("#delay")
        page.keyboard.press(key)
        says = f"waits until {100 * value:.0f}% sure"
        expect(page.locator("#delay-value")).to_have_text(says)
        expect(page.locator("#delay")).to_have_attribute("aria-valuetext", says)
        type_text(page, SENTENCE)
        page.keyboard.press("Enter")
        wanted, lags[value] = lagging(translator, value)
        expect(page.locator("#closed .pair").last.locator(".target .word")).to_have_text(wanted)
        # of what was written with this setting alone
        expect(page.locator("#measured")).to_contain_text(f"measured: {lags[value]:.1f} words")
    assert lags[0.05] != lags[0.95]


def test_slider_in_words(open_page: Opener, translator: Translator) -> None:
    """Where it was measured how far behind the model stays, that is what one chooses."""
    lags = Lags(((0.05, 2.0), (0.5, 3.0), (0.95, 3.8), (0.99, 9.0)))
    measured = Translator(translator.model, translator.config, translator.codec, lags)
    with Running(measured) as server:
        page = open_page(url=server.url)
        expect(page.locator("#delay-value")).to_have_text("about 3.0 words behind")
        # twice the shortest delay is the most that is offered
        for key, value in (("End", "4.0"), ("Home", "2.0")):
            page.focus("#delay")
            page.keyboard.press(key)
            expect(page.locator("#delay-value")).to_have_text(f"about {value} words behind")
            type_text(page, SENTENCE)
            page.keyboard.press("Enter")
            wanted = measured.translate([SENTENCE], f"lag={value}")[0].words
            expect_words(page, wanted)
            page.click("#clear")
            expect(page.locator("#delay-value")).to_have_text(f"about {value} words behind")
        page.close()


def test_the_operators_delay_reaches_the_page(open_page: Opener, translator: Translator) -> None:
    lags = Lags(((0.05, 2.0), (0.5, 3.0), (0.95, 3.8)))
    measured = Translator(translator.model, translator.config, translator.codec, lags)
    with Running(measured, decoding="lag=3.6") as server:
        page = open_page(url=server.url)
        expect(page.locator("#delay-value")).to_have_text("about 3.6 words behind")
        type_text(page, SENTENCE)
        page.keyboard.press("Enter")
        expect_words(page, measured.translate([SENTENCE], "lag=3.6")[0].words)
        page.close()


def test_the_slider_keeps_the_operators_kind(open_page: Opener, translator: Translator) -> None:
    with Running(translator, decoding="mass=0.7") as server:
        page = open_page(url=server.url)
        expect(page.locator("#delay-value")).to_have_text("waits until 70% sure")
        page.focus("#delay")
        page.keyboard.press("End")
        type_text(page, SENTENCE)
        page.keyboard.press("Enter")
        expect_words(page, translator.translate([SENTENCE], "mass=0.95")[0].words)
        page.close()


def test_slider_in_mid_sentence(open_page: Opener, translator: Translator) -> None:
    session = translator.session("threshold=0.5")
    events = session.feed(HALF)
    session.set_decoding("threshold=0.95")
    events += [*session.feed(SENTENCE.removeprefix(HALF)), *session.finish()]
    changed = [(event.text, event.delay) for event in events if isinstance(event, Write)]
    result = translator.translate([SENTENCE])[0]
    assert changed != list(zip(result.words, result.delays, strict=True))
    page = open_page()
    ready(page)
    type_text(page, HALF)
    expect(page.locator(".source .unheard")).to_have_count(0)
    page.focus("#delay")
    page.keyboard.press("End")
    type_text(page, SENTENCE.removeprefix(HALF))
    page.keyboard.press("Enter")
    expect_words(page, [text for text, _ in changed])
    for index, (_, delay) in enumerate(changed):
        page.locator(".target .word").nth(index).hover()
        expect(page.locator("#tie")).to_contain_text(f"word {delay} of the text")


def test_no_slider_where_no_threshold_counts(open_page: Opener, translator: Translator) -> None:
    config = Config(
        model=ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=1),
        policy=PolicyConfig(name="wait-k", k=(2,)),
    )
    codec = translator.codec
    sizes = len(codec.source_vocabulary), len(codec.target_vocabulary)
    with Running(Translator(build(config, *sizes), config, codec)) as fixed:
        page = open_page(url=fixed.url)
        type_text(page, "now ")
        state(page, "live")
        expect(page.locator("#delay")).to_be_hidden()
        page.close()


def test_reload_in_mid_sentence_resumes(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    type_text(page, "now the young dog sees a r")
    expect(page.locator(".target .word").nth(2)).to_be_visible()
    before = words(page)
    received: list[dict[str, Any]] = []
    page.on(
        "websocket", lambda ws: ws.on("framereceived", lambda f: received.append(json.loads(f)))
    )
    page.reload()
    state(page, "live")
    assert received[0]["type"] == "started"
    assert received[0]["resumed"] is True
    expect_words(page, ["now", "the", "young", "dog", "sees", "a"], "source")
    assert words(page)[: len(before)] == before
    expect(page.locator("#typing")).to_have_value("r")
    page.focus("#typing")
    page.keyboard.press("End")
    page.keyboard.type("ed house and the calm cat")
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))


def test_clear_can_be_undone(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))
    page.click("#clear")
    expect(page.locator(".word")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect_words(page, translation(translator))
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    expect_words(page, translation(translator) * 2)
    page.click("#clear")
    type_text(page, "a moon ")  # something new: there is nothing to undo any more
    expect(page.locator("#notice")).to_be_hidden()
    expect_words(page, ["a", "moon"], "source")


def test_one_can_type_while_a_long_text_runs(open_page: Opener, translator: Translator) -> None:
    sentence = "the sad dog sees a red house and follows it."
    with Running(translator, words_per_second=50.0) as server:
        page = open_page(url=server.url)
        ready(page)
        paste(page, " ".join([sentence] * 500))
        expect(page.locator("#heard")).to_contain_text("5,000 words")
        for letter in "moon":
            page.locator("#typing").press(letter)
        expect(page.locator("#typing")).to_have_value("moon")
        assert page.locator("#more").inner_text()  # the text is not through yet
        expect(page.locator("#more")).to_be_in_viewport()
        # what is on the page is what is being said, however long the text
        assert page.locator("#open .word").count() < 100
        server.change(words_per_second=500.0)
        # whoever scrolls back is left there
        expect(page.locator("#closed .pair").nth(30)).to_be_attached()
        page.evaluate("sheet.scrollTop = 0")
        expect(page.locator("#closed .pair").nth(60)).to_be_attached()
        expect(page.locator("#closed .pair").first).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("#closed .pair")).to_have_count(501)
        expect(page.locator("#heard")).to_have_text("5,001 words")
        last = page.locator("#closed .pair").last
        expect(last).to_be_in_viewport()
        expect(last.locator(".target")).to_contain_text(translation(translator, "moon")[0])
        # old sentences are plain text
        assert page.locator(".word").count() < 5_000
        assert page.locator("#closed .source").first.text_content() == sentence
        # all of it is there after a reload
        page.reload()
        expect(page.locator("#closed .pair")).to_have_count(501)
        expect(last).to_be_in_viewport()
        page.close()


FAKE_SPEECH = """window.webkitSpeechRecognition = window.SpeechRecognition = class {
  start() { window.heard = (text, isFinal) => this.onresult({resultIndex: 0,
    results: [Object.assign([{transcript: text}], {isFinal})]}); }
  stop() { this.onend(); }
};"""


def test_speech(open_page: Opener, translator: Translator) -> None:
    page = open_page(script=FAKE_SPEECH)
    ready(page)
    page.click("#speak")
    expect(page.locator("#speak")).to_have_text("Listening")
    page.evaluate("heard('the young', false)")
    page.evaluate("heard('the young dock', false)")
    expect_words(page, ["the", "young"], "source")  # "dock" may still change
    page.evaluate("heard('the young dog sees', true)")
    expect_words(page, ["the", "young", "dog", "sees"], "source")
    expect_words(page, translation(translator, "the young dog sees"))
    page.click("#speak")
    expect(page.locator("#speak")).to_have_text("Speak")


def test_without_speech_there_is_no_button(open_page: Opener) -> None:
    page = open_page(
        script="delete window.webkitSpeechRecognition; delete window.SpeechRecognition"
    )
    ready(page)
    expect(page.locator("#speak")).to_be_hidden()
