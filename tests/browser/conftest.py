"""A real browser for the built site and for the report of a study.

Run these tests with `python -m pytest tests/browser`. They need Playwright for Python (`pip install -e '.[browser]'`),
Chromium (on Debian `apt-get install chromium`; or its path in the environment variable KPP_CHROMIUM) and, for the tests
of the site, the folder `build/site`, which `make docs` makes. Tests whose needs are not met are skipped; if the
environment variable KPP_REQUIRE_BROWSER is 1, as in continuous integration, they fail.

Pages are served from this machine. The browser cannot reach any other host. To ask one is a fault of a page; so are
an error on the console, an exception in a script, and an address that the server does not know.
"""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import importlib.util
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

OPTIONS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-first-run",
    "--no-sandbox",
]
TAG = re.compile(r"""<([a-zA-Z][^\s/>]*)((?:\s+[^\s=>]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+))?)*)\s*/?>""")
ATTRIBUTE = re.compile(r"""\s(id|name|href|src|class)\s*=\s*["']([^"']*)["']""")
#: Elements that make the page wider than the window; content that scrolls in a box of its own does not.
FIND_WIDE = """() => {
    const width = document.documentElement.clientWidth
    if (document.documentElement.scrollWidth <= width) return []
    const boxed = element => element !== document.body
        && (getComputedStyle(element).overflowX !== "visible" || boxed(element.parentElement))
    const wide = [...document.querySelectorAll("body *")]
        .filter(element => element.getBoundingClientRect().right > width + 1 && !boxed(element.parentElement))
        .map(element => `${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"`)
    return [`${document.documentElement.scrollWidth} pixels wide`, ...wide.slice(0, 3)]
}"""


def skip_or_fail(what: str) -> NoReturn:
    """Skip a test because something is not installed or not built; fail it where everything must be there."""
    if os.environ.get("KPP_REQUIRE_BROWSER") == "1":
        pytest.fail(what)
    pytest.skip(what)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files quietly, over connections that stay open, and lets the browser keep what pages share."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # of a browser that was closed
            super().handle()

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # the browser asks every host for it, whatever the page says
            self.send_response(http.HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port; the value is the address of the folder."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Tab:
    """A tab of the browser, which notes the faults of the pages that it shows.

    Attributes:
        page: Playwright's page.
        root: The address of the folder that is served.
        faults: The faults of the page that was opened last.
    """

    page: Page
    root: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(20_000)  # milliseconds
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self._note(True, f"script: {error}"))
        self.page.on("request", lambda request: self._note(self._is_foreign(request.url), f"asks {request.url}"))
        self.page.on("response", lambda reply: self._note(reply.status >= 400, f"{reply.status}: {reply.url}"))

    def _is_foreign(self, url: str) -> bool:
        return not url.startswith((self.root, "data:", "blob:", "about:"))

    def _note_message(self, message: ConsoleMessage) -> None:
        self._note(message.type == "error", f"console: {message.text} ({message.location['url']})")

    def _note(self, is_fault: bool, text: str) -> None:
        if is_fault:
            self.faults.append(text)

    def open(self, address: str, width: int | None = None) -> None:
        """Show a page and wait until it is complete, its formulas included."""
        self.faults.clear()
        if width is not None:
            self.resize(width)
        self.page.goto(f"{self.root}/{address}")
        self.page.evaluate("async () => { await window.MathJax?.startup?.promise }")

    def resize(self, width: int) -> None:
        """Make the window `width` pixels wide."""
        self.page.set_viewport_size({"width": width, "height": 900})

    def wide(self) -> list[str]:
        """What makes the page wider than the window; empty if the page fits."""
        return self.page.evaluate(FIND_WIDE)


@dataclass(frozen=True)
class HtmlFile:
    """The identifiers, links and classes of a page, read without a browser."""

    ids: frozenset[str]
    links: frozenset[str]
    classes: frozenset[str]


def read(path: Path) -> HtmlFile:
    """Read a page; Python's parser takes four times as long as these expressions."""
    found: dict[str, set[str]] = {name: set() for name in ("id", "name", "href", "src", "class")}
    for tag, attributes in TAG.findall(path.read_text(encoding="utf-8")):
        for name, value in ATTRIBUTE.findall(attributes):
            if name != "name" or tag == "a":
                found[name].add(html.unescape(value))
    classes = frozenset(word for text in found["class"] for word in text.split())
    return HtmlFile(frozenset(found["id"] | found["name"]), frozenset(found["href"] | found["src"]), classes)


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """`missing(what)` skips or fails a test whose needs are not met."""
    return skip_or_fail


@pytest.fixture(scope="session")
def serve() -> Callable[[Path], contextlib.AbstractContextManager[str]]:
    """`with serve(folder) as address` serves a folder."""
    return served


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The path of Chromium, if Playwright is there too."""
    if importlib.util.find_spec("playwright") is None:
        skip_or_fail("there is no Playwright; pip install -e '.[browser]'")
    path = os.environ.get("KPP_CHROMIUM") or shutil.which("chromium")
    if path is None:
        skip_or_fail("there is no Chromium; on Debian: apt-get install chromium")
    return path


@pytest.fixture(scope="module")  # an open Playwright owns the thread's event loop, which tests of other folders use
def chromium(chromium_path: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium_tab(chromium: Browser) -> Callable[..., contextlib.AbstractContextManager[Tab]]:
    """`with chromium_tab(root) as tab` opens a tab of its own for a folder that is served."""

    @contextlib.contextmanager
    def opened(root: str, **options: Any) -> Iterator[Tab]:
        with contextlib.closing(chromium.new_context(**options)) as context:
            yield Tab(context.new_page(), root)

    return opened


@pytest.fixture
def open_tab(chromium_tab: Callable[..., contextlib.AbstractContextManager[Tab]]) -> Iterator[Callable[..., Tab]]:
    """`open_tab(root)` opens such a tab until the test ends; further options go to the browser's context."""
    with contextlib.ExitStack() as stack:
        yield lambda root, **options: stack.enter_context(chromium_tab(root, **options))


@pytest.fixture(scope="session")
def site(root: Path) -> Path:
    """The folder of the built site."""
    folder = root / "build" / "site"
    if not (folder / "index.html").is_file():
        skip_or_fail("there is no site in build/site; make docs")
    return folder


@pytest.fixture(scope="session")
def site_files(site: Path) -> dict[str, HtmlFile]:
    """All pages of the site by their address below it."""
    addresses = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    pages = [address for address in addresses if not address.startswith("_static/")]  # those of the theme are parts
    return {address: read(site / address) for address in pages}


@pytest.fixture(scope="session")
def kinds(site_files: dict[str, HtmlFile]) -> dict[str, str]:
    """The address of one page of each kind."""

    def first(folder: str, *classes: str) -> str:
        matching = [a for a, file in site_files.items() if a.startswith(folder) and set(classes) <= file.classes]
        assert matching, f"no page below {folder} has the classes {classes}"
        return min(matching, key=lambda address: (address.endswith("index.html"), address))

    return {
        "start": "index.html",
        "tutorial": first("tutorials/"),
        "guide": first("how_to/", "math", "cell_input"),
        "API": first("reference/api/", "py", "sig"),
        "gallery": "gallery/index.html",
        "example": first("gallery/", "sphx-glr-example-title"),
    }


@pytest.fixture(scope="module")
def site_root(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address


@pytest.fixture
def tab(open_tab: Callable[..., Tab], site_root: str) -> Tab:
    """A tab for the pages of the site."""
    return open_tab(site_root)


@pytest.fixture(scope="session")
def report_folder(chromium_path: str, request: pytest.FixtureRequest) -> Path:
    """The results of the hostile study, the report among them; made only where a browser can show it."""
    return request.getfixturevalue("hostile_results")


@pytest.fixture(scope="module")
def report_root(report_folder: Path) -> Iterator[str]:
    with served(report_folder) as address:
        yield address
