"""What a run prints: the live view while it goes on, and the summary at its end.

Each function `page_*` makes up a moment of a run, and returns what a user sees then. The last test
compares all these texts, each below the docstring of its function, with pages/views.txt, which a
person has reviewed.

In most of these moments a cluster has three brokers. Broker 0 is up. Broker 1 is fenced by the
controller and sends no report, so the views call it down. Broker 2 is dead. It was the coordinator
of the cluster's only group, which has two members.
"""

import io
import re

from msgspec import structs
from rich.console import Console

from chaos.run.runner import Progress
from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus, NodeState
from coordlab.views.run_view import run_view
from coordlab.views.summary_view import print_summary
from protocol.ids import BrokerId, NodeName
from protocol.trace import TraceRow
from results_schema.journal import BlastRadius, FaultOutcome, JournalEntry, LeaderMove, LinkEnds
from results_schema.results import CheckOutcome, CheckReport, Finding, Results, RunOutcome, Verdict
from tests.support.builders.past_runs import manifest
from tests.support.harness.golden import Golden, sections

GROUP = "orders-readers"


def console(*, terminal: bool = False) -> Console:
    """Return a console of 200 columns that writes to a buffer.

    By default the console writes what it would write to a file. With `terminal` it writes what it
    would write to a terminal, and moves the cursor.
    """
    return Console(file=io.StringIO(), width=200, force_terminal=terminal, no_color=True)


def text_of(shown: Console) -> str:
    """Return the visible text of a console, without codes for colours and for the cursor.

    `shown` is a console that `console` made, so its file is a buffer.
    """
    assert isinstance(shown.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.file.getvalue())


def status(coordinator: int | None = 2) -> ClusterStatus:
    """Return the cluster's status.

    `coordinator` is the broker that both members take for their coordinator; None if they know no
    coordinator.
    """
    return ClusterStatus(
        # What the brokers report themselves. Broker 1 sends no report.
        brokers_alive={BrokerId(0): True, BrokerId(2): False},
        # What the controller reports about each broker.
        brokers_fenced={BrokerId(0): False, BrokerId(1): True, BrokerId(2): False},
        groups={
            GROUP: [
                GroupStatus(
                    coordinator=BrokerId(2),
                    offsets_partition=2,
                    state="Stable",
                    generation=4,
                    members=("m-1", "m-2"),
                )
            ]
        },
        members={
            NodeName(f"consumer-{index}"): MemberStatus(
                group_id=GROUP,
                member_id=f"m-{index}",
                generation=4,
                state="STABLE",
                coordinator=None if coordinator is None else BrokerId(coordinator),
                assigned=(),
                records_consumed=10,
                commits_acknowledged=3,
            )
            for index in (1, 2)
        },
        records_produced=21,
    )


def fault(
    outcome: FaultOutcome = FaultOutcome.HIT, healed_at_us: int | None = None
) -> JournalEntry:
    """Return the crash of broker 2 at 11.25 s; without `healed_at_us` it is not healed yet."""
    return JournalEntry(
        fault_id="crash-0",
        fault="crash",
        target=f"coordinator-of({GROUP})",
        duration_us=25_000_000,
        planned_at_us=11_000_000,
        outcome=outcome,
        fired_at_us=11_250_000,
        node="broker-2",
        pid=4711,
        blast_radius=BlastRadius(groups=(GROUP,), partitions=("__consumer_offsets-2",)),
        healed_at_us=healed_at_us,
    )


def page_live_view_without_a_terminal_prints_a_line_for_each_change() -> str:
    """A log file of a CI run must not be full of redrawn panels."""
    shown = console()
    with run_view(shown, "coordinator_crash", "virtual") as view:
        # The view is called several times a second. A call must print no line if nothing has
        # changed since the call before. Here these are the second call with the stage "steady", and
        # the second call with the fault that is not healed yet.
        for time_us in (0, 250_000):
            view(Progress(stage="steady", time_us=time_us, status=None, faults=()))
        for entry in (fault(), fault(), fault(healed_at_us=36_250_000)):
            view(Progress(stage="faults", time_us=36_500_000, status=status(), faults=(entry,)))
    return text_of(shown)


def other_fault(**changes: object) -> JournalEntry:
    """Return the fault of `fault()` with other values in some fields."""
    return structs.replace(fault(), **changes)


def page_live_view_shows_the_outcome_of_each_kind_of_fault_and_the_nodes_it_hit() -> str:
    """Ends of links, moved leaderships, misses with their reason; momentary faults end at once."""
    cut = other_fault(
        fault_id="cut-1",
        fault="cut",
        target="broker(2) <-> controller",
        links=LinkEnds(from_=("broker-2",), to=("controller-100",)),
    )
    move = other_fault(
        fault_id="move-2",
        fault="leadership_move",
        target="leader-of(orders-0)",
        momentary=True,
        moves=(LeaderMove(partition="orders-0", from_broker=2, to_broker=0),),
    )
    miss = other_fault(
        fault_id="pause-3",
        fault="pause",
        target="controller",
        outcome=FaultOutcome.MISSED,
        node=None,
        error="controller-100 is down",
    )
    shown = console()
    with run_view(shown, "coordinator_crash", "virtual") as view:
        view(Progress(stage="faults", time_us=12_000_000, status=None, faults=(cut, move, miss)))
    return text_of(shown)


def page_live_view_on_a_terminal_names_nodes_that_are_paused_or_not_started() -> str:
    """A member that is not started yet differs from a lost one."""
    shown = console(terminal=True)
    status_now = status()
    status_now.nodes = {
        NodeName("controller-100"): NodeState.PAUSED,
        NodeName("broker-0"): NodeState.STOPPING,
        NodeName("broker-2"): NodeState.DOWN,
        NodeName("consumer-1"): NodeState.UP,
        NodeName("consumer-9"): NodeState.NOT_STARTED,
    }
    with run_view(shown, "coordinator_crash", "virtual") as view:
        view(Progress(stage="faults", time_us=12_000_000, status=status_now, faults=()))
    return text_of(shown)


def page_live_view_on_a_terminal_shows_stage_brokers_groups_members_and_faults() -> str:
    """The view answers three questions: the stage, the coordinator, the faults."""
    shown = console(terminal=True)
    with run_view(shown, "coordinator_crash", "ray") as view:
        view(
            Progress(
                stage="faults",
                time_us=20_000_000,
                status=status(coordinator=None),
                faults=(fault(),),
                waiting_for=("orders-readers: 11 of 12 members",),
            )
        )
    return text_of(shown)


def page_live_view_shows_a_group_without_a_coordinator() -> str:
    """Between the kill and the load the group must remain on the screen."""
    shown = console(terminal=True)
    # The broker that served the group is dead, and no other broker has loaded the group yet. So the
    # members know no coordinator, and no broker reports the group.
    without_coordinator = status(coordinator=None)
    without_coordinator.groups = {}
    with run_view(shown, "coordinator_crash", "ray") as view:
        view(Progress(stage="faults", time_us=20_000_000, status=without_coordinator, faults=()))
    return text_of(shown)


def page_summary_of_a_violated_run_has_the_story_of_the_finding() -> str:
    """Exit code 1 alone explains nothing."""
    shown = console()
    fault_row = TraceRow(
        run="r",
        time_us=2,
        node_time_us=2,
        seq=0,
        node="driver",
        incarnation=0,
        kind="fault_injected",
        cause="cut-0",
    )
    report = CheckReport(
        check="durable_commits",
        outcome=CheckOutcome.VIOLATED,
        findings=(
            Finding(
                check="durable_commits",
                summary="an acknowledged commit vanished",
                time_us=5,
                story=("1.000 s broker-2 acknowledged [10]", "9.000 s broker-0 returned 4"),
                led_to=(fault_row,),
            ),
        ),
        findings_total=3,
        seen={"offsets_acknowledged": 1_234, "slowest_after_healing_us": 223_082},
    )
    results = Results(
        outcome=RunOutcome.COMPLETED,
        verdict=Verdict.VIOLATED,
        exit_code=1,
        checks=(report,),
        faults=(fault(healed_at_us=36_250_000),),
        ended_at_us=46_000_000,
    )
    # The run was not analysed, so it has no figures.
    figures = None
    print_summary(shown, manifest(runtime="ray"), results, figures)
    return text_of(shown)


def page_summary_of_a_failure_of_the_tool_is_no_verdict_about_kafka() -> str:
    """A crash of the tool itself must not look like a broken promise of Kafka's."""
    shown = console()
    results = Results(
        outcome=RunOutcome.INTERNAL_ERROR,
        verdict=Verdict.UNKNOWN,
        exit_code=255,
        reasons=("KeyError: [x]",),
    )
    print_summary(shown, manifest(runtime="ray"), results, None)
    return text_of(shown)


PAGES = (
    page_live_view_without_a_terminal_prints_a_line_for_each_change,
    page_live_view_shows_the_outcome_of_each_kind_of_fault_and_the_nodes_it_hit,
    page_live_view_on_a_terminal_names_nodes_that_are_paused_or_not_started,
    page_live_view_on_a_terminal_shows_stage_brokers_groups_members_and_faults,
    page_live_view_shows_a_group_without_a_coordinator,
    page_summary_of_a_violated_run_has_the_story_of_the_finding,
    page_summary_of_a_failure_of_the_tool_is_no_verdict_about_kafka,
)


def test_pages_equal_the_reviewed_ones(golden: Golden) -> None:
    """A person reviews each change of an output, as its users will see it."""
    golden.check("pages/views.txt", sections(PAGES))
