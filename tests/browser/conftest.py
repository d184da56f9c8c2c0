"""A trained toy model, a real server and a real Chromium, all as users have them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from running import Opener, Running

import simultan
from simultan import config
from simultan.data.corpus import prepare
from simultan.data.sources import TextPair
from simultan.data.toy import write_toy
from simultan.streaming.translator import Translator
from simultan.train.loop import fit

playwright = pytest.importorskip("playwright.sync_api")
PATIENCE = 120_000  # ms until what hangs is called so; a busy machine takes long, too
playwright.expect.set_options(timeout=PATIENCE)
CHROMIUM = shutil.which("chromium")
RECIPE = Path(__file__).parents[2] / "recipes" / "toy" / "mma-il.toml"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if CHROMIUM is None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="no chromium: run `make chromium`"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder, 3000)
    train = TextPair(folder / "train.en", folder / "train.fr")
    prepare(folder / "data", [train], None, pipeline="words", min_count=1)
    settings = [f"data.folder={folder / 'data'}", "train.updates=300", "train.validate_every=0"]
    fit(config.load(RECIPE, settings), folder / "run", tensorboard=False)
    return folder / "run" / "final"


@pytest.fixture(scope="session")
def translator(model: Path) -> Translator:
    return simultan.load(model)


@pytest.fixture(scope="session")
def server(translator: Translator) -> Iterator[Running]:
    with Running(translator) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    # Not of the session: while it is open its event loop runs in this thread, and the tests of
    # another file that come to this process could not run one of their own.
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield running
        running.close()


@pytest.fixture
def errors() -> list[str]:
    """What the browser complained about; a test that expects some empties it."""
    return []


@pytest.fixture
def open_page(
    browser: playwright.Browser, request: pytest.FixtureRequest, errors: list[str]
) -> Iterator[Opener]:
    """Opens pages, each in a fresh profile unless it is given a context; at the end no console
    error is left and no request has left the origin."""
    contexts: list[playwright.BrowserContext] = []
    requests: list[tuple[str, str]] = []

    def watch(page: playwright.Page, url: str) -> None:
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda asked: requests.append((asked.url, url)))
        page.on("websocket", lambda socket: requests.append((socket.url, url)))

    def opening(
        path: str = "",
        *,
        url: str | None = None,
        context: playwright.BrowserContext | None = None,
        script: str = "",
        **options: object,
    ) -> playwright.Page:
        url = url or request.getfixturevalue("server").url
        if context is None:
            context = browser.new_context(**options)
            context.set_default_timeout(PATIENCE)
            contexts.append(context)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        watch(page, url)
        page.goto(url + path)
        return page

    yield opening
    for context in contexts:
        context.close()
    assert errors == []
    for url, home in requests:
        parts = urlsplit(url)
        assert parts.scheme in ("data", "blob") or parts.netloc == urlsplit(home).netloc, url
