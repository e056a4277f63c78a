"""What an administrator's order about a group has changed, as the rows of coordinators show it.

An order that was carried out must have its effect:

- `reset_offsets` commits an offset for each partition of its topics, without a member.
- `delete_offsets` removes the offsets of at least one topic. For each topic it removes the offsets
  of all partitions or of none.
- `remove_members` removes every member of the group.
- `delete_group` deletes the group, whose state becomes Dead.

The first two orders are about one topic of the group or about all of them, and the order's row does
not say which. Besides, a coordinator may refuse the order for a topic that a member reads, and
carry it out for another topic. So it is only checked that some topic was changed, and that each
topic was changed completely or not at all.

Source: Kafka AdminClient; KIP-496 (OffsetDelete), KIP-571 (removal of members).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.checkers.context import CheckContext, detail_of, topic_of
from protocol.causes import DeletionCause
from protocol.trace import TraceKind, TraceRow

# Names of faults of the plan.
DELETE_GROUP = "delete_group"
DELETE_OFFSETS = "delete_offsets"
REMOVE_MEMBERS = "remove_members"
RESET_OFFSETS = "reset_offsets"
GROUP_ORDERS = frozenset({DELETE_GROUP, DELETE_OFFSETS, REMOVE_MEMBERS, RESET_OFFSETS})
"""Faults that are orders about a group."""

EFFECT_KINDS = frozenset(
    {
        TraceKind.COMMIT_STORED,
        TraceKind.OFFSET_REMOVED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.GROUP_STATE,
        TraceKind.LOAD_STARTED,
    }
)
"""Kinds of rows that GroupEffects must see."""


@dataclass(slots=True)
class _Effects:
    """An order about a group, and what has changed in the group since then."""

    group: str
    fault: str  # one of GROUP_ORDERS
    # Partitions for which the coordinator had an offset when the order was given
    stored_before: tuple[str, ...]
    members_before: tuple[str, ...] | None  # members at that time; None: not known
    # Partitions for which an administrator has committed an offset since
    committed: dict[str, None] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)  # partition -> cause of the removal
    removed_members: dict[str, None] = field(default_factory=dict)
    is_deleted: bool = False


class GroupEffects:
    """Follows the stored offsets of each group, and the effects of the last order."""

    def __init__(self, context: CheckContext) -> None:
        self._groups = context.groups
        # broker -> group -> partitions of which the broker has stored an offset since its last load
        self._stored: dict[str, dict[str, dict[str, None]]] = {}
        self._order: _Effects | None = None

    def begin(
        self, group: str, fault: str, coordinator: str | None, members: Iterable[str] | None
    ) -> None:
        """Follow the effects of an order about `group` from now on, and forget earlier orders."""
        stored = self._stored.get(coordinator or "", {}).get(group, ())
        self._order = _Effects(
            group=group,
            fault=fault,
            stored_before=tuple(stored),
            members_before=None if members is None else tuple(members),
        )

    def observe(self, row: TraceRow) -> None:
        """Take a row of EFFECT_KINDS."""
        group = row.group or ""
        order = self._order if self._order is not None and self._order.group == group else None
        match row.kind:
            case TraceKind.COMMIT_STORED:
                by_group = self._stored.setdefault(row.node, {})
                by_group.setdefault(group, {})[row.partition or ""] = None
                # An administrator commits without a member. Such a commit has generation -1.
                if order is not None and (row.generation is None or row.generation < 0):
                    order.committed[row.partition or ""] = None
            case TraceKind.OFFSET_REMOVED:
                self._stored.get(row.node, {}).get(group, {}).pop(row.partition or "", None)
                if order is not None:
                    order.removed[row.partition or ""] = row.cause or ""
            case TraceKind.MEMBER_REMOVED if order is not None:
                order.removed_members[row.member or ""] = None
            case TraceKind.GROUP_STATE if detail_of(row).get("to") == "Dead":
                self._stored.get(row.node, {}).pop(group, None)
                if order is not None and row.cause == DeletionCause.DELETED:
                    order.is_deleted = True
            case TraceKind.LOAD_STARTED:
                # The broker forgets what it had stored before. What it has now is not known.
                by_group = self._stored.get(row.node, {})
                for name, known in self._groups.items():
                    if known.offsets_partition == row.partition:
                        by_group.pop(name, None)
            case _:
                pass

    def find_missing(self, *, is_undisturbed: bool) -> str | None:
        """Return a sentence about a missing effect of the order; None if no effect is missing.

        The caller makes sure that the order was carried out.

        `is_undisturbed`: True if nothing was broken, and the coordinator did not change. Otherwise
        less is expected, because a replaced coordinator may have carried out the order, or the
        order may have been refused for some partitions.
        """
        order = self._order
        known = None if order is None else self._groups.get(order.group)
        if order is None or known is None:
            return None
        if order.fault == RESET_OFFSETS:
            return _missing_commits(order, known.partitions, all_of_topic=is_undisturbed)
        if order.fault == DELETE_GROUP:
            return None if order.is_deleted else "the group was not deleted"
        if not is_undisturbed:
            return None
        if order.fault == DELETE_OFFSETS:
            return _missing_removals(order, known.partitions)
        # The order is `remove_members`.
        kept = [name for name in order.members_before or () if name not in order.removed_members]
        return f"{kept[0]} was not removed" if kept else None


def _missing_commits(
    order: _Effects, partitions: tuple[str, ...], *, all_of_topic: bool
) -> str | None:
    """Return what is missing of `reset_offsets`, as a sentence.

    `all_of_topic`: True if a topic with a commit must have commits for all of its partitions.
    """
    if not order.committed:
        return "no offset was committed"
    if not all_of_topic:
        return None
    for of_topic in _by_topic(partitions).values():
        missing = [partition for partition in of_topic if partition not in order.committed]
        # If no partition of a topic has a commit, the order may not have been about this topic.
        if missing and len(missing) < len(of_topic):
            return f"no offset of {missing[0]} was committed"
    return None


def _missing_removals(order: _Effects, partitions: tuple[str, ...]) -> str | None:
    """Return what is missing of `delete_offsets`, as a sentence."""
    # `deleted` has the partitions whose offsets an order removed. An offset that was removed for
    # another reason, such as its expiry, is not in `still_stored` either.
    deleted = {name for name, cause in order.removed.items() if cause == DeletionCause.DELETED}
    topics = _by_topic(partitions)
    still_stored = {name for name in order.stored_before if name not in order.removed}
    kept = {
        topic: [name for name in of_topic if name in still_stored]
        for topic, of_topic in topics.items()
    }
    if all(kept.values()):
        return "the stored offsets of each topic were kept"
    # If nothing of a topic was deleted, the order may have been refused for this topic.
    for topic, of_topic in topics.items():
        if kept[topic] and not deleted.isdisjoint(of_topic):
            return f"the stored offset of {kept[topic][0]} was kept"
    return None


def _by_topic(partitions: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the partitions of each topic."""
    topics: dict[str, list[str]] = {}
    for partition in partitions:
        topics.setdefault(topic_of(partition), []).append(partition)
    return topics
