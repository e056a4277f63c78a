"""Makes the file of a shrunk experiment: an experiment that was made as small as possible.

People read the file, and run it in virtual time or on Ray. A comment at the top of the file says:

- which violation the experiment shows,
- how much smaller the experiment has become,
- with how many other network seeds it also fails,
- which rows of the trace prove the violation, with one sentence for each row.

Data flow: Shrunk -> one complete run -> its finding as a story -> text of an experiment file.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from chaos.experiment.structs import Experiment, microseconds
from chaos.exploration.play import play
from chaos.exploration.replay_file import replay_text
from chaos.exploration.shrink.edits import Sizes
from chaos.exploration.shrink.passes import ROUND_US
from chaos.exploration.shrink.shrink import Robustness, ShrinkEnd, Shrunk
from chaos.exploration.signature import signature_of
from results_schema.evidence_text import describe_row, seconds
from results_schema.results import Finding

SUFFIX = "-shrunk"  # end of a shrunk experiment's name
_WIDTH = 96  # width of the comment's lines, without the `# ` before each line
_NAME_LENGTH = 100  # longest name of an experiment, including the suffix
_STORY_INDENT = " " * 8  # before the second and further lines of a sentence about a row


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkFile:
    """The file's text, and the violation (finding) that its experiment shows.

    - `summary`: the finding as a sentence.
    - `story`: a sentence for each row of the trace that proves the finding. It is empty if a
      complete run of the experiment does not show the violation.
    """

    text: str
    summary: str
    story: tuple[str, ...]


def shrunk_file(
    shrunk: Shrunk, *, origin: str, path: str, robustness: Robustness | None
) -> ShrunkFile:
    """Return the file of a shrunk experiment.

    - `origin`: words for the experiment that was shrunk.
    - `path`: the path at which the file will be stored. The commands in the file contain it.
    - `robustness`: the number of network seeds with which the experiment fails; None if this was
      not measured.
    """
    findings: list[Finding] = []
    # The runs of the shrinker ended at the violation. But the file needs a hash over the trace of a
    # complete run. So a complete run is played here.
    played = play(shrunk.experiment, shrunk.seed, on_finding=findings.append)
    same_claim = [
        finding for finding in findings if signature_of(finding).claims_as(shrunk.signature)
    ]
    finding = min(same_claim, key=lambda finding: finding.time_us, default=None)
    # If `finding` is None, the complete run did not show the claim again.
    summary = shrunk.finding.summary if finding is None else finding.summary
    story = () if finding is None else finding.story
    check = shrunk.signature.check

    experiment = msgspec.structs.replace(
        shrunk.experiment,
        name=_name(shrunk.experiment.name),
        question=f"What is enough to break the promise of `{check}`?",
        expect=f"{check} is violated.",
    )
    comment = [
        *_wrapped(f"{check} is violated: {summary}"),
        "",
        *_wrapped(f"Shrunk from {origin}: {sizes_text(shrunk)}."),
        *_wrapped(_robustness(robustness)),
        *_wrapped(_caution(shrunk.experiment)),
        "",
        f"See it:             python -m coordlab run {path} --runtime virtual",
        f"On real processes:  python -m coordlab run {path}",
        "",
        *_earlier_events(finding),
        *_wrapped(
            "The evidence, in times of the run. The plan counts its times from the steady state, "
            f"which was reached at {seconds(played.steady_us or 0)}."
        ),
        *(line for sentence in story for line in _wrapped(sentence.strip(), indent=_STORY_INDENT)),
    ]

    return ShrunkFile(
        text=replay_text(experiment, played, comment="\n".join(comment)),
        summary=summary,
        story=story,
    )


def _earlier_events(finding: Finding | None) -> Iterable[str]:
    """Yield the events before the finding, under a heading; nothing if there are none."""
    if finding is None or not finding.led_to:
        return
    yield "What led to it:"
    for row in finding.led_to:
        yield from _wrapped(describe_row(row).strip(), indent=_STORY_INDENT)
    yield ""


def sizes_text(shrunk: Shrunk) -> str:
    """Return the sizes before and after the shrinking as text.

    For example: "14 faults -> 1, 5 -> 3 brokers, 6 -> 1 members, 60 -> 12 s (80 runs)".
    """
    before, after = shrunk.before, shrunk.after
    parts = [f"{before.faults} faults -> {after.faults}"]
    parts += [
        f"{old} -> {new} {what}"
        for what, old, new in (
            ("brokers", before.brokers, after.brokers),
            ("groups", before.groups, after.groups),
            ("members", before.members, after.members),
            ("partitions", before.partitions, after.partitions),
            ("producers", before.producers, after.producers),
        )
        if old != new
    ]
    parts.append(f"{horizon_text(before)} -> {horizon_text(after)} s")
    end = "" if shrunk.end is ShrinkEnd.SMALLEST else f"; {shrunk.end.value}"
    return f"{', '.join(parts)} ({shrunk.runs} runs{end})"


def horizon_text(sizes: Sizes) -> str:
    """Return the time from the steady state to the healing of all faults, in tenths of a second.

    The text has seconds, such as "12.5" or "12".
    """
    return f"{sizes.horizon_us / 1e6:.1f}".removesuffix(".0")


def robustness_text(robustness: Robustness) -> str:
    """Return a phrase that says under how many network seeds the experiment fails."""
    return f"fails under {robustness.fails} of {robustness.tried} network seeds"


def _robustness(robustness: Robustness | None) -> str:
    """Return a sentence about the robustness; "" if it was not measured.

    If the experiment fails with less than half of the seeds, the violation depends on a race: on
    the order in which messages arrive.
    """
    if robustness is None or robustness.tried == 0:
        return ""
    sentence = f"It {robustness_text(robustness)}"
    race = robustness.fails * 2 < robustness.tried
    return f"{sentence}: a race, which another network mostly wins." if race else f"{sentence}."


def _caution(experiment: Experiment) -> str:
    """Return a caution about times that a real cluster cannot reproduce; "" without such times.

    Such a time is not a multiple of a tenth of a second, which is the smallest step of ROUND_US.
    """
    unrounded = [
        written
        for fault in experiment.faults
        for written in (fault.at, fault.duration)
        if written is not None and microseconds(written) % min(ROUND_US)
    ]
    if not unrounded:
        return ""
    return (
        f"Not rounded to tenths of a second: {', '.join(dict.fromkeys(unrounded))}. A real cluster "
        "cannot keep such exact times, and so shows the finding only by chance."
    )


def _name(name: str) -> str:
    """Return the name of the shrunk experiment, made from the original name."""
    return f"{name.removesuffix(SUFFIX)[: _NAME_LENGTH - len(SUFFIX)]}{SUFFIX}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text as lines of the comment. Lines after the first begin with `indent`."""
    return textwrap.wrap(
        text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
