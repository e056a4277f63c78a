"""Groups that no experiment names: their clients write no trace rows, and no check accuses them.

A standing cluster runs until a person stops it, and Kafka's own clients may join it. Such a client
is a guest. The trace (the recorded events) has the rows of brokers about the guest's group, but no
rows of the guest itself. A client of the lab is a node that coordlab has started.

Here a run has two groups of the lab. To make one of them look like a group from outside, the tests
remove the rows of its members, and its entry in the checkers' context.
"""

import pytest

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayResult, play
from chaos.standing.guests import GuestGroups
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckOutcome
from tests.support.builders.quick_experiment import QUICK_BROKERS, quick_experiment

OUTSIDE = "payments"
GROUP = {
    "members": 2,
    "topics": ["orders"],
    "commit_interval_ms": 200,
    # The session is shorter than the faults of members (10 s), so the coordinator removes them.
    "config": {"enable.auto.commit": False, "session.timeout.ms": 6_000},
}
FAULTS: dict[str, list[dict[str, object]]] = {
    "nothing": [],
    "coordinator crashes": [
        {"at": "1s", "fault": "crash", "target": f"coordinator-of({OUTSIDE})", "duration": "4s"}
    ],
    "leadership moves": [
        {"at": "1s", "fault": "leadership_move", "target": f"coordinator-of({OUTSIDE})"}
    ],
    "coordinator is cut off": [
        {
            "at": "1s",
            "fault": "cut",
            "from": f"coordinator-of({OUTSIDE})",
            "to": ["controller", "brokers"],
            "duration": "6s",
        }
    ],
    "members die": [
        {"at": "1s", "fault": "crash", "target": f"member({OUTSIDE}, 0)", "duration": "10s"},
        {"at": "2s", "fault": "pause", "target": f"member({OUTSIDE}, 1)", "duration": "10s"},
    ],
    "power fails": [
        {
            "at": "1s",
            "fault": "power_loss",
            "target": f"coordinator-of({OUTSIDE})",
            "duration": "4s",
        }
    ],
}


def is_row_of_a_lab_client(prefix: str, row: TraceRow) -> bool:
    """Return True for a row that the trace has only because a client is one of the lab.

    The name of the client begins with `prefix`. Such rows are the client's own, and those of the
    driver, the process that starts and kills the client.
    """
    is_of_the_driver = row.kind in {TraceKind.NODE_STARTED, TraceKind.NODE_KILLED}
    return row.node.startswith(prefix) or (is_of_the_driver and (row.peer or "").startswith(prefix))


def play_two_groups(faults: list[dict[str, object]]) -> tuple[Experiment, list[TraceRow]]:
    """Play an experiment with two groups of the lab; return the experiment and the run's rows."""
    experiment = quick_experiment(
        cluster={"brokers": 3, "config": QUICK_BROKERS},
        groups={"readers": GROUP, OUTSIDE: GROUP},
        faults=faults,
    )
    rows: list[TraceRow] = []
    run = play(experiment, seed=3, observers=[rows.append])
    assert run.result is PlayResult.PASS, run.reasons
    return experiment, rows


def guests_in(rows: list[TraceRow]) -> tuple[str, ...]:
    """Return the groups that clients from outside have joined."""
    guests = GuestGroups()
    for row in rows:
        guests.observe(row)
    return guests.groups()


@pytest.mark.parametrize("in_virtual_time", [False, True])
@pytest.mark.parametrize("unseen", [f"consumer-{OUTSIDE}-", f"consumer-{OUTSIDE}-1"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_no_check_accuses_a_group_whose_members_write_no_rows(
    faults: list[dict[str, object]], unseen: str, in_virtual_time: bool
) -> None:
    """No check accuses the group, or raises an exception because of the missing rows.

    `unseen` is the prefix of the members whose rows are removed. If only member 1 is unseen, the
    group looks like one of the lab that a client from outside has joined. In virtual time (a
    simulated clock) some checks judge times more strictly.
    """
    experiment, all_rows = play_two_groups(faults)
    assert guests_in(all_rows) == ()
    rows = [row for row in all_rows if not is_row_of_a_lab_client(unseen, row)]
    assert guests_in(rows) == (OUTSIDE,)
    context = context_of(experiment, in_virtual_time=in_virtual_time)
    # The arguments are the groups with guests, and all groups. A group of the lab is judged in
    # full only if no guest has joined it.
    suite = CheckSuite(context.without_guests([OUTSIDE], experiment.groups))
    suite.observe_all(rows)

    reports = suite.finish()

    assert [
        (report.check, finding.summary) for report in reports for finding in report.findings
    ] == []
    assert CheckOutcome.INCONCLUSIVE not in {report.outcome for report in reports}
    (liveness,) = [report for report in reports if report.check == "liveness"]
    assert liveness.outcome is CheckOutcome.PASS
    assert liveness.seen["groups"] == 1  # readers only


def test_member_without_rows_is_accused_if_it_counts_as_one_of_the_lab() -> None:
    """Without `without_guests` the records that the unseen member processed count as lost."""
    experiment, all_rows = play_two_groups([])
    rows = [row for row in all_rows if not is_row_of_a_lab_client(f"consumer-{OUTSIDE}-1", row)]
    suite = CheckSuite(context_of(experiment))
    suite.observe_all(rows)
    violated = [report.check for report in suite.finish() if report.findings]
    assert "processing" in violated
