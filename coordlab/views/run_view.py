"""The live view of a run: stage, brokers, groups, members and faults.

On a terminal the view is a panel, which fits into 40 columns. Its size is limited even if the
cluster is large: the panel names unusual brokers, groups and faults, and only counts the others.
Without a terminal, the view prints a line for each change of a stage or a fault, and for each
finding (a violation that a check reports).

The runner (the code that conducts the run) calls the view again and again with a Progress, which
describes the state of the whole run at one moment. The faults in it are the entries of the run's
journal: each entry is a fault, with its times and the nodes that it hit. An entry "by accident" is
not of the plan: it is about a machine that was lost or silent.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

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
_WIDE = 100
"""Least width at which columns stand two spaces apart."""
_NARROW = 70
"""Least width of a terminal for tables. A narrower terminal has a line for each group or fault."""
_MAX_BROKERS = 8
"""Limit of the brokers that are named one by one. If there are more, they are grouped by state."""
_MAX_GROUPS = 12
"""Limit of the groups that are shown. If there are more, the others are counted."""
_MAX_FAULTS = 8
"""Limit of the faults that are shown. If there are more, the others are counted."""
_MAX_PLANNED = 3
"""Limit of the planned faults that are shown, if there are more than _MAX_FAULTS faults."""
_MAX_FINDINGS = 3
"""Limit of the findings that are shown. Only the latest are shown."""
_MAX_ABSENT = 6
"""Limit of the controllers and clients that are named as not up."""
_MAX_WAITING = 3
"""Limit of the conditions that are named as not fulfilled."""


def run_view(
    console: Console, experiment: str, runtime: str, *, shown: bool = True
) -> LiveView[Progress]:
    """Return the live view of a run, under the names of its experiment and runtime."""

    def render(progress: Progress | None) -> RenderableType:
        if progress is None:
            return Text(f"{experiment} on {runtime}: starting")
        return run_panel(experiment, runtime, progress, console.width)

    return LiveView(console, render, RunLines(), shown=shown)


class RunLines:
    """Turns each progress into the lines that it adds: changed faults, new findings, a new stage.

    A progress describes the whole run so far, so this object remembers what it has yielded.
    """

    def __init__(self) -> None:
        self._yielded_fates: dict[str, str] = {}
        """By fault id: the last text that was yielded for the fault."""
        self._yielded_findings = 0
        self._stage = ""

    def __call__(self, progress: Progress) -> Iterator[str]:
        """Yield the lines that `progress` adds."""
        for fault in progress.faults:
            # The state of an accident is in its note. The note changes when the machine answers
            # again.
            new_fate = (fault.note or "") if fault.is_by_accident else fate(fault)
            is_known = self._yielded_fates.get(fault.fault_id) == new_fate
            if fault.outcome is FaultOutcome.PLANNED or is_known:
                continue
            self._yielded_fates[fault.fault_id] = new_fate
            # The time of the latest change: the injection, or the healing after it.
            at_us = fault.fired_at_us if fault.healed_at_us is None else fault.healed_at_us
            if fault.is_by_accident:
                change = f"{fault.note}, with {nodes_shown(fault.nodes)} on it"
            else:
                # Only the line on the beginning of a fault names the nodes that it hit.
                injected = fault.outcome is FaultOutcome.HIT and fault.healed_at_us is None
                hit = f"hit {fault.hit}; " if injected else ""
                change = f"{fault.fault} {fault.target}: {hit}{new_fate}"
            yield timed(progress.time_us if at_us is None else at_us, change)

        for finding in progress.findings[self._yielded_findings :]:
            yield timed(finding.time_us, f"{finding.check} is violated: {finding.summary}")
        self._yielded_findings = len(progress.findings)

        if progress.stage != self._stage:
            self._stage = progress.stage
            yield timed(progress.time_us, progress.stage)


def timed(time_us: int, text: str) -> str:
    """Return a line with its time on the run's clock."""
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
        # The stage ends when these conditions are fulfilled.
        waiting = "; ".join(progress.waiting_for[:_MAX_WAITING])
        more = len(progress.waiting_for) - _MAX_WAITING
        waiting += f"; and {more} more" if more > 0 else ""
        parts.append(Text(f"waiting for: {waiting}", style="dim"))
    return Group(*parts)


def fate(fault: JournalEntry) -> str:
    """Return the state of a fault in words, with the reason if it was not injected."""
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

    The brackets are for terminals without colours. A narrow terminal gets only the present stage.
    """
    if width < _NARROW:
        # 0: no stage has begun.
        place = STAGES.index(stage) + 1 if stage in STAGES else 0
        return Text(f"{stage} (stage {place} of {len(STAGES)})")
    line = Text()
    for name in STAGES:
        is_present = name == stage
        text = f"[{name}] " if is_present else f" {name} "
        line.append(text, style="bold" if is_present else "dim")
    return line


def brokers_line(status: ClusterStatus) -> Text:
    """Return the brokers with their states; more than _MAX_BROKERS are grouped by state."""
    words = broker_words(status)
    line = Text("brokers ")
    if len(words) <= _MAX_BROKERS:
        for broker_id, word in words.items():
            line.append(f" {broker_id} {word} ", style=_broker_style(word))
        return line
    # The state `up` comes first, then the others in alphabetic order.
    for word in sorted(set(words.values()), key=lambda word: (word != "up", word)):
        names = [f"broker-{broker_id}" for broker_id, state in words.items() if state == word]
        # `listed` shortens names with successive numbers (`broker-1 to 3`). The line has room only
        # for the numbers, so "broker-" is removed.
        shown = listed(names).replace("broker-", "")
        line.append(f" {len(names)} {word}: {shown} ", style=_broker_style(word))
    return line


def broker_words(status: ClusterStatus) -> dict[int, str]:
    """Return a word for the state of each broker: the state of its node, or `down` or `fenced`.

    A fenced broker runs, but the controller, which manages the cluster, does not regard it as
    alive. A paused or stopping broker is soon fenced too; it keeps the word for the state of its
    node, because this word says why.
    """
    words = {}
    for broker_id in sorted({*status.brokers_fenced, *status.brokers_alive}):
        # A broker without a known state counts as up.
        word = str(status.nodes.get(broker_name(broker_id), NodeState.UP))
        if not status.brokers_alive.get(broker_id, False):
            word = "down"
        elif word == NodeState.UP and status.brokers_fenced.get(broker_id, False):
            word = "fenced"
        words[int(broker_id)] = word
    return words


def _broker_style(word: str) -> str:
    """Return the colour of a broker's word; "" for the terminal's own colour."""
    return {"up": "", "down": "red"}.get(word, "yellow")


def counts_line(progress: Progress) -> Text:
    """Return a line with the numbers of records and commits of the lab's own clients."""
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
    shown = ", ".join(absent[:_MAX_ABSENT])
    more = len(absent) - _MAX_ABSENT
    return Text(f"not up: {shown}{f' and {more} more' if more > 0 else ''}", style="yellow")


def groups_view(status: ClusterStatus, width: int) -> RenderableType:
    """Return the groups with their coordinators (the brokers that manage the group's members).

    If there are more than _MAX_GROUPS, the groups that are not quiet come first (`_is_quiet`).
    """
    members: dict[str, list[MemberStatus]] = {}
    for member in status.members.values():
        members.setdefault(member.group_id, []).append(member)
    # A group that no broker coordinates is only known from its members.
    group_ids = list(dict.fromkeys((*status.groups, *members)))
    if len(group_ids) > _MAX_GROUPS:
        # Groups that are not quiet come first, because False sorts before True.
        group_ids.sort(key=lambda group_id: _is_quiet(status.groups.get(group_id, ())))
    shown, hidden = group_ids[:_MAX_GROUPS], group_ids[_MAX_GROUPS:]
    rows = [
        (group_id, group, _members_see(members.get(group_id, ())))
        for group_id in shown
        # One row for each coordinator. A group without a coordinator has one row, too.
        for group in (status.groups.get(group_id) or (None,))
    ]
    parts: list[RenderableType] = (
        [_group_table(rows, width)] if width >= _NARROW else list(map(_group_lines, rows))
    )
    if hidden:
        quiet = sum(_is_quiet(status.groups.get(group_id, ())) for group_id in hidden)
        parts.append(Text(f"and {len(hidden)} more groups, {quiet} of them Stable", style="dim"))
    return Group(*parts)


_Row = tuple[str, GroupStatus | None, tuple[str, ...]]
"""A row of the table of groups:

1. the id of a group;
2. the group as one coordinator knows it; None: no broker coordinates the group. A group that two
   brokers coordinate has two rows;
3. the texts of `_members_see`.
"""


def _is_quiet(coordinators: Sequence[GroupStatus]) -> bool:
    """Return whether exactly one broker coordinates the group, and the group is Stable there.

    A Stable group is not in a rebalance.

    `coordinators`: the group as each of its coordinators knows it.
    """
    return [group.state for group in coordinators] == ["Stable"]


def _members_see(members: Sequence[MemberStatus]) -> tuple[str, ...]:
    """Return texts such as `2 x broker 1`: two members regard broker 1 as their coordinator."""
    seen = Counter(
        "unknown" if member.coordinator is None else f"broker {member.coordinator}"
        for member in members
    )
    return tuple(f"{count:,} x {what}" for what, count in sorted(seen.items()))


def _group_table(rows: Sequence[_Row], width: int) -> Table:
    """Return the table of groups, for a terminal that is not narrow."""
    table = _empty_table(width)
    table.add_column("group", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("generation", "members"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("coordinator", no_wrap=True)
    table.add_column("members see")
    for group_id, group, members_see in rows:
        if group is None:
            no_broker = Text("no broker", style="red")
            table.add_row(group_id, "-", "-", "-", no_broker, "\n".join(members_see))
            continue
        table.add_row(
            group_id,
            _state(group),
            f"{group.generation:,}",
            f"{len(group.members):,}",
            f"broker {group.coordinator}",
            "\n".join(members_see),
        )
    return table


def _empty_table(width: int) -> Table:
    """Return a table without columns, whose columns will stand one or two spaces apart."""
    space = 2 if width >= _WIDE else 1
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, space, 0, 0))


def _group_lines(row: _Row) -> Text:
    """Return one line for a row of the table, for a narrow terminal."""
    group_id, group, members_see = row
    if group is None:
        line = Text.assemble(f"{group_id}: ", ("no broker coordinates it", "red"))
    else:
        line = Text.assemble(
            f"{group_id}: ",
            _state(group),
            f" at broker {group.coordinator}, generation {group.generation:,}, "
            f"{len(group.members):,} members",
        )
    return line.append(f"; members see {', '.join(members_see)}" if members_see else "")


def _state(group: GroupStatus) -> Text:
    """Return the state of a group in its colour."""
    return Text(group.state, style=_STATE_STYLES.get(group.state, ""))


def faults_view(faults: Sequence[JournalEntry], now_us: int, width: int) -> RenderableType:
    """Return the faults. If there are more than _MAX_FAULTS, show those near the present moment."""
    shown = _notable(faults)
    # `is` is faster here than `==`, which would compare all fields of two entries.
    hidden = [fault for fault in faults if not any(fault is other for other in shown)]
    parts: list[RenderableType] = (
        [_fault_table(shown, now_us, width)]
        if width >= _NARROW
        else [_fault_line(fault, now_us) for fault in shown]
    )
    if hidden:
        # The part before the colon is the fate without its reason.
        fates = Counter(fate(fault).partition(":")[0] for fault in hidden)
        counts = ", ".join(f"{count:,} {what}" for what, count in fates.items())
        parts.append(Text(f"and {len(hidden):,} more faults: {counts}", style="dim"))
    return Group(*parts)


def _notable(faults: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return the faults to show, in the plan's order.

    If there are more than _MAX_FAULTS, choose first the latest faults in force, then the next
    planned faults, then the latest faults that are over.
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
    # If `room` is 0, nothing of `over` is chosen, but `over[-0:]` would be the whole list.
    chosen = (chosen + over[-room:]) if room > 0 else chosen[:_MAX_FAULTS]
    ids = {fault.fault_id for fault in chosen}
    return [fault for fault in faults if fault.fault_id in ids]


def _fault_table(faults: Sequence[JournalEntry], now_us: int, width: int) -> Table:
    """Return the table of faults, for a terminal that is not narrow."""
    table = _empty_table(width)
    table.add_column("fault", no_wrap=True)
    for heading in ("target", "hit", "outcome"):
        table.add_column(heading, overflow="fold")
    table.add_column("injected", justify="right", no_wrap=True)
    for fault in faults:
        outcome = fate(fault)
        table.add_row(
            fault.fault,
            fault.target,
            "" if fault.node is None else fault.hit,
            Text(outcome, style=_FAULT_STYLES.get(outcome, "bold")),
            _injected(fault, now_us),
        )
    return table


def _fault_line(fault: JournalEntry, now_us: int) -> Text:
    """Return one line for a row of the table, for a narrow terminal."""
    outcome = fate(fault)
    hit = "" if fault.node is None else f", hit {fault.hit}"
    injected = _injected(fault, now_us)
    return Text.assemble(
        f"{fault.fault} {fault.target}{hit}: ",
        (outcome, _FAULT_STYLES.get(outcome, "bold")),
        f", {injected}" if injected else "",
    )


def _injected(fault: JournalEntry, now_us: int) -> str:
    """Return how long ago a fault was injected, or in how long it will be.

    "": the fault will not be injected. Or its time is not known yet, because the plan's times count
    from the steady state, which the run has not reached.
    """
    if fault.fired_at_us is not None:
        return f"{clock_seconds(now_us - fault.fired_at_us)} ago"
    if fault.planned_at_us is None or fault.outcome is not FaultOutcome.PLANNED:
        return ""
    # An injection can begin a moment after its planned time.
    return f"in {clock_seconds(max(fault.planned_at_us - now_us, 0))}"
