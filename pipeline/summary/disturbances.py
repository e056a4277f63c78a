"""Disturbances: times in which a machine was away by accident, from a run's journal.

A run can use several machines (a Ray cluster). In a disturbance, a machine was lost or did not
answer for a while, and no planned fault was the cause. A figure that a disturbance can have changed
says nothing about Kafka. So `summary` puts `figures.MARK` behind each figure whose time overlaps a
disturbance. The driver is the process that conducts the run; its journal lists planned faults and
accidents. This module imports no Spark.
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

    `from_us` and `until_us` are microseconds on the run's clock. `until_us` is None if the machine
    did not come back.
    """

    from_us: int
    until_us: int | None
    sentence: str

    def overlaps(self, from_us: int, until_us: int | None) -> bool:
        """Return whether a time overlaps the disturbance. `until_us` is None if it has no end."""
        begins_before_its_end = until_us is None or self.from_us <= until_us
        ends_after_its_start = self.until_us is None or self.until_us >= from_us
        return begins_before_its_end and ends_after_its_start


def is_disturbed(
    disturbances: Sequence[Disturbance], from_us: int | None, until_us: int | None
) -> bool:
    """Return whether a machine was away in a time; False if the time is not known (None)."""
    return from_us is not None and any(
        disturbance.overlaps(from_us, until_us) for disturbance in disturbances
    )


def disturbances_of(directory: Path) -> tuple[Disturbance, ...]:
    """Return the disturbances of the run in `directory`, in time order.

    Returns an empty tuple if the journal cannot be read. The report has a remark about a missing
    journal.
    """
    try:
        entries = decode_journal((directory / JOURNAL_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return ()
    disturbances = [
        Disturbance(
            from_us=entry.injected_at_us,
            # If an accident did not end, the run writes it into the journal as a momentary fault.
            until_us=None if entry.momentary else entry.healed_at_us,
            sentence=entry.note or f"machine {entry.target} was away",
        )
        for entry in entries
        if entry.is_by_accident and entry.injected_at_us is not None
    ]
    return tuple(sorted(disturbances, key=lambda disturbance: disturbance.from_us))
