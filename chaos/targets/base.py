"""TargetKind: the interface of all kinds of targets, such as `coordinator-of(<group>)`.

A target names the nodes that a fault is to hit. It consists of a role and an argument. A kind of
target answers two questions:

- Before a run: can this target exist in the experiment at all? `coordinator-of(reders)` cannot if
  the only group is `readers`. The answer is an `Unknown`, with the target that was probably meant.
- When the fault is injected: which nodes have the role now? A coordinator may move during a run, so
  this is decided only then. The answer is a `Hit`, or a `Miss` if no node has the role just now.
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
    """The moment at which a fault fires: the experiment, and the cluster's status.

    `rng` is the random stream of this fault.
    """

    experiment: Experiment
    status: ClusterStatus
    rng: random.Random

    def is_up(self, node: NodeName) -> bool:
        """Return True if the node's process runs and is neither paused nor stopping."""
        return self.status.nodes.get(node) is NodeState.UP

    def state_of(self, node: NodeName) -> str:
        """Return the node's state as a word; "unknown" for a node that the status lacks."""
        return str(self.status.nodes.get(node, "unknown"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """The nodes that have the role now.

    - `nodes`: may be in any state.
    - `partitions`: the partitions that the role names, if it names any.
    - `because`: the reason why the nodes have the role, as in "leads orders-3".
    - `detail`: the same reason as data, for the journal.
    """

    nodes: tuple[NodeName, ...]
    partitions: tuple[TopicPartition, ...] = ()
    because: str = ""
    detail: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The reason why a fault hits nothing: no node has the role now, or nothing can be done to it.

    `errors`: if the fault is an order that was refused or got no answer, the names of its errors.
    """

    reason: str
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The error for a target that can never exist in the experiment.

    - `message`: what is wrong, without the target.
    - `expected`: what would be right.
    - `near_miss`: the target that was probably meant.
    """

    message: str
    expected: str | None = None
    near_miss: str | None = None


class TargetKind(ABC):
    """A kind of target: one role, with any argument.

    - `name`: the role's name.
    - `syntax`: the form of its targets in a file.
    - `doc`: the text about its targets in the reference pages.
    """

    name: str
    syntax: str
    doc: str

    @abstractmethod
    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return the error if `argument` can never name anything in `experiment`, else None."""

    @abstractmethod
    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes that have the role now."""


def check_no_argument(role: str, argument: str) -> Unknown | None:
    """Return the error for an argument of a role that takes none."""
    if not argument:
        return None
    return Unknown(message=f"`{role}` takes no argument", expected=f"`{role}`", near_miss=role)


def check_group_name(role: str, group_id: str, experiment: Experiment) -> Unknown | None:
    """Return the error for an undefined group, or None. Its near miss is a target with `role`."""
    if group_id in experiment.groups:
        return None
    # If the target names no group, and the file has only one, that one was probably meant.
    only_group = next(iter(experiment.groups)) if len(experiment.groups) == 1 else None
    meant = near_miss(group_id, experiment.groups) if group_id else only_group
    return Unknown(
        message=f"no group `{group_id}` is defined" if group_id else "names no group",
        expected=_expected_names("group", experiment.groups),
        near_miss=target_text(role, meant),
    )


def check_has_coordinator(role: str, group_id: str, experiment: Experiment) -> Unknown | None:
    """Return the error for a group that the file does not define, or that is on ZooKeeper."""
    unknown = check_group_name(role, group_id, experiment)
    if unknown is None and experiment.groups[group_id].is_on_zookeeper:
        return Unknown(
            message=f"group `{group_id}` has no coordinator",
            expected="a group without `coordination: zookeeper`",
        )
    return unknown


def target_text(role: str | None, argument: str | None) -> str | None:
    """Return `role(argument)`, `role` for an empty argument, or None if one of the two is None.

    One of the two is often a result of `near_miss`, which is None if no known word is similar.
    """
    if role is None or argument is None:
        return None
    return f"{role}({argument})" if argument else role


def _expected_names(what: str, names: Iterable[str]) -> str:
    known = list(names)
    return f"a {what} of the file: {one_of(known)}" if known else f"a {what}, but the file has none"
