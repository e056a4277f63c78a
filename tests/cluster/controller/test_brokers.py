"""Registration, heartbeats and fencing of brokers.

A broker registers, and gets a broker epoch. It is fenced at first: it counts as dead, and leads no
partition. A heartbeat unfences the broker if it shows that the broker has read the metadata log. A
broker has a session, which ends 9 s after its last heartbeat. Then the broker is fenced again.

`lab` passes requests to a controller, without brokers and network. `lab.heartbeat(0)` says that
broker 0 has read the whole metadata log, unless a test gives an offset. `lab.register(0,
incarnation_id=1)` is the registration of another process of broker 0, as after a restart.

Source: Kafka ClusterControlManagerTest; docs/kafka, BEHAVIOUR 6.2.
"""

from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.records.metadata import NO_LEADER, RegisterBrokerRecord
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

SESSION_MS = 9_000
"""The session of a broker."""
P0 = TopicPartition("orders", 0)


def running_lab(*, config: BrokerConfig | None = None) -> ControllerLab:
    """Return a controller with three live brokers; orders-0 has the replicas 0, 1, 2."""
    cluster = cluster_of(topic()) if config is None else cluster_of(topic(), config=config)
    lab = ControllerLab(cluster)
    lab.start_brokers(0, 1, 2)
    return lab


def keep_alive(lab: ControllerLab, *brokers: int, duration_ms: int) -> None:
    """Advance the time by `duration_ms`. Only `brokers` send heartbeats, every two seconds."""
    for _ in range(duration_ms // 2_000):
        lab.advance_ms(2_000)
        for broker_id in brokers:
            lab.heartbeat(broker_id)
    lab.advance_ms(duration_ms % 2_000)


def test_register_gives_the_offset_of_the_record_as_broker_epoch() -> None:
    """The metadata log grows with each registration, so broker epochs grow, too."""
    lab = ControllerLab(cluster_of())
    assert lab.register(0).broker_epoch == 0
    assert lab.register(1).broker_epoch == 1
    records = lab.records()
    assert isinstance(records[1], RegisterBrokerRecord)
    assert records[1].broker_epoch == 1
    assert lab.broker(1).fenced


def test_second_registration_by_the_same_process_gets_the_same_epoch() -> None:
    """The answer to a registration may be lost, so a broker may repeat the same registration."""
    lab = ControllerLab(cluster_of())
    lab.register(0)
    assert lab.register(0).broker_epoch == 0
    assert len(lab.records()) == 1


def test_registration_by_another_process_is_refused_while_the_session_runs() -> None:
    """The first process may still be alive, and two brokers must not have the same id.

    Source: Kafka ClusterControlManager.
    """
    lab = running_lab()
    records_before = lab.records()
    response = lab.register(0, incarnation_id=1)
    assert response.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert lab.records() == records_before


def test_registration_by_another_process_succeeds_once_the_old_one_is_fenced() -> None:
    """A restarted broker can register when its former process is fenced.

    Like every new process, the restarted one is fenced at first.
    """
    lab = running_lab()
    old_epoch = lab.broker_epochs[0]
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS)
    response = lab.register(0, incarnation_id=1)
    assert response.error_code is ErrorCode.NONE
    assert response.broker_epoch > old_epoch
    assert lab.broker(0).fenced
    assert lab.broker(0).incarnation_id == 1


def test_registration_at_the_end_of_the_old_session_first_moves_the_leaders() -> None:
    """A restarted broker may register when its session has ended, but the timer has not fired yet.

    So the registration itself fences the old process and moves its leaderships.
    """
    lab = running_lab()
    keep_alive(lab, 1, 2, duration_ms=8_000)
    lab.now_us += 1_000_000  # the session of 9 s ends now, but no timer fires
    assert lab.register(0, incarnation_id=1).error_code is ErrorCode.NONE
    assert lab.partition(P0).leader == 1
    assert lab.partition(P0).isr == (1, 2)
    assert len(lab.events(TraceKind.BROKER_FENCED)) == 1


def test_heartbeat_of_a_broker_that_has_not_read_its_registration_leaves_it_fenced() -> None:
    """A broker is unfenced only when it has read the metadata log up to its own registration.

    With older metadata it would not know which partitions it has to lead.
    """
    lab = ControllerLab(cluster_of())
    lab.register(0)
    lab.register(1)  # its record has the offset 1
    response = lab.heartbeat(1, offset=0)  # broker 1 has read the log up to offset 0
    assert (response.is_caught_up, response.is_fenced) == (False, True)
    response = lab.heartbeat(1, offset=1)
    assert (response.is_caught_up, response.is_fenced) == (True, False)
    assert [event.peer for event in lab.events(TraceKind.BROKER_UNFENCED)] == ["broker-1"]


def test_heartbeat_with_want_fence_leaves_the_broker_fenced() -> None:
    """A starting broker sends heartbeats with `want_fence` until it is ready to serve.

    With these heartbeats the broker only asks whether it has read the metadata log up to its
    registration. They change nothing, so the log has no other record than the registration.
    """
    lab = ControllerLab(cluster_of())
    lab.register(0)
    response = lab.heartbeat(0, want_fence=True)
    assert (response.is_caught_up, response.is_fenced) == (True, True)
    assert len(lab.records()) == 1


def test_heartbeat_with_another_broker_epoch_is_stale_and_changes_nothing() -> None:
    """A former process of the broker must not extend the session of the present process."""
    lab = running_lab()
    records_before = lab.records()
    keep_alive(lab, 1, 2, duration_ms=8_000)  # broker 0 has been silent for 8 s
    response = lab.heartbeat(0, epoch=lab.broker_epochs[0] + 1_000)
    assert response.error_code is ErrorCode.STALE_BROKER_EPOCH
    never_registered = lab.heartbeat(7, epoch=3)
    assert never_registered.error_code is ErrorCode.STALE_BROKER_EPOCH
    assert lab.records() == records_before
    # The heartbeat with the wrong epoch did not extend the session, which ends now, after 9 s.
    lab.advance_ms(1_000)
    assert lab.broker(0).fenced


def test_silent_broker_is_fenced_exactly_when_its_session_ends() -> None:
    """The session ends 9 s after the last heartbeat, not a millisecond earlier or later."""
    lab = running_lab()
    keep_alive(lab, 0, 1, 2, duration_ms=4_000)
    last_heartbeat_us = lab.now_us
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS - 1)
    assert not lab.broker(0).fenced
    keep_alive(lab, 1, 2, duration_ms=1)
    assert lab.broker(0).fenced
    assert lab.now_us - last_heartbeat_us == SESSION_MS * 1_000
    (event,) = lab.events(TraceKind.BROKER_FENCED)
    assert event.peer == "broker-0"
    assert event.detail == {"reason": "session ended", "silent_ms": SESSION_MS}


def test_brokers_that_send_heartbeats_are_never_fenced() -> None:
    """The controller has one timer for all sessions, and a heartbeat does not set the timer anew.

    So the timer fires several times in this minute. Each time the controller must find that no
    session has ended.
    """
    lab = running_lab()
    keep_alive(lab, 0, 1, 2, duration_ms=60_000)
    assert lab.events(TraceKind.BROKER_FENCED) == []


def test_fencing_takes_the_broker_out_of_every_isr_and_moves_its_leaders() -> None:
    """The new leader is the first of the replicas that is alive and in the ISR (BEHAVIOUR 6.2).

    Broker 0 led orders-0, and followed in orders-1. So both partitions lose it from their ISR, and
    both partition epochs grow by 1. Only orders-0 gets a new leader, so only this leader epoch
    grows.
    """
    lab = running_lab()
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS)
    led, followed = lab.partition(P0), lab.partition(TopicPartition("orders", 1))
    assert (led.leader, led.leader_epoch, led.partition_epoch) == (1, 1, 1)
    assert led.isr == (1, 2)
    assert (followed.leader, followed.leader_epoch, followed.partition_epoch) == (1, 0, 1)
    assert followed.isr == (1, 2)
    # A topic is created with leader epoch 0, so the new leader has epoch 1.
    elections = lab.events(TraceKind.LEADER_ELECTED)
    (elected,) = [event for event in elections if event.leader_epoch == 1]
    assert (elected.partition, elected.peer) == ("orders-0", "broker-1")
    assert elected.detail == {"isr": [1, 2], "reason": "broker fenced"}
    assert [event.partition for event in lab.events(TraceKind.ISR_CHANGED)] == [
        "orders-0",
        "orders-1",
        "orders-2",
    ]


def test_fencing_is_one_batch_of_the_log() -> None:
    """Fencing writes several records: the fenced broker, and its partitions' new leaders.

    A reader of the log gets a batch as a whole. So it never sees a fenced broker that still leads.
    """
    lab = running_lab()
    batches_before = len(lab.storage)
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS)
    assert len(lab.storage) == batches_before + 1


def test_last_member_of_an_isr_remains_in_it_without_a_leader() -> None:
    """When the last member of an ISR is fenced, it stays in the ISR, and there is no leader.

    The partition waits for this member to return. Any other broker might lack acknowledged records,
    so none is elected.
    """
    lab = running_lab()
    # All sessions end at the same time. The controller fences broker 0 first and broker 2 last.
    lab.advance_ms(SESSION_MS)
    assert lab.partition(P0).leader == NO_LEADER
    assert lab.partition(P0).isr == (2,)
    assert lab.events(TraceKind.LEADER_ELECTED)[-1].peer == ""  # there is no new leader


def test_unfenced_broker_leads_partitions_without_a_leader() -> None:
    """The last member of the ISR returns and is elected, in a new leader epoch."""
    lab = running_lab()
    lab.advance_ms(SESSION_MS)  # all brokers are fenced; broker 2 is the whole ISR
    epoch_before = lab.partition(P0).leader_epoch
    lab.register(1, incarnation_id=1)  # broker 1 restarts
    lab.heartbeat(1)
    assert lab.partition(P0).leader == NO_LEADER  # broker 1 is not in the ISR
    lab.register(2, incarnation_id=1)  # broker 2 restarts
    lab.heartbeat(2)
    assert lab.partition(P0).leader == 2
    assert lab.partition(P0).leader_epoch == epoch_before + 1


def test_unclean_election_takes_an_alive_replica_from_outside_the_isr() -> None:
    """unclean.leader.election.enable allows such an election, although records may be lost.

    The elected replica becomes the only member of the ISR.
    """
    config = BrokerConfig(
        auto_leader_rebalance_enable=False,  # as in the other tests of this file
        unclean_leader_election_enable=True,
    )
    lab = running_lab(config=config)
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS)  # broker 1 leads now
    lab.alter_partition(P0, (1,), by=1)  # broker 1 removes broker 2 from the ISR
    keep_alive(lab, 2, duration_ms=SESSION_MS)  # broker 1, the whole ISR, is fenced
    assert lab.partition(P0).leader == 2
    assert lab.partition(P0).isr == (2,)


def test_clean_election_leaves_a_partition_without_leader_instead_of_losing_data() -> None:
    """By default a replica from outside the ISR is not elected, because it may lack records."""
    lab = running_lab()
    keep_alive(lab, 1, 2, duration_ms=SESSION_MS)  # broker 1 leads now
    lab.alter_partition(P0, (1,), by=1)  # broker 1 removes broker 2 from the ISR
    keep_alive(lab, 2, duration_ms=SESSION_MS)  # broker 1, the whole ISR, is fenced
    assert lab.partition(P0).leader == NO_LEADER
    assert lab.partition(P0).isr == (1,)
