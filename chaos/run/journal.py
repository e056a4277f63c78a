"""The journal of a run: one entry for each fault, with its times, its nodes and its outcome.

The whole journal is written to its file after every change. So even if the process of a run dies,
there is a record of its faults.
"""

from collections.abc import Callable

from results_schema.journal import JournalEntry
from results_schema.manifest import Plan, PlannedFault


class Journal:
    """The entries of one run, in the order of the plan. `write` is called after every change."""

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
        """Add an entry for something that is not in the plan, and return the entry.

        This may be a fault that a user has ordered, or a machine that failed by itself.
        """
        entry = self._entries[planned.fault_id] = JournalEntry.of(planned)
        return entry

    def changed(self) -> None:
        """Write all entries."""
        self._write(self.entries)
