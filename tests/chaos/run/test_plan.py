"""How the faults of an experiment file become a plan, and the plan becomes a schedule.

`plan_of` lists each injection of each fault, with its time. `schedule_of` lists everything that the
run must do, in the order of time: inject faults, heal them (that is, undo them), and start late
members, which are the members that join a group during the run.
"""

from chaos.experiment.structs import consumer_name
from chaos.run.plan import Arrival, PlannedAct, arrivals_of, plan_of, schedule_of
from tests.support.builders.experiments import experiment

SECOND_US = 1_000_000


def test_repeated_fault_is_one_record_for_each_injection() -> None:
    """A pause at 5 s with `every: 20s` and `repeat: 3` is injected at 5, 25 and 45 s.

    Each injection has an id of its own. For example, `pause-0.1` is the first repetition of the
    fault `pause`, which has the index 0 in the file.
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

    assert [(fault.fault_id, fault.at_us // SECOND_US, fault.duration_us) for fault in plan] == [
        ("pause-0", 5, 4 * SECOND_US),
        ("pause-0.1", 25, 4 * SECOND_US),
        ("pause-0.2", 45, 4 * SECOND_US),
        ("crash-1", 1, None),
    ]


def test_ends_of_links_are_lists_in_either_notation() -> None:
    """A cut has two ends, `from` and `to`. Each end is a list of targets in the file.

    A list of one target needs no brackets. A cut without `direction` is in both directions.
    """
    both_ways, one_way = plan_of(
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

    assert both_ways.from_ == ("broker(0)",)
    assert both_ways.to == ("controller", "brokers")
    assert both_ways.aimed_at == "broker(0) <-> controller, brokers"
    assert one_way.aimed_at == "broker(0) -> clients"


def test_schedule_orders_healing_before_faults_before_late_members() -> None:
    """A plan must always mean the same, so steps at the same time have a fixed order.

    Here three steps are due at 9 s. First the pause is healed, which began at 3 s and lasts 6 s.
    Then broker-1 is crashed. Then two members start.
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
                verb = "heal" if heals else "inject"
                steps.append((step.at_us // SECOND_US, f"{verb} {planned.fault_id}"))
            case Arrival(node=node):  # the start of a late member
                steps.append((step.at_us // SECOND_US, str(node)))
    assert steps == [
        (3, "inject pause-1"),
        (3, str(consumer_name("readers", 3))),
        (9, "heal pause-1"),
        (9, "inject crash-0"),
        (9, str(consumer_name("readers", 1))),
        (9, str(consumer_name("readers", 2))),
    ]
