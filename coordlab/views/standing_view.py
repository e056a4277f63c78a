"""The live view of a standing cluster: one that `coordlab up` keeps running for real clients.

On a terminal the view is a panel of brokers, groups, members, faults and findings (violations that
checks report). The panel is drawn again and again. Elsewhere, the view prints a line for each
change of a broker, a group, a fault or a stage, and for each finding.

A Progress describes the state of the whole run at one moment. Its `faults` are the entries of the
run's journal, one for each fault.
"""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from chaos.run.runner import Progress
from cluster.runtime import GroupStatus
from coordlab.views.live import LiveView
from coordlab.views.run_view import (
    RunLines,
    absent_line,
    broker_words,
    brokers_line,
    counts_line,
    faults_view,
    groups_view,
    timed,
)
from results_schema.journal import FaultOutcome, JournalEntry

_MAX_FINDINGS = 3
"""Limit of the findings. Only the latest are shown."""
_MAX_REFUSED = 3
"""Limit of the refused clients. Only the latest are shown."""
_MAX_PAST_FAULTS = 3
"""Limit of the faults that are over. Only the latest are shown."""


def standing_view(console: Console, name: str, runtime: str) -> LiveView[Progress]:
    """Return the live view of a cluster, under its name and runtime."""

    def render(progress: Progress | None) -> RenderableType:
        if progress is None:
            return Text(f"{name} on {runtime}: starting")
        return standing_panel(name, runtime, progress, console.width)

    return LiveView(console, render, StandingLines())


def standing_panel(name: str, runtime: str, progress: Progress, width: int) -> Group:
    """Return the panel of a cluster. `width`: columns of the terminal."""
    parts: list[RenderableType] = [
        Text(f"{name} on {runtime}  {progress.time_us / 1e6:.1f} s  {progress.stage}", style="bold")
    ]
    status = progress.status
    if status is not None:
        parts.append(brokers_line(status))
        # The counts are about the lab's own clients, which a standing cluster may lack.
        if status.members or status.records_produced:
            parts.append(counts_line(progress))
        parts.append(groups_view(status, width) if status.groups else Text("no group", "dim"))
        # First the controllers and clients that are not up, then the connections that brokers
        # closed because they did not understand the client's bytes.
        absent = absent_line(status)
        if absent is not None:
            parts.append(absent)
        parts += [
            Text(f"{refused}, {count}x", style="yellow")
            for refused, count in list(status.refused_clients.items())[-_MAX_REFUSED:]
        ]
    faults = _shown_faults(progress.faults)
    if faults:
        parts.append(faults_view(faults, progress.time_us, width))
    parts += [
        Text(f"{finding.check} is violated: {finding.summary}", style="bold red")
        for finding in progress.findings[-_MAX_FINDINGS:]
    ]
    return Group(*parts)


def _shown_faults(faults: tuple[JournalEntry, ...]) -> list[JournalEntry]:
    """Return the faults to show, in the journal's order.

    A fault is over if it hit and is not in force any more. Of the faults that are over, only the
    latest _MAX_PAST_FAULTS are shown. All other faults are shown, also those that missed or failed.
    """
    over = [fault for fault in faults if not fault.in_force and fault.outcome is FaultOutcome.HIT]
    shown_ids = {fault.fault_id for fault in over[-_MAX_PAST_FAULTS:]}
    shown_ids |= {fault.fault_id for fault in faults if fault not in over}
    return [fault for fault in faults if fault.fault_id in shown_ids]


class StandingLines:
    """Turns each progress into the lines of `RunLines`, and lines on changes of brokers and groups.

    A progress describes the present state, so this object remembers the state before it.
    """

    def __init__(self) -> None:
        self._run_lines = RunLines()
        self._brokers: dict[int, str] = {}
        """The state of each broker in the last progress: a word such as `up`. A broker without an
        entry counts as `up`, so that the first progress has no line for a broker that is up."""
        self._groups: dict[str, str] = {}
        """Text of each group in the last progress."""
        self._refused: set[str] = set()
        """Texts that were yielded on connections that a broker closed because it did not understand
        their bytes."""

    def __call__(self, progress: Progress) -> Iterator[str]:
        """Yield the lines that `progress` adds."""
        yield from self._run_lines(progress)
        if progress.status is None or progress.stage == "starting":
            # Every broker is still down and every group unknown, so the lines would tell nothing.
            return
        for broker_id, word in broker_words(progress.status).items():
            if self._brokers.get(broker_id, "up") != word:
                yield timed(progress.time_us, f"broker {broker_id} is {word}")
            self._brokers[broker_id] = word
        for refused in progress.status.refused_clients:
            if refused not in self._refused:
                self._refused.add(refused)
                yield timed(progress.time_us, f"{refused}; the connection was closed")
        # A group has a text for each broker that coordinates it. For a short time these can be two.
        groups = {
            group_id: "; ".join(map(_group_text, coordinators))
            for group_id, coordinators in progress.status.groups.items()
        }
        # The groups of the last progress and of this one.
        for group_id in sorted({*self._groups, *groups}):
            text = groups.get(group_id, "no coordinator has it")
            if self._groups.get(group_id) != text:
                yield timed(progress.time_us, f"group {group_id}: {text}")
            self._groups[group_id] = text


def _group_text(group: GroupStatus) -> str:
    """Return a text on a group as one of its coordinators knows it."""
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count:,} members"
    return (
        f"{group.state} at broker {group.coordinator}, generation {group.generation:,}, {members}"
    )
