"""How the page looks: sizes, themes, languages, the keyboard, screen readers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from driving import SENTENCE, expect_words, heard, paste, ready, translation, type_text, words
from playwright.sync_api import expect
from running import Opener

from simultan.streaming.translator import Translator


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_nothing_is_wider_than_the_window(open_page: Opener, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 740}, has_touch=width < 400)
    ready(page)
    page.locator("#typing").press_sequentially(f"{'x' * 90} {SENTENCE} ")
    page.locator("#figure summary").click()
    expect(page.locator("#path .stairs").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.locator("button:visible, a.button, input[type=range]").all():
        control.scroll_into_view_if_needed()  # tools can be swiped on a phone
        box = control.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1


def test_a_phone_with_its_keyboard_open(open_page: Opener, translator: Translator) -> None:
    """The newest words of the translation stand directly above what is typed, both in view."""
    page = open_page(viewport={"width": 390, "height": 420}, has_touch=True, is_mobile=True)
    ready(page)
    for _ in range(4):
        type_text(page, SENTENCE)
        page.keyboard.press("Enter")
    expect_words(page, translation(translator) * 4)
    type_text(page, "now the young dog ")
    newest = page.locator("#open-target .word").last
    expect(newest).to_be_in_viewport()
    expect(page.locator("#typing")).to_be_in_viewport()
    assert newest.bounding_box()["y"] < page.locator("#typing").bounding_box()["y"]
    expect(page.locator(".mouse")).to_be_hidden()


def test_light_and_dark(open_page: Opener) -> None:
    page = open_page(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150
    expect(page.locator("#theme")).to_have_text("Light")  # what it does, not what is
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Dark")
    assert sum(map(int, re.findall(r"\d+", page.evaluate(ground)))) > 600
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_english_and_german(open_page: Opener) -> None:
    page = open_page(locale="de-DE")
    ready(page)
    assert page.evaluate("document.documentElement.lang") == "de"
    expect(page.get_by_role("button", name="Leeren")).to_be_visible()
    expect(page.locator("#typing")).to_have_attribute("placeholder", "Hier tippen")
    type_text(page, "now the ")
    expect(page.locator("#heard")).to_have_text("2 Wörter")
    page.click("#language")
    expect(page.locator("#heard")).to_have_text("2 words")
    expect(page.get_by_role("button", name="Clear")).to_be_visible()
    page.reload()
    expect(page.locator("#language")).to_have_text("Deutsch")


def test_every_text_is_there_in_both_languages(open_page: Opener) -> None:
    page = open_page()
    missing = """async () => {
      const { text, switchLanguage } = await import('./static/strings.js');
      const names = [...document.querySelectorAll('*')].flatMap((e) =>
        [...e.attributes].filter((a) => a.name.startsWith('data-text')).map((a) => a.value));
      const lost = () => names.filter((name) => text(name) === null);
      const english = lost();
      switchLanguage();
      return [names.length, ...english, ...lost()];
    }"""
    found = page.evaluate(missing)
    assert found[0] > 30
    assert found[1:] == []


def test_size_and_full_screen(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))
    size = "parseFloat(getComputedStyle(document.querySelector('.target .word')).fontSize)"
    normal = page.evaluate(size)
    page.click("#larger")
    assert page.evaluate(size) > normal
    page.reload()
    expect(page.locator(".target .word").first).to_be_visible()
    assert page.evaluate(size) > normal
    page.click("#smaller")
    page.click("#smaller")
    assert page.evaluate(size) < normal
    page.click("#full-screen")
    assert page.evaluate(size) > 1.5 * normal
    expect(page.locator(".target .word").last).to_be_in_viewport()
    expect(page.locator(".tools")).to_be_hidden()
    type_text(page, "the moon often ")  # one can go on
    expect(page.locator(".target .word").last).to_have_text(re.compile("lune|souvent"))
    page.click("#leave-full-screen")
    expect(page.locator(".tools")).to_be_visible()


def test_notices_move_nothing(open_page: Opener) -> None:
    page = open_page()
    ready(page)
    type_text(page, SENTENCE + " ")
    heard(page)
    where = "JSON.stringify(document.querySelector('.stage').getBoundingClientRect())"
    before = page.evaluate(where)
    page.click("#clear")
    expect(page.locator("#notice")).to_be_visible()
    assert page.evaluate(where) == before


def test_a_highlighted_pair_is_in_view(open_page: Opener, translator: Translator) -> None:
    page = open_page(viewport={"width": 1000, "height": 900})
    ready(page)
    paste(page, " ".join([SENTENCE + "."] * 12) + " ")
    page.keyboard.press("Enter")
    expect(page.locator("#closed .pair")).to_have_count(12)
    page.locator(".target .word[tabindex='0']").focus()
    page.keyboard.press("Home")
    expect(page.locator(".target .tied")).to_be_in_viewport()
    expect(page.locator(".source .awaited")).to_be_in_viewport()
    # and in the figure, which else shows the newest words
    first = translation(translator)[0]
    expect(page.locator("#path .target.lit")).to_have_text(first)


def test_keyboard_and_screen_reader(open_page: Opener) -> None:
    page = open_page()
    ready(page)
    expect(page.locator("#typing")).to_be_focused()
    type_text(page, SENTENCE + " ")
    expect(page.locator(".target .word").nth(3)).to_be_visible()
    heard(page)
    expect(page.get_by_role("log")).to_contain_text("maintenant le")
    assert page.locator("#spoken").get_attribute("aria-live") == "polite"
    reached = set()
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = "open-file end-sentence clear copy save-text save-vtt overlay delay theme language"
    assert {*wanted.split(), "smaller", "larger", "full-screen"} <= reached
    page.locator(".target .word[tabindex='0']").focus()
    page.keyboard.press("Home")
    expect(page.locator(".target .word").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".target .tied")).to_have_text(words(page)[1])
    expect(page.locator("#tie")).to_contain_text("waited for")
    controls: Any = page.locator("button:visible, a, input:visible, select:visible").all()
    for control in controls:
        assert control.evaluate(
            "e => (e.ariaLabel || e.labels?.[0]?.innerText || e.innerText).trim()"
        )
    page.locator("#figure summary").click()
    expect(page.locator("#path svg")).to_have_attribute(
        "aria-label", re.compile("^Read/write path: 12")
    )
