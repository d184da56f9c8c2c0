"""The page in a real browser, against a real server and a trained toy model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Opener, Running

from simultan import latency
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.model import build
from simultan.streaming.lags import Lags
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
Page = Any

SENTENCE = "now the young dog sees a red house and the calm cat"
VTT = """WEBVTT

NOTE a comment

1
00:00:01.000 --> 00:00:02.000
<v Anna>the sad dog

00:00:02.500 --> 00:00:04.000 line:0
follows the
clean train
"""


def translation(translator: Translator, text: str = SENTENCE) -> list[str]:
    return translator.translate([text])[0].words


def ready(page: Page) -> None:
    expect(page.locator("#state")).to_have_attribute("data-kind", "live")


def type_text(page: Page, text: str) -> None:
    page.locator("#typing").press_sequentially(text)


def words(page: Page, pane: str = "target") -> list[str]:
    found: list[str] = page.locator(f"#{pane} .word").all_inner_texts()
    return found


def expect_words(page: Page, wanted: list[str], pane: str = "target") -> None:
    expect(page.locator(f"#{pane} .word")).to_have_text(wanted)


def test_words_come_before_the_sentence_is_over(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    result = translator.translate([SENTENCE])[0]
    type_text(page, "now the young dog sees ")
    expect(page.locator("#target .word").first).to_have_text(result.words[0])
    early = words(page)
    assert 0 < len(early) < len(result.words)
    assert early == result.words[: len(early)]
    type_text(page, SENTENCE.removeprefix("now the young dog sees "))
    expect_words(page, SENTENCE.split()[:-1], "source")  # the last is not complete
    page.keyboard.press("Enter")
    expect_words(page, result.words)
    expect_words(page, SENTENCE.split(), "source")
    # the figures
    expect(page.locator("#lagging")).to_have_text(f"{lagging(translator, 0.5)[1]:.1f}")
    expect(page.locator("#written")).to_have_text(f"{len(result.words)} words")
    assert float(page.inner_text("#rate")) > 0
    assert page.locator("#legend li").count() == 2
    assert page.locator("#path .heads path").count() == 4  # a strand a head
    assert page.locator("#path .stairs").count() >= 1
    # what each word waited for
    for index, delay in enumerate(result.delays):
        page.locator("#target .word").nth(index).hover()
        expect(page.locator("#target .tied")).to_have_text(result.words[index])
        expect(page.locator("#source .awaited")).to_have_text(SENTENCE.split()[delay - 1])
    # and a second sentence goes on from there
    type_text(page, "the moon likes a book")
    page.keyboard.press("Enter")
    expect_words(page, result.words + translation(translator, "the moon likes a book"))
    assert page.locator("#target .sentence").count() == 2


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


def test_slider(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    lags = {}
    for key, value in (("Home", 0.05), ("End", 0.95)):
        page.click("#clear")
        ready(page)
        page.focus("#threshold")
        page.keyboard.press(key)
        expect(page.locator("#threshold-value")).to_have_text(f"{value:.2f}")
        page.wait_for_timeout(200)  # it is sent once the slider rests
        type_text(page, SENTENCE)
        page.keyboard.press("Enter")
        wanted, lags[value] = lagging(translator, value)
        expect_words(page, wanted)
        expect(page.locator("#target .open")).to_have_count(0)
        expect(page.locator("#lagging")).to_have_text(f"{lags[value]:.1f}")
    assert lags[0.05] != lags[0.95]


def test_slider_in_words(open_page: Opener, translator: Translator) -> None:
    """Where it was measured how far behind the model stays, that is what one chooses."""
    lags = Lags(((0.05, 1.0), (0.5, 2.0), (0.95, 4.0)))
    measured = Translator(translator.model, translator.config, translator.codec, lags)
    with Running(measured) as server:
        page = open_page(url=server.url)
        ready(page)
        expect(page.locator("#threshold-value")).to_have_text("2.0 words")
        expect(page.locator("#threshold-hint")).to_contain_text("words")
        for key, value, threshold in (("End", "4.0 words", 0.95), ("Home", "1.0 words", 0.05)):
            page.focus("#threshold")
            page.keyboard.press(key)
            expect(page.locator("#threshold-value")).to_have_text(value)
            page.wait_for_timeout(200)  # it is sent once the slider rests
            type_text(page, SENTENCE)
            page.keyboard.press("Enter")
            expect_words(page, lagging(translator, threshold)[0])
            page.click("#clear")
            ready(page)
            expect(page.locator("#threshold-value")).to_have_text(value)
        page.close()


def test_slider_in_mid_sentence(open_page: Opener, translator: Translator) -> None:
    half = "now the young dog sees "
    session = translator.session("threshold=0.5")
    events = session.feed(half)
    session.set_decoding("threshold=0.95")
    events += [*session.feed(SENTENCE.removeprefix(half)), *session.finish()]
    changed = [(event.text, event.delay) for event in events if isinstance(event, Write)]
    result = translator.translate([SENTENCE])[0]
    assert changed != list(zip(result.words, result.delays, strict=True))
    page = open_page()
    ready(page)
    type_text(page, half)
    expect(page.locator("#source .unheard")).to_have_count(0)
    page.focus("#threshold")
    page.keyboard.press("End")
    page.wait_for_timeout(300)
    type_text(page, SENTENCE.removeprefix(half))
    page.keyboard.press("Enter")
    expect_words(page, [text for text, _ in changed])
    for index, (_, delay) in enumerate(changed):
        page.locator("#target .word").nth(index).hover()
        expect(page.locator("#tie")).to_contain_text(f"word {delay} of the source")


def test_reload_in_mid_sentence_resumes(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    type_text(page, "now the young dog sees a r")
    expect(page.locator("#target .word").nth(2)).to_be_visible()
    before = words(page)
    received: list[dict[str, Any]] = []
    page.on(
        "websocket", lambda ws: ws.on("framereceived", lambda f: received.append(json.loads(f)))
    )
    page.reload()
    ready(page)
    assert received[0]["type"] == "started"
    assert received[0]["resumed"] is True
    assert words(page)[: len(before)] == before
    assert words(page, "source") == ["now", "the", "young", "dog", "sees", "a"]
    expect(page.locator("#typing")).to_have_value("r")
    page.focus("#typing")
    page.keyboard.press("End")
    page.keyboard.type("ed house and the calm cat")
    page.keyboard.press("Enter")
    expect_words(page, translation(translator))


SOCKETS = """window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...args) { super(...args); window.sockets.push(this); }
};"""


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
    with Running(translator) as first:
        page = open_page(url=first.url)
        ready(page)
        type_text(page, "now the young ")
        expect_words(page, ["maintenant"])
    type_text(page, "dog sees ")
    expect(page.locator("#state")).not_to_have_attribute("data-kind", "live")
    with Running(translator, port=first.port):
        ready(page)
        type_text(page, "a red house and the calm cat")
        page.keyboard.press("Enter")
        expect_words(page, translation(translator))
        expect(page.locator("#notice-text")).to_contain_text("a new one has begun")
        page.close()
    assert all("WebSocket" in error for error in errors)
    errors.clear()


def test_a_token_is_asked_for(open_page: Opener, translator: Translator) -> None:
    with Running(translator, token="secret") as locked:
        page = open_page(url=locked.url)
        expect(page.locator("#notice-text")).to_contain_text("access token")
        page.get_by_label("Access token").fill("secret")
        page.keyboard.press("Enter")
        ready(page)
        expect(page.locator("#notice")).to_be_hidden()
        page.close()


def test_an_overlay_in_another_browser(
    open_page: Opener, translator: Translator, errors: list[str]
) -> None:
    with Running(translator, token="secret") as locked:
        page = open_page(url=locked.url, permissions=["clipboard-read", "clipboard-write"])
        page.get_by_label("Access token").fill("secret")
        page.keyboard.press("Enter")
        ready(page)
        page.click("#copy-overlay")
        expect(page.locator("#copy-overlay")).to_have_text("Copied")
        link = page.evaluate("navigator.clipboard.readText()").removeprefix(locked.url)
        assert link.startswith("overlay?channel=")
        assert link.endswith("#token=secret")
        type_text(page, "now the young dog sees ")
        expect(page.locator("#target .word").nth(1)).to_be_visible()
        overlay = open_page(link, url=locked.url)  # of a context of its own
        lines = overlay.locator(".line")
        expect(lines).to_have_text(re.compile("^maintenant "))  # of what was written before
        type_text(page, SENTENCE.removeprefix("now the young dog sees "))
        page.keyboard.press("Enter")
        expect(lines.last).to_contain_text(translation(translator)[-1])
        type_text(page, "the moon often ")  # a new session of the page
        expect(lines.last).to_have_text(re.compile("^la lune"))
        assert lines.count() <= 2
        stranger = open_page("overlay?channel=another#token=secret", url=locked.url)
        expect(stranger.locator(".line")).to_have_count(0)
        for opened in (overlay, stranger, page):
            opened.close()


def test_no_slider_where_no_threshold_counts(open_page: Opener, translator: Translator) -> None:
    config = Config(
        model=ModelConfig(width=16, ffn=16, heads=2, encoder_layers=1, decoder_layers=1),
        policy=PolicyConfig(name="wait-k", k=(2,)),
    )
    codec = translator.codec
    sizes = len(codec.source_vocabulary), len(codec.target_vocabulary)
    with Running(Translator(build(config, *sizes), config, codec)) as fixed:
        page = open_page(url=fixed.url)
        ready(page)
        expect(page.locator("#threshold")).to_be_hidden()
        expect(page.locator("#lagging")).to_be_visible()
        page.close()


def test_overlay(open_page: Opener, translator: Translator) -> None:
    page = open_page(viewport={"width": 900, "height": 600})
    ready(page)
    expect(page.locator("#threshold")).to_be_visible()
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


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_is_wider_than_the_window(open_page: Opener, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 740}, has_touch=width == 360)
    ready(page)
    page.locator("#typing").press_sequentially(f"{'x' * 90} {SENTENCE} ")
    expect(page.locator("#path .stairs").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in page.locator("button:visible, a.button, input[type=range]").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_light_and_dark(open_page: Opener) -> None:
    page = open_page(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150
    page.click("#theme")
    assert sum(map(int, re.findall(r"\d+", page.evaluate(ground)))) > 600
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    ready(page)
    colours = page.evaluate(
        "['--ink', '--soft'].map(n => getComputedStyle(document.body).getPropertyValue(n))"
    )
    assert len(set(colours)) == 2


DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, {type: ''}));
  const options = {dataTransfer: data, bubbles: true, cancelable: true};
  for (const type of ['dragenter', 'dragover', 'drop'])
    document.body.dispatchEvent(new DragEvent(type, options));
}"""


def test_caption_files_are_played(open_page: Opener, translator: Translator) -> None:
    page = open_page()
    ready(page)
    page.select_option("#speed", "8", force=True)
    page.evaluate(DROP, ["talk.vtt", VTT])
    expect(page.locator("#player")).to_be_visible()
    expect(page.locator("#file-name")).to_have_text("talk.vtt")
    expect_words(page, ["the", "sad", "dog", "follows", "the", "clean", "train"], "source")
    expect_words(page, translation(translator, "the sad dog follows the clean train"))
    expect(page.locator("#player")).to_be_hidden()
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a moon"})
    expect(page.locator("#target .word").last).to_have_text("lune")
    page.evaluate(DROP, ["picture.png", "x"])
    expect(page.locator("#notice-text")).to_contain_text("“picture.png” is no text file")


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


def test_keyboard_and_screen_reader(open_page: Opener) -> None:
    page = open_page()
    ready(page)
    expect(page.locator("#typing")).to_be_focused()
    type_text(page, SENTENCE + " ")
    expect(page.locator("#target .word").nth(3)).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("maintenant le")
    assert page.locator("#spoken").get_attribute("aria-live") == "polite"
    reached = set()
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"open-file", "end-sentence", "clear", "copy", "save-text", "save-vtt", "overlay",
            "threshold", "theme"} <= reached  # fmt: skip
    page.locator("#target .word[tabindex='0']").focus()
    page.keyboard.press("Home")
    expect(page.locator("#target .word").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#target .tied")).to_have_text(words(page)[1])
    expect(page.locator("#tie")).to_contain_text("waited for")
    for control in page.locator("button:visible, a, input:visible, select:visible").all():
        assert control.evaluate(
            "e => (e.ariaLabel || e.labels?.[0]?.innerText || e.innerText).trim()"
        )
    assert page.locator("#path svg").get_attribute("aria-label").startswith("Read/write path: 12")


def test_a_long_paste(open_page: Opener) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    ready(page)
    text = " ".join([SENTENCE + "."] * 20)
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.keyboard.press("Control+V")
    expect(page.locator("#heard")).to_have_text(f"{len(text.split())} words")
    expect(page.locator("#source .unheard")).to_have_count(0, timeout=20_000)
    expect(page.locator("#target .sentence:not(.open)")).to_have_count(20, timeout=20_000)
    page.click("#clear")
    expect(page.locator(".word")).to_have_count(0)
    ready(page)


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
