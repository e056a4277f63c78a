"""Machines that answer, are silent, or are lost: decided from the moments at which each was heard.

The fleet asks each machine's agent every second and enters the answers; time is an argument, so
that tests need neither machines nor sleep. Units: seconds of any steady clock.
"""

from dataclasses import dataclass
from enum import Enum

BEAT_S = 1.0
"""Interval at which each machine's agent is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimits:
    """Silences after which a machine is taken for silent, and for lost.

    The processes of a silent machine are not waited for; what ran on a lost one starts elsewhere.
    The settings `run.machine_silent_after` and `run.machine_lost_after` of an experiment.
    """

    silent_after_s: float = 3.0
    lost_after_s: float = 20.0


class Contact(Enum):
    """What a machine is taken for."""

    HEARD = "heard"
    SILENT = "silent"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A machine that is taken for something else. `since_s` is when it was last heard before."""

    machine: str
    state: Contact
    since_s: float


class MachineWatch:
    """What each machine is taken for. One that is lost stays so, whatever is heard of it."""

    def __init__(self, limits: SilenceLimits) -> None:
        self._limits = limits
        self._heard_s: dict[str, float] = {}
        self._states: dict[str, Contact] = {}

    def state_of(self, machine: str) -> Contact:
        """Return what a machine is taken for."""
        return self._states.get(machine, Contact.HEARD)

    def hear(self, machine: str, now_s: float) -> MachineChange | None:
        """Take in an answer; return the end of a silence."""
        since_s = self._heard_s.get(machine, now_s)
        state = self.state_of(machine)
        if state is Contact.LOST:
            return None
        self._heard_s[machine] = now_s
        self._states[machine] = Contact.HEARD
        if state is Contact.HEARD:
            return None
        return MachineChange(machine=machine, state=Contact.HEARD, since_s=since_s)

    def excuse_driver(self, now_s: float) -> None:
        """Count a time in which the driver itself stood still as if all had been heard."""
        for machine in self._heard_s:
            if self.state_of(machine) is not Contact.LOST:
                self._heard_s[machine] = now_s

    def look(self, now_s: float) -> list[MachineChange]:
        """Return the machines that are silent, or lost, since the last look."""
        changes = []
        for machine, heard_s in self._heard_s.items():
            silent_s = now_s - heard_s
            state = self.state_of(machine)
            if state is Contact.LOST or silent_s < self._limits.silent_after_s:
                continue
            new = Contact.LOST if silent_s >= self._limits.lost_after_s else Contact.SILENT
            if new is not state:
                self._states[machine] = new
                changes.append(MachineChange(machine=machine, state=new, since_s=heard_s))
        return changes
