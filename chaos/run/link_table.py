"""The link rules in force: every fault's own, in the order in which they were injected.

The runtime knows only the whole list; this is where one fault's rules are made, added and taken
out.
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
    """Return a rule of a fault; `way` tells the fault's rules apart."""
    return LinkRule(rule_id=f"{fault_id}:{way}", selector=selector, effect=effect)


def cut_both_ways(
    fault_id: str, *, nodes: Sequence[NodeName], others: Sequence[NodeName]
) -> list[LinkRule]:
    """Return the rules that let nothing pass between two sets of nodes."""
    there = Selector(sources=tuple(nodes), destinations=tuple(others))
    back = Selector(sources=tuple(others), destinations=tuple(nodes))
    return [rule(fault_id, "there", there, Cut()), rule(fault_id, "back", back, Cut())]


class LinkTable:
    """The rules of one run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_fault: dict[str, tuple[LinkRule, ...]] = {}
        self._in_doubt = False
        """The runtime was told of rules, and not yet that there are none."""

    @property
    def in_doubt(self) -> bool:
        """Whether any node may still have a rule in force."""
        return self._in_doubt

    async def add(self, fault_id: str, rules: Sequence[LinkRule]) -> None:
        """Put a fault's rules behind those in force; returns when they are in force."""
        self._by_fault[fault_id] = tuple(rules)
        await self._tell()

    async def withdraw(self, fault_id: str) -> None:
        """Take a fault's rules out; nothing happens if it has none."""
        if self._by_fault.pop(fault_id, None) is not None:
            await self._tell()

    async def clear(self) -> None:
        """Take all rules out, whatever is known of them."""
        self._by_fault.clear()
        if self._in_doubt:
            await self._tell()

    async def _tell(self) -> None:
        self._in_doubt = True  # until the runtime has answered that there are none
        rules = [rule for rules in self._by_fault.values() for rule in rules]
        await self._runtime.set_link_rules(rules)
        self._in_doubt = bool(rules)
