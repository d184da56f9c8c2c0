"""axe-core finds nothing to say about the page and the overlay, in both themes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driving import SENTENCE, Page, expect_words, ready, translation, type_text
from playwright.sync_api import expect
from running import Opener

from simultan.streaming.translator import Translator

AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: run `make axe`")


def violations(page: Page) -> list[str]:
    """The rules that are broken, each with the first element that breaks it."""
    page.evaluate(AXE.read_text("utf-8") + "\nnull")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 5, "axe has not looked at anything"
    return [f"{rule['id']}: {json.dumps(rule['nodes'][0]['html'])}" for rule in found["violations"]]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page(open_page: Opener, translator: Translator, theme: str, width: int) -> None:
    # Without motion: a word that fades in has no contrast yet.
    look = {"color_scheme": theme, "reduced_motion": "reduce"}
    page = open_page(**look, viewport={"width": width, "height": 900})
    ready(page)
    assert violations(page) == []
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))
    type_text(page, "now the young dog ")
    figure = page.locator("#figure")
    if figure.get_attribute("open") is None:
        page.locator("#figure summary").click()
    page.locator(".target .word").nth(3).focus()
    assert violations(page) == []
    page.click("#clear")
    expect(page.locator("#notice")).to_be_visible()
    assert violations(page) == []
    page.click("#full-screen")
    type_text(page, "now the young dog ")
    assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_overlay(open_page: Opener, translator: Translator, theme: str) -> None:
    page = open_page(color_scheme=theme)
    overlay = open_page("overlay?hide=0", context=page.context)
    expect(overlay.locator("#status")).not_to_have_text("")
    assert violations(overlay) == []
    page.bring_to_front()
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    expect(overlay.locator(".line").last).to_contain_text(translation(translator)[-1])
    assert violations(overlay) == []
