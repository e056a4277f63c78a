"""MachineWatch: decides whether machines are silent or lost, from the times of their answers.

On each machine runs a process that is called the machine's agent. The fleet sends each agent a
query every second, and reports the answers to MachineWatch. The methods get the present time as an
argument (`now_s`), in seconds of a monotonic clock. So tests need neither machines nor waiting.
"""

from dataclasses import dataclass
from enum import Enum

BEAT_S = 1.0
"""Interval of the queries to each machine's agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimits:
    """Seconds without an answer after which a machine counts as silent, and as lost.

    Calls to a silent machine are not awaited. The nodes of a lost machine are started on other
    machines. An experiment sets these times by `run.machine_silent_after` and
    `run.machine_lost_after`.
    """

    silent_after_s: float = 3.0
    lost_after_s: float = 20.0


class Contact(Enum):
    """State of the contact with a machine: it answers, is silent, or was given up."""

    HEARD = "heard"
    SILENT = "silent"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A change of a machine's state.

    `since_s` is the time of the machine's last answer before the change.
    """

    machine: str
    state: Contact
    since_s: float


class MachineWatch:
    """The state of each machine. A lost machine stays lost, even if it answers again."""

    def __init__(self, limits: SilenceLimits) -> None:
        self._limits = limits
        self._heard_s: dict[str, float] = {}
        """Time of each machine's last answer. A machine that never answered is missing."""
        self._states: dict[str, Contact] = {}
        """State of each machine. A machine that never answered is missing."""

    def state_of(self, machine: str) -> Contact:
        """Return the state of a machine; a machine without an answer so far counts as HEARD."""
        return self._states.get(machine, Contact.HEARD)

    def record_answer(self, machine: str, now_s: float) -> MachineChange | None:
        """Record an answer; return the change of state if the machine was silent before."""
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
        """Treat all machines as if they had just answered.

        The fleet calls this if the driver, the process that sends the queries, has not run for some
        time. Then the driver may have sent no query, or not seen the answers.
        """
        for machine in self._heard_s:
            if self.state_of(machine) is not Contact.LOST:
                self._heard_s[machine] = now_s

    def find_changes(self, now_s: float) -> list[MachineChange]:
        """Return the machines that have become silent or lost since the last call.

        A machine that never answered is not among them.
        """
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
