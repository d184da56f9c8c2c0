"""The page's modules by themselves: captions, words and latency."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Opener

import simultan
from simultan import latency
from simultan.data.text import normalise
from simultan.data.words import join_words

pytest.importorskip("playwright.sync_api")
FOLDER = Path(simultan.__file__).parent / "server"


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,>")
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    """The page's files and no model behind them."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=FOLDER)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(open_page: Opener, files: str) -> Any:
    return open_page(url=files)


def call(page: Any, module: str, function: str, *arguments: object) -> Any:
    script = f"async (given) => (await import('/static/{module}')).{function}(...given)"
    return page.evaluate(script, list(arguments))


SRT = """1
00:00:01,000 --> 00:00:03,000
<i>one</i> &amp; two

2
01:00:00,5 --> 01:00:01,0
three
""".replace("\n", "\r\n")


def test_captions(page: Any) -> None:
    items = call(page, "captions.js", "schedule", SRT, "a.srt")
    assert [item["word"] for item in items] == ["one", "&", "two", "three"]
    assert [item["at"] for item in items] == pytest.approx([1 + 2 / 3, 1 + 4 / 3, 3.0, 3601.0])
    items = call(page, "captions.js", "schedule", "a b\nc\n\nd", "a.txt")
    assert [item.get("word") for item in items] == ["a", "b", "c", None, "d", None]
    assert items[4]["at"] == pytest.approx(3 / 2.5)
    assert call(page, "captions.js", "schedule", "no cue at all", "a.vtt") == []
    written = [
        {"text": "un", "at": 1.0},
        {"text": "<deux>", "at": 1.5, "last": True},
        {"text": "trois", "at": 1.6},
        {"text": "quatre", "at": 9.25},
    ]
    assert call(page, "captions.js", "toVtt", written) == (
        "WEBVTT\n\n"
        "00:00:01.000 --> 00:00:01.600\nun &lt;deux&gt;\n\n"
        "00:00:01.600 --> 00:00:03.600\ntrois\n\n"
        "00:00:09.250 --> 00:00:11.250\nquatre\n"
    )
    sentences = [{"text": f"s{i}", "at": 1.0 + i / 10, "last": True} for i in range(5)]
    at_once = call(page, "captions.js", "parseCues", call(page, "captions.js", "toVtt", sentences))
    assert [cue["start"] for cue in at_once] == [1.0, 1.5, 2.0, 2.5, 3.0]
    ends, starts = [cue["end"] for cue in at_once], [cue["start"] for cue in at_once]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    long = [{"text": f"word{i}", "at": i / 10} for i in range(200)]
    vtt = call(page, "captions.js", "toVtt", long)
    assert call(page, "captions.js", "parseCues", vtt)[0]["start"] == 0
    assert max(map(len, vtt.splitlines())) <= 80


def test_a_damaged_caption_is_told(page: Any) -> None:
    cue = "00:00:01.000 --> 00:00:03.000\nGuten Morgen.\n\n"
    assert call(page, "captions.js", "damaged", f"WEBVTT\n\n{cue}") == 0
    assert call(page, "captions.js", "damaged", f"WEBVTT\n\n{cue}00:01 --> x\nHallo.\n") == 6


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252"])
def test_files_in_old_encodings(page: Any, encoding: str) -> None:
    text = "Schöne Grüße – äöü ß"
    assert call(page, "captions.js", "decode", list(text.encode(encoding))) == text


def test_words_are_the_servers_words(page: Any) -> None:
    for text in (
        "  a\tb\n",
        "a\u00a0b\u3000c",
        "a\u200bb \u00ad c",
        "e\u0301t\x1cx\x85y",
        "\x00 \x07",
        "🙂 a",
    ):
        assert call(page, "words.js", "splitWords", text) == normalise(text).split()


def test_words_are_joined_as_the_server_joins_them(page: Any) -> None:
    mixed = [*"我在", "GPU", "上", "跑", "very", "fast", "。"]
    for words in (["ein", "Haus"], mixed, ["ที่", "นี่"], ["𠀀", "a"]):
        for language in ("de", "zh", "ja-JP", "th", "zhx"):
            wanted = join_words(words, language)
            assert call(page, "words.js", "joinWords", words, language) == wanted
    written = [{"text": text, "at": 1.0} for text in "你好"]
    assert "你好\n" in call(page, "captions.js", "toVtt", written, "zh")


SHEET = """
      const {Sheet} = await import('/static/sheet.js');
      const {Transcript} = await import('/static/transcript.js');
      const parts = {sheet: document.createElement('div')};
      document.body.append(parts.sheet);
      for (const name of ['closed', 'source', 'target'])
        parts.sheet.append(parts[name] = document.createElement('div'));
      const transcript = new Transcript();
      const sheet = new Sheet(parts, transcript, {onTie() {}, onFrame() {}});
"""


def test_words_heard_before_they_are_shown(page: Any) -> None:
    """Two are shown, then a third is said and all are heard before the next frame."""
    script = f"""async () => {{
      {SHEET}
      const unheard = () => parts.source.querySelectorAll('.unheard').length;
      const counts = [];
      for (const [said, heard] of [[2, 0], [1, 3], [2, 4], [0, 5]]) {{
        for (let i = 0; i < said; i++) transcript.hear('Hallo');
        sheet.heard = heard;
        sheet.render();
        counts.push(unheard());
      }}
      return counts;
    }}"""
    assert page.evaluate(script) == [2, 0, 1, 0]


def test_a_sheet_has_no_spaces_that_the_language_lacks(page: Any) -> None:
    """The open sentence, one that is closed, and one that is old."""
    script = f"""async (language) => {{
      {SHEET}
      sheet.languages = ['de', transcript.language = language];
      for (let i = 0; i < 3; i++) {{
        transcript.hear('Hallo');
        for (const letter of '你好') transcript.write(letter, i + 1, [], 0);
        if (i < 2) transcript.end(i + 1);
        sheet.heard = i + 1;
        if (i) sheet.render(); else {{ sheet.addPlain(transcript.sentences[1]); }}
      }}
      return [...parts.closed.children].map((row) => row.lastChild.textContent.trim())
        .concat(parts.target.textContent.trim(), transcript.text());
    }}"""
    assert page.evaluate(script, "zh") == ["你好", "你好", "你好", "你好\n你好\n你好"]
    assert page.evaluate(script, "de") == ["你 好", "你 好", "你 好", "你 好\n你 好\n你 好"]


def test_lagging(page: Any) -> None:
    """The same average lagging as the scores', in words; in seconds by the same sum."""
    chance = random.Random(1)
    for _ in range(20):
        length = chance.randint(1, 9)
        delays = sorted(chance.randint(1, length) for _ in range(chance.randint(1, 12)))
        wanted = latency.average_lagging(
            torch.tensor([delays], dtype=torch.float64),
            torch.tensor([length]),
            torch.tensor([len(delays)]),
        )
        said = [2000 * i for i in range(length)]
        found = call(page, "latency.js", "lagging", delays, length, said, [9000] * len(delays))
        assert found["words"] == pytest.approx(wanted.item())
        assert found["seconds"] <= 9
    assert call(page, "latency.js", "lagging", [], 3) is None
    found = call(page, "latency.js", "lagging", [2, 2], 2, [0, 1000], [1500, 1700])
    assert found == {"words": 2, "seconds": 1.5}
    found = call(page, "latency.js", "lagging", [2, 2], 2, [0, None], [1500, 1700])
    assert found["seconds"] == 1.5  # the second word was not looked at
    found = call(page, "latency.js", "lagging", [1, 2], 2, [None, None], [1500, 1700])
    assert found == {"words": 1, "seconds": None}
