"""No check accuses a group whose clients were not started by coordlab.

A standing cluster runs until a person stops it. While it runs, Kafka's own clients may use it, for
example a Java consumer of the group `payments`. We call such a client a guest. The brokers write
trace rows about the guest's group, but the guest itself writes none, so the checkers see only half
of what happens.

These tests need no Java client. They play a run with two groups that coordlab starts, `readers` and
`payments`. Then they remove the rows that the members of `payments` wrote. The context that the
checkers get says that `payments` has guests.
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
"""The group whose members look like guests, because their rows are removed."""
GROUP = {
    "members": 2,
    "topics": ["orders"],
    "commit_interval_ms": 200,
    # The session is shorter than the faults of members (10 s), so the coordinator removes them.
    "config": {"enable.auto.commit": False, "session.timeout.ms": 6_000},
}
FAULTS: dict[str, list[dict[str, object]]] = {
    "no fault": [],
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
    """Return True for a row that would be missing if the clients with this prefix were guests.

    `prefix` is the beginning of the names of one or more clients. A client of the lab writes rows
    itself. The lab's driver, which starts and kills the client, also writes rows about the client.
    """
    if row.node.startswith(prefix):
        return True
    is_start_or_kill = row.kind in {TraceKind.NODE_STARTED, TraceKind.NODE_KILLED}
    is_about_the_client = row.peer is not None and row.peer.startswith(prefix)
    return is_start_or_kill and is_about_the_client


def play_two_groups(faults: list[dict[str, object]]) -> tuple[Experiment, list[TraceRow]]:
    """Play an experiment with two groups of the lab. Return the experiment and the run's rows."""
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
@pytest.mark.parametrize("unseen_prefix", [f"consumer-{OUTSIDE}-", f"consumer-{OUTSIDE}-1"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_no_check_accuses_a_group_whose_members_write_no_rows(
    faults: list[dict[str, object]], unseen_prefix: str, in_virtual_time: bool
) -> None:
    """No check accuses the group, or raises an exception because of the missing rows.

    The rows of the members whose names begin with `unseen_prefix` are removed. These are all
    members of the group, or only member 1. In the second case the group looks as if a guest had
    joined the lab's member 0. In virtual time, which is simulated, some checks judge times more
    strictly.
    """
    experiment, all_rows = play_two_groups(faults)
    assert guests_in(all_rows) == ()
    rows = [row for row in all_rows if not is_row_of_a_lab_client(unseen_prefix, row)]
    assert guests_in(rows) == (OUTSIDE,)
    context = context_of(experiment, in_virtual_time=in_virtual_time)
    # This context says that OUTSIDE has guests. So only `readers` is judged in full.
    suite = CheckSuite(context.without_guests(mixed=[OUTSIDE], all_groups=experiment.groups))
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
    """The rows of member 1 are removed, but the context of the checkers names no guest.

    So the records that member 1 processed look as if no member had processed them.
    """
    experiment, all_rows = play_two_groups([])
    rows = [row for row in all_rows if not is_row_of_a_lab_client(f"consumer-{OUTSIDE}-1", row)]
    suite = CheckSuite(context_of(experiment))
    suite.observe_all(rows)
    violated = [report.check for report in suite.finish() if report.findings]
    assert "processing" in violated
