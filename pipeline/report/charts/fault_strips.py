"""The strips of one fault: rows of a chart, each of which shows one measure.

A strip has a dot for each subject of its measure, which is a member, a partition or a group. The
strips form three groups, which are called chains:

- `broker`: the phases of each partition of `__consumer_offsets`, from the fault until the partition
  has a new active coordinator;
- `client`: the phases of each member, from the fault until the new coordinator accepted the member;
- `gap`: the times without service of each member, data partition and group.

The dots come from the tables of the run. The figures beside the dots come from the run's summary,
so they are the same as on the terminal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.report.charts.strips import Strip
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import MEASURES, Chain, Distribution, FaultSummary, Measure
from pipeline.summary.story import counted

CHAINS: tuple[Chain, ...] = ("broker", "client", "gap")
_WITH_STRIP = frozenset(
    {
        *("detect", "publish", "load wait", "load"),
        *("notice", "rediscover", "accept", "join", "sync"),
        *("commit gap", "processing gap", "no coordinator"),
    }
)
"""The measures that have a strip. The first line has the measures of the broker chain, the second
line the measures of the client chain, and the third line the gaps. All other measures are only in
the tables of figures.
"""
_BEGIN_COLUMNS = {"rediscover": "unknown_us", "accept": "named_us"}
"""For two phases of a member, the column with the time at which the phase began.

If a member has no length for the phase, this column tells why. If the column is null, the phase
never began: the member did not have to look for its coordinator, for example. If the column has a
value, the phase began, but did not end before the end of the run.
"""
_SUBJECTS = {"broker": ("partition", "partition"), "client": ("consumer", "member")}
"""For the chains `broker` and `client`: the column with the name of a subject, and the word for a
subject.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRows:
    """The rows of three tables about one fault."""

    fault: FaultSummary
    broker: Sequence[Row]
    """Rows of `broker_phases`: one for each offsets partition that moved."""
    client: Sequence[Row]
    """Rows of `client_phases`: one for each member that the fault concerned."""
    gap: Sequence[Row]
    """Rows of `availability`: one for each member, data partition and group."""

    def rows_with(self, measure: Measure) -> Sequence[Row]:
        """Return the rows with the values of a measure."""
        if measure.chain == "broker":
            return self.broker
        if measure.chain == "client":
            return self.client
        return [row for row in self.gap if row["subject_kind"] == measure.subject_kind]

    def strips(self, chain: Chain) -> list[Strip]:
        """Return the strips of a chain, in the order of its phases."""
        shown_empty = _shown_without_values(self.fault, chain)
        return [
            _strip(measure, self.rows_with(measure), self.fault.distribution(measure.name))
            for measure in MEASURES
            if measure.chain == chain
            and measure.name in _WITH_STRIP
            and (self.fault.is_about(measure) or measure.name in shown_empty)
        ]


def _shown_without_values(fault: FaultSummary, chain: Chain) -> frozenset[str]:
    """Return the phases that have a strip even if no subject has a value.

    If a coordinator moved, the reader expects that members had to join again. So the phases `join`
    and `sync` have strips, which are empty if no member had to join.
    """
    coordinator_moved = bool(fault.partitions_moved) and bool(fault.members)
    if chain == "client" and coordinator_moved:
        return frozenset({"join", "sync"})
    return frozenset()


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


_NO_VALUES = Distribution(samples=0, missing=0, percentiles={}, maximum=None)
"""The distribution of a measure without values."""


def _strip(measure: Measure, rows: Sequence[Row], figures: Distribution | None) -> Strip:
    """Return the strip of a measure, from the rows about its subjects and its distribution."""
    if measure.chain == "gap":
        column, subject = "subject", measure.subject_kind or "subject"
    else:
        column, subject = _SUBJECTS[measure.chain]
    # Only a phase that is shown without values has no distribution.
    distribution = figures or _NO_VALUES
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
    """Return a note on the subjects without a value; "" if all subjects have a value.

    - The note about gaps is `2 never again`, if two subjects had no service until the run ended.
    - The note about a phase of partitions is `1 not in this run`.
    - The note about a phase of members is, for example, `3 did not have to, 1 did not get there`.
      It means that three members did not need the phase, and that one member began the phase and
      did not end it.

    If no subject at all has a value, the note names the subjects: `2 members never again`.
    """
    without = [row for row in rows if row[measure.column] is None]
    if not without:
        return ""
    if measure.chain == "client":
        return _note_on_members(measure, without, all_members=len(rows))
    none_has_a_value = len(without) == len(rows)
    number = counted(len(without), subject) if none_has_a_value else f"{len(without):,}"
    return f"{number} never again" if measure.chain == "gap" else f"{number} not in this run"


def _note_on_members(measure: Measure, without: Sequence[Row], *, all_members: int) -> str:
    """Return the note on the members without a value, whose rows are `without`."""
    begin_column = _BEGIN_COLUMNS.get(measure.name)
    unended = 0
    if begin_column is not None:
        unended = sum(row[begin_column] is not None for row in without)
    not_needed = len(without) - unended
    notes = []
    if not_needed == all_members:
        notes.append("no member had to")
    elif not_needed:
        notes.append(f"{not_needed:,} did not have to")
    if unended:
        notes.append(f"{unended:,} did not get there")
    return ", ".join(notes)
