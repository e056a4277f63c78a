"""Faults of topics: an administrator creates or deletes a topic.

These faults are momentary: when the controller's answer comes, the topic is created or deleted, and
nothing undoes this. The brokers add or remove their replicas a little later, when they read of the
change in the metadata. If the controller refuses, the fault has hit nothing, and the run's journal
shows it as a miss with Kafka's error.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import (
    KAFKAS_TOPICS,
    MAX_PARTITIONS,
    Experiment,
    FaultDefinition,
)
from chaos.faults.base import CONTROLLER_TARGETS, Aim, FaultKind, FaultTools
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target
from cluster.client.admin.orders import (
    TopicCreationFailed,
    TopicDeletionFailed,
    create_topic,
    delete_topics,
)
from protocol.messages.admin import BROKER_DEFAULT
from protocol.topic_names import collides, topic_name_problem
from results_schema.journal import BlastRadius
from results_schema.manifest import PlannedFault

MAX_REPLICAS = 32_767
"""Largest replication factor in a request CreateTopics, where it is a signed 16-bit number."""


class CreateTopicArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topic, and its size."""

    topic: str
    """a new topic, or a topic of the file that no group reads and no producer writes"""
    partitions: Annotated[int, Meta(ge=BROKER_DEFAULT, le=MAX_PARTITIONS)] = BROKER_DEFAULT
    """number of partitions; default: num.partitions. The controller refuses 0"""
    replication_factor: Annotated[int, Meta(ge=BROKER_DEFAULT, le=MAX_REPLICAS)] = BROKER_DEFAULT
    """replicas of each partition; default: default.replication.factor. The controller refuses 0,
    and more replicas than there are brokers"""


class CreateTopic(FaultKind):
    """A topic is created."""

    name = "create_topic"
    doc = (
        "Creates a topic that no group or producer of the file uses. The controller refuses it if "
        "the topic exists; a topic that was deleted may be created again. Momentary."
    )
    targets = CONTROLLER_TARGETS
    args_type = CreateTopicArgs
    momentary = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a name that no new topic may have, and a topic that a client of the file uses."""
        topic = str(fault.args.get("topic"))
        why = topic_name_problem(topic)
        if why is not None:
            yield problem("args.topic", why, found=f"`{topic}`")
        for other in experiment.topics:
            if other != topic and collides(topic, other):
                yield problem("args.topic", f"the name collides with `{other}`", found=f"`{topic}`")
        if topic in KAFKAS_TOPICS:
            yield problem(
                "args.topic", f"`{topic}` is a topic of Kafka's own", expected="another topic"
            )
        for group_id, group in experiment.groups.items():
            if group.topic_filter == "black_list" and topic not in experiment.topics:
                yield problem(
                    "args.topic",
                    f"the group {group_id} would read it, because its filter excludes only topics "
                    "of the file",
                    found=f"`{topic}`",
                )
        yield from _clients(topic, experiment)

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the controller, and the partitions that the topic is to have."""
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        args = msgspec.convert(planned.args, CreateTopicArgs)
        config = situation.experiment.cluster.config
        # In a request, BROKER_DEFAULT stands for the number in the brokers' settings.
        count = config.num_partitions if args.partitions == BROKER_DEFAULT else args.partitions
        replication_factor = (
            config.default_replication_factor
            if args.replication_factor == BROKER_DEFAULT
            else args.replication_factor
        )
        return Aim(
            nodes=hit.nodes,
            blast_radius=BlastRadius(
                partitions=tuple(f"{args.topic}-{index}" for index in range(count))
            ),
            detail={
                **hit.detail,
                "topic": args.topic,
                "replication_factor": replication_factor,
            },
        )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Create the topic; return a Miss if the controller refuses or does not answer."""
        args = msgspec.convert(planned.args, CreateTopicArgs)
        order = partial(
            create_topic,
            name=args.topic,
            partitions=args.partitions,
            replication_factor=args.replication_factor,
        )
        try:
            await tools.runtime.ask_as_admin(order)
        except TopicCreationFailed as error:
            return Miss(reason=f"the controller refused: {error}", errors=(error.error,))
        except TimeoutError as error:
            return Miss(reason=f"it may have been carried out all the same: {error}")
        return aim


class DeleteTopicArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topic."""

    topic: str
    """a topic of the file, or of a fault `create_topic` of the file, that no group reads and no
    producer writes"""


class DeleteTopic(FaultKind):
    """A topic is deleted with all its data."""

    name = "delete_topic"
    doc = (
        "Deletes a topic with all its partitions. The loader refuses it for a topic that a group "
        "or a producer of the file uses: its clients would wait for it in vain. Momentary."
    )
    targets = CONTROLLER_TARGETS
    args_type = DeleteTopicArgs
    momentary = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a topic that the file never has, or that a client of the file uses."""
        topic = str(fault.args.get("topic"))
        known = tuple(dict.fromkeys((*experiment.topics, *_created_topics(experiment))))
        if topic not in known:
            yield problem(
                "args.topic",
                f"no topic `{topic}` is defined",
                expected=one_of(known),
                found=f"`{topic}`",
                near_miss=near_miss(topic, known),
            )
        yield from _clients(topic, experiment)

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the controller, and the partitions of the topic."""
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        args = msgspec.convert(planned.args, DeleteTopicArgs)
        topic = situation.experiment.topics.get(args.topic)
        # If the file does not define the topic, a fault `create_topic` has created it. Then the
        # cluster's status shows how many partitions it has.
        count = (
            sum(name.topic == args.topic for name in situation.status.partitions)
            if topic is None
            else topic.partitions
        )
        partitions = tuple(f"{args.topic}-{index}" for index in range(count))
        return Aim(
            nodes=hit.nodes,
            blast_radius=BlastRadius(partitions=partitions),
            detail={**hit.detail, "topics": [args.topic]},
        )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Delete the topic; return a Miss if the controller refuses or does not answer."""
        args = msgspec.convert(planned.args, DeleteTopicArgs)
        # The topic is noted before the order is sent, because an order that gets no answer may have
        # been carried out all the same.
        tools.deleted_topics[args.topic] = None
        try:
            await tools.runtime.ask_as_admin(delete_topics, (args.topic,))
        except TopicDeletionFailed as error:
            return Miss(reason=f"the controller refused: {error}", errors=(error.error,))
        except TimeoutError as error:
            return Miss(reason=f"it may have been carried out all the same: {error}")
        return aim


def _created_topics(experiment: Experiment) -> list[str]:
    """Return the topics that any fault of the experiment creates, at any time of the run."""
    return [
        str(fault.args.get("topic"))
        for fault in experiment.faults
        if fault.fault == CreateTopic.name
    ]


def _clients(topic: str, experiment: Experiment) -> Iterator[Problem]:
    """Report the groups and producers of the file that use the topic."""
    for group_id, group in experiment.groups.items():
        if topic in group.topics:
            yield _used(topic, f"the group {group_id} reads it")
    for index, producer in enumerate(experiment.producers):
        if topic == producer.topic:
            yield _used(topic, f"producers[{index}] writes it")


def _used(topic: str, why: str) -> Problem:
    """Return the problem of a topic that a client uses. `why` names the client."""
    return problem(
        "args.topic",
        f"{why}, and would wait for it in vain",
        expected="a topic that no group and no producer uses",
        found=f"`{topic}`",
    )
