"""LinkTable: the link rules of all faults in force.

A link rule changes the messages that some nodes send to other nodes. For example, it drops all
messages (a cut), or delays them. The runtime has no function to add or to remove a single rule. It
has only a function that takes the list of all rules. So this table remembers which rules belong to
which fault, and sends the whole list to the runtime after each change.
"""

from collections.abc import Sequence

from cluster.links.rules import Cut, LinkEffect, LinkRule, Selector
from cluster.runtime import Runtime
from protocol.ids import NodeName


def rule(
    fault_id: str,
    way: str,
    selector: Selector,
    effect: LinkEffect,
) -> LinkRule:
    """Return a rule of a fault.

    A fault may have a rule for each direction. So the direction `way`, which is "there" or "back",
    is a part of the rule's id, as in `cut-0:there`.
    """
    return LinkRule(rule_id=f"{fault_id}:{way}", selector=selector, effect=effect)


def cut_both_ways(
    fault_id: str, *, nodes: Sequence[NodeName], others: Sequence[NodeName]
) -> list[LinkRule]:
    """Return the rules that cut all links between two sets of nodes."""
    outbound = Selector(sources=tuple(nodes), destinations=tuple(others))
    inbound = Selector(sources=tuple(others), destinations=tuple(nodes))
    return [rule(fault_id, "there", outbound, Cut()), rule(fault_id, "back", inbound, Cut())]


class LinkTable:
    """The link rules of one run. Each change sends the whole list to the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_fault: dict[str, tuple[LinkRule, ...]] = {}
        self._in_doubt = False
        """True if the list last sent was not empty, or if sending it failed."""

    @property
    def in_doubt(self) -> bool:
        """True if any node may still have a rule in force."""
        return self._in_doubt

    async def add(self, fault_id: str, rules: Sequence[LinkRule]) -> None:
        """Add a fault's rules behind the rules of earlier faults. Return when all are in force."""
        self._by_fault[fault_id] = tuple(rules)
        await self._send_rules()

    async def withdraw(self, fault_id: str) -> None:
        """Remove a fault's rules, if it has any."""
        if self._by_fault.pop(fault_id, None) is not None:
            await self._send_rules()

    async def clear(self) -> None:
        """Remove all rules from the nodes, even rules that a failed call may have left there."""
        self._by_fault.clear()
        if self._in_doubt:
            await self._send_rules()

    async def _send_rules(self) -> None:
        self._in_doubt = True  # stays True if the call below fails
        rules = [rule for of_one_fault in self._by_fault.values() for rule in of_one_fault]
        await self._runtime.set_link_rules(rules)
        self._in_doubt = bool(rules)
