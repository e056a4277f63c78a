"""Faults of groups: an administrator orders a change of a group, for example its deletion.

The target is `coordinator-of(<group>)`, and the order goes to this broker. These faults are
momentary: an order is done when its answer comes, and nothing undoes it. The coordinator may also
refuse the order. Then the fault has hit nothing, and the run's journal shows it as a miss with
Kafka's error.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import msgspec

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.faults.base import Aim, FaultKind, FaultTools
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target, split_target
from cluster.client.admin.orders import (
    GroupOrderRefused,
    GroupOrderUnanswered,
    ResetTo,
    delete_group,
    delete_offsets,
    remove_members,
    reset_offsets,
)
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.errors import ErrorCode
from results_schema.journal import BlastRadius
from results_schema.manifest import PlannedFault

GROUP_TARGETS = ("coordinator-of",)
Order = Callable[[Host, ClusterSpec], Awaitable[dict[str, str]]]
"""Sends an order, and returns Kafka's error for each object that the order is about.

An example for a deletion of offsets: {"orders-0": "NONE", "orders-1": "GROUP_SUBSCRIBED_TO_TOPIC"}.
"""


class TopicArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics whose offsets change."""

    topic: str | None = None
    """a topic of the file; default: every topic of the group"""


class DeleteOffsetsArgs(TopicArgs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics whose offsets are deleted."""

    unknown_partitions: bool = False
    """true: the order also names, for each topic, the partition behind the last one. It does not
    exist, and gets UNKNOWN_TOPIC_OR_PARTITION"""


class ResetOffsetsArgs(TopicArgs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics whose offsets change, and their new values."""

    to: ResetTo = "earliest"
    """the new offsets: those of the first records (`earliest`), or those behind the last records
    (`latest`)"""


class GroupOrder(FaultKind):
    """An order to a group's coordinator. The coordinator carries it out or refuses it."""

    targets = GROUP_TARGETS
    momentary = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a topic that the experiment does not define."""
        topic = fault.args.get("topic")
        if isinstance(topic, str) and topic not in experiment.topics:
            yield problem(
                "args.topic",
                f"no topic `{topic}` is defined",
                expected=one_of(experiment.topics),
                found=f"`{topic}`",
                near_miss=near_miss(topic, experiment.topics),
            )

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the broker that is the group's coordinator according to the controller.

        The administrator's client looks up the coordinator again before it sends the order. So the
        order may reach another broker.
        """
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        return Aim(
            nodes=hit.nodes,
            blast_radius=BlastRadius(groups=(_group_of(planned),)),
            detail={**hit.detail, "topics": self._topics(planned, situation.experiment)},
        )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Send the order; return a Miss if it is refused as a whole or gets no answer."""
        topics = aim.detail.get("topics")
        # `aim` has put a list into the detail. The `isinstance` is only for mypy, because the
        # values of `detail` have the type object.
        order = self.order(planned, tuple(topics) if isinstance(topics, list) else ())
        try:
            answers = await tools.runtime.ask_as_admin(order)
        except GroupOrderRefused as error:
            return Miss(reason=f"the coordinator refused: {error}", errors=(error.error,))
        except GroupOrderUnanswered as error:
            reason = f"it may have been carried out all the same: {error}"
            return Miss(reason=reason, errors=(error.error,))
        # `answers` has an error, or NONE, for each member or partition that the order is about. If
        # each of them was refused, the fault has hit nothing. If `answers` is empty, as for the
        # deletion of a group, the order has succeeded, because no exception was raised above.
        refused = {
            subject: code for subject, code in answers.items() if code != ErrorCode.NONE.name
        }
        if answers and len(refused) == len(answers):
            codes = tuple(dict.fromkeys(refused.values()))
            reason = f"the coordinator refused: {_group_of(planned)}: {', '.join(codes)}"
            return Miss(reason=reason, errors=codes)
        return aim.with_detail(refused=refused) if refused else aim

    @abstractmethod
    def order(self, planned: PlannedFault, topics: tuple[str, ...]) -> Order:
        """Return the order. It must be picklable, because a process on Ray may have to send it."""

    def _topics(self, planned: PlannedFault, experiment: Experiment) -> list[str]:
        """Return the topic of the arguments, or every topic of the group."""
        topic = planned.args.get("topic")
        return [topic] if topic is not None else list(experiment.groups[_group_of(planned)].topics)


class RemoveMembers(GroupOrder):
    """Every member is removed from its group."""

    name = "remove_members"
    doc = (
        "Removes every member from a group, as AdminClient's removeMembersFromConsumerGroup does: "
        "a static member by its `group.instance.id`. A removed member that lives gets "
        "UNKNOWN_MEMBER_ID and joins again. Momentary."
    )
    spares_members = False

    def order(self, planned: PlannedFault, topics: tuple[str, ...]) -> Order:
        """Return the LeaveGroup of all members."""
        del topics
        return partial(remove_members, group_id=_group_of(planned))


class DeleteGroup(GroupOrder):
    """A group is deleted."""

    name = "delete_group"
    doc = (
        "Deletes a group with its offsets. While the group has members, the coordinator refuses "
        "with NON_EMPTY_GROUP, and the journal shows the refusal. Momentary."
    )

    def order(self, planned: PlannedFault, topics: tuple[str, ...]) -> Order:
        """Return the DeleteGroups."""
        del topics
        return partial(delete_group, group_id=_group_of(planned))


class DeleteOffsets(GroupOrder):
    """Committed offsets are deleted."""

    name = "delete_offsets"
    doc = (
        "Deletes committed offsets of a group. For topics that a member reads, the coordinator "
        "refuses with GROUP_SUBSCRIBED_TO_TOPIC, and the journal shows the refusal. Momentary."
    )
    args_type = DeleteOffsetsArgs

    def order(self, planned: PlannedFault, topics: tuple[str, ...]) -> Order:
        """Return the OffsetDelete."""
        args = msgspec.convert(planned.args, DeleteOffsetsArgs)
        order = partial(delete_offsets, group_id=_group_of(planned), topics=topics)
        return partial(order, unknown_partitions=True) if args.unknown_partitions else order


class ResetOffsets(GroupOrder):
    """Committed offsets are moved."""

    name = "reset_offsets"
    doc = (
        "Commits the first or the last offset of each partition for a group, as "
        "`kafka-consumer-groups --reset-offsets --execute` does. While the group has members, the "
        "coordinator refuses with UNKNOWN_MEMBER_ID, and the journal shows the refusal. Momentary."
    )
    args_type = ResetOffsetsArgs

    def order(self, planned: PlannedFault, topics: tuple[str, ...]) -> Order:
        """Return the OffsetCommit."""
        args = msgspec.convert(planned.args, ResetOffsetsArgs)
        return partial(reset_offsets, group_id=_group_of(planned), topics=topics, to=args.to)


def _group_of(planned: PlannedFault) -> str:
    """Return the group in the target `coordinator-of(<group>)`."""
    # The target was checked when the file was loaded, so `split_target` does not return None. The
    # tuple after `or` is only for mypy.
    _, group_id = split_target(planned.target) or ("", "")
    return group_id
