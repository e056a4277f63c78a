"""The live view of a run: stage, groups, members, brokers and faults, while it goes on.

On a terminal one panel that is redrawn; elsewhere one line per change of stage or fault.
"""

from collections import Counter
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chaos.experiment import Experiment
from chaos.journal import FaultOutcome, JournalEntry
from chaos.runner import STAGES, Progress
from cluster.runtime import ClusterStatus, NodeState
from protocol.ids import broker_name

REFRESH_PER_SECOND = 4
_STATE_STYLES = {
    "Stable": "green",
    "Empty": "dim",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Dead": "red",
}
_NODE_STYLES = {"up": "", "down": "red"}
_FAULT_STYLES = {"planned": "dim", "healed": "green", "done": "green"}
_MAX_GROUPS = 12
_MAX_FINDINGS = 3
_MAX_ABSENT = 6


def seconds(time_us: int | None) -> str:
    """Return a time of the run's clock as seconds with milliseconds."""
    return "-" if time_us is None else f"{time_us / 1e6:.3f} s"


class LiveView:
    """Shows `Progress` on a console: call it for every change, use it as a context manager."""

    def __init__(self, console: Console, experiment: Experiment, runtime: str) -> None:
        self._console = console
        self._experiment = experiment
        self._runtime = runtime
        self._last: Progress | None = None
        self._told: dict[str, str] = {}
        self._findings_told = 0
        self._stage = ""
        self._live = (
            Live(
                console=console,
                refresh_per_second=REFRESH_PER_SECOND,
                get_renderable=self._render,
                transient=True,
            )
            if console.is_terminal
            else None
        )

    def __enter__(self) -> "LiveView":
        """Begin to show."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Clear the panel; the closing summary says what remains to be said."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take in a change; a ProgressObserver."""
        self._last = progress
        if self._live is None:
            self._tell(progress)

    def _tell(self, progress: Progress) -> None:
        for fault in progress.faults:
            now = _what_became_of(fault)
            if fault.outcome is FaultOutcome.PLANNED or self._told.get(fault.fault_id) == now:
                continue
            self._told[fault.fault_id] = now
            at_us = fault.fired_at_us if fault.healed_at_us is None else fault.healed_at_us
            injected = fault.outcome is FaultOutcome.HIT and fault.healed_at_us is None
            whom = f"hit {fault.hit}; " if injected else ""
            self._line(at_us or progress.time_us, f"{fault.fault} {fault.target}: {whom}{now}")
        for finding in progress.findings[self._findings_told :]:
            self._line(finding.time_us, f"{finding.check} is violated: {finding.summary}")
        self._findings_told = len(progress.findings)
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._line(progress.time_us, progress.stage)

    def _line(self, time_us: int, text: str) -> None:
        self._console.print(f"{time_us / 1e6:9.3f} s  {text}", highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        progress = self._last
        if progress is None:
            return Text(f"{self._experiment.name} on {self._runtime}: starting")
        parts: list[RenderableType] = [_stage_line(self._experiment.name, self._runtime, progress)]
        if progress.status is not None:
            parts += [_brokers_line(progress.status, progress), _groups_table(progress.status)]
            absent = _absent_line(progress.status)
            if absent is not None:
                parts.append(absent)
        if progress.faults:
            parts.append(_faults_table(progress.faults, progress.time_us))
        for finding in progress.findings[-_MAX_FINDINGS:]:
            parts.append(Text(f"{finding.check} is violated: {finding.summary}", style="bold red"))
        if progress.waiting_for:
            parts.append(Text(f"waiting for: {'; '.join(progress.waiting_for[:3])}", style="dim"))
        return Group(*parts)


def _what_became_of(fault: JournalEntry) -> str:
    """Return where a fault is, in a word or with the reason why it is nowhere."""
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "planned"
        case FaultOutcome.MISSED:
            return f"hit nothing: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed: {fault.error}"
        case FaultOutcome.HIT if fault.momentary:
            return "done"
        case FaultOutcome.HIT:
            return "in force" if fault.healed_at_us is None else "healed"


def _stage_line(name: str, runtime: str, progress: Progress) -> Text:
    line = Text(f"{name} on {runtime}  {progress.time_us / 1e6:8.1f} s  ", style="bold")
    for stage in STAGES:
        line.append(f" {stage} ", style="reverse" if stage == progress.stage else "dim")
    return line


def _brokers_line(status: ClusterStatus, progress: Progress) -> Text:
    line = Text("brokers ")
    ids = dict.fromkeys((*status.brokers_fenced, *status.brokers_alive))
    for broker_id in sorted(ids):
        word = str(status.nodes.get(broker_name(broker_id), NodeState.UP))
        if not status.brokers_alive.get(broker_id, False):
            word = "down"
        elif word == NodeState.UP and status.brokers_fenced.get(broker_id, False):
            word = "fenced"
        line.append(f" {broker_id} {word} ", style=_NODE_STYLES.get(word, "yellow"))
    line.append(
        f"  records produced {status.records_produced:,}, consumed "
        f"{progress.records_consumed:,}; commits acknowledged {progress.commits_acknowledged:,}",
        style="dim",
    )
    return line


def _absent_line(status: ClusterStatus) -> Text | None:
    """Name the controllers and clients that are not up; brokers have a line of their own."""
    brokers = {broker_name(broker_id): None for broker_id in status.brokers_alive}
    absent = [
        f"{node} {state}"
        for node, state in status.nodes.items()
        if state is not NodeState.UP and node not in brokers
    ]
    if not absent:
        return None
    shown = ", ".join(absent[:_MAX_ABSENT])
    more = len(absent) - _MAX_ABSENT
    return Text(f"not up: {shown}{f' and {more} more' if more > 0 else ''}", style="yellow")


def _groups_table(status: ClusterStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("group", "state", "generation", "members", "coordinator", "members see"):
        table.add_column(heading)
    members = list(status.members.values())
    group_ids = dict.fromkeys((*status.groups, *(member.group_id for member in members)))
    for group_id in list(group_ids)[:_MAX_GROUPS]:
        seen = Counter(
            "unknown" if member.coordinator is None else f"broker {member.coordinator}"
            for member in members
            if member.group_id == group_id
        )
        members_see = ", ".join(f"{count} x {what}" for what, count in sorted(seen.items()))
        for group in status.groups.get(group_id, ()):
            table.add_row(
                group_id,
                Text(group.state, style=_STATE_STYLES.get(group.state, "")),
                str(group.generation),
                str(len(group.members)),
                f"broker {group.coordinator}",
                members_see,
            )
        if not status.groups.get(group_id):
            table.add_row(group_id, "-", "-", "-", Text("nobody", style="red"), members_see)
    hidden = len(group_ids) - _MAX_GROUPS
    if hidden > 0:
        table.add_row(f"and {hidden} more", *("",) * 5)
    return table


def _faults_table(faults: tuple[JournalEntry, ...], now_us: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("fault", "target", "hit", "outcome", "since"):
        table.add_column(heading)
    for fault in faults:
        now = _what_became_of(fault)
        since = None if fault.fired_at_us is None else now_us - fault.fired_at_us
        planned = (
            "" if fault.planned_at_us is None else f"in {seconds(fault.planned_at_us - now_us)}"
        )
        table.add_row(
            fault.fault,
            fault.target,
            "" if fault.node is None else fault.hit,
            Text(now, style=_FAULT_STYLES.get(now, "bold")),
            planned if since is None else seconds(since),
        )
    return table
