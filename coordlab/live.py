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
from cluster.runtime import ClusterStatus

REFRESH_PER_SECOND = 4
_STATE_STYLES = {
    "Stable": "green",
    "Empty": "dim",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Dead": "red",
}
_MAX_GROUPS = 12


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
        self._told: dict[str, FaultOutcome | str] = {}
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
            healed = fault.healed_at_us is not None
            now = "healed" if healed else fault.outcome
            if now is not FaultOutcome.PLANNED and self._told.get(fault.fault_id) != now:
                self._told[fault.fault_id] = now
                at_us = fault.healed_at_us if healed else fault.fired_at_us
                what = f"{fault.fault} {fault.target} -> {fault.node or 'nobody'}: {now}"
                self._line(at_us or progress.time_us, what)
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
            parts += [_brokers_line(progress.status), _groups_table(progress.status)]
        if progress.faults:
            parts.append(_faults_table(progress.faults, progress.time_us))
        if progress.waiting_for:
            parts.append(Text(f"waiting for: {'; '.join(progress.waiting_for[:3])}", style="dim"))
        return Group(*parts)


def _stage_line(name: str, runtime: str, progress: Progress) -> Text:
    line = Text(f"{name} on {runtime}  {progress.time_us / 1e6:8.1f} s  ", style="bold")
    for stage in STAGES:
        line.append(f" {stage} ", style="reverse" if stage == progress.stage else "dim")
    return line


def _brokers_line(status: ClusterStatus) -> Text:
    line = Text("brokers ")
    ids = dict.fromkeys((*status.brokers_fenced, *status.brokers_alive))
    for broker_id in sorted(ids):
        alive = status.brokers_alive.get(broker_id, False)
        fenced = status.brokers_fenced.get(broker_id, False)
        word, style = (
            ("down", "red") if not alive else ("fenced", "yellow") if fenced else ("up", "")
        )
        line.append(f" {broker_id} {word} ", style=style)
    consumed = sum(member.records_consumed for member in status.members.values())
    commits = sum(member.commits_acknowledged for member in status.members.values())
    line.append(
        f"  records produced {status.records_produced:,}, consumed {consumed:,}; "
        f"commits acknowledged {commits:,}",
        style="dim",
    )
    return line


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
        healed = fault.healed_at_us is not None
        since = None if fault.fired_at_us is None else now_us - fault.fired_at_us
        planned = (
            "" if fault.planned_at_us is None else f"in {seconds(fault.planned_at_us - now_us)}"
        )
        table.add_row(
            fault.fault,
            fault.target,
            fault.node or "",
            Text("healed", style="green") if healed else Text(fault.outcome, style="bold"),
            planned if since is None else seconds(since),
        )
    return table
