"""The switch `heartbeats_wait_for_writes`: heartbeats as in Kafka's Java coordinator.

Kafka has an older coordinator, in Scala, and a newer coordinator, in Java. Our coordinator behaves
like the Scala coordinator. A switch gives our coordinator one part of the behaviour of the Java
coordinator. This switch is for heartbeats. The Java coordinator treats a heartbeat as a write
without records. So the answer to a heartbeat waits until all earlier records are replicated, that
is, until they are below the high watermark.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.4 and 6.4. The file scenarios/heartbeats_wait.txt
shows the answers. The tests here are about two side effects.
"""

from protocol.config import JavaSwitches
from tests.support.builders.requests import heartbeat, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness

JAVA = JavaSwitches(heartbeats_wait_for_writes=True)


def test_held_heartbeat_answers_do_not_count_as_delayed_heartbeats() -> None:
    """Kafka has a metric of delayed heartbeats, which counts the timers of sessions.

    In spite of its name, the metric does not count heartbeats whose answers wait.
    """
    h = CoordinatorHarness(java=JAVA)
    leader, follower = h.stable_group(size=2)
    # Write a record that is not replicated, so that the heartbeat has something to wait for.
    h.holds_appends = True
    h.submit(offset_commit({("foo", 0): 5}, leader, generation_id=1))

    sizes_before_heartbeat = h.coordinator.sizes()  # the metric is among these numbers
    request_id = h.submit(heartbeat(follower, generation_id=1))
    assert h.response(request_id) is None
    assert h.coordinator.sizes() == sizes_before_heartbeat


def test_coordinator_registers_for_high_watermarks_only_with_a_switch_that_needs_them() -> None:
    """With two of the four switches a coordinator must learn when the high watermark moves.

    The broker reports this only to a coordinator whose `follows_log` is True, because each report
    costs time.
    """
    heartbeats_wait = JavaSwitches(heartbeats_wait_for_writes=True)
    commits_apply = JavaSwitches(commits_apply_on_append=True)
    for java in (heartbeats_wait, commits_apply):
        assert CoordinatorHarness(java=java).coordinator.follows_log

    other_switches = JavaSwitches(append_errors=True, failed_load_refuses=True)
    assert not CoordinatorHarness(java=other_switches).coordinator.follows_log
