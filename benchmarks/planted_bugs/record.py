"""Writes docs/PLANTED_BUGS.md, which says of each planted bug whether the search has found it.

The page has three parts, which are written separately:

1. A table of all BUGS, and a section for each of them.
2. The same for OPERATION_BUGS, which show only when a rollout closes a consumer in an orderly way.
3. A control: seeds of a space without rollouts are played with OPERATION_BUGS planted, and none of
   them should show one of these bugs.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import commit, machine
from benchmarks.planted_bugs.absence import Absence
from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.hunt import (
    FAULTS_MAX,
    FEW_FAULTS,
    SCHEDULES,
    SEEDS,
    SHRINK_CPU_S,
    TRIES,
    Hunted,
)
from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS
from benchmarks.recorded_page import replace_section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "PLANTED_BUGS.md"
SHRINK_CPU_MAX_S = 30.0
"""A bug counts as found only if its shrinking used less CPU than this. The limit is higher than
SHRINK_CPU_S, because after that time the shrinker still ends its present run.
"""
OPERATIONS = "Bugs that only rollouts show"
"""Heading of the page's second part."""
ABSENT = "The same bugs in another space"
"""Heading of the page's third part."""
_ALL_BUGS = {**BUGS, **OPERATION_BUGS}
_TABLE_HEAD = (
    "| bug | where | seeds needed | found by | faults | CPU of shrinking | robustness |",
    "|---|---|---|---|---|---|---|",
)
HEAD = f"""# Planted bugs

Written by `make soak PART=mutants` (`python -m benchmarks.planted_bugs` alone); do not edit.
The bugs were [written down](../benchmarks/planted_bugs/README.md) before the search was tuned. Each
is planted in the real code. Seeds 0 to {SEEDS - 1} of its space (`standard`; for bugs of ZooKeeper
and of its consumers `zookeeper`) are played in order, until one fails with the bug and passes
without it: "seeds needed". If more than {FEW_FAULTS} faults were injected before it failed, up to
{SCHEDULES} such seeds are collected. The seed that failed after the fewest faults is shrunk for at
most {SHRINK_CPU_S:g} s of CPU, to a plan that still breaks the promise that its run broke first. If
more than {FAULTS_MAX} faults are left, another seed is shrunk, {TRIES} in all. The shrunk plan must
pass without the bug. To save time, the runs of the shrinking wait less long than others for groups
that do not come back; the shrunk plan also fails with the full wait.
Robustness: a seed also draws the delays of the network. The shrunk plan is played with other delays
than those of its own seed; the column says with how many of them it fails, too. Rules cite
[BEHAVIOUR.md](kafka/BEHAVIOUR.md) and [ZOOKEEPER_CONSUMER.md](kafka/ZOOKEEPER_CONSUMER.md) (ZK).
"""


def is_found(hunted: Hunted) -> bool:
    """Return whether a bug was found, and its plan was shrunk as far and as fast as required."""
    shrunk = hunted.shrunk
    return (
        shrunk is not None
        and shrunk.after.faults <= FAULTS_MAX
        and shrunk.cpu_s < SHRINK_CPU_MAX_S
        and shrunk.passes_without_bug
    )


def page(hunts: Sequence[Hunted]) -> str:
    """Return the whole page."""
    found = sum(is_found(hunted) for hunted in hunts)
    lines = [
        HEAD,
        f"Commit {commit()}; {machine()}. {found} of {len(hunts)} were found and shrunk to at most "
        f"{FAULTS_MAX} faults.",
        "",
        *_TABLE_HEAD,
        *(_row(hunted) for hunted in hunts),
        "",
    ]
    for hunted in hunts:
        lines += _bug_section(hunted)
    return "\n".join(lines)


def write_page(hunts: Sequence[Hunted]) -> None:
    """Write the page's part about BUGS, and keep its other two parts."""
    former = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    # The two parts to keep are everything from the heading of the second part on.
    heading = f"## {OPERATIONS}\n"
    kept = former[former.index(heading) :] if heading in former else ""
    PAGE.write_text(page(hunts).rstrip() + "\n\n" + kept, encoding="utf-8")


def write_operations(hunts: Sequence[Hunted]) -> None:
    """Write the section about OPERATION_BUGS; the rest of the page is kept."""
    lines = [
        f"## {OPERATIONS}",
        "",
        f"Commit {commit()}; {machine()}; space `operations`.",
        "Each bug is in the orderly close of a consumer. No fault of the space `standard` closes a",
        "consumer in this way, so none of its seeds reaches the bugs (a test checks the faults of",
        "`standard`).",
        "",
        *_TABLE_HEAD,
        *(_row(hunted) for hunted in hunts),
        "",
    ]
    for hunted in hunts:
        # Here the section of a bug is inside another section, so its heading is one level lower.
        lines += [line.replace("## ", "### ", 1) for line in _bug_section(hunted)]
    section = "\n".join(lines).rstrip() + "\n"
    # This fails if there is no page yet, because `write_page` must write the first part before.
    written = replace_section(PAGE.read_text(encoding="utf-8"), OPERATIONS, section)
    PAGE.write_text(written, encoding="utf-8")


def write_absence(absence: Absence) -> None:
    """Write the section about seeds that must not show OPERATION_BUGS; the rest is kept."""
    section = "\n".join(absence_lines(absence)).rstrip() + "\n"
    written = replace_section(PAGE.read_text(encoding="utf-8"), ABSENT, section)
    PAGE.write_text(written, encoding="utf-8")


def absence_lines(absence: Absence) -> list[str]:
    """Return the lines of the section about seeds that must not show OPERATION_BUGS.

    The lines name the commit with which the seeds were played, not the present commit.
    """
    verdict = "**No seed shows one of them.**"
    if absence.shown:
        verdict = f"**They are shown by seeds {_seeds_text(absence.shown)}.**"
    lines = [
        f"## {ABSENT}",
        "",
        f"Written by `python -m benchmarks.planted_bugs --absent`. Commit {absence.commit}; "
        f"{machine()}.",
        "",
        f"Planted together: {', '.join(f'`{name}`' for name in absence.bugs)}. With all of them in",
        "force, the seed of each in the table above fails the same check. Then seeds 0 to "
        f"{absence.seeds - 1:,} of",
        f"the space `{absence.space}` were played in order. {verdict}",
    ]
    if absence.fails_without_bugs:
        lines.append(
            f"Seeds that fail without the bugs, too: {_seeds_text(absence.fails_without_bugs)}."
        )
    if absence.undecided:
        lines.append(f"Seeds without a verdict: {absence.undecided:,}.")
    return lines


def _seeds_text(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _row(hunted: Hunted) -> str:
    """Return the row of a bug in the table."""
    bug, shrunk = _ALL_BUGS[hunted.bug], hunted.shrunk
    if hunted.seed is None:
        return f"| {bug.name} | {bug.where} | **not found in {hunted.seeds_tried}** | | | | |"
    if shrunk is None:
        checks = ", ".join(hunted.checks)
        return f"| {bug.name} | {bug.where} | {hunted.seeds_tried} | {checks} | not shrunk | | |"
    # If too many faults were left of the first schedule, other schedules were shrunk. The row is
    # about the last schedule that was shrunk.
    nth = "" if hunted.tries == 1 else f", of schedule {hunted.tries}"
    return (
        f"| {bug.name} | {bug.where} | {hunted.seeds_tried} | {', '.join(hunted.checks)} | "
        f"{shrunk.before.faults} to {shrunk.after.faults} | {shrunk.cpu_s:.1f} s, "
        f"{shrunk.runs} runs{nth} | {shrunk.robust_fails} of {shrunk.robust_tried} |"
    )


def _bug_section(hunted: Hunted) -> list[str]:
    """Return the section of a bug: changed behaviour, broken rule, faults of the shrunk plan."""
    bug, shrunk = _ALL_BUGS[hunted.bug], hunted.shrunk
    lines = [f"## {bug.name}", "", f"Planted: {bug.what}. Rule: {bug.rule}.", ""]
    if hunted.seed is not None:
        lines += [f"Seed {hunted.seed}: {hunted.summary}.", ""]
    if shrunk is not None:
        after = shrunk.after
        # `shrunk.end` is the reason why the shrinking ended.
        lines += [
            f"Seed {hunted.shrunk_seed} was shrunk to {after.brokers} brokers, {after.groups} "
            f"groups, {after.members} members ({shrunk.end}):",
            "",
            *(f"* {fault}" for fault in shrunk.faults or ("no fault at all",)),
            "",
        ]
        if not shrunk.passes_without_bug:
            lines += ["**The shrunk plan fails without the bug, too.**", ""]
    if hunted.fails_without_bug:
        lines += [f"{hunted.fails_without_bug} seeds before it failed without the bug, too.", ""]
    return lines
