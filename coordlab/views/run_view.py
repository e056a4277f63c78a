"""Shows a run while it goes on: its stage, brokers, groups and faults.

On a terminal the view is a panel. This is the panel of a run in which a broker was just killed:

    fencing on virtual  31.5 s
     starting  steady [faults] healing  liveness  recovery  verifying  stopping
    brokers  0 up  1 down  2 up
    group    state               generation  members  coordinator  members see
    readers  PreparingRebalance           4        2  broker 2     2 x broker 1

The panel stays small even if the cluster is large. Then it names only the brokers, groups and
faults that a user should look at, and counts the others. If the output is no terminal, a line is
printed for each new stage, for each fault that begins or ends, and for each violation.

From time to time the run calls the view with a Progress, which describes the whole run so far.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.run.runner import STAGES, Progress
from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus, NodeState
from coordlab.console import clock_seconds
from coordlab.views.live import LiveView
from pipeline.summary.outcomes import listed
from protocol.ids import broker_name
from results_schema.journal import FaultOutcome, JournalEntry, nodes_shown

_STATE_STYLES = {
    "Stable": "green",
    "Empty": "dim",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Dead": "red",
}
_FAULT_STYLES = {"planned": "dim", "healed": "green", "done": "green"}
_MIN_WIDTH_FOR_WIDE_GAPS = 100
"""On a narrower terminal, columns are one space apart instead of two."""
_MIN_WIDTH_FOR_TABLES = 70
"""On a narrower terminal, each group and each fault is a line, and not a row of a table."""
_MAX_BROKERS = 8
"""If there are more brokers, the brokers in the same state are named together."""
_MAX_GROUPS = 12
"""The largest number of groups that are shown. The others are counted."""
_MAX_FAULTS = 8
"""The largest number of faults that are shown. The others are counted."""
_MAX_PLANNED = 3
"""The largest number of shown faults that are still to come.

The limit leaves room for the faults that are in force.
"""
_MAX_FINDINGS = 3
"""The largest number of violations that are shown, the latest ones."""
_MAX_NODES_NOT_UP = 6
"""The largest number of controllers and clients that are named because they are not up."""
_MAX_CONDITIONS = 3
"""The largest number of conditions that are named if a stage waits for more of them."""


def run_view(
    console: Console, experiment: str, runtime: str, *, shown: bool = True
) -> LiveView[Progress]:
    """Return the live view of a run, with the names of its experiment and runtime above it."""

    def render(progress: Progress | None) -> RenderableType:
        if progress is None:
            return Text(f"{experiment} on {runtime}: starting")
        return run_panel(experiment, runtime, progress, console.width)

    return LiveView(console, render, RunLines(), shown=shown)


class RunLines:
    """Yields the lines about the news in each progress: changed faults, violations, a new stage.

    A progress describes the whole run so far, and does not say what has changed. So this object
    remembers the lines that it has yielded.
    """

    def __init__(self) -> None:
        self._yielded_fates: dict[str, str] = {}
        """Fault id -> the fate in the last line about the fault, such as `in force`."""
        self._yielded_findings = 0
        """The number of findings that have had a line."""
        self._stage = ""

    def __call__(self, progress: Progress) -> Iterator[str]:
        """Yield the lines about the news in this progress."""
        for fault in progress.faults:
            # Some entries are accidents, which are not in the plan: a machine was lost or silent.
            # The note of an accident says so, and changes when the machine answers again.
            new_fate = (fault.note or "") if fault.is_by_accident else fate(fault)
            is_printed_already = self._yielded_fates.get(fault.fault_id) == new_fate
            if fault.outcome is FaultOutcome.PLANNED or is_printed_already:
                continue
            self._yielded_fates[fault.fault_id] = new_fate
            if fault.is_by_accident:
                change = f"{fault.note}, with {nodes_shown(fault.nodes)} on it"
            else:
                # The line about the beginning of a fault names the nodes that the fault hit. The
                # line about its end need not repeat them.
                begins = fault.outcome is FaultOutcome.HIT and fault.healed_at_us is None
                hit = f"hit {fault.hit}; " if begins else ""
                change = f"{fault.fault} {fault.target}: {hit}{new_fate}"
            changed_at_us = progress.time_us
            if fault.healed_at_us is not None:
                changed_at_us = fault.healed_at_us
            elif fault.fired_at_us is not None:
                changed_at_us = fault.fired_at_us
            yield timed(changed_at_us, change)

        for finding in progress.findings[self._yielded_findings :]:
            yield timed(finding.time_us, f"{finding.check} is violated: {finding.summary}")
        self._yielded_findings = len(progress.findings)

        if progress.stage != self._stage:
            self._stage = progress.stage
            yield timed(progress.time_us, progress.stage)


def timed(time_us: int, text: str) -> str:
    """Return a line that begins with a time of the run's clock: `   31.500 s  healing`."""
    return f"{time_us / 1e6:9.3f} s  {text}"


def run_panel(name: str, runtime: str, progress: Progress, width: int) -> Group:
    """Return the panel of a run. `width`: columns of the terminal."""
    parts: list[RenderableType] = [
        Text(f"{name} on {runtime}  {progress.time_us / 1e6:.1f} s", style="bold"),
        _stage_line(progress.stage, width),
    ]
    if progress.status is not None:
        parts += [
            brokers_line(progress.status),
            counts_line(progress),
            groups_view(progress.status, width),
        ]
        absent = absent_line(progress.status)
        if absent is not None:
            parts.append(absent)
    if progress.faults:
        parts.append(faults_view(progress.faults, progress.time_us, width))
    for finding in progress.findings[-_MAX_FINDINGS:]:
        parts.append(Text(f"{finding.check} is violated: {finding.summary}", style="bold red"))
    if progress.waiting_for:
        # These conditions must be met before the next stage begins.
        waiting = "; ".join(progress.waiting_for[:_MAX_CONDITIONS])
        more = len(progress.waiting_for) - _MAX_CONDITIONS
        if more > 0:
            waiting += f"; and {more} more"
        parts.append(Text(f"waiting for: {waiting}", style="dim"))
    return Group(*parts)


def fate(fault: JournalEntry) -> str:
    """Return the present state of a fault in words: `planned`, `in force`, `healed` and so on."""
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


def _stage_line(stage: str, width: int) -> Text:
    """Return the names of all stages, with brackets around the present one.

    The brackets are for terminals without colours. On a narrow terminal, the line is
    `faults (stage 3 of 8)`.
    """
    if width < _MIN_WIDTH_FOR_TABLES:
        number = STAGES.index(stage) + 1 if stage in STAGES else 0  # 0 before the first stage
        return Text(f"{stage} (stage {number} of {len(STAGES)})")
    line = Text()
    for name in STAGES:
        is_present = name == stage
        text = f"[{name}] " if is_present else f" {name} "
        line.append(text, style="bold" if is_present else "dim")
    return line


def brokers_line(status: ClusterStatus) -> Text:
    """Return the brokers with their states: `0 up  1 down  2 up`.

    If there are many brokers, they are named together by their states: `3 down: 4, 7 and 9`.
    """
    words = broker_words(status)
    line = Text("brokers ")
    if len(words) <= _MAX_BROKERS:
        for broker_id, word in words.items():
            line.append(f" {broker_id} {word} ", style=_broker_style(word))
        return line
    # "up" comes first, then the other states in alphabetical order.
    for word in sorted(set(words.values()), key=lambda word: (word != "up", word)):
        names = [f"broker-{broker_id}" for broker_id, state in words.items() if state == word]
        # `listed` writes `broker-1 to 3` for three brokers. Shorten this to `1 to 3`.
        shown = listed(names).replace("broker-", "")
        line.append(f" {len(names)} {word}: {shown} ", style=_broker_style(word))
    return line


def broker_words(status: ClusterStatus) -> dict[int, str]:
    """Return a word for the state of each broker: `up`, `down`, `paused`, `fenced` and so on.

    A paused broker is soon fenced, too, because the controller hears nothing from it. Its word
    stays `paused`, because this tells the user more than `fenced`.
    """
    words = {}
    for broker_id in sorted({*status.brokers_fenced, *status.brokers_alive}):
        word = str(status.nodes.get(broker_name(broker_id), NodeState.UP))
        if not status.brokers_alive.get(broker_id, False):
            word = "down"
        elif word == NodeState.UP and status.brokers_fenced.get(broker_id, False):
            word = "fenced"
        words[int(broker_id)] = word
    return words


def _broker_style(word: str) -> str:
    """Return the colour for a word of `broker_words`; "" for the terminal's own colour."""
    return {"up": "", "down": "red"}.get(word, "yellow")


def counts_line(progress: Progress) -> Text:
    """Return a line that counts what coordlab's own clients have produced and consumed."""
    produced = progress.status.records_produced if progress.status is not None else 0
    return Text(
        f"records produced {produced:,}, consumed {progress.records_consumed:,}; "
        f"commits acknowledged {progress.commits_acknowledged:,}",
        style="dim",
    )


def absent_line(status: ClusterStatus) -> Text | None:
    """Return a line with the controllers and clients that are not up; None if all are up.

    Brokers have their own line, `brokers_line`.
    """
    brokers = {broker_name(broker_id) for broker_id in status.brokers_alive}
    absent = [
        f"{node} {state}"
        for node, state in status.nodes.items()
        if state is not NodeState.UP and node not in brokers
    ]
    if not absent:
        return None
    line = f"not up: {', '.join(absent[:_MAX_NODES_NOT_UP])}"
    more = len(absent) - _MAX_NODES_NOT_UP
    if more > 0:
        line += f" and {more} more"
    return Text(line, style="yellow")


def groups_view(status: ClusterStatus, width: int) -> RenderableType:
    """Return the groups as a table, or on a narrow terminal as a line for each group.

    If there are many groups, the groups that rebalance or do not have exactly one coordinator come
    first.
    """
    members: dict[str, list[MemberStatus]] = {}
    for member in status.members.values():
        members.setdefault(member.group_id, []).append(member)
    # A group that no broker coordinates is not in `status.groups`, but its members name it.
    group_ids = list(dict.fromkeys((*status.groups, *members)))
    if len(group_ids) > _MAX_GROUPS:
        # False sorts before True, so the groups that are not stable come first.
        group_ids.sort(
            key=lambda group_id: _is_stable_at_one_broker(status.groups.get(group_id, ()))
        )
    shown, hidden = group_ids[:_MAX_GROUPS], group_ids[_MAX_GROUPS:]
    rows: list[_GroupRow] = []
    for group_id in shown:
        members_see = _coordinators_seen_by(members.get(group_id, ()))
        # In a split brain two brokers coordinate the group, and each gets a row. A group without a
        # coordinator gets one row, too.
        coordinators: Sequence[GroupStatus | None] = status.groups.get(group_id) or [None]
        rows += [_GroupRow(group_id, at_broker, members_see) for at_broker in coordinators]
    parts: list[RenderableType]
    if width >= _MIN_WIDTH_FOR_TABLES:
        parts = [_group_table(rows, width)]
    else:
        parts = [_group_line(row) for row in rows]
    if hidden:
        stable = [
            group_id
            for group_id in hidden
            if _is_stable_at_one_broker(status.groups.get(group_id, ()))
        ]
        line = f"and {len(hidden)} more groups, {len(stable)} of them Stable"
        parts.append(Text(line, style="dim"))
    return Group(*parts)


class _GroupRow(NamedTuple):
    """A row of the table of groups.

    - `at_broker`: the group as one coordinator knows it; None if no broker coordinates the group.
    - `members_see`: the brokers that members take for their coordinator. For example,
      `2 x broker 1` means that two members believe that broker 1 is their coordinator.
    """

    group_id: str
    at_broker: GroupStatus | None
    members_see: tuple[str, ...]


def _is_stable_at_one_broker(coordinators: Sequence[GroupStatus]) -> bool:
    """Return True if exactly one broker coordinates the group, and the group is Stable.

    `coordinators`: the group as each of its coordinators knows it.
    """
    return [group.state for group in coordinators] == ["Stable"]


def _coordinators_seen_by(members: Sequence[MemberStatus]) -> tuple[str, ...]:
    """Return the brokers that members take for their coordinator, such as `2 x broker 1`."""
    seen = Counter(
        "unknown" if member.coordinator is None else f"broker {member.coordinator}"
        for member in members
    )
    return tuple(f"{count:,} x {coordinator}" for coordinator, count in sorted(seen.items()))


def _group_table(rows: Sequence[_GroupRow], width: int) -> Table:
    table = _empty_table(width)
    table.add_column("group", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("generation", "members"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("coordinator", no_wrap=True)
    table.add_column("members see")  # which coordinators the members know
    for group_id, at_broker, members_see in rows:
        if at_broker is None:
            no_broker = Text("no broker", style="red")
            table.add_row(group_id, "-", "-", "-", no_broker, "\n".join(members_see))
            continue
        table.add_row(
            group_id,
            _state_text(at_broker),
            f"{at_broker.generation:,}",
            f"{len(at_broker.members):,}",
            f"broker {at_broker.coordinator}",
            "\n".join(members_see),
        )
    return table


def _empty_table(width: int) -> Table:
    """Return a table without columns, in the style of all tables of the panel."""
    space = 2 if width >= _MIN_WIDTH_FOR_WIDE_GAPS else 1
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, space, 0, 0))


def _group_line(row: _GroupRow) -> Text:
    """Return a row of the table as one line, for a narrow terminal."""
    group_id, at_broker, members_see = row
    if at_broker is None:
        line = Text.assemble(f"{group_id}: ", ("no broker coordinates it", "red"))
    else:
        line = Text.assemble(
            f"{group_id}: ",
            _state_text(at_broker),
            f" at broker {at_broker.coordinator}, generation {at_broker.generation:,}, "
            f"{len(at_broker.members):,} members",
        )
    if members_see:
        line.append(f"; members see {', '.join(members_see)}")
    return line


def _state_text(group: GroupStatus) -> Text:
    """Return the state of a group in its colour."""
    return Text(group.state, style=_STATE_STYLES.get(group.state, ""))


def faults_view(faults: Sequence[JournalEntry], now_us: int, width: int) -> RenderableType:
    """Return the faults as a table, or on a narrow terminal as a line for each fault."""
    shown = _faults_to_show(faults)
    shown_ids = {fault.fault_id for fault in shown}
    hidden = [fault for fault in faults if fault.fault_id not in shown_ids]
    parts: list[RenderableType]
    if width >= _MIN_WIDTH_FOR_TABLES:
        parts = [_fault_table(shown, now_us, width)]
    else:
        parts = [_fault_line(fault, now_us) for fault in shown]
    if hidden:
        # A text such as `failed: no such node` has a reason after the colon. Drop the reason, so
        # that all failed faults are counted together.
        fates = Counter(fate(fault).partition(":")[0] for fault in hidden)
        counts = ", ".join(f"{count:,} {what}" for what, count in fates.items())
        parts.append(Text(f"and {len(hidden):,} more faults: {counts}", style="dim"))
    return Group(*parts)


def _faults_to_show(faults: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return the faults that a user wants to see at this moment, in the order of the plan.

    If there are many faults, the faults in force are chosen first. If there is still room, the next
    planned faults are chosen, and then the latest faults that are over.
    """
    if len(faults) <= _MAX_FAULTS:
        return list(faults)
    begun = [fault for fault in faults if fault.outcome is not FaultOutcome.PLANNED]
    planned = [fault for fault in faults if fault.outcome is FaultOutcome.PLANNED]
    in_force = [fault for fault in begun if fault.in_force]
    over = [fault for fault in begun if not fault.in_force]
    chosen = in_force[-_MAX_FAULTS:]
    chosen += planned[:_MAX_PLANNED]
    room = _MAX_FAULTS - len(chosen)
    if room > 0:
        chosen += over[-room:]
    chosen = chosen[:_MAX_FAULTS]
    ids = {fault.fault_id for fault in chosen}
    return [fault for fault in faults if fault.fault_id in ids]


def _fault_table(faults: Sequence[JournalEntry], now_us: int, width: int) -> Table:
    table = _empty_table(width)
    table.add_column("fault", no_wrap=True)
    for heading in ("target", "hit", "outcome"):
        table.add_column(heading, overflow="fold")
    table.add_column("injected", justify="right", no_wrap=True)
    for fault in faults:
        outcome = fate(fault)
        hit = "" if fault.node is None else fault.hit
        table.add_row(
            fault.fault,
            fault.target,
            hit,
            Text(outcome, style=_FAULT_STYLES.get(outcome, "bold")),
            _time_of_injection(fault, now_us),
        )
    return table


def _fault_line(fault: JournalEntry, now_us: int) -> Text:
    """Return a row of the table as one line, for a narrow terminal."""
    outcome = fate(fault)
    hit = "" if fault.node is None else f", hit {fault.hit}"
    line = Text.assemble(
        f"{fault.fault} {fault.target}{hit}: ", (outcome, _FAULT_STYLES.get(outcome, "bold"))
    )
    injected = _time_of_injection(fault, now_us)
    if injected:
        line.append(f", {injected}")
    return line


def _time_of_injection(fault: JournalEntry, now_us: int) -> str:
    """Return when a fault was or will be injected: `1.500 s ago` or `in 10.000 s`.

    Return "" if the fault will never be injected, or if the time is not known yet. (The times of a
    plan count from the moment at which the cluster is steady.)
    """
    if fault.fired_at_us is not None:
        return f"{clock_seconds(now_us - fault.fired_at_us)} ago"
    if fault.planned_at_us is None or fault.outcome is not FaultOutcome.PLANNED:
        return ""
    # The injection may begin a moment late. Then the planned time has already passed.
    return f"in {clock_seconds(max(fault.planned_at_us - now_us, 0))}"
