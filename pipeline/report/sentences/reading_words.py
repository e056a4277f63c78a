"""The cause of a long processing gap: what happened to the partition's leader or follower.

A processing gap is a time in which no member worked on a record of the partition. A consumer can
fetch records only below the high watermark. This is the offset below which all replicas in the ISR
(the in-sync replicas of the partition) have the records. So a broker that is paused or cut off
blocks two sorts of partitions:

- the partitions that it leads, because it answers no fetches;
- the partitions that it follows as a member of the ISR, because their high watermark stands still.
  They stay blocked until the controller fences the broker (takes its roles away), which also
  removes the broker from their ISR.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Row
from pipeline.report.sentences.fault_sentences import is_client
from pipeline.summary.figures import find_worst
from pipeline.summary.outcomes import in_number_order
from results_schema.journal import JournalEntry

_LONG_US = 1_000_000
"""Shortest gap that is explained. The usual pauses between two batches are shorter."""
_SOON_US = 1_000_000
"""Longest time after an event in which the end of a gap counts as an effect of the event."""
_BLOCKING = frozenset({"cut", "crash", "node_loss", "power_loss", "pause"})
"""Kinds of faults that make a broker stop answering fetches, of members or of other brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """Facts about the blocked partitions that the broker led.

    - `kind`: kind of the fault.
    - `resumed_us`: end of the fault; None if members consumed a partition again before it.
    - `fenced_us`: time at which the controller fenced the broker; None if the fault ended before.
    - `cut_from_clients`: True if the fault cut the broker off from members, too.
    - `new_owners`: members that got the partitions just before the gap ended; `given_us`: when the
      first of them got a partition.
    """

    broker: str
    kind: str
    partitions: tuple[str, ...]
    longest_us: int
    resumed_us: int | None
    fenced_us: int | None
    cut_from_clients: bool
    new_owners: tuple[str, ...]
    given_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Facts about the blocked partitions that the broker followed.

    Members consumed them again soon after the controller had fenced the broker.
    """

    broker: str
    partitions: int
    longest_us: int
    fenced_us: int
    last_us: int


def why_not_consumed(run: ReportInput) -> Markup | None:
    """Return the sentences on the cause of the longest processing gap.

    Returns None if the gap is short, or if its cause is unknown. Only faults that hit one broker
    are explained.
    """
    worst = find_worst(run.summary, "processing gap")
    if worst is None or worst.longest_us < _LONG_US:
        return None
    fault = next((fault for fault in run.facts.faults if fault.fault_id == worst.fault.fault), None)
    # With two brokers, the tables do not say which of them blocked a partition.
    if fault is None or fault.fault not in _BLOCKING or len(_brokers(fault)) != 1:
        return None
    # A gap with a length has ended, so each of these rows has `after_us`.
    rows = [
        row
        for row in run.tables.rows("availability")
        if row["fault"] == fault.fault_id
        and row["subject_kind"] == "partition"
        and (row["gap_us"] or 0) >= _LONG_US
    ]
    led = [row for row in rows if row["subject"] in fault.blast_radius.partitions]
    others = [row for row in rows if row["subject"] not in fault.blast_radius.partitions]
    sentences = [render_line("not_consumed", "led", _led(led, fault, run))] if led else []
    if (followed := _followed(others, fault, run)) is not None:
        sentences.append(render_line("not_consumed", "followed", followed))
    return Markup(" ").join(sentences) if sentences else None


def _brokers(fault: JournalEntry) -> list[str]:
    """Return the brokers that a fault hit. A cut hits the brokers on its side `from`."""
    nodes = fault.from_nodes or fault.hit_nodes
    return [node for node in nodes if node.startswith("broker-")]


def _led(rows: Sequence[Row], fault: JournalEntry, run: ReportInput) -> Led:
    """Return the facts about blocked partitions that the broker led."""
    resumed_us = fault.healed_at_us
    waited = resumed_us is not None and all(row["after_us"] >= resumed_us for row in rows)
    # The controller fences a broker and elects new leaders in one decision.
    fenced_us = min(_decided(fault, run), default=None)
    fenced_before = fenced_us is not None and resumed_us is not None and fenced_us < resumed_us
    new_owners, given_us = _new_owners(rows, run)
    return Led(
        broker=_brokers(fault)[0],
        kind=fault.fault,
        partitions=in_number_order({row["subject"] for row in rows}),
        longest_us=max(row["gap_us"] for row in rows),
        resumed_us=resumed_us if waited else None,
        fenced_us=fenced_us if fenced_before else None,
        cut_from_clients=any(is_client(node) for node in (*fault.from_nodes, *fault.to_nodes)),
        new_owners=new_owners,
        given_us=given_us,
    )


def _decided(fault: JournalEntry, run: ReportInput) -> list[int]:
    """Return the times at which the controller elected new leaders of offsets partitions."""
    return [
        row["decided_us"]
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault_id and row["decided_us"] is not None
    ]


def _new_owners(rows: Sequence[Row], run: ReportInput) -> tuple[tuple[str, ...], int | None]:
    """Return the members that got the partitions just before the gaps ended, and the first time.

    Returns an empty tuple and None if one of the partitions got no new owner just before its gap
    ended.
    """
    assignments: list[Row] = []
    all_intervals = run.tables.rows("ownership")
    for row in rows:
        just_before_end = [
            interval
            for interval in all_intervals
            if (interval["group"], interval["partition"]) == (row["group"], row["subject"])
            and row["after_us"] - _SOON_US <= interval["from_us"] <= row["after_us"]
        ]
        if not just_before_end:
            return (), None
        assignments += just_before_end
    names = in_number_order({interval["consumer"] for interval in assignments})
    return names, min(interval["from_us"] for interval in assignments)


def _followed(rows: Sequence[Row], fault: JournalEntry, run: ReportInput) -> Followed | None:
    """Return the facts about blocked partitions that other brokers led.

    Returns None unless all of them were consumed again within _SOON_US after the broker was fenced:
    otherwise the fenced broker need not be the cause.
    """
    decided = _decided(fault, run)
    if not rows or not decided:
        return None
    fenced_us, last_us = min(decided), max(row["after_us"] for row in rows)
    if not all(0 <= row["after_us"] - fenced_us <= _SOON_US for row in rows):
        return None
    return Followed(
        broker=_brokers(fault)[0],
        partitions=len(rows),
        longest_us=max(row["gap_us"] for row in rows),
        fenced_us=fenced_us,
        last_us=last_us,
    )
