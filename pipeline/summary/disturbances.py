"""Disturbances: times in which a machine was away by accident, from a run's journal.

A run can use several machines (a Ray cluster). The driver, which is the process that conducts the
run, injects the planned faults. But a machine can also be lost, or not answer for a while, although
no planned fault was the cause. Such an event is an accident. The driver notices accidents, and
writes them into the run's journal beside the planned faults.

A figure that was measured while a machine was away says nothing about Kafka, so `summary` marks the
figure as disturbed. This module imports no Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from results_schema.journal import decode_journal

JOURNAL_FILE = "journal.json"
"""Name of the journal's file in the run's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A time in which a machine did not answer the driver, by accident.

    - `from_us`, `until_us`: microseconds on the run's clock. `until_us` is None if the machine did
      not come back.
    - `sentence`: what happened, such as `machine 10.0.0.7 was away`. Below the disturbed figures,
      it is shown as a footnote.
    """

    from_us: int
    until_us: int | None
    sentence: str

    def overlaps(self, from_us: int, until_us: int | None) -> bool:
        """Return whether the machine was away in some part of a time, which may have no end."""
        went_away_before_end = until_us is None or self.from_us <= until_us
        came_back_after_start = self.until_us is None or self.until_us >= from_us
        return went_away_before_end and came_back_after_start


def is_disturbed(
    disturbances: Sequence[Disturbance], from_us: int | None, until_us: int | None
) -> bool:
    """Return whether a machine was away in some part of a time.

    `until_us` is None for a time without an end. If `from_us` is None, the time is not known, and
    the function returns False.
    """
    if from_us is None:
        return False
    return any(disturbance.overlaps(from_us, until_us) for disturbance in disturbances)


def disturbances_of(directory: Path) -> tuple[Disturbance, ...]:
    """Return the disturbances of the run in `directory`, in time order.

    Returns () if the journal cannot be read. The report then says that the journal is missing.
    """
    try:
        entries = decode_journal((directory / JOURNAL_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return ()
    disturbances = [
        Disturbance(
            from_us=entry.injected_at_us,
            # If an accident did not end, its entry in the journal says that it was momentary.
            until_us=None if entry.momentary else entry.healed_at_us,
            sentence=entry.note or f"machine {entry.target} was away",
        )
        for entry in entries
        if entry.is_by_accident and entry.injected_at_us is not None
    ]
    return tuple(sorted(disturbances, key=lambda disturbance: disturbance.from_us))
