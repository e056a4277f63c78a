"""Explains why no member read a partition for a long time after a fault.

The time in which no member processes a record of a partition is the partition's processing gap. A
broker that is paused or cut off can cause such gaps in two ways:

- The broker leads partitions. Members cannot fetch from these partitions, because the broker does
  not answer.
- The broker follows partitions, and is in their ISR. Members cannot fetch new records of these
  partitions, because the high watermark stands still. This ends when the controller fences the
  broker, and so removes it from the ISR.
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
"""If a gap ends within this time after an event, the event is taken to have ended it."""
_BLOCKING = frozenset({"cut", "crash", "node_loss", "power_loss", "pause"})
"""Kinds of faults that make a broker stop answering fetches, of members or of other brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """Facts about the blocked partitions that the broker led."""

    broker: str
    fault_kind: str
    partitions: tuple[str, ...]
    longest_gap_us: int
    resumed_us: int | None
    """Time at which the fault ended. None if the fault did not end, or if members consumed a
    partition again before the end of the fault."""
    fenced_us: int | None
    """Time at which the controller fenced the broker. None if the fault ended before the fencing,
    or did not end at all."""
    cut_from_clients: bool
    """True if the fault cut the broker off from members, too."""
    new_owners: tuple[str, ...]
    """The members to which the partitions were assigned just before the gap ended."""
    assigned_us: int | None
    """Time at which the first of the new owners got a partition; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Facts about the blocked partitions that the broker followed.

    Members consumed them again soon after the controller had fenced the broker.
    """

    broker: str
    partitions: int
    longest_gap_us: int
    fenced_us: int
    last_read_again_us: int
    """Time at which the last of the partitions was consumed again."""


def why_not_consumed(run: ReportInput) -> Markup | None:
    """Return the sentences on the cause of the longest processing gap.

    Returns None if the gap is short, or if its cause is unknown. Only faults that hit one broker
    are explained.
    """
    worst = find_worst(run.summary, "processing gap")
    if worst is None or worst.longest_us < _LONG_US:
        return None
    fault = next((fault for fault in run.facts.faults if fault.fault_id == worst.fault.fault), None)
    # If the fault hit two brokers, the tables do not say which of them blocked a partition.
    if fault is None or fault.fault not in _BLOCKING or len(_brokers(fault)) != 1:
        return None
    # A gap that did not end has no length in the table, and is left out. So each of these rows has
    # the moment of the gap's end in the column `after_us`.
    rows = [
        row
        for row in run.tables.rows("availability")
        if row["fault"] == fault.fault_id
        and row["subject_kind"] == "partition"
        and (row["gap_us"] or 0) >= _LONG_US
    ]
    # The blast radius has the partitions that the broker led.
    led_rows = [row for row in rows if row["subject"] in fault.blast_radius.partitions]
    other_rows = [row for row in rows if row["subject"] not in fault.blast_radius.partitions]
    sentences = []
    if led_rows:
        sentences.append(render_line("not_consumed", "led", _led(led_rows, fault, run)))
    followed = _followed(other_rows, fault, run)
    if followed is not None:
        sentences.append(render_line("not_consumed", "followed", followed))
    return Markup(" ").join(sentences) if sentences else None


def _brokers(fault: JournalEntry) -> list[str]:
    """Return the brokers that a fault hit. For a cut, these are the brokers in `from_nodes`."""
    nodes = fault.from_nodes or fault.hit_nodes
    return [node for node in nodes if node.startswith("broker-")]


def _led(rows: Sequence[Row], fault: JournalEntry, run: ReportInput) -> Led:
    """Return the facts about blocked partitions that the broker led."""
    resumed_us = fault.healed_at_us
    # The controller fences a broker and elects new leaders in one decision.
    fenced_us = min(_election_times_us(fault, run), default=None)
    # The sentence names the fencing only if the fault ended after it.
    if fenced_us is not None and (resumed_us is None or fenced_us >= resumed_us):
        fenced_us = None
    if resumed_us is not None and any(row["after_us"] < resumed_us for row in rows):
        resumed_us = None
    new_owners, assigned_us = _new_owners(rows, run)
    return Led(
        broker=_brokers(fault)[0],
        fault_kind=fault.fault,
        partitions=in_number_order({row["subject"] for row in rows}),
        longest_gap_us=max(row["gap_us"] for row in rows),
        resumed_us=resumed_us,
        fenced_us=fenced_us,
        cut_from_clients=any(is_client(node) for node in (*fault.from_nodes, *fault.to_nodes)),
        new_owners=new_owners,
        assigned_us=assigned_us,
    )


def _election_times_us(fault: JournalEntry, run: ReportInput) -> list[int]:
    """Return when the controller elected new leaders of offsets partitions after a fault."""
    return [
        row["decided_us"]
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault_id and row["decided_us"] is not None
    ]


def _new_owners(rows: Sequence[Row], run: ReportInput) -> tuple[tuple[str, ...], int | None]:
    """Return the members that got the partitions just before the gaps ended, and since when.

    Example: consumer-1 got one partition at 12 s, consumer-2 got another partition at 13 s, and
    both began to read. The result is `(("consumer-1", "consumer-2"), 12_000_000)`.

    If one of the partitions got no new owner just before its gap ended, new owners do not explain
    the ends of all gaps, and the result is `((), None)`.
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

    The broker that the fault hit counts as the cause of the gaps if all these partitions were
    consumed again soon after the controller had fenced this broker. Otherwise the result is None.
    """
    election_times_us = _election_times_us(fault, run)
    if not rows or not election_times_us:
        return None
    fenced_us = min(election_times_us)
    if not all(0 <= row["after_us"] - fenced_us <= _SOON_US for row in rows):
        return None
    return Followed(
        broker=_brokers(fault)[0],
        partitions=len(rows),
        longest_gap_us=max(row["gap_us"] for row in rows),
        fenced_us=fenced_us,
        last_read_again_us=max(row["after_us"] for row in rows),
    )
