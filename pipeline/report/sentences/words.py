"""Small pieces of markup that the sections share: links to moments, headings of faults, lists.

What comes from a run is escaped here, so that sections hand over plain text.
"""

import re
from collections.abc import Iterable, Mapping

from markupsafe import Markup

from pipeline.report.charts.chart import span_attributes
from pipeline.summary.figures import FaultSummary
from pipeline.summary.story import moment_text

_NUMBER_AND_UNIT = re.compile(r"(\d) (s|ms|us)\b")
_SPAN = re.compile(r"\d\N{NO-BREAK SPACE}s to (run end|[\d.]+)")


def moment_link(
    from_us: int, to_us: int | None = None, *, lane: str | None = None, text: str | None = None
) -> Markup:
    """Return a link that shows a moment, or a span, in the lanes; its text is the moment."""
    shown = text or (
        moment_text(from_us) if to_us is None else f"{moment_text(from_us)} to {moment_text(to_us)}"
    )
    attributes = Markup(span_attributes(from_us, to_us, lane=lane))
    return Markup("<a {}>{}</a>").format(attributes, span_together(shown))


def linked(text: str, from_us: int, to_us: int, *, lane: str) -> Markup:
    """Return text in which `from .. to ..` of a span is the link that shows it in the lanes.

    A text that does not say the span so is followed by the link.
    """
    said = f"from {moment_text(from_us)} to {moment_text(to_us)}"
    before, found, after = text.partition(said)
    link = moment_link(from_us, to_us, lane=lane, text=said)
    return Markup("{}{}{}").format(
        unbroken(before), link if found else Markup(" (") + link + ")", unbroken(after)
    )


def fault_heading(fault: FaultSummary) -> Markup:
    """Return the heading of what is said about one fault: what it was, whom it hit, when."""
    undone = Markup("")
    if fault.healed_us is not None:
        undone = Markup(", undone at {}").format(moment_link(fault.healed_us, lane="lane-faults"))
    return Markup("<h3>{}: {} of {}</h3><p>At {}{}.</p>").format(
        fault.fault,
        (fault.kind or "fault").replace("_", " "),
        fault.node or fault.target or "nobody",
        moment_link(fault.injected_us, lane="lane-faults"),
        undone,
    )


def paragraphs(texts: Iterable[str | None]) -> Markup:
    """Return each text as a paragraph; None is left out."""
    return Markup("").join(Markup("<p>{}</p>").format(unbroken(text)) for text in texts if text)


def unbroken(text: str) -> str:
    """Return text in which no line is broken between a number and its unit."""
    return _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def span_together(text: str) -> str:
    """Return a span of time (`1.000 s to 2.500 s`) that stays on one line; other text may break."""
    return _SPAN.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), unbroken(text))


def titled_paragraphs(texts: Mapping[str, str | None]) -> Markup:
    """Return each text as a paragraph that begins with its name; None is left out."""
    return Markup("").join(
        Markup("<p><b>{}</b> {}</p>").format(name, unbroken(text))
        for name, text in texts.items()
        if text
    )


def items(texts: Iterable[str | None]) -> Markup:
    """Return lines of the shared story as a list of sentences; None is left out."""
    said = Markup("").join(Markup("<li>{}</li>").format(sentence(text)) for text in texts if text)
    return Markup("<ul>{}</ul>").format(said) if said else said


def sentence(text: str) -> str:
    """Return a line of the story as a sentence: a capital in front, a full stop behind."""
    names = text.split(" ", 1)[0]
    begins = text if not names.islower() or "-" in names else f"{text[0].upper()}{text[1:]}"
    return unbroken(begins if begins.endswith(".") else f"{begins}.")
