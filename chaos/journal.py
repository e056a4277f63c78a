"""The journal: what was injected, when, what it hit, and when it was undone.

It is written after every change, so that a run that dies leaves what it had done to the cluster.
Times are of the run's clock, in microseconds, as in the trace.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from chaos.plan import PlannedFault
from chaos.targets import BlastRadius


class FaultOutcome(StrEnum):
    """What became of a planned fault."""

    PLANNED = "planned"  # its time did not come
    HIT = "hit"
    MISSED = "missed"  # its target was nobody when it fired
    FAILED = "failed"  # the tool could not do it


class JournalEntry(msgspec.Struct, kw_only=True):
    """One fault of the plan and what became of it.

    Units: `planned_at_us` is the planned time on the run's clock, steady state included, and None
    before that was reached. `healed_at_us` None: still in force, or never injected.
    """

    fault_id: str
    fault: str
    target: str
    duration_us: int | None
    planned_at_us: int | None = None
    outcome: FaultOutcome = FaultOutcome.PLANNED
    fired_at_us: int | None = None
    node: str | None = None
    incarnation: int | None = None
    pid: int | None = None
    blast_radius: BlastRadius = BlastRadius()
    resolved: dict[str, object] = {}
    healed_at_us: int | None = None
    healed_by: str | None = None  # "plan", or "end" when everything was healed
    error: str | None = None  # why it missed or failed

    @property
    def in_force(self) -> bool:
        """Whether it was injected and not undone."""
        return self.outcome is FaultOutcome.HIT and self.healed_at_us is None

    @property
    def perhaps_in_force(self) -> bool:
        """Whether an injection was begun and nobody knows how far it came: an error, a Ctrl-C."""
        begun = self.node is not None and self.healed_at_us is None
        return begun and self.outcome in {FaultOutcome.PLANNED, FaultOutcome.FAILED}


class Journal:
    """The entries of one run, in the plan's order; `write` is called after every change."""

    def __init__(
        self, plan: tuple[PlannedFault, ...], write: Callable[[tuple[JournalEntry, ...]], None]
    ) -> None:
        self._write = write
        self._entries = {
            fault.fault_id: JournalEntry(
                fault_id=fault.fault_id,
                fault=fault.fault,
                target=fault.target,
                duration_us=fault.duration_us,
            )
            for fault in plan
        }
        self.changed()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Every entry."""
        return tuple(self._entries.values())

    def entry(self, fault_id: str) -> JournalEntry:
        """Return the entry of one fault, to be changed; then call `changed`."""
        return self._entries[fault_id]

    def changed(self) -> None:
        """Write what stands there now."""
        self._write(self.entries)


def encode_journal(entries: tuple[JournalEntry, ...]) -> bytes:
    """Return the journal file's content."""
    return msgspec.json.format(msgspec.json.encode({"faults": entries}), indent=2) + b"\n"


class _JournalFile(msgspec.Struct, kw_only=True):
    faults: tuple[JournalEntry, ...]


def decode_journal(content: bytes) -> tuple[JournalEntry, ...]:
    """Return the entries of a journal file.

    Raises: msgspec.DecodeError if it is none.
    """
    return msgspec.json.decode(content, type=_JournalFile).faults
