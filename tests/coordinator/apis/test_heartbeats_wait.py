"""Switch `heartbeats_wait_for_writes`: its effect on a gauge and on high watermark reports.

In Kafka's Java coordinator a heartbeat is treated as a write without records. So its answer waits
until the records written before it are committed, that is, until the high watermark (the offset
below which all in-sync replicas have the records) has passed them. Kafka's behaviour is in
docs/kafka/BEHAVIOUR.md 2.4 and 6.4, the stories are in scenarios/heartbeats_wait.txt.
"""

from protocol.config import JavaSwitches
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import HeartbeatResponse
from tests.support.builders.requests import heartbeat, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness

JAVA = JavaSwitches(heartbeats_wait_for_writes=True)


class Beats(CoordinatorHarness):
    """A Stable group of two members, and a commit that is appended but not committed."""

    def __init__(self, java: JavaSwitches = JAVA) -> None:
        super().__init__(java=java)
        self.leader, self.follower = self.stable_group(size=2)
        self.holds_appends = True
        self.written = self.submit(offset_commit({("foo", 0): 5}, self.leader, generation_id=1))

    def send(self, member_id: str, generation_id: int = 1) -> RequestId:
        """Send a Heartbeat and return its id."""
        return self.submit(heartbeat(member_id, generation_id))

    def answer(self, request_id: RequestId) -> ErrorCode | None:
        """Return the answer of a Heartbeat; None while it waits."""
        response = self.response(request_id)
        assert response is None or isinstance(response, HeartbeatResponse)
        return None if response is None else response.error_code


def test_held_heartbeat_answers_do_not_count_as_delayed_heartbeats() -> None:
    """Kafka's gauge of delayed heartbeats counts session timers, not held answers.

    An answer is held while it waits for the high watermark. `sizes()` has the gauge.
    """
    h = Beats()
    before = h.coordinator.sizes()
    h.send(h.follower)
    assert h.coordinator.sizes() == before


def test_coordinator_registers_for_high_watermarks_only_with_such_a_switch() -> None:
    """A broker reports high watermarks only to a coordinator whose `follows_log` is True.

    Two switches need the reports: `heartbeats_wait_for_writes` and `commits_apply_on_append`.
    """
    others = JavaSwitches(append_errors=True, failed_load_refuses=True)
    assert not CoordinatorHarness(java=others).coordinator.follows_log
    assert CoordinatorHarness(java=JAVA).coordinator.follows_log
    commits = JavaSwitches(commits_apply_on_append=True)
    assert CoordinatorHarness(java=commits).coordinator.follows_log
