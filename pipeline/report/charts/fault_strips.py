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
_WITH_STRIP = frozenset(
    {
        *("detect", "publish", "load wait", "load"),
        *("notice", "rediscover", "accept", "join", "sync"),
        *("commit gap", "processing gap", "no coordinator"),
    }
)
"""The measures that have a strip, a line for each chain. Other measures are only in the tables of
figures.
"""
_BEGIN_COLUMNS = {"rediscover": "unknown_us", "accept": "named_us"}
"""For some phases of a member, the column with the time at which the phase began.

The column tells why a member has no length for the phase. If the column is null, the phase never
began: the member did not have to rediscover its coordinator, for example. Otherwise the phase began
and did not end in this run.
"""
_SUBJECTS = {"broker": ("partition", "partition"), "client": ("consumer", "member")}
"""For the broker and the client chain: the column with the name of a subject, and the word for a
subject.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRows:
    """What the tables have about one fault.

    - `broker`: rows of `broker_phases`, one for each offsets partition that moved.
    - `client`: rows of `client_phases`, one for each member that the fault concerned.
    - `gap`: rows of `availability`, one for each member, data partition or group.
    """

    fault: FaultSummary
    broker: Sequence[Row]
    client: Sequence[Row]
    gap: Sequence[Row]

    def rows_with(self, measure: Measure) -> Sequence[Row]:
        """Return the rows with the values of a measure."""
        if measure.chain == "gap":
            return [row for row in self.gap if row["subject_kind"] == measure.subject_kind]
        return self.broker if measure.chain == "broker" else self.client

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

    If a coordinator moved, these are join and sync. The reader expects that members had to join
    again, so an empty strip tells that none had to.
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
    # The phases of `_shown_without_values` can have no distribution. The mark behind the name means
    # that a machine was away by accident in the time of the values.
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
    """Return a note on the subjects without a value; "" if all have one.

    Each chain has notes of its own:

    - `client`: `3 did not have to, 1 did not get there`. The first three members did not need the
      phase; the phase of the last one began and did not end.
    - `gap`: `2 never again`. The service of these subjects did not come back.
    - `broker`: `1 not in this run`.

    If no subject at all has a value, the note names the subjects: `2 members never again`.
    """
    without = [row for row in rows if row[measure.column] is None]
    if not without:
        return ""

    all_lack_it = len(without) == len(rows)
    if measure.chain == "client":
        begins = _BEGIN_COLUMNS.get(measure.name)
        unended = [row for row in without if begins is not None and row[begins] is not None]
        needless = len(without) - len(unended)
        notes = []
        if needless == len(rows):
            notes.append(f"no {subject} had to")
        elif needless:
            notes.append(f"{needless:,} did not have to")
        if unended:
            notes.append(f"{len(unended):,} did not get there")
        return ", ".join(notes)

    number = counted(len(without), subject) if all_lack_it else f"{len(without):,}"
    return f"{number} never again" if measure.chain == "gap" else f"{number} not in this run"
