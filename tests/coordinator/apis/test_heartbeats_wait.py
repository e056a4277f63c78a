"""Switch `heartbeats_wait_for_writes` (BEHAVIOUR 2.4, 6.4, RT-3).

As in Kafka's Java coordinator, where a heartbeat is a write without records.
"""

import pytest

from coordinator.states import GroupState
from protocol.config import BrokerConfig, JavaSwitches
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import HeartbeatResponse
from tests.support.builders.requests import heartbeat, join_group, offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness, commit_errors

JAVA = JavaSwitches(heartbeats_wait_for_writes=True)
TIMEOUT_MS = 5_000


class Beats(CoordinatorHarness):
    """A Stable group of two whose log replicates at first, and a commit that is not committed."""

    def __init__(self, java: JavaSwitches = JAVA) -> None:
        super().__init__(java=java)
        self.leader, self.follower = self.stable_group(2)
        self.holds_appends = True
        self.written = self.submit(offset_commit({("foo", 0): 5}, self.leader, 1))

    def send(self, member_id: str, generation_id: int = 1) -> RequestId:
        """Send a Heartbeat and return its id."""
        return self.submit(heartbeat(member_id, generation_id))

    def answer(self, request_id: RequestId) -> ErrorCode | None:
        """Return what a Heartbeat was answered, None if it waits."""
        response = self.response(request_id)
        assert response is None or isinstance(response, HeartbeatResponse)
        return None if response is None else response.error_code


def test_heartbeat_with_nothing_uncommitted_is_answered_at_once() -> None:
    """RT-3: with nothing before it a write without records is done."""
    h = CoordinatorHarness(java=JAVA)
    (member_id,) = h.stable_group(1)
    assert h.beat(member_id, 1) is ErrorCode.NONE
    assert [key for key in h.timer_keys() if key.startswith("write-")] == []


def test_heartbeat_waits_until_the_writes_before_it_are_committed() -> None:
    """Also those of another member, and it is not answered by a part of them."""
    h = Beats()
    second = h.submit(offset_commit({("foo", 1): 6}, h.leader, 1))
    beat = h.send(h.follower)
    assert h.answer(beat) is None
    h.complete()
    assert h.response(h.written) is not None
    assert h.answer(beat) is None
    h.complete()
    assert h.answer(beat) is ErrorCode.NONE
    assert h.answer_order[-2:] == [second, beat]
    assert [key for key in h.timer_keys() if key.startswith("write-")] == []


def test_heartbeat_does_not_wait_for_writes_that_come_after_it() -> None:
    """It waits for the log end of its own time."""
    h = Beats()
    beat = h.send(h.follower)
    h.submit(offset_commit({("foo", 1): 6}, h.leader, 1))
    h.complete()
    assert h.answer(beat) is ErrorCode.NONE
    late = h.send(h.follower)
    assert h.answer(late) is None


def test_heartbeat_that_waits_for_the_commit_timeout_is_told_not_available() -> None:
    """BEHAVIOUR 6.4: so the members of a leader that is cut off look for another one."""
    h = Beats()
    h.advance(1_000)
    beat = h.send(h.follower)
    h.advance(TIMEOUT_MS - 1)
    assert h.answer(beat) is None
    h.advance(1)
    assert h.answer(beat) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_wait_is_as_long_as_the_setting_says() -> None:
    """offsets.commit.timeout.ms is also how long a write of the Java coordinator waits."""
    config = BrokerConfig(group_initial_rebalance_delay_ms=0, offsets_commit_timeout_ms=700)
    h = CoordinatorHarness(java=JAVA, config=config)
    (member_id,) = h.stable_group(1)
    h.holds_appends = True
    h.submit(offset_commit({("foo", 0): 5}, member_id, 1))
    beat = h.submit(heartbeat(member_id, 1))
    h.advance(699)
    assert h.response(beat) is None
    h.advance(1)
    assert h.response(beat) == HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_heartbeats_wait_on_after_the_write_has_timed_out() -> None:
    """The record stays in the log: only the high watermark ends the wait of those behind it."""
    h = Beats()
    h.complete(ErrorCode.REQUEST_TIMED_OUT)
    assert commit_errors(h.response(h.written)) == [ErrorCode.REQUEST_TIMED_OUT]
    beat = h.send(h.follower)
    assert h.answer(beat) is None
    h.commit_everything()
    assert h.answer(beat) is ErrorCode.NONE


def test_session_goes_on_from_when_the_heartbeat_came() -> None:
    """It is processed at once; the answer alone waits, or fails."""
    h = Beats()
    for _ in range(3):
        h.advance(6_000)
        h.send(h.follower)
    members = h.summary().members
    assert h.follower in members
    assert h.leader not in members  # 10 s without a heartbeat of its own


def test_heartbeat_of_a_rebalancing_group_waits_with_its_answer() -> None:
    """Kafka's handler returns REBALANCE_IN_PROGRESS, and does not throw it."""
    h = Beats()
    h.submit(join_group(h.leader))
    assert h.state() is GroupState.PREPARING_REBALANCE
    beat = h.send(h.follower)
    assert h.answer(beat) is None
    h.commit_everything()
    assert h.answer(beat) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_that_is_refused_is_told_so_at_once() -> None:
    """What the handler throws does not wait for anything."""
    h = Beats()
    assert h.beat(h.follower, 7) is ErrorCode.ILLEGAL_GENERATION
    assert h.beat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_that_waits_is_told_not_coordinator_when_the_partition_is_unloaded() -> None:
    """5.5 [J]: all deferred responses fail, and no timer is left."""
    h = Beats()
    beats = [h.send(h.leader), h.send(h.follower)]
    h.unload(epoch=1)
    assert [h.answer(beat) for beat in beats] == [ErrorCode.NOT_COORDINATOR] * 2
    assert h.timer_keys() == []


def test_heartbeat_that_waits_is_told_not_coordinator_when_the_leadership_is_lost() -> None:
    """Whatever the new leader makes of the log; who comes before the unload waits for that."""
    h = Beats()
    beat = h.send(h.follower)
    h.lose_leadership()
    assert h.answer(beat) is ErrorCode.NOT_COORDINATOR
    behind = h.send(h.follower)
    h.commit_everything()
    assert h.answer(behind) is None
    h.unload(epoch=1)
    assert h.answer(behind) is ErrorCode.NOT_COORDINATOR


def test_heartbeat_without_leadership_is_given_up_if_nobody_unloads() -> None:
    """A load that takes long delays the unload; nobody waits for longer than a write may."""
    h = Beats()
    h.lose_leadership()
    beat = h.send(h.follower)
    h.advance(TIMEOUT_MS)
    assert h.answer(beat) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_heartbeat_after_a_load_waits_for_what_was_loaded_and_is_not_committed() -> None:
    """What a load reads above the high watermark was written before the heartbeat, too."""
    h = Beats()
    h.unload(epoch=1)
    h.load(epoch=2)
    beat = h.send(h.follower)
    assert h.answer(beat) is None
    h.commit_everything()
    assert h.answer(beat) is ErrorCode.NONE


def test_news_of_a_partition_that_is_not_here_changes_nothing() -> None:
    """The broker tells of every partition that it leads, also before its load."""
    h = CoordinatorHarness(java=JAVA, owned=())
    h.lose_leadership()
    h.load()
    (member_id,) = h.stable_group(1)
    assert h.beat(member_id, 1) is ErrorCode.NONE


def test_held_answers_are_no_members_that_heartbeat() -> None:
    """The gauge of delayed heartbeats counts sessions."""
    h = Beats()
    before = h.coordinator.sizes()
    h.send(h.follower)
    assert h.coordinator.sizes() == before


@pytest.mark.parametrize(
    "java",
    [
        JavaSwitches(),
        JavaSwitches(commits_apply_on_append=True, append_errors=True, failed_load_refuses=True),
    ],
)
def test_heartbeat_is_answered_from_memory_without_the_switch(java: JavaSwitches) -> None:
    """6.4 [S]: for ever, whatever is uncommitted."""
    h = Beats(java)
    assert h.beat(h.follower, 1) is ErrorCode.NONE


def test_only_a_coordinator_with_a_switch_for_it_follows_its_logs() -> None:
    """The broker tells nobody else, and it costs nothing."""
    others = JavaSwitches(append_errors=True, failed_load_refuses=True)
    assert not CoordinatorHarness(java=others).coordinator.follows_log
    assert CoordinatorHarness(java=JAVA).coordinator.follows_log
    commits = JavaSwitches(commits_apply_on_append=True)
    assert CoordinatorHarness(java=commits).coordinator.follows_log
