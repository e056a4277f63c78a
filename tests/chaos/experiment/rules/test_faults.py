"""Faults of an experiment file that are refused or warned about, each at its place in the file.

An experiment file describes a cluster, its clients and the faults of a run. Most faults have a
target, which is the node that they hit. Faults of links have two ends (`from` and `to`). An error
may have a near miss: the value that the author probably meant, such as `5s` for `5`.

The experiment of these tests, `experiment()`, has three brokers (0 to 2), the topic orders with two
partitions on all brokers, and the group readers with two members.
"""

from typing import Any

import pytest

from chaos.experiment.problems import Problem
from chaos.experiment.rules.all_rules import errors, warnings
from tests.support.builders.experiments import experiment

PAUSE: dict[str, Any] = {"at": "1s", "fault": "pause", "target": "broker(0)", "duration": "20s"}
CUT: dict[str, Any] = {"at": "1s", "fault": "cut", "from": "broker(0)", "to": "controller"}
MOVE: dict[str, Any] = {"at": "1s", "fault": "leadership_move", "target": "leader-of(orders-0)"}


LATEST_HOURS = 24
"""No time and no delay in a file may be longer than 24 hours."""
TOO_LONG = f"{LATEST_HOURS + 1}h"


def errors_of(fault: dict[str, Any]) -> list[Problem]:
    """Return the errors of an experiment file that has only this fault."""
    return list(errors(experiment(faults=[fault])))


@pytest.mark.parametrize(
    "fault",
    [
        PAUSE,
        CUT,
        MOVE,
        {**PAUSE, "every": "20s", "repeat": 3},
        {**MOVE, "every": "1s", "repeat": 10},
        {**CUT, "to": ["controller", "brokers", "clients", "members(readers)"]},
        {**CUT, "args": {"apis": ["Fetch"], "purposes": ["coordinator"], "direction": "one_way"}},
        {**CUT, "fault": "slow", "args": {"delay": "200ms"}},
        {**CUT, "fault": "reset", "args": {"purposes": ["metadata"]}},
        {**CUT, "from": "any-broker", "to": "any-broker"},
        {**CUT, "from": "brokers", "to": "brokers"},
        {**CUT, "fault": "slow", "args": {"delay": "0s", "jitter": "5ms"}},
        {**MOVE, "args": {"to": "broker(2)"}},
        {**MOVE, "fault": "preferred_leader_election", "target": "all-topic-partitions"},
        {**PAUSE, "fault": "crash", "args": {"disk": "empty"}},
    ],
)
def test_valid_fault_of_each_form_is_accepted(fault: dict[str, Any]) -> None:
    """The list has a fault of each form: with a target or two ends, repeated, with arguments.

    Both ends may be the same set of brokers. The fault then affects the link between each two of
    these brokers.
    """
    assert errors_of(fault) == []


@pytest.mark.parametrize(
    ("fault", "path", "message", "near_miss"),
    [
        # targets and ends
        ({**PAUSE, "target": None}, "target", "is missing", None),
        ({**PAUSE, "target": "brokers"}, "target", "`pause` cannot be aimed at it", None),
        (
            {**PAUSE, "fault": "controlled_shutdown", "target": "controller"},
            "target",
            "cannot be aimed",
            None,
        ),
        ({**MOVE, "target": "broker(0)"}, "target", "cannot be aimed at it", None),
        ({**CUT, "to": "all-topic-partitions"}, "to", "cannot be aimed at it", None),
        ({**CUT, "to": ["controller", "broker(7)"]}, "to[1]", "there is no broker `7`", None),
        ({**CUT, "to": "controler"}, "to", "unknown target", "controller"),
        ({**CUT, "to": []}, "to", "is missing", None),
        ({**CUT, "to": None}, "to", "is missing", None),
        ({**PAUSE, "from": "broker(1)"}, "from", "`pause` is no fault of links", None),
        ({**CUT, "target": "broker(1)"}, "target", "it has two ends and no target", None),
        ({**CUT, "to": "broker(0)"}, "to", "a node has no link to itself", None),
        # CUT has `to: controller`, so both ends are the controller.
        ({**CUT, "from": "controller"}, "to", "a node has no link to itself", None),
        # times
        ({**MOVE, "duration": "5s"}, "duration", "is done in a moment", None),
        ({**PAUSE, "repeat": 3}, "every", "is missing beside `repeat`", None),
        ({**PAUSE, "every": "30s"}, "repeat", "is missing beside `every`", None),
        # PAUSE lasts 20 s, which is too long for a repetition after 19 s.
        (
            {**PAUSE, "every": "19s", "repeat": 2},
            "duration",
            "the next injection would begin before this one is healed",
            None,
        ),
        (
            {**PAUSE, "duration": None, "every": "19s", "repeat": 2},
            "duration",
            "is missing beside `every`",
            None,
        ),
        ({**MOVE, "every": "0s", "repeat": 2}, "every", "is not allowed", None),
        ({**PAUSE, "every": "0s", "repeat": 2}, "every", "is not allowed", None),
        # MOVE is first injected at 1 s, so the last of its 25 hourly injections is at 24 h and 1 s.
        (
            {**MOVE, "every": "1h", "repeat": LATEST_HOURS + 1},
            "repeat",
            "the last one would be too late",
            None,
        ),
        # arguments
        ({**PAUSE, "args": {"disk": "empty"}}, "args.disk", "unknown key", None),
        ({**CUT, "args": {"direction": "oneway"}}, "args.direction", "is not allowed", "one_way"),
        ({**CUT, "args": {"purpose": ["metadata"]}}, "args.purpose", "unknown key", "purposes"),
        ({**CUT, "args": {"apis": ["Fetch", 5]}}, "args.apis[1]", "is not allowed", None),
        (
            {**CUT, "args": {"purposes": ["coordinater"]}},
            "args.purposes[0]",
            "unknown purpose `coordinater`",
            "coordinator",
        ),
        (
            {**CUT, "args": {"apis": ["Fetch", "join_group"]}},
            "args.apis[1]",
            "unknown API `join_group`",
            "JoinGroup",
        ),
        ({**CUT, "fault": "reset", "args": {"apis": ["Fetch"]}}, "args.apis", "unknown key", None),
        ({**CUT, "fault": "slow"}, "args.delay", "is missing", None),
        ({**CUT, "fault": "slow", "args": {"delay": "fast"}}, "args.delay", "not allowed", None),
        ({**CUT, "fault": "slow", "args": {"delay": 5}}, "args.delay", "not allowed", "5s"),
        ({**CUT, "fault": "slow", "args": {"delay": "0s"}}, "args.delay", "not allowed", None),
        ({**CUT, "fault": "slow", "args": {"delay": TOO_LONG}}, "args.delay", "not allowed", None),
        (
            {**CUT, "fault": "slow", "args": {"delay": "1s", "jitter": TOO_LONG}},
            "args.jitter",
            "not allowed",
            None,
        ),
        ({**MOVE, "args": {"to": "broker(3)"}}, "args.to", "there is no broker `3`", None),
        ({**MOVE, "args": {"to": "controller"}}, "args.to", "is no destination", None),
        (
            {**PAUSE, "fault": "crash", "target": "controller", "args": {"disk": "empty"}},
            "args.disk",
            "the only copy of the cluster's metadata",
            None,
        ),
        (
            {**PAUSE, "fault": "crash", "target": "member(readers, 0)", "args": {"disk": "empty"}},
            "args.disk",
            "a member has no disk",
            None,
        ),
    ],
)
def test_invalid_fault_is_one_error_at_its_place(
    fault: dict[str, Any], path: str, message: str, near_miss: str | None
) -> None:
    """Each mistake gives exactly one error, which names its place in the file."""
    (problem,) = errors_of(fault)

    assert problem.path == f"faults[0].{path}"
    assert message in problem.message
    assert problem.near_miss == near_miss


def test_destination_without_a_replica_is_an_error() -> None:
    """The file determines which brokers hold a partition, so the error is found before the run.

    With 4 brokers and a replication factor of 3, orders-1 is on brokers 1, 2 and 3.
    """
    with_four_brokers = experiment(
        # This replaces the whole cluster of `experiment()`, so its other settings are repeated.
        cluster={
            "brokers": 4,
            "config": {"offsets.topic.num.partitions": 2, "min.insync.replicas": 2},
        },
        faults=[{**MOVE, "target": "leader-of(orders-1)", "args": {"to": "broker(0)"}}],
    )

    (problem,) = errors(with_four_brokers)

    assert problem.message == "holds no replica of orders-1"
    assert problem.expected == "one of `broker(1)`, `broker(2)`, `broker(3)`"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({**PAUSE, "duration": "5s"}, "the controller may not notice at all"),
        ({**PAUSE, "fault": "power_loss", "duration": "5s"}, "fails over all the same"),
        ({**PAUSE, "fault": "crash", "target": "member(readers, 0)"}, "one long rebalance"),
    ],
)
def test_fault_too_short_to_be_noticed_is_a_warning(fault: dict[str, Any], message: str) -> None:
    """A short fault may be intended, so it is no error.

    A fault is short if it ends within the session of its node. Here the faults of brokers last 5 s,
    and the session of a broker is 9 s. The fault of the member lasts 20 s (the duration of PAUSE),
    and the session of a member is 45 s. The warning says what happens in each of the three cases:

    1. A paused broker may continue before its session ends: "may not notice".
    2. A broker that lost power cannot register until its old session ends: "all the same".
    3. A crashed member joins under a new id, and its old id blocks the rebalance until the old
       session ends: "one long rebalance".
    """
    (warning,) = warnings(experiment(faults=[fault]))

    assert warning.path == "faults[0].duration"
    assert message in warning.message


@pytest.mark.parametrize(
    "fault",
    [
        {**PAUSE, "target": "member(readers, 0)", "duration": "1s"},
        {**PAUSE, "target": "controller", "duration": "1s"},
        {**PAUSE, "fault": "controlled_shutdown", "duration": "1s"},
        {**CUT, "duration": "1s"},
    ],
)
def test_other_short_fault_is_no_warning(fault: dict[str, Any]) -> None:
    """Only some short faults have a warning: a person who gets needless warnings ignores all.

    They are a short crash, power loss or pause of a broker, and a short crash of a member.
    """
    assert list(warnings(experiment(faults=[fault]))) == []
