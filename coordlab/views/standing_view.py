"""Shows a standing cluster while it runs: its brokers, groups and faults.

The command `up` starts such a cluster for real clients. The view is like the view of a run
(`run_view`), but the groups and clients are those of the user. On a terminal the view is a panel.
Elsewhere a line is printed for each change of a broker, a group or a fault, and for each violation.
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
"""The largest number of violations that are shown, the latest ones."""
_MAX_REFUSED_CLIENTS = 3
"""The largest number of refused clients that are shown, the latest ones."""
_MAX_PAST_FAULTS = 3
"""The largest number of past faults that are shown, the latest ones."""


def standing_view(console: Console, name: str, runtime: str) -> LiveView[Progress]:
    """Return the live view of a cluster, with its name and runtime above it."""

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
        # These counts are about coordlab's own clients. A standing cluster may have none.
        if status.members or status.records_produced:
            parts.append(counts_line(progress))
        if status.groups:
            parts.append(groups_view(status, width))
        else:
            parts.append(Text("no group", "dim"))
        absent = absent_line(status)
        if absent is not None:
            parts.append(absent)
        # Clients whose connection a broker has closed, because it did not understand their bytes.
        parts += [
            Text(f"{refused}, {count}x", style="yellow")
            for refused, count in list(status.refused_clients.items())[-_MAX_REFUSED_CLIENTS:]
        ]
    faults = _faults_to_show(progress.faults)
    if faults:
        parts.append(faults_view(faults, progress.time_us, width))
    parts += [
        Text(f"{finding.check} is violated: {finding.summary}", style="bold red")
        for finding in progress.findings[-_MAX_FINDINGS:]
    ]
    return Group(*parts)


def _faults_to_show(faults: tuple[JournalEntry, ...]) -> list[JournalEntry]:
    """Return the faults to show, in their order: all of them, except older faults that are over.

    A fault that missed or failed does not count as over, because the user should see it.
    """
    over = [fault for fault in faults if not fault.in_force and fault.outcome is FaultOutcome.HIT]
    shown_ids = {fault.fault_id for fault in over[-_MAX_PAST_FAULTS:]}
    shown_ids |= {fault.fault_id for fault in faults if fault not in over}
    return [fault for fault in faults if fault.fault_id in shown_ids]


class StandingLines:
    """Yields the lines about the news in each progress.

    These are the lines of `RunLines`, and lines about changes of brokers and groups. A progress
    describes the present state, and does not say what has changed. So this object remembers the
    state of the progress before.
    """

    def __init__(self) -> None:
        self._run_lines = RunLines()
        self._broker_words: dict[int, str] = {}
        """Broker id -> its state in the last progress, such as `up`.

        A broker that is not here counts as up. So brokers that are up get no line at the beginning.
        """
        self._group_texts: dict[str, str] = {}
        """Group id -> the text of the last line about the group."""
        self._printed_refusals: set[str] = set()
        """The texts of all lines about clients whose connections a broker has closed."""

    def __call__(self, progress: Progress) -> Iterator[str]:
        """Yield the lines about the news in this progress."""
        yield from self._run_lines(progress)
        if progress.status is None or progress.stage == "starting":
            # All brokers are still down, and no group is known. This is no news for the user.
            return
        for broker_id, word in broker_words(progress.status).items():
            if self._broker_words.get(broker_id, "up") != word:
                yield timed(progress.time_us, f"broker {broker_id} is {word}")
            self._broker_words[broker_id] = word
        for refused in progress.status.refused_clients:
            if refused not in self._printed_refusals:
                self._printed_refusals.add(refused)
                yield timed(progress.time_us, f"{refused}; the connection was closed")
        # Two brokers may coordinate a group for a while. The text says what each broker knows.
        group_texts = {
            group_id: "; ".join(map(_group_text, coordinators))
            for group_id, coordinators in progress.status.groups.items()
        }
        # A group of the last progress may have no coordinator now. So look at those groups, too.
        for group_id in sorted({*self._group_texts, *group_texts}):
            text = group_texts.get(group_id, "no coordinator has it")
            if self._group_texts.get(group_id) != text:
                yield timed(progress.time_us, f"group {group_id}: {text}")
            self._group_texts[group_id] = text


def _group_text(group: GroupStatus) -> str:
    """Return what one coordinator knows of a group: `Stable at broker 1, generation 4, ...`."""
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count:,} members"
    return (
        f"{group.state} at broker {group.coordinator}, generation {group.generation:,}, {members}"
    )
