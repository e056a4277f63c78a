"""Sentences, links and lists in trusted markup.

What comes from a run is escaped here, so that sections hand over plain text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.report.charts.chart import span_attributes
from pipeline.summary.figures import FaultSummary, duration_text
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


FAULTS, COORDINATORS = "lane-faults", "lane-coordinators"
OWNERSHIP, AVAILABILITY = "lane-ownership", "lane-availability"
"""The lanes that sentences lead to."""


def fill_sentence(sentence: str, *values: object) -> Markup:
    """Return a sentence with its values in it: `sentence` is ours, the values are escaped."""
    return Markup(sentence).format(*values)


def joined(sentences: Iterable[Markup | str]) -> Markup:
    """Return sentences as running text."""
    return Markup(" ").join(sentences)


def and_list(parts: Sequence[str | Markup]) -> Markup:
    """Return `a, b and c`."""
    shown = [escape(part) for part in parts]
    if len(shown) < 2:
        return Markup("").join(shown)
    return Markup(", ").join(shown[:-1]) + Markup(" and ") + shown[-1]


def at_moment(time_us: int, lane: str = FAULTS) -> Markup:
    """Return `at 11.250 s`, leading to that moment of a lane."""
    return fill_sentence("at {}", moment_link(time_us, lane=lane))


def between(from_us: int, to_us: int | None, end_us: int, lane: str = FAULTS) -> Markup:
    """Return `from 64.081 s to 93.212 s`, leading there; `to_us` None: the run's end."""
    until = "the end of the run" if to_us is None else moment_text(to_us)
    text = f"from {moment_text(from_us)} to {until}"
    return moment_link(from_us, end_us if to_us is None else to_us, lane=lane, text=text)


def length(value_us: int, *, bound_us: int = 0) -> Markup:
    """Return a duration that stands out of its sentence."""
    return fill_sentence(
        "<strong>{}</strong>", unbroken(duration_text(value_us, bound_us=bound_us))
    )


def aside(section: str, text: str) -> Markup:
    """Return a link in brackets to a section; paper, which has no links, leaves it out."""
    return fill_sentence('<span class="aside"> ({})</span>', section_link(section, text))


def section_link(section: str, text: str) -> Markup:
    """Return a link to a section of the page."""
    return fill_sentence('<a href="#{}">{}</a>', section, text)
