"""What a deploy costs the users of a group, and which of two deploys costs less.

A deploy is a rollout: each member of a group is stopped, and a successor takes its place. The costs
of a deploy are rebalances, the time in which partitions have no owner, and the time in which
records wait. These figures are measured for the whole run (`felt`). So if a run has just one
deploy, they show what this deploy cost: in total, and divided by the number of replaced members.
"""

from dataclasses import replace
from typing import Any

from pipeline.summary.deploys import (
    DeployCost,
    better_texts,
    deploy_text,
    deploys_of,
    reason_text,
    typical_cost,
)
from pipeline.summary.felt import Felt, FeltGroup, Spread
from results_schema.journal import BlastRadius, FaultOutcome, JournalEntry

S = 1_000_000
"""Microseconds in a second."""


def spread(total: int, longest: int) -> Spread:
    """Return the spread of a figure over 200 partitions: its sum and its largest value."""
    return Spread(samples=200, missing=0, p50=0, p90=0, maximum=longest, total=total)


def felt(**changes: Any) -> Felt:  # noqa: ANN401 - a test may change any field
    """Return what the users of the group `readers` felt in a run; `changes` replaces some figures.

    By default there are 20 rebalances. The times are summed over 200 partitions: 600 s in which
    partitions had no owner, and 800 s in which records waited.
    """
    fields: dict[str, Any] = {
        "partitions": 200,
        "rebalances": 20,
        "moved": 200,
        "came_back": 200,
        "sent_away": 0,
        "spreads": {
            "without an owner": spread(total=600 * S, longest=4 * S),
            "no processing despite records": spread(total=800 * S, longest=6 * S),
            "records processed again": spread(total=12, longest=2),
        },
    }
    group = FeltGroup(**(fields | changes))
    return Felt(in_all=group, groups={"readers": group})


def rollout(*, ready: int, fired_at_us: int = 10 * S) -> JournalEntry:
    """Return a rollout that stops 40 members; only the first `ready` of them get a ready successor.

    The first successor is ready at 50 s, the next at 51 s, and so on. The 40th is ready at 89 s.
    """
    replaced = [
        {
            "place": f"consumer-readers-{index}",
            "stopped_at_us": fired_at_us,
            "ready_at_us": (50 + index) * S if index < ready else None,
        }
        for index in range(40)
    ]
    return JournalEntry(
        fault_id="rollout-0",
        fault="rollout",
        target="members(readers)",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=fired_at_us,
        blast_radius=BlastRadius(groups=("readers",)),
        resolved={"outcome": "completed" if ready == 40 else "hung", "replaced": replaced},
    )


def crash() -> JournalEntry:
    """Return another fault of the run, which is no deploy."""
    return JournalEntry(
        fault_id="crash-0",
        fault="crash",
        target="broker(1)",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=1,
    )


def test_cost_of_a_deploy_is_given_in_total_and_for_each_replaced_member() -> None:
    """For each of 40 members: 20 / 40 rebalances, 600 / 40 s without owner, 800 / 40 s of waiting.

    The rollout lasts from 10 s until the 40th successor is ready, at 89 s.
    """
    (cost,) = deploys_of((rollout(ready=40),), felt())
    assert (cost.replaced, cost.length_us) == (40, 79 * S)
    assert deploy_text(cost) == (
        "the rollout of readers replaced 40 members in 79.00 s. For each of them 0.50 rebalances, "
        "15.00 s of partitions without an owner and 20.00 s in which records waited (in all 20, "
        "600.00 s and 800.00 s; the worst partition 4.00 s and 6.00 s)"
    )


def deploy_cost(**changes: Any) -> DeployCost:  # noqa: ANN401 - a test may change any field
    """Return the cost of a deploy of 40 members in which records waited, by default for 800 s."""
    fields: dict[str, Any] = {
        "group": "readers",
        "outcome": "completed",
        "replaced": 40,
        "length_us": 400 * S,
        "rebalances": 20,
        "unowned_us": 600 * S,
        "longest_us": 4 * S,
        "waited_us": 800 * S,
        "longest_wait_us": 6 * S,
        "repeated": 0,
    }
    return DeployCost(**(fields | changes))


def test_cost_in_a_run_with_an_accident_has_a_mark() -> None:
    """In an accident, a machine is away for a while, although no fault was planned for it.

    Figures of the time of an accident prove little. The cost of a deploy is made of figures of the
    whole run. So each text about this cost gets a `*`.
    """
    (cost,) = deploys_of((rollout(ready=40),), replace(felt(), disturbed=True))
    assert deploy_text(cost).endswith("6.00 s) *")
    without_waiting = deploy_cost(waited_us=0, longest_wait_us=0)
    text_about_waiting, *_ = better_texts("a", cost, "b", without_waiting)
    assert text_about_waiting == (
        "records waited, all partitions: b is better, 0 against 800.00 s *; "
        "for each replaced member 0 against 20.00 s *"
    )


def test_members_without_a_ready_successor_are_not_counted_as_replaced() -> None:
    """The rollout hung: only 10 of 40 stopped members have a ready successor."""
    (cost,) = deploys_of((rollout(ready=10), crash()), felt())
    assert cost.replaced == 10
    assert "and hung" in deploy_text(cost)
    assert deploy_text(cost).endswith("; crash happened meanwhile")
    (without_success,) = deploys_of((rollout(ready=0),), felt())
    assert deploy_text(without_success) == "the rollout of readers replaced no member (hung)"


def test_group_that_was_deployed_twice_has_no_cost_of_one_deploy() -> None:
    """A group's figures cover the whole run, so they cannot be divided between two deploys."""
    assert deploys_of((rollout(ready=40), rollout(ready=40)), felt()) == ()
    # A run with a crash only has no deploy.
    assert deploys_of((crash(),), felt()) == ()
    # Without figures of the run there is no cost.
    assert deploys_of((rollout(ready=40),), None) == ()


def test_cheaper_deploy_is_named_with_the_difference() -> None:
    """Deploy `a` costs less waiting, and deploy `b` fewer rebalances: each text names the cheaper.

    The members of `b` are static. A static member keeps its place in the group through a restart.
    So there is no rebalance, but the partitions of the member wait until it is back.
    """
    static = deploy_cost(rebalances=0, waited_us=8_000 * S, longest_wait_us=36 * S)
    assert better_texts("a", deploy_cost(), "b", static) == (
        "records waited, all partitions: a is better, 800.00 s against 8000.00 s (10 times less); "
        "for each replaced member 20.00 s against 200.00 s",
        "records waited, worst partition: a is better, 6.00 s against 36.00 s (6.0 times less)",
        "rebalances: b is better, 0 against 20; for each replaced member 0.00 against 0.50",
    )


def test_reason_names_what_partitions_waited_for() -> None:
    """The figures show that records wait longer in a deploy without rebalances, but not why.

    A sentence below the figures gives the reason. It begins with "In" and the name of the run,
    which is `a` or `b` here.
    """
    moving = deploy_cost(moved=180, partitions=200)
    assert reason_text("a", moving) == (
        "In a 20 rebalances gave 180 of 200 partitions to other members: a partition waited only "
        "while a rebalance went on"
    )
    static = deploy_cost(rebalances=0, partitions=200)
    assert reason_text("b", static) == (
        "In b there was no rebalance, and no partition got another owner: each partition of a "
        "replaced member waited until the member's successor was ready"
    )


def test_deploys_of_nearly_equal_cost_count_as_equal() -> None:
    """The second deploy costs 810 s of waiting, about 1 % more than the 800 s of the first.

    Two runs of the same deploy differ as much, so such a difference proves nothing.
    """
    slightly_dearer = deploy_cost(waited_us=810 * S)
    text_about_waiting, *_ = better_texts("a", deploy_cost(), "b", slightly_dearer)
    assert text_about_waiting == ("records waited, all partitions: no difference, 800.00 s")


def test_without_waiting_records_the_time_without_an_owner_decides() -> None:
    """Without traffic no record waits, but a partition without an owner is still a cost."""
    a = deploy_cost(waited_us=0, longest_wait_us=0, unowned_us=600 * S)
    b = deploy_cost(waited_us=0, longest_wait_us=0, unowned_us=60 * S)
    first_text, *_ = better_texts("a", a, "b", b)
    assert first_text == (
        "no owner, all partitions: b is better, 60.00 s against 600.00 s (10 times less); "
        "for each replaced member 1.50 s against 15.00 s"
    )


def test_typical_cost_of_several_runs_has_the_median_of_each_figure() -> None:
    """Each figure has its own median, and the medians need not come from the same run.

    The runs had 1, 5 and 9 rebalances, so the median is 5. Their records waited for 10, 20 and
    30 s, so the median is 20 s. No run had 5 rebalances and a wait of 20 s.
    """
    costs = [
        deploy_cost(rebalances=1, waited_us=20 * S),
        deploy_cost(rebalances=5, waited_us=30 * S),
        deploy_cost(rebalances=9, waited_us=10 * S),
    ]
    typical = typical_cost(costs)
    assert (typical.rebalances, typical.waited_us) == (5, 20 * S)
