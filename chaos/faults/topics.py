"""Faults of topics: an administrator deletes a topic.

The fault is momentary: when the controller's answer comes, the topic is deleted, and nothing undoes
this. Each broker removes its replicas when it reads of the deletion in the metadata. An Aim has the
nodes that a fault will hit. A Miss has the reason why a fault hit nothing.
"""

from collections.abc import Iterator

import msgspec

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.faults.base import CONTROLLER_TARGETS, Aim, FaultKind, FaultTools
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target
from cluster.client.admin.orders import TopicDeletionFailed, delete_topics
from results_schema.journal import BlastRadius
from results_schema.manifest import PlannedFault


class DeleteTopicArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topic."""

    topic: str
    """a topic of the file that no group reads and no producer writes"""


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
        """Report a topic that the file lacks, or that a client of the file uses."""
        topic = str(fault.args.get("topic"))
        if topic not in experiment.topics:
            yield problem(
                "args.topic",
                f"no topic `{topic}` is defined",
                expected=one_of(experiment.topics),
                found=f"`{topic}`",
                near_miss=near_miss(topic, experiment.topics),
            )
        for group_id, group in experiment.groups.items():
            if topic in group.topics:
                yield _used(topic, f"the group {group_id} reads it")
        for index, producer in enumerate(experiment.producers):
            if topic == producer.topic:
                yield _used(topic, f"producers[{index}] writes it")

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the controller, and the partitions of the topic."""
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        args = msgspec.convert(planned.args, DeleteTopicArgs)
        topic = situation.experiment.topics[args.topic]
        partitions = tuple(f"{args.topic}-{index}" for index in range(topic.partitions))
        return Aim(
            nodes=hit.nodes,
            blast_radius=BlastRadius(partitions=partitions),
            detail={**hit.detail, "topics": [args.topic]},
        )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Delete the topic; return a Miss if the controller refuses or does not answer."""
        args = msgspec.convert(planned.args, DeleteTopicArgs)
        # The topic is noted before the answer comes, because an order without an answer may have
        # been carried out.
        tools.deleted_topics[args.topic] = None
        try:
            await tools.runtime.ask_as_admin(delete_topics, (args.topic,))
        except TopicDeletionFailed as error:
            return Miss(reason=f"the controller refused: {error}", errors=(error.error,))
        except TimeoutError as error:
            return Miss(reason=f"it may have been carried out all the same: {error}")
        return aim


def _used(topic: str, why: str) -> Problem:
    return problem(
        "args.topic",
        f"{why}, and would wait for it in vain",
        expected="a topic that no group and no producer uses",
        found=f"`{topic}`",
    )
