"""The strips of one fault. A strip shows one measure, with a dot for each subject.

A subject is a partition, a member or a group. The dots come from the tables `broker_phases`,
`client_phases` and `availability`. The figures beside the dots come from the run's summary, as the
figures on the terminal do, so both show the same numbers. Each measure belongs to a chain:

- `broker`: phases of an offsets partition (a partition of `__consumer_offsets`), from the fault to
  the partition's new active coordinator;
- `client`: phases of a member, until the new coordinator accepted it;
- `gap`: times without service of a member, data partition or group.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.report.charts.strips import Strip
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import MEASURES, Chain, Distribution, FaultSummary, Measure
from pipeline.summary.story import counted

CHAINS: tuple[Chain, ...] = ("broker", "client", "gap")
_PHASES = frozenset(
    {"detect", "publish", "load wait", "load", "notice", "rediscover", "accept", "join", "sync"}
    | {"commit gap", "processing gap", "no coordinator"}
)
"""Measures that have a strip. Other measures are only in the tables of figures."""
_BEGINS = {"rediscover": "unknown_us", "accept": "named_us"}
"""Columns with the beginning of a phase. If a member has no value for the phase, this column tells
why: if it is empty, the member did not need the phase; if it is filled, the phase began and did not
end.
"""
_SUBJECTS = {"broker": ("partition", "partition"), "client": ("consumer", "member")}
"""For the broker and the client chain: the column with the name of a subject, and the word for a
subject.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRows:
    """The rows of three tables that are about one fault."""

    fault: FaultSummary
    broker: Sequence[Row]
    client: Sequence[Row]
    gap: Sequence[Row]

    def of(self, measure: Measure) -> Sequence[Row]:
        """Return the rows with the values of a measure."""
        if measure.chain == "gap":
            return [row for row in self.gap if row["subject_kind"] == measure.subject_kind]
        return self.broker if measure.chain == "broker" else self.client

    def strips(self, chain: Chain) -> list[Strip]:
        """Return the strips of a chain, in the order of its phases."""
        shown_empty = _shown_without_values(self.fault, chain)
        return [
            _strip(measure, self.of(measure), self.fault.distribution(measure.name))
            for measure in MEASURES
            if measure.chain == chain
            and measure.name in _PHASES
            and (self.fault.is_about(measure) or measure.name in shown_empty)
        ]


def _shown_without_values(fault: FaultSummary, chain: Chain) -> frozenset[str]:
    """Return the phases that have a strip even if no subject has a value.

    These are join and sync, if a coordinator moved: that no member had to join again is a result.
    """
    shown = chain == "client" and bool(fault.partitions_moved) and bool(fault.members)
    return frozenset({"join", "sync"}) if shown else frozenset()


def rows_of_faults(run: ReportInput) -> Iterator[FaultRows]:
    """Yield the rows of each fault, in time order."""
    tables = {
        name: _by_fault(run.tables.rows(name))
        for name in ("broker_phases", "client_phases", "availability")
    }
    for fault in run.summary.faults:
        yield FaultRows(
            fault=fault,
            broker=tables["broker_phases"].get(fault.fault, ()),
            client=tables["client_phases"].get(fault.fault, ()),
            gap=tables["availability"].get(fault.fault, ()),
        )


def _by_fault(rows: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """Return the rows about each fault."""
    by_fault: dict[str, list[Row]] = {}
    for row in rows:
        by_fault.setdefault(row["fault"], []).append(row)
    return by_fault


_NOTHING = Distribution(samples=0, missing=0, percentiles={}, maximum=None)
"""The distribution of a measure without values."""


def _strip(measure: Measure, rows: Sequence[Row], figures: Distribution | None) -> Strip:
    """Return the strip of a measure, from the rows about its subjects and its distribution."""
    if measure.chain == "gap":
        column, subject = "subject", measure.subject_kind or "subject"
    else:
        column, subject = _SUBJECTS[measure.chain]
    # The phases of `_shown_without_values` can have no distribution. The mark behind the name means
    # that a machine was away by accident in the time of the values.
    distribution = figures or _NOTHING
    return Strip(
        name=f"{measure.name}{distribution.mark}",
        values=tuple(
            (str(row[column]), row[measure.column])
            for row in rows
            if row[measure.column] is not None
        ),
        figures=distribution,
        subject=subject,
        note=_note(measure, rows, subject),
    )


def _note(measure: Measure, rows: Sequence[Row], subject: str) -> str:
    """Return a note on the subjects without a value; "" if all have one.

    In the client chain, the note distinguishes members that did not need the phase from members
    whose phase did not end. For a gap, it says that the service did not come back.
    """
    without = [row for row in rows if row[measure.column] is None]
    if not without:
        return ""

    all_lack_it = len(without) == len(rows)
    if measure.chain == "client":
        begins = _BEGINS.get(measure.name)
        unended = [row for row in without if begins is not None and row[begins] is not None]
        needless = len(without) - len(unended)
        notes = []
        if needless:
            notes.append(
                f"no {subject} had to"
                if all_lack_it and not unended
                else f"{needless:,} did not have to"
            )
        if unended:
            notes.append(f"{len(unended):,} did not get there")
        return ", ".join(notes)

    number = counted(len(without), subject) if all_lack_it else f"{len(without):,}"
    return f"{number} never again" if measure.chain == "gap" else f"{number} not in this run"
