"""What a person does on the page, and what the model says without one."""

from __future__ import annotations

import re
from typing import Any

import torch
from playwright.sync_api import expect

from simultan import latency
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator

Page = Any
SENTENCE = "now the young dog sees a red house and the calm cat"
SOCKETS = """window.sockets = []; window.sent = [];
window.WebSocket = class extends WebSocket {
  constructor(...args) { super(...args); window.sockets.push(this); }
  send(data) { window.sent.push(JSON.parse(data).type); super.send(data); }
};"""


def translation(translator: Translator, text: str = SENTENCE) -> list[str]:
    return translator.translate([text])[0].words


def lagging(translator: Translator, threshold: float) -> tuple[list[str], float]:
    """What a session of this threshold writes, and its AL."""
    session = translator.session(f"threshold={threshold}")
    events = [*session.feed(SENTENCE), *session.finish()]
    found = [(event.text, event.delay) for event in events if isinstance(event, Write)]
    lag = latency.average_lagging(
        torch.tensor([[delay for _, delay in found]], dtype=torch.float),
        torch.tensor([len(SENTENCE.split())]),
        torch.tensor([len(found)]),
    )
    return [text for text, _ in found], lag.item()


def state(page: Page, kind: str) -> None:
    expect(page.locator("#state")).to_have_attribute("data-kind", kind)


def ready(page: Page) -> None:
    expect(page.locator("#state")).to_have_attribute("data-kind", re.compile("^(ready|live)$"))


def heard(page: Page) -> None:
    """All that was typed is with the server, and what it can write now is on the page."""
    expect(page.locator(".source .word").last).to_be_visible()
    expect(page.locator(".source .unheard")).to_have_count(0)


def type_text(page: Page, text: str) -> None:
    page.locator("#typing").press_sequentially(text)


def paste(page: Page, text: str) -> None:
    page.evaluate(
        """text => {
          const data = new DataTransfer();
          data.setData('text', text);
          const options = {clipboardData: data, bubbles: true, cancelable: true};
          document.getElementById('typing').dispatchEvent(new ClipboardEvent('paste', options));
        }""",
        text,
    )


def words(page: Page, side: str = "target") -> list[str]:
    found: list[str] = page.locator(f".{side} .word").all_inner_texts()
    return found


def expect_words(page: Page, wanted: list[str], side: str = "target") -> None:
    expect(page.locator(f".{side} .word")).to_have_text(wanted)
