"""Why partitions of data were not consumed for a while: what became of their leader.

A record is fetched once it is below the high watermark, which waits for every replica in the ISR.
So a broker that stands still, or is cut off, holds up the partitions that it leads and, until the
controller takes it out of their ISR, those that it follows.
"""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from pipeline.report.report_input import ReportInput, Row
from pipeline.report.sentences.fault_sentences import is_client
from pipeline.report.sentences.markup import OWNERSHIP, and_list, at_moment, fill_sentence, joined
from pipeline.summary.figures import duration_text, find_worst
from pipeline.summary.outcomes import in_number_order, listed
from results_schema.journal import JournalEntry

_LONG_US = 1_000_000
"""From here on a gap is explained: it is longer than any usual pause between batches."""
_SOON_US = 1_000_000
"""What follows a moment within this time is taken to follow from it."""
_HELD_UP = frozenset({"cut", "crash", "node_loss", "power_loss", "pause"})


def why_not_consumed(run: ReportInput) -> Markup | None:
    """Say what held up the partitions that were not consumed for long; None: nothing known."""
    found = find_worst(run.summary, "processing gap")
    if found is None or found.longest_us < _LONG_US:
        return None
    fault = next((each for each in run.facts.faults if each.fault_id == found.fault.fault), None)
    if fault is None or fault.fault not in _HELD_UP or len(_brokers(fault)) != 1:
        return None
    rows = [
        row
        for row in run.tables.rows("availability")
        if row["fault"] == fault.fault_id
        and row["subject_kind"] == "partition"
        and (row["gap_us"] or 0) >= _LONG_US
    ]
    led = [row for row in rows if row["subject"] in fault.blast_radius.partitions]
    others = [row for row in rows if row["subject"] not in fault.blast_radius.partitions]
    told = [*_led(led, fault, run), *_others(others, fault, run)]
    return joined(told) if told else None


def _brokers(fault: JournalEntry) -> list[str]:
    nodes = fault.from_nodes or fault.hit_nodes
    return [node for node in nodes if node.startswith("broker-")]


def _led(rows: Sequence[Row], fault: JournalEntry, run: ReportInput) -> Iterator[Markup]:
    """Tell what the members of partitions waited for that the broker led."""
    if not rows:
        return
    broker = _brokers(fault)[0]
    subjects = in_number_order({row["subject"] for row in rows})
    longest = duration_text(max(row["gap_us"] for row in rows))
    were = "was" if len(subjects) == 1 else "were"
    begins = fill_sentence("{} (up to {}) {} led by {}", and_list(subjects), longest, were, broker)
    if fault.fault == "pause":
        yield _paused(rows, fault, run, begins)
        return
    if fault.fault != "cut":
        yield fill_sentence("{}: nobody could fetch them until another broker led them.", begins)
        return
    if any(is_client(node) for node in (*fault.from_nodes, *fault.to_nodes)):
        yield fill_sentence("{}, which their members did not reach.", begins)
        return
    stale = fill_sentence(
        "{}: their owners still reached it and went on fetching from it, the stale leader, where "
        "the high watermark stood still",
        begins,
    )
    readers = _new_owners(rows, run)
    if readers is None:
        yield fill_sentence("{}.", stale)
        return
    names_of, from_us = readers
    yield fill_sentence(
        "{}, until {}, given them {}, fetched from the new leader.",
        stale,
        listed(names_of),
        at_moment(from_us, OWNERSHIP),
    )


def _paused(rows: Sequence[Row], fault: JournalEntry, run: ReportInput, begins: Markup) -> Markup:
    """Tell what kept clients from the new leader: the stopped one breaks no connection."""
    resumed_us = fault.healed_at_us
    if resumed_us is None or not all(row["after_us"] >= resumed_us for row in rows):
        return fill_sentence(
            "{}: requests to it were not answered, until clients turned to another leader.", begins
        )
    fenced_us = min(_decided(fault, run), default=resumed_us)
    unaware = Markup("")
    if fenced_us < resumed_us:
        unaware = fill_sentence(
            "; that the controller had fenced it {} they could not know", at_moment(fenced_us)
        )
    return fill_sentence(
        "{}: producers and members had asked it, and waited for its answers until it went on {}{}.",
        begins,
        at_moment(resumed_us),
        unaware,
    )


def _decided(fault: JournalEntry, run: ReportInput) -> list[int]:
    """Return when the controller gave partitions of offsets to others because of a fault."""
    return [
        row["decided_us"]
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault_id and row["decided_us"] is not None
    ]


def _new_owners(rows: Sequence[Row], run: ReportInput) -> tuple[tuple[str, ...], int] | None:
    """Return who was given each of the partitions just before its gap ended, and when first."""
    found: list[Row] = []
    owned = run.tables.rows("ownership")
    for row in rows:
        given = [
            each
            for each in owned
            if (each["group"], each["partition"]) == (row["group"], row["subject"])
            and row["after_us"] - _SOON_US <= each["from_us"] <= row["after_us"]
        ]
        if not given:
            return None
        found += given
    return (
        in_number_order({each["consumer"] for each in found}),
        min(each["from_us"] for each in found),
    )


def _others(rows: Sequence[Row], fault: JournalEntry, run: ReportInput) -> Iterator[Markup]:
    """Tell what partitions waited for that other brokers led."""
    decided = _decided(fault, run)
    if not rows or not decided:
        return
    fenced_us, last_us = min(decided), max(row["after_us"] for row in rows)
    if not all(0 <= row["after_us"] - fenced_us <= _SOON_US for row in rows):
        return
    broker = _brokers(fault)[0]
    number = f"{len(rows)} more {'partition' if len(rows) == 1 else 'partitions'}"
    yield fill_sentence(
        "{} (up to {}) had {} in the ISR, which fetched nothing: their high watermark stood still "
        "until the controller fenced it {}; the last was read again {}.",
        number,
        duration_text(max(row["gap_us"] for row in rows)),
        broker,
        at_moment(fenced_us),
        at_moment(last_us),
    )
