"""Measures how legible text is on its background, by the contrast ratio of WCAG 2.2.

WCAG are the W3C's guidelines for accessible web pages. The ratio goes from 1 (same brightness) to
21 (black on white). The colours come from a browser that shows the page.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.sync_api import Page

Colour = tuple[float, float, float, float]
"""Red, green, blue from 0 to 255, and alpha from 0 to 1."""

READABLE, READABLE_LARGE = 4.5, 3.0
"""Minimal ratios for text and for large text, by level AA of WCAG 2.2."""
LARGE_PX, LARGE_BOLD_PX, BOLD = 24.0, 18.66, 700
"""Large text has at least 18 pt (LARGE_PX), or 14 pt (LARGE_BOLD_PX) if its weight is BOLD."""

# JavaScript that runs in the page. It returns for each style of text: some words, the text's
# colour, its size and weight, and the background colours behind it.
_PAINTS = """(selector) => {
  const behind = new Map();  // the backgrounds of an element and of all around it, outermost last
  const paintedBehind = (element) => {
    if (!element) return [];
    if (!behind.has(element)) {
      const own = element instanceof SVGElement ? [] : [getComputedStyle(element).backgroundColor];
      behind.set(element, [...own, ...paintedBehind(element.parentElement)]);
    }
    return behind.get(element);
  };
  const hasWords = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
  const looks = new Map();  // one element stands for all that look the same
  for (const element of document.querySelectorAll(selector)) {
    if (!hasWords(element) || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const text = element instanceof SVGElement ? style.fill : style.color;
    const size = [parseFloat(style.fontSize), parseFloat(style.fontWeight)];
    const words = element.textContent.trim().slice(0, 60);
    const look = { words, text, size, behind: paintedBehind(element) };
    looks.set(JSON.stringify({ ...look, words: "" }), look);
  }
  return [...looks.values()];
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Words of a page, their contrast ratio to the background (1 to 21), and the minimal ratio."""

    words: str
    ratio: float
    needed: float


def contrasts(page: Page, selector: str) -> Sequence[Contrast]:
    """Return the contrast of the visible text that `selector` finds, each style once.

    The background of a text is that of the elements around it. In a chart a label may lie on a bar
    or on another mark; such marks are ignored.
    """
    looks = page.evaluate(_PAINTS, selector)
    return [
        Contrast(
            words=look["words"],
            ratio=_ratio(look["text"], look["behind"]),
            needed=_needed_ratio(*look["size"]),
        )
        for look in looks
    ]


def _needed_ratio(size_px: float, weight: float) -> float:
    """Return the minimal ratio for text of this size and weight."""
    large = size_px >= (LARGE_BOLD_PX if weight >= BOLD else LARGE_PX)
    return READABLE_LARGE if large else READABLE


def _ratio(text: str, behind: Sequence[str]) -> float:
    """Return the contrast of the colour `text` on the layers `behind`, the innermost first.

    Layers and text may be translucent. Source: WCAG 2.2, "contrast ratio".
    """
    # A page that sets no background has a white one.
    background: Colour = (255, 255, 255, 1)
    for layer in reversed(behind):
        background = _over(_parsed(layer), background)
    lighter, darker = sorted(
        (_luminance(_over(_parsed(text), background)), _luminance(background)), reverse=True
    )
    return (lighter + 0.05) / (darker + 0.05)


def _parsed(colour: str) -> Colour:
    """Parse a browser's colour: `rgb(1, 2, 3)`, or `rgba(1, 2, 3, 0.5)` with an alpha."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)]
    if not colour.startswith("rgb") or len(numbers) not in {3, 4}:
        raise ValueError(f"expected rgb() or rgba(), got {colour}")
    red, green, blue = numbers[:3]
    return red, green, blue, numbers[3] if len(numbers) == 4 else 1.0


def _over(above: Colour, below: Colour) -> Colour:
    """Return the colour of a translucent layer above an opaque one.

    `above` is drawn with its alpha; the result is opaque.
    """
    alpha = above[3]
    red, green, blue = (
        alpha * a + (1 - alpha) * b for a, b in zip(above[:3], below[:3], strict=True)
    )
    return red, green, blue, 1.0


def _luminance(colour: Colour) -> float:
    """Return the relative luminance, from 0 (black) to 1 (white).

    Source of the numbers: WCAG 2.2, "relative luminance".
    """
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
