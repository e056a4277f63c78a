"""The plan: repeats, ends, and the schedule of faults and late members.

The plan is the list of a run's faults with their times. The ends of a fault of links are the nodes
of `from` and those of `to`. To heal a fault is to undo it. A late member starts at a time of the
plan. The number in a fault's id is its place in the file.
"""

from chaos.experiment.structs import consumer_name
from chaos.run.plan import Arrival, PlannedAct, arrivals_of, plan_of, schedule_of
from tests.support.builders.experiments import experiment

S = 1_000_000
"""Microseconds of a second."""


def test_repeated_fault_is_one_record_for_each_injection() -> None:
    """`repeat` counts all injections: `every` 20 s from 5 s on gives 5, 25 and 45 s.

    Each injection has an id of its own, for journal, trace and tables.
    """
    plan = plan_of(
        experiment(
            faults=[
                {
                    "at": "5s",
                    "fault": "pause",
                    "target": "broker(0)",
                    "duration": "4s",
                    "every": "20s",
                    "repeat": 3,
                },
                {"at": "1s", "fault": "crash", "target": "broker(1)"},
            ]
        )
    )

    assert [(fault.fault_id, fault.at_us // S, fault.duration_us) for fault in plan] == [
        ("pause-0", 5, 4 * S),
        ("pause-0.1", 25, 4 * S),
        ("pause-0.2", 45, 4 * S),
        ("crash-1", 1, None),
    ]


def test_ends_of_links_are_lists_in_either_notation() -> None:
    """In the file one target needs no brackets. A cut without `direction` is in both directions."""
    both, one_way = plan_of(
        experiment(
            faults=[
                {"at": "1s", "fault": "cut", "from": "broker(0)", "to": ["controller", "brokers"]},
                {
                    "at": "2s",
                    "fault": "cut",
                    "from": ["broker(0)"],
                    "to": "clients",
                    "args": {"direction": "one_way"},
                },
            ]
        )
    )

    assert both.from_ == ("broker(0)",)
    assert both.to == ("controller", "brokers")
    assert both.aimed_at == "broker(0) <-> controller, brokers"
    assert one_way.aimed_at == "broker(0) -> clients"


def test_schedule_orders_healing_before_faults_before_late_members() -> None:
    """A plan must always mean the same, so entries of the same time have an order.

    At 9 s the pause (3 s + 6 s) is healed, then broker-1 is crashed, then two members start.
    """
    own_experiment = experiment(
        groups={
            "readers": {
                "members": 1,
                "topics": ["orders"],
                "late_members": [{"at": "9s", "members": 2}, {"at": "3s", "members": 1}],
            }
        },
        faults=[
            {"at": "9s", "fault": "crash", "target": "broker(1)"},
            {"at": "3s", "fault": "pause", "target": "broker(0)", "duration": "6s"},
        ],
    )

    schedule = schedule_of(plan_of(own_experiment), arrivals_of(own_experiment))

    steps = []
    for step in schedule:
        match step:
            case PlannedAct(planned=planned, heals=heals):
                steps.append((step.at_us // S, f"{'heal' if heals else 'do'} {planned.fault_id}"))
            case Arrival(node=node):  # the start of a late member
                steps.append((step.at_us // S, str(node)))
    assert steps == [
        (3, "do pause-1"),
        (3, str(consumer_name("readers", 3))),
        (9, "heal pause-1"),
        (9, "do crash-0"),
        (9, str(consumer_name("readers", 1))),
        (9, str(consumer_name("readers", 2))),
    ]
