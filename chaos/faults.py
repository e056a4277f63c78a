"""Faults: what can be broken, how it is undone, and what its arguments may be.

A new fault is one class and one line in `FAULT_KINDS`; the loader's errors, the runner, the
journal and the generated documentation follow from it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.runtime import Runtime
from protocol.ids import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What a fault hit. `pid` is a process that is gone; None where there is none."""

    node: NodeName
    incarnation: int
    pid: int | None


class NoArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that takes no arguments."""


class FaultKind(ABC):
    """One fault."""

    name: str
    doc: str
    targets: frozenset[str]
    """The roles (`chaos.targets`) that it can be aimed at."""
    args_type: type[msgspec.Struct] = NoArgs
    members_survive: bool
    """Whether every group member goes on, in reach of the brokers, when servers are hit: only
    then is a rebalance needless."""

    @abstractmethod
    async def inject(self, runtime: Runtime, node: NodeName, args: dict[str, Any]) -> Injected:
        """Break `node`; `args` are those of the plan, already checked against `args_type`."""

    @abstractmethod
    async def heal(self, runtime: Runtime, node: NodeName, args: dict[str, Any]) -> None:
        """Undo it."""


class Crash(FaultKind):
    """kill -9."""

    name = "crash"
    doc = (
        "Kills the process as `kill -9` does: its connections end at once, its disk keeps what was "
        "appended. It is started again, on that disk, after `duration`, or when everything is "
        "healed."
    )
    targets = frozenset({"coordinator-of", "broker"})
    members_survive = True

    async def inject(self, runtime: Runtime, node: NodeName, args: dict[str, Any]) -> Injected:
        """Kill the node's process."""
        del args
        killed = await runtime.crash(node)
        return Injected(node=killed.node, incarnation=killed.incarnation, pid=killed.pid)

    async def heal(self, runtime: Runtime, node: NodeName, args: dict[str, Any]) -> None:
        """Start the node again."""
        del args
        await runtime.restart(node)


FAULT_KINDS: dict[str, FaultKind] = {kind.name: kind for kind in (Crash(),)}
