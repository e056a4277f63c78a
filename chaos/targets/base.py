"""TargetKind: the interface of all kinds of targets, such as `coordinator-of(<group>)`.

A target names the nodes that a fault is to hit. It consists of a role and an argument. A kind of
target answers two questions:

- Before a run: can this target exist in the experiment at all? For example,
  `coordinator-of(reders)` cannot exist if the only group is `readers`. Then the answer is an
  Unknown, with the target that was probably meant.
- When the fault is injected: which nodes have the role now? This question can be answered only at
  this moment, because a coordinator may move during a run. The answer is a Hit, or a Miss if no
  node has the role now.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.experiment.problems import near_miss, one_of
from chaos.experiment.structs import Experiment
from cluster.runtime import ClusterStatus, NodeState
from protocol.ids import NodeName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The situation in which a fault is injected.

    - `status`: the status of the cluster at this moment.
    - `rng`: the random generator of this fault. Only `any-broker` draws from it.
    """

    experiment: Experiment
    status: ClusterStatus
    rng: random.Random

    def is_up(self, node: NodeName) -> bool:
        """Return True if the node's process runs and is neither paused nor stopping."""
        return self.status.nodes.get(node) is NodeState.UP

    def state_of(self, node: NodeName) -> str:
        """Return the state of a node as a word; "unknown" if the status lacks the node."""
        return str(self.status.nodes.get(node, "unknown"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """The nodes that have the role now.

    - `nodes`: the nodes. They may be in any state, such as killed.
    - `partitions`: the partitions that the target names, if it names any.
    - `because`: the reason why the nodes have the role, such as "leads orders-3".
    - `detail`: the same reason as data, for the journal.
    """

    nodes: tuple[NodeName, ...]
    partitions: tuple[TopicPartition, ...] = ()
    because: str = ""
    detail: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The reason why a fault hits nothing.

    Either no node has the role now, or nothing can be done to the node.

    `errors` is for faults that are orders of an administrator. If such an order was refused or got
    no answer, `errors` has the names of the error codes.
    """

    reason: str
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The error for a target that can never exist in the experiment.

    - `message`: what is wrong. The message does not contain the target itself.
    - `expected`: what would be right.
    - `near_miss`: the target that was probably meant.
    """

    message: str
    expected: str | None = None
    near_miss: str | None = None


class TargetKind(ABC):
    """A kind of target: one role, with any argument.

    - `name`: the name of the role.
    - `syntax`: the form of such a target in a file, such as `broker(<id>)`.
    - `doc`: the text about such targets in the reference pages.
    """

    name: str
    syntax: str
    doc: str

    @abstractmethod
    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if `argument` can never name anything in `experiment`; otherwise None."""

    @abstractmethod
    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes that have the role now."""


def check_no_argument(role: str, argument: str) -> Unknown | None:
    """Return an error if a target has an argument, although its `role` takes none."""
    if not argument:
        return None
    return Unknown(message=f"`{role}` takes no argument", expected=f"`{role}`", near_miss=role)


def check_group_name(role: str, group_id: str, experiment: Experiment) -> Unknown | None:
    """Return an error if the experiment does not define the group.

    The near miss in this error is a target with `role`.
    """
    if group_id in experiment.groups:
        return None
    # If the target names no group, and the file has only one group, this group was probably meant.
    only_group = next(iter(experiment.groups)) if len(experiment.groups) == 1 else None
    meant = near_miss(group_id, experiment.groups) if group_id else only_group
    return Unknown(
        message=f"no group `{group_id}` is defined" if group_id else "names no group",
        expected=_expected_names("group", experiment.groups),
        near_miss=target_text(role, meant),
    )


def check_has_coordinator(role: str, group_id: str, experiment: Experiment) -> Unknown | None:
    """Return an error if the file does not define the group, or if the group has no coordinator.

    A group has no coordinator if its members use ZooKeeper instead (`coordination: zookeeper`).
    """
    unknown = check_group_name(role, group_id, experiment)
    if unknown is None and experiment.groups[group_id].is_on_zookeeper:
        return Unknown(
            message=f"group `{group_id}` has no coordinator",
            expected="a group without `coordination: zookeeper`",
        )
    return unknown


def target_text(role: str | None, argument: str | None) -> str | None:
    """Return the text of a target: `role(argument)`, or `role` if the argument is empty.

    Return None if `role` or `argument` is None. They often come from `near_miss`, which returns
    None if no known word is similar.
    """
    if role is None or argument is None:
        return None
    return f"{role}({argument})" if argument else role


def _expected_names(what: str, names: Iterable[str]) -> str:
    known = list(names)
    return f"a {what} of the file: {one_of(known)}" if known else f"a {what}, but the file has none"
