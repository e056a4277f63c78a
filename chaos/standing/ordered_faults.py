"""Turns the order of a user (`coordlab inject`) into a fault that can be injected.

An order is checked by the same rules as a fault in an experiment file. For example, the rules
refuse the target `leader-of(orders-3)` if the experiment has no topic `orders`. But users of a
standing cluster may create topics and groups that the experiment does not have. So before the
check, the experiment is extended by all topics and groups that the cluster has now
(`with_current_topics_and_groups`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.rules.faults import fault_errors, fault_warnings
from chaos.experiment.schema_errors import shape_problems
from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    GroupDefinition,
    TopicDefinition,
    internal_topics,
    microseconds,
)
from chaos.experiment.yaml_document import item_of
from chaos.run.plan import ends_of
from chaos.standing.messages import InjectRequest, OrderRefusal, RefusalKind
from chaos.targets.machines import MachineOf
from chaos.targets.partitions import parse_partition
from chaos.targets.registry import split_target
from cluster.runtime import ClusterStatus
from protocol.ids import CLUSTER_METADATA
from results_schema.manifest import PlannedFault

FILE = "inject"
"""Text that problems of an order have in place of a file name."""
_GROUP_ROLES = ("coordinator-of", "leader-member-of", "members", "member")
"""Roles whose argument begins with the name of a group."""
_PARTITION_ROLES = ("leader-of", "follower-of")
"""Roles whose argument is a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedFault:
    """A fault that can be injected.

    `warnings` has the warnings that an experiment file with this fault would get.
    """

    planned: PlannedFault
    warnings: tuple[str, ...]


def with_current_topics_and_groups(experiment: Experiment, status: ClusterStatus) -> Experiment:
    """Return `experiment`, extended by the topics and groups that only the cluster has.

    The status of the cluster does not show which topics such a group reads. So the group gets all
    topics. The group gets no members: its members are clients from outside, which the experiment
    does not start.
    """
    internal = {*internal_topics(experiment), CLUSTER_METADATA}
    sizes: dict[str, tuple[int, int]] = {}  # topic -> (number of partitions, number of replicas)
    for partition, partition_status in status.partitions.items():
        if partition.topic not in internal:
            partitions, factor = sizes.get(partition.topic, (0, 1))
            sizes[partition.topic] = (
                max(partitions, partition.partition + 1),  # partitions count from 0
                max(factor, len(partition_status.replicas)),
            )
    topics = {
        **experiment.topics,
        **{
            name: TopicDefinition(partitions=partitions, replication_factor=factor)
            for name, (partitions, factor) in sizes.items()
            if name not in experiment.topics
        },
    }
    return _with_groups(msgspec.structs.replace(experiment, topics=topics), status.groups)


def order_fault(
    request: InjectRequest,
    experiment: Experiment,
    *,
    fault_id: str,
    at_us: int,
) -> OrderedFault | OrderRefusal:
    """Return the ordered fault, or a refusal with all problems of the order.

    - `experiment`: the experiment, extended by the topics and groups that the cluster has now.
    - `at_us`: the time of the injection, in microseconds since the brokers began to serve.
    """
    document = item_of(_as_in_a_file(request))
    problems = shape_problems(document, FaultDefinition, FILE)
    if problems:
        return _refusal(RefusalKind.UNKNOWN, problems)
    fault = msgspec.convert(document.plain(), FaultDefinition)
    problems = list(fault_errors(experiment, fault, FILE))
    if problems:
        # Perhaps the order is only too early, because it names a group or a topic that does not
        # exist yet. So the order is checked once more, as if everything that it names existed. If
        # this second check finds no error, the order is refused with NOTHING_NOW, and the user may
        # try it again later. Otherwise the order can never be carried out (UNKNOWN).
        imagined = _with_named_topics_and_groups(experiment, fault)
        kind = RefusalKind.NOTHING_NOW
        if any(True for _ in fault_errors(imagined, fault, FILE)):  # if it yields any error
            kind = RefusalKind.UNKNOWN
        return _refusal(kind, problems)
    return OrderedFault(
        planned=PlannedFault(
            fault_id=fault_id,
            at_us=at_us,
            fault=fault.fault,
            target=fault.target or "",
            from_=ends_of(fault.from_),
            to=ends_of(fault.to),
            duration_us=None if fault.duration is None else microseconds(fault.duration),
            args=dict(fault.args),
        ),
        warnings=tuple(map(_words, fault_warnings(experiment, fault, FILE))),
    )


def _as_in_a_file(request: InjectRequest) -> dict[str, object]:
    """Return the order in the form of a fault in an experiment file.

    The result has only the keys for which the order has a value.
    """
    document: dict[str, object] = {"at": "0s", "fault": request.fault}
    if request.target is not None:
        document["target"] = request.target
    for key, ends in (("from", request.from_), ("to", request.to)):
        if ends:
            document[key] = ends[0] if len(ends) == 1 else list(ends)
    if request.duration is not None:
        document["duration"] = request.duration
    if request.args:
        document["args"] = request.args
    return document


def _with_groups(experiment: Experiment, group_ids: Iterable[str]) -> Experiment:
    """Return `experiment` with all groups in `group_ids`. New groups have no members."""
    group = GroupDefinition(members=0, topics=tuple(experiment.topics))
    groups = {
        **experiment.groups,
        **{group_id: group for group_id in sorted(group_ids) if group_id not in experiment.groups},
    }
    return msgspec.structs.replace(experiment, groups=groups)


def _with_named_topics_and_groups(experiment: Experiment, fault: FaultDefinition) -> Experiment:
    """Return `experiment`, extended by the groups and topics that the targets of a fault name."""
    groups: list[str] = []
    topics = dict(experiment.topics)
    for target in (fault.target or "", *ends_of(fault.from_), *ends_of(fault.to)):
        # For example, `split_target("member(billing, 0)")` returns ("member", "billing, 0"). For a
        # text that is no target it returns None. Such a text names neither a group nor a topic.
        role, argument = split_target(target) or ("", "")
        if role == MachineOf.name:  # the argument is a target, as in `machine-of(member(g, 0))`
            role, argument = split_target(argument) or ("", "")
        if role in _GROUP_ROLES and argument:
            groups.append(argument.partition(",")[0].strip())
        partition = parse_partition(argument) if role in _PARTITION_ROLES else None
        if partition is not None and partition.topic not in internal_topics(experiment):
            # The topic gets as many replicas as there are brokers, so that no rule refuses the
            # target because of a missing replica.
            topics.setdefault(
                partition.topic,
                TopicDefinition(
                    partitions=partition.partition + 1,
                    replication_factor=experiment.cluster.brokers,
                ),
            )
    return _with_groups(msgspec.structs.replace(experiment, topics=topics), groups)


def _refusal(kind: RefusalKind, problems: Iterable[Problem]) -> OrderRefusal:
    return OrderRefusal(kind=kind, problems=tuple(map(_words, problems)))


def _words(problem: Problem) -> str:
    """Return a problem as a sentence about the order, such as "inject: target: ..."."""
    path = problem.path.removeprefix(FILE).removeprefix(".")  # `inject.target` -> `target`
    words = str(replace(problem, file=FILE, line=None, path=path))
    # The sentences of the rules say "of the file". But the experiment that was checked also has
    # topics and groups that only the cluster has. So "of the file" is replaced.
    return words.replace(" of the file: ", " that is there: ").replace(
        ", but the file has none", ", and there is none"
    )
