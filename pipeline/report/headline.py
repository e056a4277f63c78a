"""The first screen: the verdict, what happened in a few sentences, and four figures."""

from dataclasses import dataclass
from typing import Literal

from pipeline.report.report_input import ReportInput

Tone = Literal["good", "bad", "warn", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the four figures: a number with its unit, what it is, and what to compare it with."""

    value: str
    unit: str
    label: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The first screen. `answers` are question and answer, the answer in trusted markup."""

    verdict: str
    tone: Tone
    kicker: str
    title: str
    lead: str
    answers: tuple[tuple[str, str], ...] = ()
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def headline(run: ReportInput) -> Headline:
    """Return the first screen of a run's report."""
    facts = run.facts
    return Headline(
        verdict=(facts.verdict or facts.status).upper(),
        tone="plain",
        kicker="chaos run",
        title=facts.experiment,
        lead=facts.question,
    )
