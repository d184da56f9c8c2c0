"""Files in, files out."""

from __future__ import annotations

from pathlib import Path

from driving import SENTENCE, expect_words, ready, translation, type_text
from playwright.sync_api import expect
from running import Opener

from simultan.streaming.translator import Translator

VTT = """WEBVTT

NOTE a comment

1
00:00:01.000 --> 00:00:02.000
<v Anna>the sad dog

00:00:02.500 --> 00:00:04.000 line:0
follows the
clean train
"""
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, {type: ''}));
  const options = {dataTransfer: data, bubbles: true, cancelable: true};
  for (const type of ['dragenter', 'dragover', 'drop'])
    document.body.dispatchEvent(new DragEvent(type, options));
}"""


SHOWN = """() => {
  const player = document.getElementById('player');
  window.shown = new Promise((resolve) => new MutationObserver(() => {
    if (player.checkVisibility()) resolve(document.getElementById('file-name').textContent);
  }).observe(player, {attributes: true}));
}"""  # a file of two seconds may be over before one looks


def test_caption_files_are_played(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    page.select_option("#speed", "8", force=True)
    page.evaluate(SHOWN)
    page.evaluate(DROP, ["talk.vtt", VTT])
    assert page.evaluate("shown") == "talk.vtt"
    expect_words(page, ["the", "sad", "dog", "follows", "the", "clean", "train"], "source")
    expect_words(page, translation(translator, "the sad dog follows the clean train"))
    expect(page.locator("#player")).to_be_hidden()


def test_text_files_are_played_or_translated_at_once(
    open_page: Opener, translator: Translator
) -> None:
    page = open_page()
    ready(page)
    text = "the sad dog\nsees a house\n\nthe moon likes a book\n"
    page.evaluate(DROP, ["talk.txt", text])
    expect(page.locator("#translate-now")).to_be_focused()
    expect(page.locator(".word")).to_have_count(0)  # it waits for a choice
    page.keyboard.press("Enter")
    expect(page.locator("#closed .pair")).to_have_count(2)
    first, second = (
        translation(translator, said)
        for said in ("the sad dog sees a house", "the moon likes a book")
    )
    expect_words(page, first + second)
    expect(page.locator("#player")).to_be_hidden()
    page.select_option("#speed", "8", force=True)
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a moon"})
    page.click("#play")
    expect(page.locator(".target .word").last).to_have_text("lune")


def test_files_that_are_none(open_page: Opener) -> None:
    page = open_page()
    page.evaluate(DROP, ["picture.png", "x"])
    expect(page.locator("#notice-text")).to_contain_text("“picture.png” is no text file")
    page.evaluate(DROP, ["empty.srt", "no captions"])
    expect(page.locator("#notice-text")).to_contain_text("“empty.srt” has no words")


def test_copy_and_download(open_page: Opener, translator: Translator) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    ready(page)
    expect(page.locator("#copy")).to_be_disabled()
    type_text(page, SENTENCE)
    page.keyboard.press("Enter")
    wanted = " ".join(translation(translator))
    expect_words(page, wanted.split())
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == wanted
    with page.expect_download() as download:
        page.click("#save-text")
    assert download.value.suggested_filename == "translation.txt"
    assert Path(download.value.path()).read_text("utf-8") == f"{wanted}\n"
    with page.expect_download() as download:
        page.click("#save-vtt")
    vtt = Path(download.value.path()).read_text("utf-8")
    assert vtt.startswith("WEBVTT\n\n00:00:0")
    said = [line for line in vtt.splitlines()[1:] if line and "-->" not in line]
    assert " ".join(said) == wanted
