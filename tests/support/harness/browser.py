"""A headless Chromium for tests of the report's page: it opens one local file and nothing else.

Playwright controls the browser that is installed on the system, so nothing is downloaded. While the
browser is open, a test must not start a run of coordlab in the same thread. The browser and the run
both need an event loop, and a thread can have only one.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    sync_playwright,
)

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Names under which Linux distributions install Chromium."""
INSTALL = "Debian and Ubuntu: apt-get install --no-install-recommends chromium"
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Options with which the browser starts quickly and sends no requests of its own."""
PAGE_TIMEOUT_MS = 30_000
"""The longest wait for a page. It is long, because the machine may be busy with other tests."""

Scheme = Literal["light", "dark"]
Media = Literal["screen", "print"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The screen on which the page is shown."""

    # In CSS pixels.
    width: int
    height: int
    touch: bool = False
    # The number of device pixels in a CSS pixel, in each direction.
    scale: float = 1.0


DESKTOP = Screen(width=1280, height=800)
PHONE = Screen(width=360, height=740, touch=True, scale=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """An open page, and what went wrong while it was open."""

    page: Page
    # Errors and warnings that the page wrote to the browser's console.
    console: list[str] = field(default_factory=list)
    # Exceptions in the page's script.
    errors: list[str] = field(default_factory=list)
    # Addresses that the page tried to load; all such requests were refused.
    requests: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All that went wrong, as lines of text."""
        return [*self.console, *self.errors, *(f"requested {url}" for url in self.requests)]


def find_chromium() -> Path | None:
    """Return the system's Chromium; None if there is none on the PATH."""
    for name in PROGRAMS:
        program = shutil.which(name)
        if program is not None:
            return Path(program)
    return None


@contextmanager
def chromium(program: Path) -> Iterator[Browser]:
    """Start a headless Chromium, which is closed at the end of the block."""
    # In containers, tests often run as root. Chromium refuses to start as root with its sandbox.
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(program), args=[*QUIET, *as_root], timeout=PAGE_TIMEOUT_MS
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Browser,
    file: Path,
    *,
    screen: Screen = DESKTOP,
    scheme: Scheme = "light",
    media: Media = "screen",
    fragment: str = "",
) -> Iterator[Visit]:
    """Open a local file in a fresh profile of the browser.

    Every other request is refused, and recorded in the Visit.
    """
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        device_scale_factor=screen.scale,
        has_touch=screen.touch,
        is_mobile=screen.touch,
        color_scheme=scheme,
        # The page shall have no animations, because a test would have to wait for their ends.
        reduced_motion="reduce",
    )
    try:
        yield _open(context, file.resolve().as_uri(), fragment, media)
    finally:
        context.close()


def _open(context: BrowserContext, url: str, fragment: str, media: Media) -> Visit:
    """Open the page, wait until it is ready, and return a Visit that collects its problems."""
    context.set_default_timeout(PAGE_TIMEOUT_MS)
    page = context.new_page()
    page.emulate_media(media=media)
    opened = Visit(page=page)

    def refuse_other_requests(route: Route) -> None:
        address_without_fragment = route.request.url.partition("#")[0]
        if address_without_fragment == url:
            route.continue_()
            return
        opened.requests.append(route.request.url)
        route.abort()

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            opened.console.append(f"{message.type}: {message.text}")

    context.route("**/*", refuse_other_requests)
    page.on("console", on_console)
    page.on("pageerror", lambda error: opened.errors.append(str(error)))
    page.on("crash", lambda _: opened.errors.append("the page crashed"))
    page.goto(f"{url}#{fragment}" if fragment else url)
    # The page's script sets this attribute at its end.
    page.wait_for_function("document.documentElement.dataset.state === 'ready'")
    return opened


def draw_all(page: Page) -> None:
    """Draw every chart. By itself the page draws only charts on the screen or near it."""
    page.evaluate("async () => { await window.coordlab.drawAll() }")


def shown_range(page: Page) -> tuple[float, float]:
    """Return the part of the time axis that the charts show, in seconds."""
    from_s, to_s = page.evaluate("window.coordlab.range()")
    return float(from_s), float(to_s)


def set_range(page: Page, from_s: float, to_s: float) -> None:
    """Let the charts show a part of the time axis, given in seconds.

    This function returns when the charts on the screen or near it have been drawn again.
    """
    page.evaluate(
        "async ([from, to]) => { await window.coordlab.setRange(from, to) }", [from_s, to_s]
    )


def chart_states(page: Page) -> dict[str, str]:
    """Return the state of each chart (waiting, drawn or failed) by the id of the chart."""
    states: dict[str, str] = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('figure[id][data-state]')]"
        ".map((figure) => [figure.id, figure.dataset.state]))"
    )
    return states


def scrolls_sideways(page: Page) -> Sequence[str]:
    """Return the elements that make the page wider than its window.

    An element does not make the page wider if it is within a box that scrolls or clips its content.
    Such elements are left out.
    """
    found: list[str] = page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          const isInScrollingBox = (element) => {
            const box = element.parentElement;
            if (!box || box === document.body) return false;
            return getComputedStyle(box).overflowX !== "visible" || isInScrollingBox(box);
          };
          const right = (element) => element.getBoundingClientRect().right;
          return [...document.body.querySelectorAll('*')]
            .filter((element) => right(element) > width + 1 && !isInScrollingBox(element))
            .map((element) => `${element.tagName} ${element.id} ${element.getAttribute('class')}`);
        }"""
    )
    return found
