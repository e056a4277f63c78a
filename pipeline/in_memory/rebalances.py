"""The table `rebalances` in plain Python."""

from dataclasses import dataclass, field

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, detail_of, last_fault_before
from protocol.trace import TraceKind, TraceRow

_NOT_STORED = "the assignment could not be stored: "
_SAID_NOTHING = "not provided"


@dataclass(slots=True)
class _Rebalance:
    """One rebalance on its way. `changes`: MEMBER_REMOVED and MEMBER_ADDED that belong to it."""

    started: TraceRow
    joined: TraceRow | None = None
    stable: TraceRow | None = None
    store_error: str | None = None
    changes: list[TraceRow] = field(default_factory=list)


def rebalances_of(trace: Trace) -> list[TableRow]:
    """Return the rebalances that coordinators began, with what became of each."""
    faults = faults_of(trace)
    tenures = coordinator_tenures_of(trace)
    names = trace.consumers()
    found = []
    for (broker, incarnation), group, rows in _groups_of_brokers(trace):
        served = [
            tenure
            for tenure in tenures
            if (tenure["broker"], tenure["incarnation"]) == (broker, incarnation)
            and tenure["partition"] == trace.groups().get(group)
        ]
        for rebalance in _follow(rows):
            started = rebalance.started
            before = [each for each in served if each["start_us"] <= started.time_us]
            newest = max(before, key=lambda each: each["start_us"], default=None)
            found.append(
                {
                    "group": group,
                    "broker": broker,
                    "leader_epoch": newest["leader_epoch"] if newest else None,
                    "fault": last_fault_before(faults, started.time_us),
                }
                | _told(
                    rebalance, {member: name for (g, member), name in names.items() if g == group}
                )
            )
    return found


def _groups_of_brokers(
    trace: Trace,
) -> list[tuple[tuple[str, int], str, list[TraceRow]]]:
    """Return what each process of a broker did to each group as its coordinator, in order."""
    kinds = (
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
    )
    found: dict[tuple[tuple[str, int], str], list[TraceRow]] = {}
    for life, rows in trace.lives(*kinds):
        for row in rows:
            found.setdefault((life, str(row.group)), []).append(row)
    return [(life, group, rows) for (life, group), rows in found.items()]


def _follow(rows: list[TraceRow]) -> list[_Rebalance]:
    """Walk through one coordinator's steps of one group.

    Who comes or goes before a rebalance begins belongs to the next one that begins, unless a
    generation starts, the group is left empty or dead, or is loaded before that.
    """
    found: list[_Rebalance] = []
    current: _Rebalance | None = None  # in its join phase: who comes or goes now is its
    early: list[TraceRow] = []
    for row in rows:
        match row.kind:
            case TraceKind.REBALANCE_STARTED:
                if found and (row.cause or "").startswith(_NOT_STORED):
                    found[-1].store_error = (row.cause or "").removeprefix(_NOT_STORED)
                current = _Rebalance(row, changes=early)
                early = []
                found.append(current)
            case TraceKind.GENERATION_STARTED:
                if found and found[-1].joined is None:
                    found[-1].joined = row
                current, early = None, []
            case TraceKind.ASSIGNMENT_STORED:
                if found and found[-1].stable is None:
                    found[-1].stable = row
            case TraceKind.MEMBER_ADDED | TraceKind.MEMBER_REMOVED:
                (early if current is None else current.changes).append(row)
            case TraceKind.GROUP_LOADED:
                current, early = None, []
            case _:
                if detail_of(row).get("to") in ("Empty", "Dead"):
                    current, early = None, []
    return found


def _told(rebalance: _Rebalance, names: dict[str, str]) -> TableRow:
    """Return what the rows of one rebalance say; `names` maps member ids to consumers."""
    started, joined, stable = rebalance.started, rebalance.joined, rebalance.stable
    changes = [row for row in rebalance.changes if not _is_replacement(row)]
    removed = [row for row in changes if row.kind == TraceKind.MEMBER_REMOVED]
    added = [row for row in changes if row.kind == TraceKind.MEMBER_ADDED]
    cause = started.cause or ""
    said = cause.partition("client reason: ")[2]
    joined_us = joined.time_us if joined else None
    stable_us = stable.time_us if stable else None
    return {
        "generation": started.generation,
        "new_generation": joined.generation if joined else None,
        "reason": _reason(cause),
        "member": started.member,
        "consumer": names.get(started.member, started.member) if started.member else None,
        "cause": started.cause,
        "client_reason": said if said not in ("", _SAID_NOTHING) else None,
        "removed": sorted({names.get(str(row.member), str(row.member)) for row in removed}),
        "removed_because": sorted({row.cause for row in removed if row.cause is not None}),
        "added": sorted({names.get(str(row.member), str(row.member)) for row in added}),
        "store_error": rebalance.store_error,
        "started_us": started.time_us,
        "joined_us": joined_us,
        "stable_us": stable_us,
        "join_us": joined_us - started.time_us if joined_us is not None else None,
        "sync_us": (
            stable_us - joined_us if stable_us is not None and joined_us is not None else None
        ),
        "length_us": stable_us - started.time_us if stable_us is not None else None,
    }


def _is_replacement(row: TraceRow) -> bool:
    """Return whether a static member only changed its member id: nobody came, nobody went."""
    cause = row.cause or ""
    return cause.startswith("static member ") and cause.endswith(" replaced")


def _reason(cause: str) -> str:
    """Sort a coordinator's sentence: the verb behind the member's name says what it did."""
    sentence = cause.partition(";")[0]
    if sentence.startswith("static member "):
        return "static member back"
    if sentence.startswith("no SyncGroup from "):
        return "no SyncGroup"
    if sentence.startswith(_NOT_STORED):
        return "assignment not stored"
    if sentence.endswith("group.max.size"):
        return "group too large"
    words = {
        " joined": "join",
        " left": "leave",
        " changed its metadata": "changed metadata",
        " rejoined": "rejoin",
        " expired: no heartbeat": "session expiry",
    }
    return next((reason for end, reason in words.items() if sentence.endswith(end)), "other")
