"""Measure how legible the texts of a page are on their backgrounds, by their contrast ratios.

The ratio is defined by WCAG 2.2, the guidelines of the W3C for accessible web pages. It is 1 if
text and background are equally bright, and 21 for black on white. The colours are read from a
browser that shows the page.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.sync_api import Page

Colour = tuple[float, float, float, float]
"""Red, green, blue from 0 to 255, and alpha from 0 to 1."""

READABLE, READABLE_LARGE = 4.5, 3.0
"""The smallest ratios that level AA of WCAG 2.2 permits for text and for large text."""
LARGE_PX, LARGE_BOLD_PX, BOLD = 24.0, 18.66, 700
"""Text is large from 24 px (18 pt) on, and bold text (of weight 700) from 18.66 px (14 pt) on."""

# JavaScript that runs in the page. It returns for each style of text: some words, the colour of the
# text, its size and weight, and the colours of the backgrounds behind it.
_FIND_STYLES = """(selector) => {
  // Element -> the backgrounds of the element and of all elements around it, the outermost last.
  const behind = new Map();
  const paintedBehind = (element) => {
    if (!element) return [];
    if (!behind.has(element)) {
      const backgrounds = element instanceof SVGElement
        ? [] : [getComputedStyle(element).backgroundColor];
      behind.set(element, [...backgrounds, ...paintedBehind(element.parentElement)]);
    }
    return behind.get(element);
  };
  const hasWords = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
  // Style as JSON, without its words -> the style. So elements of one style give one entry.
  const styles = new Map();
  for (const element of document.querySelectorAll(selector)) {
    if (!hasWords(element) || !element.getClientRects().length) continue;
    const computed = getComputedStyle(element);
    const text = element instanceof SVGElement ? computed.fill : computed.color;
    const size = [parseFloat(computed.fontSize), parseFloat(computed.fontWeight)];
    const words = element.textContent.trim().slice(0, 60);
    const style = { words, text, size, behind: paintedBehind(element) };
    styles.set(JSON.stringify({ ...style, words: "" }), style);
  }
  return [...styles.values()];
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The contrast of one style of text."""

    # Some words that have this style.
    words: str
    # The contrast ratio, from 1 to 21.
    ratio: float
    # The smallest permitted ratio.
    needed: float


def contrasts(page: Page, selector: str) -> Sequence[Contrast]:
    """Return the contrast of the visible text that a CSS selector finds; each style comes once.

    The background of a text is that of the elements around it. A label of a chart may stand on a
    bar or on another mark; such marks are ignored.
    """
    styles = page.evaluate(_FIND_STYLES, selector)
    return [
        Contrast(
            words=style["words"],
            ratio=_ratio(style["text"], style["behind"]),
            needed=_needed_ratio(*style["size"]),
        )
        for style in styles
    ]


def _needed_ratio(size_px: float, weight: float) -> float:
    """Return the smallest permitted ratio for text of this size and weight."""
    large_px = LARGE_BOLD_PX if weight >= BOLD else LARGE_PX
    return READABLE_LARGE if size_px >= large_px else READABLE


def _ratio(text: str, behind: Sequence[str]) -> float:
    """Return the contrast ratio of a text on the backgrounds behind it, the nearest one first.

    Text and backgrounds may be translucent.

    Source: WCAG 2.2, "contrast ratio".
    """
    # Behind all these backgrounds is the white of the browser.
    background: Colour = (255, 255, 255, 1)
    for layer in reversed(behind):
        background = _over(_parsed(layer), background)
    visible_text = _over(_parsed(text), background)
    lighter, darker = sorted((_luminance(visible_text), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _parsed(colour: str) -> Colour:
    """Return the colour that a browser writes as `rgb(1, 2, 3)` or as `rgba(1, 2, 3, 0.5)`."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)]
    if not colour.startswith("rgb") or len(numbers) not in {3, 4}:
        raise ValueError(f"expected rgb() or rgba(), got {colour}")
    red, green, blue = numbers[:3]
    return red, green, blue, numbers[3] if len(numbers) == 4 else 1.0


def _over(above: Colour, below: Colour) -> Colour:
    """Return the colour that a person sees if a translucent colour lies above an opaque colour."""
    alpha = above[3]
    red, green, blue = (
        alpha * a + (1 - alpha) * b for a, b in zip(above[:3], below[:3], strict=True)
    )
    return red, green, blue, 1.0


def _luminance(colour: Colour) -> float:
    """Return the relative luminance of a colour, from 0 (black) to 1 (white).

    Source of the numbers: WCAG 2.2, "relative luminance".
    """
    linear = []
    for value in colour[:3]:
        part = value / 255
        linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
