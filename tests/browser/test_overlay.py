"""Captions only, in the same browser and in another."""

from __future__ import annotations

import re

from driving import SENTENCE, expect_words, ready, state, translation, type_text
from playwright.sync_api import expect
from running import Opener, Running

from simultan.streaming.translator import Translator

HALF = "now the young dog sees "


def test_overlay_in_the_same_browser(open_page: Opener, translator: Translator) -> None:
    page = open_page(viewport={"width": 900, "height": 600})
    ready(page)
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    wanted = translation(translator)
    expect_words(page, wanted)
    overlay = open_page("overlay?size=60&position=top&hide=0", context=page.context)
    lines = overlay.locator(".line")
    expect(lines.last).to_contain_text(wanted[-1])
    assert lines.count() <= 2
    assert " ".join(wanted).endswith(" ".join(lines.all_inner_texts()))
    assert overlay.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert overlay.evaluate("getComputedStyle(captions).fontSize") == "60px"
    assert lines.first.bounding_box()["y"] < 100
    for line in lines.all():
        assert line.bounding_box()["height"] < 100  # one line each
    page.bring_to_front()
    type_text(page, "the moon ")
    type_text(page, "often ")
    expect(lines.last).to_have_text(re.compile("^la lune"))


def test_an_overlay_in_another_browser(
    open_page: Opener, translator: Translator, errors: list[str]
) -> None:
    with Running(translator, token="secret") as locked:
        page = open_page(url=locked.url, permissions=["clipboard-read", "clipboard-write"])
        token = page.get_by_label("Access token")
        expect(token).to_be_focused()  # from here on the page moves the focus no more
        type_text(page, "now ")
        token.fill("secret")
        page.keyboard.press("Enter")
        state(page, "live")
        page.click("#copy-overlay")
        expect(page.locator("#copy-overlay")).to_have_text("Copied")
        link = page.evaluate("navigator.clipboard.readText()").removeprefix(locked.url)
        assert link.startswith("overlay?channel=")
        type_text(page, HALF.removeprefix("now "))
        expect(page.locator(".target .word").nth(1)).to_be_visible()
        overlay = open_page(link, url=locked.url)  # of a context of its own
        lines = overlay.locator(".line")
        expect(lines).to_have_text(re.compile("^maintenant "))  # of what was written before
        type_text(page, SENTENCE.removeprefix(HALF))
        page.keyboard.press("Enter")
        expect(lines.last).to_contain_text(translation(translator)[-1])
        type_text(page, "the moon often ")
        expect(lines.last).to_have_text(re.compile("^la lune"))
        assert lines.count() <= 2
        for opened in (overlay, page):
            opened.close()


def test_an_overlay_says_whether_it_is_connected(
    open_page: Opener, translator: Translator, errors: list[str]
) -> None:
    with Running(translator) as server:
        overlay = open_page("overlay?channel=8kyrhS2C0yVoj3-tnyoGdA", url=server.url)
        status = overlay.locator("#status")
        expect(status).to_have_text("Connected, waiting for captions")
    expect(status).to_have_text("No connection")
    overlay.close()
    errors.clear()  # of the connections that failed
