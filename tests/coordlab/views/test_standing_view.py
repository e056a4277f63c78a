"""What `coordlab up` shows: a panel on a terminal, and a line for each change elsewhere.

`up` starts a cluster that runs until its user stops it. Clients from outside, such as Java
programs, use the cluster, and the user injects faults by other commands. coordlab has no clients of
its own in the cluster of these tests.
"""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from chaos.run.runner import Progress
from cluster.runtime import ClusterStatus, GroupStatus, NodeState
from coordlab.views.standing_view import StandingLines, standing_panel, standing_view
from protocol.ids import BrokerId, broker_name
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.results import Finding

SECOND = 1_000_000


def status(state: str = "Stable", *, members: int = 2, down: int | None = None) -> ClusterStatus:
    """Return a status with three brokers and a group of clients from outside the lab."""
    brokers = [BrokerId(index) for index in range(3)]
    return ClusterStatus(
        nodes={
            broker_name(broker): NodeState.DOWN if broker == down else NodeState.UP
            for broker in brokers
        },
        brokers_alive={broker: broker != down for broker in brokers},
        brokers_fenced=dict.fromkeys(brokers, False),
        groups={
            "payments": [
                GroupStatus(
                    coordinator=BrokerId(1),
                    offsets_partition=4,
                    state=state,
                    generation=3,
                    members=tuple(f"java-{index}" for index in range(members)),
                )
            ]
        },
    )


def crash(number: int, *, healed_at_us: int | None) -> JournalEntry:
    """Return a crash of broker-1: crash-0 at 0 s, crash-1 at 10 s, and so on."""
    return JournalEntry(
        fault_id=f"crash-{number}",
        fault="crash",
        target="coordinator-of(payments)",
        duration_us=5 * SECOND,
        outcome=FaultOutcome.HIT,
        fired_at_us=number * 10 * SECOND,
        node="broker-1",
        nodes=("broker-1",),
        healed_at_us=healed_at_us,
    )


def progress(
    cluster: ClusterStatus | None, *faults: JournalEntry, stage: str = "steady"
) -> Progress:
    """Return the progress of a cluster that has been up for a minute.

    `cluster` is None if the cluster has no status yet.
    """
    return Progress(stage=stage, time_us=60 * SECOND, status=cluster, faults=faults)


def printed_on(console: Console) -> str:
    """Return what was printed on a console whose file is a buffer."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def panel(shown: Progress, width: int = 120) -> str:
    """Return the panel as text."""
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(standing_panel("lab", "local", shown, width))
    return printed_on(console)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_panel_shows_brokers_groups_and_faults_at_any_width(width: int) -> None:
    """No line is wider than the terminal, and no word is missing."""
    text = panel(progress(status(down=1), crash(0, healed_at_us=None)), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for words in ("lab on local", "1 down", "payments", "Stable", "in force"):
        assert words in text


def test_panel_of_a_cluster_without_groups_shows_that() -> None:
    """An empty panel would look as if the groups were not known yet."""
    without_groups = replace(status(), groups={})
    text = panel(progress(without_groups))
    assert "no group" in text
    # coordlab has no clients of its own here, so there is no line about their records.
    assert "records" not in text


def test_panel_keeps_faults_in_force_and_the_last_past_ones() -> None:
    """After a day a cluster has had hundreds of faults, so only three past faults are shown.

    All faults that are still in force are shown, however old they are.
    """
    # Each crash is healed 1 us after its injection.
    faults = [crash(number, healed_at_us=number * 10 * SECOND + 1) for number in range(20)]
    # Fault 3 is old, but still in force.
    faults[3] = crash(3, healed_at_us=None)
    shown = panel(progress(status(), *faults))
    assert shown.count("healed") == 3
    assert shown.count("in force") == 1


def test_panel_shows_the_latest_findings() -> None:
    """A standing cluster is checked all the time, so a finding is shown when it is made."""
    finding = Finding(check="fencing", summary="two leaders wrote", time_us=SECOND)
    assert "fencing is violated: two leaders wrote" in panel(
        replace(progress(status()), findings=(finding,))
    )


def test_lines_report_each_change_once() -> None:
    """Each call gets the whole status; the view prints what differs from the last call."""
    lines = StandingLines()
    assert list(lines(progress(None, stage="starting"))) == ["   60.000 s  starting"]
    assert list(lines(progress(status(), stage="serving"))) == [
        "   60.000 s  serving",
        "   60.000 s  group payments: Stable at broker 1, generation 3, 2 members",
    ]
    # Nothing has changed.
    assert list(lines(progress(status(), stage="serving"))) == []
    # Broker 1 crashes, and the group loses a member.
    fault = crash(1, healed_at_us=None)
    assert list(lines(progress(status(members=1, down=1), fault, stage="serving"))) == [
        "   10.000 s  crash coordinator-of(payments): hit broker-1; in force",
        "   60.000 s  broker 1 is down",
        "   60.000 s  group payments: Stable at broker 1, generation 3, 1 member",
    ]
    # Broker 1 is back, and no broker has the group.
    without_groups = replace(status(), groups={})
    assert list(lines(progress(without_groups, fault, stage="serving"))) == [
        "   60.000 s  broker 1 is up",
        "   60.000 s  group payments: no coordinator has it",
    ]


def test_view_prints_lines_where_the_cursor_cannot_move() -> None:
    """A file or a pipe cannot draw a panel over its last drawing, so it gets lines."""
    console = Console(file=io.StringIO(), width=200)
    with standing_view(console, "lab", "local") as view:
        view(progress(status(), stage="serving"))
    assert "group payments: Stable" in printed_on(console)
