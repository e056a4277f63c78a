"""The journal of a run: one entry for each fault, with its times, its nodes and its outcome.

The whole journal is written to its file after every change, so that even a run that dies leaves a
record of its faults.
"""

from collections.abc import Callable

from results_schema.journal import JournalEntry
from results_schema.manifest import Plan, PlannedFault


class Journal:
    """The entries of one run, in the plan's order; `write` is called after every change."""

    def __init__(self, plan: Plan, write: Callable[[tuple[JournalEntry, ...]], None]) -> None:
        self._write = write
        self._entries = {fault.fault_id: JournalEntry.of(fault) for fault in plan}
        self.changed()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries, in the plan's order."""
        return tuple(self._entries.values())

    def entry(self, fault_id: str) -> JournalEntry:
        """Return the entry of one fault. After changing it, call `changed`."""
        return self._entries[fault_id]

    def add(self, planned: PlannedFault) -> JournalEntry:
        """Add the entry of a fault that is not in the plan: an ordered fault, or a lost machine."""
        entry = self._entries[planned.fault_id] = JournalEntry.of(planned)
        return entry

    def changed(self) -> None:
        """Write all entries."""
        self._write(self.entries)
