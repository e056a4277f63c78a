"""The first screen of a run's report: verdict, four figures, and answers to six questions.

The verdict says whether Kafka kept its promises, such as that no acknowledged commit is lost. Even
if Kafka kept all promises, users may have been surprised: a partition had two owners for a while,
for example, or records were processed again. A notice below the verdict then lists these caveats.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.facts import RunFacts
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.report.sections.headline_figures import RUN_LENGTH, Figure, Tone, four_figures
from pipeline.report.sentences.answers import broke_a_promise, for_how_long, for_whom, what_broke
from pipeline.report.sentences.causes import why
from pipeline.summary.caveats import caveats_of, pass_text
from pipeline.summary.figures import duration_text
from pipeline.summary.story import counted, disturbance_texts, moment_text
from results_schema.results import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What the template shows on the first screen, from top to bottom."""

    verdict: str
    """One or two words, such as VIOLATED or TOOL FAILED."""
    tone: Tone
    """Decides the colour of the verdict."""
    kicker: str
    """The small line above the title, which is the run's id."""
    title: str
    """The name of the experiment."""
    lead: str
    """The question that the experiment asks."""
    answers: tuple[tuple[str, Markup], ...] = ()
    """Questions such as "What broke?", each with the paragraphs of its answer."""
    figures: tuple[Figure, ...] = ()
    notices: tuple[str, ...] = ()
    """Sentences about problems of the run itself, such as an interruption, and about caveats."""
    more_reasons: tuple[str, ...] = ()
    """More reasons for the verdict UNKNOWN, which the reader can unfold. The first MAX_REASONS
    reasons are in a notice."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and values, such as `seed` and `7`."""


MAX_REASONS = 3
"""Maximum number of reasons for the verdict UNKNOWN that a notice lists."""
_OVERRIDE = "--var"
"""Option of `coordlab run` that replaces a value of the experiment's file."""
_WORD_OF_VERDICT: dict[Verdict, tuple[str, Tone]] = {
    Verdict.PASS: ("PASS", "good"),
    Verdict.VIOLATED: ("VIOLATED", "bad"),
    Verdict.UNKNOWN: ("UNKNOWN", "warn"),
}
_WORD_OF_STATUS: dict[str, tuple[str, Tone]] = {
    "interrupted": ("INTERRUPTED", "warn"),
    "killed": ("KILLED", "warn"),
    "running": ("RUNNING", "plain"),
    "failed": ("TOOL FAILED", "warn"),  # coordlab itself failed
}
"""For a run that did not complete: the word in place of the verdict, and its tone."""


def headline(run: ReportInput) -> Headline:
    """Return the first screen of a run's report."""
    facts = run.facts
    verdict, tone = verdict_of(facts)
    # If coordlab itself failed, times say nothing about Kafka.
    times_count = facts.status != "failed"
    answers = (
        ("What broke?", what_broke(run)),
        ("For whom?", for_whom(run)),
        ("For how long?", for_how_long(run) if times_count else Markup("")),
        ("Why?", why(run) if times_count else Markup("")),
        ("Was a promise broken?", broke_a_promise(run)),
        ("What was expected?", _expected(run)),
    )
    return Headline(
        verdict=verdict,
        tone=tone,
        kicker=facts.manifest.run,
        title=facts.manifest.experiment,
        lead=facts.question,
        answers=tuple((question, answer) for question, answer in answers if answer),
        figures=four_figures(run),
        notices=tuple(_notices(run)),
        more_reasons=_unknown_reasons(run)[MAX_REASONS:],
        facts=tuple(_facts(run)),
    )


def _expected(run: ReportInput) -> Markup:
    """Return what the author of the experiment expected, and which times the run measured.

    A note follows if values of the experiment were overridden on the command line.
    """
    facts = run.facts
    if not facts.expect:
        return Markup("")
    measured = [
        f"{figure.value} {figure.unit} {figure.label}"
        for figure in four_figures(run)
        # The length of the run is a time, too, but no result.
        if figure.unit in {"s", "ms"} and figure.label != RUN_LENGTH
    ]
    replay_command = facts.manifest.replay
    return render_line("answers", "expected", facts.expect, measured, _OVERRIDE in replay_command)


def verdict_of(facts: RunFacts) -> tuple[str, Tone]:
    """Return the verdict in one or two words, and its tone.

    There are three cases:

    - A run that completed has its verdict.
    - A run that was interrupted, was killed, or is still going on has its status, unless it has
      already proved a violation. Then it has the verdict VIOLATED.
    - If coordlab itself failed, the run has its status, because even a violation says nothing about
      Kafka then.
    """
    proved_violation = facts.verdict is Verdict.VIOLATED and facts.status != "failed"
    if facts.status in _WORD_OF_STATUS and not proved_violation:
        return _WORD_OF_STATUS[facts.status]
    if facts.verdict is None:
        return "NO VERDICT", "warn"
    return _WORD_OF_VERDICT[facts.verdict]


def _unknown_reasons(run: ReportInput) -> tuple[str, ...]:
    """Return the reasons for which a completed run has the verdict UNKNOWN; () for other runs."""
    is_unknown = run.facts.status == "completed" and run.facts.verdict is Verdict.UNKNOWN
    return tuple(run.facts.results_or_empty.reasons) if is_unknown else ()


def _notices(run: ReportInput) -> Iterator[str]:
    """Yield sentences on problems of the run, on missing data, and on the caveats of a PASS."""
    facts, summary = run.facts, run.summary
    reasons = facts.results_or_empty.reasons
    end = moment_text(run.end_us)
    match facts.status:
        case "failed":
            yield "coordlab itself failed; nothing here says anything about Kafka."
            yield from reasons
        case "interrupted":
            # For example, "This run was interrupted and proves nothing: its trace ends at 12.000 s
            # of the run's clock, the disk is full."
            notice = "This run was interrupted"
            if facts.verdict is not Verdict.VIOLATED:
                notice += " and proves nothing"
            notice += f": its trace ends at {end} of the run's clock"
            # The reason "interrupted" is left out, because the notice says it already.
            other_reasons = [reason for reason in reasons if reason != facts.status]
            if other_reasons:
                notice += f", {'; '.join(other_reasons)}"
            yield f"{notice}."
        case "killed":
            yield f"The process of this run ended without results: its trace ends at {end}."
        case "running":
            yield "This run has not ended yet: the page shows what was written so far."
        case "completed" if facts.verdict is Verdict.UNKNOWN:
            reason_text = "; ".join(reasons[:MAX_REASONS]) or "not known"
            if len(reasons) > MAX_REASONS:
                reason_text += f"; and {len(reasons) - MAX_REASONS} more"
            yield f"This run proves nothing. Reason: {reason_text}."
        case "completed" if not summary.completed and summary.events:
            yield f"The trace ends early, at {end} of the run's clock."
        case "completed" if facts.verdict is Verdict.PASS and (caveats := caveats_of(summary)):
            yield f"{pass_text(_WORD_OF_VERDICT[facts.verdict][0], caveats)}."

    # The following notices do not depend on the status.
    for disturbance in disturbance_texts(summary):
        yield f"{disturbance}."
    if not summary.events:
        yield "This run has no usable events: its lanes are empty."
    yield from facts.losses
    for reason, count in summary.bad_rows:
        yield f"{counted(count, 'row')} of the trace set aside: {reason}."
    for file in summary.unreadable:
        yield f"A file was set aside: {file}."


def _facts(run: ReportInput) -> Iterator[tuple[str, str]]:
    """Yield the facts of the run for the first screen, as pairs of a name and a value."""
    manifest = run.facts.manifest
    yield "runtime", manifest.runtime
    yield "seed", str(manifest.seed)
    yield "lasted", f"{moment_text(run.end_us)} of the run's clock"
    if manifest.time_scale != 1.0:
        yield "time scale", f"{manifest.time_scale:g} times real time"
    if manifest.clock_error_us:
        yield "clocks apart", f"at most {duration_text(manifest.clock_error_us)}"
    # `2026-01-02T03:04:05.678+00:00` in the manifest becomes `2026-01-02 03:04:05 UTC`.
    started_at = manifest.started_at.replace("T", " ").removesuffix("+00:00").split(".")[0]
    yield "started", f"{started_at} UTC"
    if run.facts.coordinator:
        yield "faithful to", run.facts.coordinator
