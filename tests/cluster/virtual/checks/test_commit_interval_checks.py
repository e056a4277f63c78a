"""The check that finds a member whose periodic commits come too often.

A member of a group commits its position in each partition, so that another member can continue
there. It does so periodically, in one of two ways: its application commits every
`commit_interval_ms`, or its consumer every `auto.commit.interval.ms`. The check counts the
acknowledged commits since the member got the partition.

A line in the tests is a recorded event: the time, the node, the kind and the values.
"""

import pytest

from chaos.experiment.structs import to_cluster_spec
from chaos.exploration.play import PlayResult, play
from cluster.client.consumer.offset_commits import AutoCommit
from cluster.virtual.checks.commit_interval_checks import (
    COMMIT_INTERVAL_KINDS,
    CommitIntervalChecks,
)
from protocol.errors import InvariantViolation
from tests.support.builders.trace_builder import parse_trace
from tests.support.worlds.planted import readers, small


def observe(text: str, group: dict[str, object] | None = None) -> None:
    """Let the check see these events. It raises at a violation.

    The group's only node of interest is `consumer-readers-0`. By default it commits every second.
    """
    group = group or readers(commit_interval_ms=1_000)
    checks = CommitIntervalChecks(to_cluster_spec(small(group=group)))
    for row in parse_trace(text):
        assert row.kind in COMMIT_INTERVAL_KINDS
        checks.observe(row)


OWNER = "group=readers member=m-0 partition=orders-0"
ASSIGNED = "10 consumer-readers-0 partitions_assigned member=m-0 generation=3 partitions=orders-0,"


def committed(second: float, *, generation: int = 3, node: str = "consumer-readers-0") -> str:
    """Return the row of a commit that is acknowledged at this time."""
    return f"{second} {node} offsets_committed {OWNER} generation={generation} offset=5\n"


def test_commits_at_their_interval_are_no_violation() -> None:
    """The first commit is due at once.

    The answer to the commit of 12 s comes late, just before the answer to that of 13 s. Then the
    member commits once more, because the partition is revoked.
    """
    times = (10.1, 11.1, 13.0, 13.1, 13.2)
    observe("\n".join([ASSIGNED, *map(committed, times)]))


def test_commits_of_an_eager_member_are_found() -> None:
    """In 0.4 s the member may commit at once, and before a revocation, but not a third time."""
    times = (10.1, 10.2, 10.4)
    with pytest.raises(
        InvariantViolation, match=r"keep their interval: consumer-readers-0 .* 3 commits of"
    ):
        observe("\n".join([ASSIGNED, *map(committed, times)]))


def test_commit_after_a_failed_commit_may_come_early() -> None:
    """After a retriable error an automatic commit is repeated before its interval is over."""
    failed = f"10.2 consumer-readers-0 commit_failed {OWNER} generation=3 error=DISCONNECTED\n"
    observe("\n".join([ASSIGNED, committed(10.1), failed, committed(10.3), committed(10.4)]))


def test_commit_of_an_earlier_generation_does_not_count() -> None:
    """The answers to commits of generation 2 have come only after the next assignment."""
    late = committed(10.1, generation=2)
    observe("\n".join([ASSIGNED, late, late, late, committed(10.2)]))


def test_each_partition_and_each_life_has_its_own_count() -> None:
    """One commit is a row for each partition, and a restarted node begins anew."""
    other = committed(10.1).replace("orders-0", "orders-1")
    restarted = ASSIGNED.replace("consumer-readers-0", "consumer-readers-0/1")
    observe("\n".join([ASSIGNED, committed(10.1), other, committed(10.2), other, restarted]))
    after_restart = committed(10.2, node="consumer-readers-0/1")
    observe("\n".join([ASSIGNED, *[committed(10.1)] * 2, restarted, *[after_restart] * 2]))


def test_member_that_never_commits_periodically_is_not_judged() -> None:
    """Its rows are commits of another kind, which have no interval."""
    group = readers(commit_interval_ms=None)
    observe("\n".join([ASSIGNED, *[committed(10.1)] * 5]), group)


def test_automatic_commits_of_a_run_keep_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound run passes. Planted bug: each poll commits, although the interval is not over."""
    config: dict[str, object] = {"enable.auto.commit": True, "auto.commit.interval.ms": 1_000}
    experiment = small(group=readers(config, commit_interval_ms=None))
    sound = play(experiment, seed=1)
    assert sound.result is PlayResult.PASS, sound.reasons

    def commit_always(self: AutoCommit) -> None:
        self._commits.commit_async(self._consumed())

    monkeypatch.setattr(AutoCommit, "commit_if_due", commit_always)
    played = play(experiment, seed=1)
    assert played.result is PlayResult.BROKEN, played.reasons
    assert "periodic commits keep their interval" in played.reasons[0]
