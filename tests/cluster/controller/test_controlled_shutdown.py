"""Controlled shutdown: the controller moves a broker's leaderships, and then lets it stop.

A broker asks for permission to stop by heartbeats with `want_shut_down`. The controller moves the
broker's leaderships, and waits until all other active brokers have applied the records of this
move. Then the controller lets the broker stop, and fences it, that is, counts it as dead.

`lab` passes requests to a controller, without brokers and network. Broker i leads orders-i.
`lab.heartbeat(i)` says that broker i has applied the whole metadata log, unless a test gives an
offset.

Source: Kafka BrokerHeartbeatManagerTest.
"""

from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.records.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
)
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


def running_lab(*, replication_factor: int = 3) -> ControllerLab:
    """Return a controller with three live brokers that have applied all metadata."""
    lab = ControllerLab(cluster_of(topic(replication_factor=replication_factor)))
    lab.start_brokers(0, 1, 2)
    heartbeat_all(lab, 0, 1, 2)
    return lab


def heartbeat_all(lab: ControllerLab, *brokers: int) -> None:
    """Send a heartbeat of each broker. It says that the broker has applied all metadata."""
    for broker_id in brokers:
        lab.heartbeat(broker_id)


def test_shutdown_moves_leaders_and_isrs_at_once_while_the_broker_stays_unfenced() -> None:
    """The controller moves the leaderships at once, but lets the broker go on serving.

    The broker serves until all others have the new metadata, so clients always find a leader.
    """
    lab = running_lab()
    batches_before = len(lab.storage)
    response = lab.heartbeat(0, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    assert lab.broker(0).in_controlled_shutdown
    assert not lab.broker(0).fenced
    assert (lab.partition(P0).leader, lab.partition(P0).leader_epoch) == (1, 1)
    # The replicas of P0, P1 and P2 are (0, 1, 2), (1, 2, 0) and (2, 0, 1).
    assert [lab.partition(name).isr for name in (P0, P1, P2)] == [(1, 2), (1, 2), (2, 1)]

    # One batch was written. It has a record for the broker, and a record for each of the three
    # partitions, because each ISR has changed.
    assert len(lab.storage) == batches_before + 1
    written = [type(record) for record in lab.records()[-4:]]
    assert written == [BrokerRegistrationChangeRecord] + [PartitionChangeRecord] * 3

    # Broker 0 led one of the three partitions. Leader epoch 0 is from the creation of the topic.
    elections = lab.events(TraceKind.LEADER_ELECTED)
    (elected,) = [event for event in elections if event.leader_epoch == 1]
    assert elected.detail == {"isr": [1, 2], "reason": "controlled shutdown"}


def test_shutdown_waits_until_every_active_broker_has_applied_the_move() -> None:
    """A broker that has not applied the move still sends clients to the old leader."""
    lab = running_lab()
    last_offset_before_move = lab.log.log_end_offset - 1
    lab.heartbeat(0, want_shut_down=True)
    lab.heartbeat(1)
    lab.heartbeat(2, offset=last_offset_before_move)  # broker 2 has not applied the move
    assert not lab.heartbeat(0, want_shut_down=True).should_shut_down

    lab.heartbeat(2)
    response = lab.heartbeat(0, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert lab.broker(0).fenced
    (fenced,) = lab.events(TraceKind.BROKER_FENCED)
    assert fenced.peer == "broker-0"
    assert fenced.detail is not None
    assert fenced.detail["reason"] == "controlled shutdown"


def test_shutdown_does_not_wait_for_records_after_the_move() -> None:
    """If a shutdown waited for later records, a busy metadata log could delay it for ever."""
    lab = running_lab()
    lab.heartbeat(0, want_shut_down=True)
    heartbeat_all(lab, 1, 2)
    lab.alter_partition(P1, (1,), by=1)  # writes a record that no broker has applied yet
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down


def test_shutdown_does_not_wait_for_brokers_that_shut_down_too() -> None:
    """Two brokers that stop at the same time must not wait for each other."""
    lab = running_lab()
    last_offset_before_move = lab.log.log_end_offset - 1
    lab.heartbeat(0, want_shut_down=True)
    lab.heartbeat(2, offset=last_offset_before_move, want_shut_down=True)
    lab.heartbeat(1)  # broker 1, the only active broker that is left, has applied all metadata
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down
    assert lab.heartbeat(2, want_shut_down=True).should_shut_down


def test_shutdown_of_a_broker_that_leads_nothing_is_granted_at_once() -> None:
    """No leadership moves, so the controller waits for no other broker.

    The broker also leaves the ISRs of the partitions that it follows.
    """
    lab = running_lab()
    # Broker 0 gives its only leadership to broker 1.
    lab.reassign(P0, (1, 0, 2))
    lab.elect_leaders(P0)
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down
    assert lab.broker(0).fenced
    assert lab.partition(P0).isr == (1, 2)


def test_shutdown_of_the_last_isr_member_leaves_the_partition_without_a_leader() -> None:
    """As in Kafka, the broker may stop. It stays in the ISR, but the partition has no leader."""
    lab = running_lab(replication_factor=1)
    lab.heartbeat(0, want_shut_down=True)
    assert lab.partition(P0).leader == NO_LEADER
    assert lab.partition(P0).isr == (0,)
    heartbeat_all(lab, 1, 2)
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down


def test_shutdown_of_a_fenced_broker_is_granted_at_once_and_writes_nothing() -> None:
    """A fenced broker leads nothing any more, and has left each ISR that has another member."""
    lab = running_lab()
    # Broker 0 sends no heartbeat for 10 s. It is fenced after 9 s.
    for _ in range(5):
        lab.advance_ms(2_000)
        heartbeat_all(lab, 1, 2)
    assert lab.broker(0).fenced
    records_before = lab.records()
    response = lab.heartbeat(0, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert lab.records() == records_before


def test_silent_broker_in_shutdown_is_fenced_like_any_other() -> None:
    """The process may die during its shutdown, so its session of 9 s must still end."""
    lab = running_lab()
    lab.heartbeat(0, want_shut_down=True)
    # Broker 0 sends no other heartbeat for 10 s.
    for _ in range(5):
        lab.advance_ms(2_000)
        heartbeat_all(lab, 1, 2)
    (fenced,) = lab.events(TraceKind.BROKER_FENCED)
    assert fenced.detail == {"reason": "session ended", "silent_ms": 9_000}
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down


def test_broker_in_shutdown_may_neither_lead_nor_join_an_isr() -> None:
    """A broker in shutdown gets no new leadership, which the controller would have to move again.

    For the same reason it does not join an ISR.
    """
    lab = running_lab()
    lab.heartbeat(0, want_shut_down=True)
    answer = lab.alter_partition(P1, (1, 2, 0), by=1)
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA
    (result,) = lab.elect_leaders(P0).replica_election_results
    assert result.partition_result[0].error_code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_register_after_a_controlled_shutdown_succeeds_at_once() -> None:
    """The broker was fenced when it was allowed to stop, so it has no session any more.

    After a crash it could register again only when its session has ended.
    """
    lab = running_lab()
    lab.heartbeat(0, want_shut_down=True)
    heartbeat_all(lab, 1, 2)
    assert lab.heartbeat(0, want_shut_down=True).should_shut_down
    response = lab.register(0, incarnation_id=1)
    assert response.error_code is ErrorCode.NONE
    assert not lab.broker(0).in_controlled_shutdown
    assert not lab.heartbeat(0).is_fenced


def test_shutdown_continues_under_a_restarted_controller() -> None:
    """The broker leads nothing any more, so the restarted controller lets it stop at once."""
    lab = running_lab()
    lab.heartbeat(0, want_shut_down=True)
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    restarted.broker_epochs = lab.broker_epochs  # the brokers are still registered
    assert restarted.heartbeat(0, want_shut_down=True).should_shut_down
    assert restarted.broker(0).fenced
