"""The administration checker judges whether the cluster carries out an administrator's orders.

There are four kinds of orders: the controlled shutdown of a broker, the election of another leader,
orders about a group, and the creation or deletion of a topic. In a trace an order is the injection
of a fault. If the order is refused or gets no answer, a row FAULT_MISSED follows.

The cluster may fail to carry out an order while something else is broken. Something counts as
broken as long as a fault lasts, and for SETTLING_S after its end. At any other time the failure is
a finding. The outcome NOTHING_SEEN means that the trace has no order that can be judged.

Each test writes a trace by hand. The first number of a row is its time in seconds. The stage
"liveness" begins when all faults are healed, and the stage "stopping" is the end of the run. Most
traces begin with `steady_cluster()`: three brokers, of which broker-0 leads OFFSETS_0, and so is
the coordinator of the group g. Where a docstring says "Planted bug", it describes a bug that would
leave such a trace.
"""

from collections.abc import Sequence

import pytest

from chaos.checkers.administration import Administration
from chaos.checkers.context import CheckContext, GroupExpectation
from cluster.broker.node import CONTROLLED_SHUTDOWN_TIMEOUT_US
from protocol.causes import TOPIC_CREATED
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows, steady_cluster

SETTLING_S = 60
"""After its end a fault excuses the failure of an order for this time."""
CONSUMER = "consumer-g-0"
MEMBERS = GroupExpectation(consumers=(CONSUMER,), offsets_partition=OFFSETS_0, commits=True)


def check(rows: Rows, *, in_virtual_time: bool = True) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    `seen` of the report counts the orders that the checker had to judge.
    """
    checker = Administration(
        CheckContext(
            groups={"g": MEMBERS},
            settling_us=SETTLING_S * 1_000_000,
            in_virtual_time=in_virtual_time,
        )
    )
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def order_shutdown(rows: Rows, time_s: float) -> None:
    """Order the controlled shutdown of broker-0."""
    rows.fault(time_s, "broker-0", fault="controlled_shutdown", nodes=["broker-0"])
    rows.add(time_s, "driver", TraceKind.NODE_STOPPING, peer="broker-0")


def end_shutdown(rows: Rows, time_s: float) -> None:
    """Let broker-0 end its shutdown."""
    rows.add(time_s, "broker-0", TraceKind.NODE_STOPPED)


def order_election(rows: Rows, time_s: float, fault: str = "leadership_move") -> None:
    """Order an election that makes broker-1 the leader of OFFSETS_0."""
    rows.fault(
        time_s,
        "broker-0",
        fault=fault,
        partitions=[OFFSETS_0],
        to=["broker-1"],
        momentary=True,
    )


def refuse(rows: Rows, time_s: float, fault: str = "leadership_move") -> None:
    """Let the cluster refuse the order `fault`."""
    rows.add(
        time_s,
        "driver",
        TraceKind.FAULT_MISSED,
        cause=f"{fault}-0",
        detail={"fault": fault, "reason": "ElectionFailed"},
    )


def break_something(rows: Rows, time_s: float) -> None:
    """Let another fault begin, which is no order: broker-2 is cut off."""
    rows.fault(time_s, "broker-2", fault="cut", nodes=["broker-2"])


# -- controlled shutdowns --


def test_broker_without_leaderships_and_isrs_may_stop() -> None:
    """Before broker-0 stops, broker-1 becomes the leader, and broker-0 leaves the ISR."""
    rows = steady_cluster()
    order_shutdown(rows, 20)
    rows.elected(21, "broker-1", isr=[1, 2])
    end_shutdown(rows, 22)
    report = check(rows)
    assert report.outcome is CheckOutcome.PASS
    assert report.seen["controlled_shutdowns"] == 1


@pytest.mark.parametrize(
    ("leader", "isr", "summary"),
    [
        ("broker-0", [0, 1], f"broker-0 stops in order, and still leads {OFFSETS_0}"),
        ("broker-0", [0], f"broker-0 stops in order, and still leads {OFFSETS_0}"),
        (
            "broker-1",
            [0, 1, 2],
            f"broker-0 stops in order, and is still in the ISR of {OFFSETS_0}",
        ),
    ],
)
def test_broker_that_stops_as_leader_or_in_an_isr_is_found(
    leader: str, isr: list[int], summary: str
) -> None:
    """Planted bug: the controller lets a broker stop too early.

    Before the broker may stop, the controller must move its leaderships to other brokers, and
    remove the broker from each ISR.
    """
    rows = steady_cluster()
    order_shutdown(rows, 20)
    rows.elected(21, leader, isr=isr)
    end_shutdown(rows, 22)
    assert [finding.summary for finding in check(rows).findings] == [summary]


def test_last_replica_in_sync_may_stop_once_its_partition_has_no_leader() -> None:
    """broker-0 has the last replica in the ISR.

    broker-0 cannot be removed from the ISR, because then no broker could ever lead the partition
    again. So the controller only takes the leadership from broker-0.
    """
    rows = steady_cluster()
    order_shutdown(rows, 20)
    rows.elected(21, "", isr=[0])  # no leader
    end_shutdown(rows, 22)
    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("stopped_s", [20.0, 20 + CONTROLLED_SHUTDOWN_TIMEOUT_US / 1_000_000])
def test_broker_without_an_answer_of_the_controller_is_not_judged(stopped_s: float) -> None:
    """Two kinds of brokers stop without the controller's permission, and may still lead.

    - A broker that is still starting stops at once, here at 20 s, when the order comes.
    - A broker that gets no answer of the controller stops after CONTROLLED_SHUTDOWN_TIMEOUT_US.
    """
    rows = steady_cluster()
    order_shutdown(rows, 20)
    end_shutdown(rows, stopped_s)
    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_broker_killed_in_its_shutdown_in_a_healthy_cluster_is_found() -> None:
    """The driver, which conducts the run, kills a broker that does not stop in time.

    This is a finding here, because nothing is broken that could have delayed the broker.
    """
    rows = steady_cluster()
    order_shutdown(rows, 20)
    rows.add(60, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    (finding,) = check(rows).findings
    assert finding.summary.startswith("broker-0 is killed 40 s after its controlled shutdown")


def test_broker_may_be_killed_in_a_shutdown_that_another_fault_disturbs() -> None:
    """Another fault begins during the shutdown, which may delay the controller."""
    rows = steady_cluster()
    order_shutdown(rows, 20)
    break_something(rows, 25)
    rows.add(60, "driver", TraceKind.NODE_KILLED, peer="broker-0")
    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


def test_consumer_that_is_killed_at_the_end_of_its_grace_period_is_not_judged() -> None:
    """A rollout stops consumers, and kills a consumer that takes longer than its grace period.

    The kill is no finding, because the checker judges only the shutdowns of brokers.
    """
    rows = steady_cluster()
    rows.add(20, "driver", TraceKind.NODE_STOPPING, peer=CONSUMER)
    rows.add(20.2, "driver", TraceKind.NODE_KILLED, peer=CONSUMER)
    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


# -- elections --


def test_requested_leader_that_leads_passes() -> None:
    """broker-1 is elected soon after the order."""
    rows = steady_cluster()
    order_election(rows, 20)
    rows.elected(20.1, "broker-1", isr=[0, 1, 2])
    rows.stage(30, "liveness")
    report = check(rows)
    assert report.outcome is CheckOutcome.PASS
    assert report.seen["elections_ordered"] == 1


def test_requested_leader_that_is_never_elected_is_found() -> None:
    """The order was not refused. But broker-2 is elected instead of broker-1."""
    rows = steady_cluster()
    order_election(rows, 20)
    rows.elected(20.1, "broker-2", isr=[0, 1, 2])
    rows.stage(30, "liveness")
    (finding,) = check(rows).findings
    assert finding.summary == "leadership_move-0 was not refused, and broker-1 was never elected"


def test_run_that_ends_before_its_orders_are_answered_judges_none() -> None:
    """The run ends 1 s after the order. The election might have come later."""
    rows = steady_cluster()
    order_election(rows, 20)
    rows.stage(21, "stopping")
    assert check(rows).outcome is CheckOutcome.NOTHING_SEEN


@pytest.mark.parametrize("fault", ["leadership_move", "preferred_leader_election"])
def test_election_that_is_refused_in_a_healthy_cluster_is_found(fault: str) -> None:
    """broker-1 is up and in the ISR, so the controller has no reason to refuse."""
    rows = steady_cluster()
    order_election(rows, 20, fault)
    refuse(rows, 20.1, fault)
    (finding,) = check(rows).findings
    assert finding.summary == (
        f"{fault}-0: no leader was elected (ElectionFailed), although nothing was broken"
    )


@pytest.mark.parametrize(("ordered_s", "is_found"), [(25, False), (80, False), (91, True)])
def test_election_is_judged_once_the_last_fault_has_settled(
    ordered_s: float, *, is_found: bool
) -> None:
    """A fault lasts from 15 s to 30 s, and excuses a refusal until 90 s (30 + SETTLING_S)."""
    rows = steady_cluster()
    break_something(rows, 15)
    if ordered_s > 30:
        rows.healed(30, "broker-2", fault="cut")
    order_election(rows, ordered_s)
    refuse(rows, ordered_s + 0.1)
    assert bool(check(rows).findings) is is_found


def test_no_order_is_judged_in_real_time() -> None:
    """On a busy machine an order may time out although nothing is broken."""
    rows = steady_cluster()
    order_election(rows, 20)
    refuse(rows, 20.1)
    report = check(rows, in_virtual_time=False)
    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.note == "judged in virtual time only"


# -- orders about groups --


def group_in(state: str | None) -> Rows:
    """Return a steady cluster whose coordinator, broker-0, has the group `g` in `state`.

    If `state` is None, there is no such group.
    """
    rows = steady_cluster()
    if state is not None:
        rows.group_state(11, "broker-0", "Empty", state)
    return rows


def order_group(rows: Rows, time_s: float, fault: str) -> None:
    """Give an order about group `g`, such as `delete_group`."""
    rows.fault(time_s, "broker-0", fault=fault, groups=["g"], momentary=True)


def refuse_group_order(rows: Rows, time_s: float, fault: str, error: str) -> None:
    """Let the order about the group fail with this error."""
    detail: dict[str, object] = {"fault": fault, "reason": "for people", "errors": [error]}
    rows.add(time_s, "driver", TraceKind.FAULT_MISSED, cause=f"{fault}-0", detail=detail)


@pytest.mark.parametrize(
    ("fault", "error", "right_state", "wrong_state"),
    [
        ("delete_group", "NON_EMPTY_GROUP", "Stable", "Empty"),
        ("delete_group", "GROUP_ID_NOT_FOUND", None, "Empty"),  # None: there is no group
        ("delete_offsets", "GROUP_SUBSCRIBED_TO_TOPIC", "Stable", "Empty"),
        ("delete_offsets", "GROUP_ID_NOT_FOUND", "Dead", "Stable"),
        ("reset_offsets", "UNKNOWN_MEMBER_ID", "PreparingRebalance", "Empty"),
        ("reset_offsets", "REBALANCE_IN_PROGRESS", "CompletingRebalance", "Empty"),
    ],
)
def test_error_of_an_order_must_fit_the_group(
    fault: str, error: str, right_state: str | None, wrong_state: str
) -> None:
    """Whether an error is right depends on the state of the group.

    For example, the error NON_EMPTY_GROUP is right for a Stable group, and wrong for an Empty
    group.
    """
    for state, is_found in ((right_state, False), (wrong_state, True)):
        rows = group_in(state)
        order_group(rows, 20, fault)
        refuse_group_order(rows, 20.1, fault, error)

        report = check(rows)

        assert bool(report.findings) is is_found, state
        assert report.seen["group_orders"] == 1


@pytest.mark.parametrize("error", ["REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR"])
def test_order_about_a_group_gets_an_answer_while_nothing_is_broken(error: str) -> None:
    """While nothing is broken, these errors are wrong in every state of the group."""
    rows = group_in("Stable")
    order_group(rows, 20, "delete_group")
    refuse_group_order(rows, 22, "delete_group", error)
    (finding,) = check(rows).findings
    assert finding.summary == (
        f"delete_group-0: delete_group of g met {error} while the group was Stable, although "
        "nothing was broken"
    )
    assert finding.group == "g"


def test_member_may_leave_before_its_removal_is_carried_out() -> None:
    """The administrator's client asks for the members of the group, and then removes them.

    A member may leave between these two requests. Then UNKNOWN_MEMBER_ID is a right error.
    """
    rows = group_in("Empty")
    order_group(rows, 20, "remove_members")
    refuse_group_order(rows, 20.1, "remove_members", "UNKNOWN_MEMBER_ID")
    assert check(rows).outcome is CheckOutcome.PASS


def test_order_about_a_group_that_loads_or_is_in_a_fault_is_not_judged() -> None:
    """Two things may delay the answer to an order.

    In the first trace another broker becomes the coordinator, and must load the group. In the
    second trace a fault is in force.
    """
    moved = group_in("Stable")
    order_group(moved, 20, "delete_group")
    moved.elected(20.1, "broker-1", isr=[0, 1, 2])
    refuse_group_order(moved, 22, "delete_group", "REQUEST_TIMED_OUT")

    cut = group_in("Stable")
    break_something(cut, 15)
    order_group(cut, 20, "delete_group")
    refuse_group_order(cut, 22, "delete_group", "REQUEST_TIMED_OUT")

    for rows in (moved, cut):
        assert check(rows).findings == ()


@pytest.mark.parametrize("error", ["NONE", "UNKNOWN_SERVER_ERROR"])
def test_error_that_is_never_right_is_found_in_a_broken_cluster(error: str) -> None:
    """These errors are wrong in every state of the group, and no fault explains them.

    NONE is the code of an answer without an error. Planted bug: the administrator's client takes
    NONE for an error.
    """
    rows = group_in("Empty")
    break_something(rows, 15)
    order_group(rows, 20, "reset_offsets")
    refuse_group_order(rows, 20.1, "reset_offsets", error)
    (finding,) = check(rows).findings
    assert finding.summary == (
        f"reset_offsets-0: reset_offsets of g met {error} while the group was Empty"
    )


@pytest.mark.parametrize("is_healed", [False, True])
def test_order_that_is_carried_out_without_an_effect_is_found(*, is_healed: bool) -> None:
    """The order was not refused, so the group must have been deleted soon after it.

    The checker looks for the deletion when the next fault begins, or when all faults are healed.
    """
    rows = group_in("Empty")
    order_group(rows, 20, "delete_group")
    if is_healed:
        rows.stage(25, "liveness")
    else:
        break_something(rows, 25)
    (finding,) = check(rows).findings
    assert finding.summary == (
        "delete_group-0: delete_group of g was carried out, but the group was not deleted"
    )
    assert [row.kind for row in finding.evidence] == [TraceKind.FAULT_INJECTED]


def test_order_that_is_carried_out_passes_with_its_effect() -> None:
    """The coordinator deletes the group soon after the order.

    The checker looks for the deletion when the next fault begins, at 25 s.
    """
    rows = group_in("Empty")
    order_group(rows, 20, "delete_group")
    rows.group_state(20.1, "broker-0", "Empty", "Dead", cause="deleted by an administrator")
    break_something(rows, 25)
    assert check(rows).outcome is CheckOutcome.PASS


def test_order_that_is_refused_or_has_no_end_needs_no_effect() -> None:
    """The trace has two orders.

    - The first order is rightly refused, because the group has members.
    - The run ends 0.1 s after the second order, which may still be on its way.
    """
    rows = group_in("Stable")
    order_group(rows, 20, "delete_group")
    refuse_group_order(rows, 20.1, "delete_group", "NON_EMPTY_GROUP")
    break_something(rows, 25)
    order_group(rows, 26, "reset_offsets")
    rows.stage(26.1, "stopping")
    assert check(rows).findings == ()


def test_members_of_a_disturbed_coordinator_need_not_be_removed() -> None:
    """The member m-0 must have been removed when the next fault begins, at 25 s.

    There is an exception if another coordinator is elected in between. The order may reach the new
    coordinator before it has loaded the group with its members.
    """
    for is_another_elected in (False, True):
        rows = group_in(state=None)
        rows.generation_started(12, "broker-0", generation=1, members=("m-0",))
        order_group(rows, 20, "remove_members")
        if is_another_elected:
            rows.elected(20.1, "broker-1", isr=[0, 1, 2])
        break_something(rows, 25)
        assert bool(check(rows).findings) is not is_another_elected


# -- deletions of topics --


def order_topic_deletion(rows: Rows, time_s: float) -> None:
    """Order the deletion of the topic `t`, which has one partition."""
    rows.fault(
        time_s,
        "controller-100",
        fault="delete_topic",
        nodes=["controller-100"],
        partitions=["t-0"],
        momentary=True,
    )


def topic_deleted(rows: Rows, time_s: float) -> None:
    """Let the controller delete the topic `t`."""
    detail = {"topic": "t", "partitions": 1}
    rows.add(time_s, "controller-100", TraceKind.TOPIC_DELETED, detail=detail)


def test_deletion_of_a_topic_that_is_refused_while_nothing_is_broken_is_found() -> None:
    """Planted bug: the controller refuses the deletion, as if the topic did not exist."""
    rows = steady_cluster()
    order_topic_deletion(rows, 20)
    refuse(rows, 21, "delete_topic")
    report = check(rows)
    assert report.outcome is CheckOutcome.VIOLATED
    assert "the topic was not deleted" in report.findings[0].summary


@pytest.mark.parametrize("deleted_s", [15, 20.5])
def test_deletion_of_a_topic_that_is_deleted_may_be_refused(deleted_s: float) -> None:
    """The order is given at 20 s, and refused because the topic does not exist.

    - The topic was deleted at 15 s already.
    - Or the order deleted it at 20.5 s, but the answer was lost. Then the controller was asked
      again.
    """
    rows = steady_cluster()
    topic_deleted(rows, deleted_s)
    order_topic_deletion(rows, 20)
    refuse(rows, 21, "delete_topic")
    assert check(rows).outcome is CheckOutcome.PASS


def test_deletion_of_a_topic_may_fail_while_something_is_broken() -> None:
    """Perhaps the controller did not get the order, because of the fault."""
    rows = steady_cluster()
    break_something(rows, 15)
    order_topic_deletion(rows, 20)
    refuse(rows, 21, "delete_topic")
    assert check(rows).outcome is CheckOutcome.PASS


def test_deletion_of_a_topic_that_was_created_again_is_judged() -> None:
    """The topic is deleted at 12 s, but created again at 15 s. So nothing excuses the refusal."""
    rows = steady_cluster()
    topic_deleted(rows, 12)
    topic_created(rows, 15)
    order_topic_deletion(rows, 20)
    refuse(rows, 21, "delete_topic")
    assert check(rows).outcome is CheckOutcome.VIOLATED


# -- creations of topics --


def order_topic_creation(
    rows: Rows, time_s: float, *, partitions: int = 1, replication_factor: int = 2
) -> None:
    """Order the creation of the topic `t`."""
    rows.fault(
        time_s,
        "controller-100",
        fault="create_topic",
        nodes=["controller-100"],
        partitions=[f"t-{index}" for index in range(partitions)],
        topic="t",
        replication_factor=replication_factor,
        momentary=True,
    )


def topic_created(
    rows: Rows, time_s: float, *, isr: Sequence[int] = (0, 1), leader: str = "broker-0"
) -> None:
    """Let the controller create the topic `t` with the partition t-0."""
    rows.add(
        time_s,
        "controller-100",
        TraceKind.LEADER_ELECTED,
        partition="t-0",
        peer=leader,
        detail={"isr": list(isr), "reason": TOPIC_CREATED},
    )


def refuse_creation(rows: Rows, time_s: float, *errors: str) -> None:
    """Let the creation be refused with these errors of Kafka, or get no answer (no errors)."""
    detail: dict[str, object] = {"fault": "create_topic", "reason": "for people"}
    if errors:
        detail["errors"] = list(errors)
    rows.add(time_s, "driver", TraceKind.FAULT_MISSED, cause="create_topic-0", detail=detail)


@pytest.mark.parametrize("is_healed", [False, True])
def test_creation_of_a_topic_has_its_effect(*, is_healed: bool) -> None:
    """The order was not refused, so the topic must have been created soon after it.

    The checker looks for the creation when the next fault begins, or when all faults are healed.
    """
    missing = "create_topic-0: the topic t was created, but its partitions are none instead of t-0"
    for is_created, summaries in ((True, []), (False, [missing])):
        rows = steady_cluster()
        order_topic_creation(rows, 20)
        if is_created:
            topic_created(rows, 20.1)
        if is_healed:
            rows.stage(25, "liveness")
        else:
            break_something(rows, 25)

        report = check(rows)

        assert report.seen["topic_orders"] == 1
        assert [finding.summary for finding in report.findings] == summaries


def test_run_that_ends_before_the_answer_judges_no_creation() -> None:
    """The run ends 1 s after the order, which may still be on its way."""
    rows = steady_cluster()
    order_topic_creation(rows, 20)
    rows.stage(21, "stopping")
    assert check(rows).findings == ()


@pytest.mark.parametrize("error", ["TOPIC_ALREADY_EXISTS", "INVALID_PARTITIONS"])
def test_creation_that_is_refused_without_a_reason_is_found(error: str) -> None:
    """Planted bug: the controller refuses the order, although the topic can be created.

    No fault explains these errors. So they are findings even while something is broken.
    """
    for is_broken, ending in ((False, ", although nothing was broken"), (True, "")):
        rows = steady_cluster()
        if is_broken:
            break_something(rows, 15)
        order_topic_creation(rows, 20)
        refuse_creation(rows, 21, error)
        (finding,) = check(rows).findings
        expected = f"create_topic-0: the topic t was not created (for people){ending}"
        assert finding.summary == expected


@pytest.mark.parametrize("created_s", [15, 20.5])
def test_creation_of_a_topic_that_exists_may_be_refused(created_s: float) -> None:
    """The order is given at 20 s, and refused because the topic exists.

    - The topic was created at 15 s already.
    - Or the order created it at 20.5 s, but the answer was lost. Then the controller was asked
      again.
    """
    rows = steady_cluster()
    topic_created(rows, created_s)
    order_topic_creation(rows, 20)
    refuse_creation(rows, 21, "TOPIC_ALREADY_EXISTS")
    assert check(rows).outcome is CheckOutcome.PASS


def test_creation_of_a_topic_that_was_deleted_must_not_be_refused() -> None:
    """The topic is created at 12 s, but deleted at 15 s. So at 20 s it does not exist."""
    rows = steady_cluster()
    topic_created(rows, 12)
    topic_deleted(rows, 15)
    order_topic_creation(rows, 20)
    refuse_creation(rows, 21, "TOPIC_ALREADY_EXISTS")
    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_creation_without_an_answer_is_found_unless_something_is_broken() -> None:
    """Without a fault, a creation that gets no answer is a finding."""
    for is_broken in (False, True):
        rows = steady_cluster()
        if is_broken:
            break_something(rows, 15)
        order_topic_creation(rows, 20)
        refuse_creation(rows, 21)
        assert bool(check(rows).findings) is not is_broken
