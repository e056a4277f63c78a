"""Sentences of the first screen in trusted markup: what came from a run is escaped here."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from pipeline.report.sentences.words import moment_link, unbroken
from pipeline.summary.figures import duration_text
from pipeline.summary.story import moment_text

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
