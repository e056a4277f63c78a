"""Switch `heartbeats_wait_for_writes`: its effect on a gauge and on high watermark reports.

Our coordinator behaves like Kafka's Scala one, unless switches replace parts of its behaviour. This
switch is for heartbeats: Kafka's Java coordinator treats them as writes without records. So the
answer to a heartbeat waits until the records written before it are committed, that is, until the
high watermark (the offset below which all in-sync replicas have the records) has passed them.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.4 and 6.4, the stories are in
scenarios/heartbeats_wait.txt.
"""

from protocol.config import JavaSwitches
from tests.support.builders.requests import heartbeat, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness

JAVA = JavaSwitches(heartbeats_wait_for_writes=True)


def test_held_heartbeat_answers_do_not_count_as_delayed_heartbeats() -> None:
    """Kafka's gauge of delayed heartbeats counts session timers, not held answers.

    An answer is held while it waits for the high watermark. `sizes()` has the gauge.
    """
    h = CoordinatorHarness(java=JAVA)
    leader, follower = h.stable_group(size=2)
    # The record of the commit is above the high watermark while appends are held.
    h.holds_appends = True
    h.submit(offset_commit({("foo", 0): 5}, leader, generation_id=1))

    before = h.coordinator.sizes()
    request_id = h.submit(heartbeat(follower, generation_id=1))
    assert h.response(request_id) is None
    assert h.coordinator.sizes() == before


def test_coordinator_registers_for_high_watermarks_only_with_a_switch_that_needs_them() -> None:
    """A broker reports high watermarks only to a coordinator whose `follows_log` is True.

    Two switches need the reports: `heartbeats_wait_for_writes` and `commits_apply_on_append`.
    """
    # All switches except the two that need the reports.
    others = JavaSwitches(append_errors=True, failed_load_refuses=True)
    assert not CoordinatorHarness(java=others).coordinator.follows_log
    assert CoordinatorHarness(java=JAVA).coordinator.follows_log
    commits = JavaSwitches(commits_apply_on_append=True)
    assert CoordinatorHarness(java=commits).coordinator.follows_log
