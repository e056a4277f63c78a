"""A headless Chromium that opens one local page and permits no other request.

Playwright controls the system's own browser: nothing is downloaded. While the browser is open,
Playwright's synchronous form keeps an event loop running in its thread. A run of the lab starts an
event loop, too, and Python permits one for a thread. So a test must not run the lab while the
browser is open.
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
"""Options with which the browser starts quickly and asks nothing of the network by itself."""
PAGE_TIMEOUT_MS = 30_000
"""Longest wait for a page, on a machine that is busy with other tests."""

Scheme = Literal["light", "dark"]
Media = Literal["screen", "print"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A window. Its size is in CSS pixels; `scale` is the number of device pixels per CSS pixel."""

    width: int
    height: int
    touch: bool = False
    scale: float = 1.0


DESKTOP = Screen(width=1280, height=800)
PHONE = Screen(width=360, height=740, touch=True, scale=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """An open page, and the errors that a reader should never see."""

    page: Page
    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and every request but the page."""
        return [*self.console, *self.errors, *(f"requested {url}" for url in self.requests)]


def find_chromium() -> Path | None:
    """Return the system's Chromium; None if there is none on the PATH."""
    # The first of PROGRAMS that the system has; `which` returns None for the others.
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    return None if program is None else Path(program)


@contextmanager
def chromium(program: Path) -> Iterator[Browser]:
    """Start a headless Chromium; it ends with the block."""
    # Chromium does not start for root with its sandbox; containers often run as root.
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
    """Open a local file in a fresh profile; every other request is recorded and refused."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        device_scale_factor=screen.scale,
        has_touch=screen.touch,
        is_mobile=screen.touch,
        color_scheme=scheme,
        # No animations, for which a test would have to wait.
        reduced_motion="reduce",
    )
    try:
        yield _open(context, file.resolve().as_uri(), fragment, media)
    finally:
        context.close()


def _open(context: BrowserContext, url: str, fragment: str, media: Media) -> Visit:
    """Open the page, and return a Visit that collects its messages, errors and refused requests."""
    context.set_default_timeout(PAGE_TIMEOUT_MS)
    page = context.new_page()
    page.emulate_media(media=media)
    opened = Visit(page=page)

    def only_the_page(route: Route) -> None:
        # Only the page itself is permitted, with any fragment.
        if route.request.url.partition("#")[0] == url:
            route.continue_()
            return
        opened.requests.append(route.request.url)
        route.abort()

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            opened.console.append(f"{message.type}: {message.text}")

    context.route("**/*", only_the_page)
    page.on("console", on_console)
    page.on("pageerror", lambda error: opened.errors.append(str(error)))
    page.on("crash", lambda _: opened.errors.append("the page crashed"))
    page.goto(f"{url}#{fragment}" if fragment else url)
    # The page's script sets this when all of it has run.
    page.wait_for_function("document.documentElement.dataset.state === 'ready'")
    return opened


def draw_all(page: Page) -> None:
    """Draw every chart, also those far from the screen."""
    page.evaluate("async () => { await window.coordlab.drawAll() }")


def shown_range(page: Page) -> tuple[float, float]:
    """Return the visible span of the time axis, in seconds."""
    from_s, to_s = page.evaluate("window.coordlab.range()")
    return float(from_s), float(to_s)


def set_range(page: Page, from_s: float, to_s: float) -> None:
    """Show a span of the time axis, in seconds.

    Returns when all charts that the page draws have drawn it. The page draws no chart that is far
    outside of the screen.
    """
    page.evaluate(
        "async ([from, to]) => { await window.coordlab.setRange(from, to) }", [from_s, to_s]
    )


def chart_states(page: Page) -> dict[str, str]:
    """Return the state of each chart, by its id: waiting, drawn or failed."""
    states: dict[str, str] = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('figure[id][data-state]')]"
        ".map((figure) => [figure.id, figure.dataset.state]))"
    )
    return states


def scrolls_sideways(page: Page) -> Sequence[str]:
    """Return the elements that make the page wider than its window.

    An element in a box that scrolls or clips its own content is not counted.
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
