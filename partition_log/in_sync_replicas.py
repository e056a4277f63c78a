"""InSyncReplicas: the ISR (in-sync replicas) of a leader, and its high watermark.

The high watermark is the offset below which every in-sync replica has the records. Only the
controller changes an ISR; a leader proposes a change with the request AlterPartition. While a
proposal is in flight, the leader cannot know whether the controller has applied it. Until the
answer it uses the *maximal* ISR: the ISR that the controller has stored (the *committed* ISR),
together with the replicas that the proposal adds. This is safe in both cases:
- a replica that is being added counts already, since the controller may elect it from now on;
- a replica that is being removed still counts, since the removal may be refused.
So a leader that is cut off from the controller cannot commit records alone: it cannot shrink its
ISR.

- Committed record: a record below the high watermark. For an ISR, the word has the other meaning.
- Caught up: of a follower that has lately had all records of its leader (`follower_state`).
- Eligible broker: a broker that may join an ISR. It is registered with the controller, is not
  fenced (a broker is fenced while it sends no heartbeats), and is not shutting down. Its broker
  epoch is the number of its registration, which each restart increases.
- `min_insync_check`: Kafka's check of min.insync.replicas, which an experiment may switch off to
  show what it prevents.
Source: docs/kafka/BEHAVIOUR.md 6.1, Kafka `Partition.PartitionState`, KIP-497.
"""

from collections.abc import Mapping

from partition_log.follower_state import FollowerState
from partition_log.log import PartitionLog
from partition_log.outcomes import IsrProposal, ReplicaConfig
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from protocol.messages.controller import AlterPartitionPartitionData, IsrBrokerState

_US_PER_MS = 1_000


class InSyncReplicas:
    """The followers of one partition and its ISR, with at most one proposal in flight.

    Invariant: `committed` is a subset of `maximal`; both are equal while no proposal is in flight.

    Attributes, to read only:
    - `committed`, `maximal`: the committed ISR and the maximal ISR;
    - `in_flight`: the proposal that waits for the controller's answer, or None;
    - `followers`: the followers by broker id, in the order of the assignment;
    - `effective_min_isr`: min.insync.replicas, but at most the number of replicas;
    - `epoch_start_offset`: the log end when the leader epoch began, -1 on a follower.
    """

    __slots__ = (
        "_broker_id",
        "_config",
        "_eligible",
        "_lag_max_us",
        "_log",
        "committed",
        "effective_min_isr",
        "epoch_start_offset",
        "followers",
        "in_flight",
        "maximal",
    )

    def __init__(self, broker_id: BrokerId, log: PartitionLog, config: ReplicaConfig) -> None:
        self._broker_id = broker_id
        self._log = log
        self._config = config
        self._lag_max_us = config.replica_lag_time_max_ms * _US_PER_MS
        self._eligible: Mapping[BrokerId, BrokerEpoch] = {}
        self.committed: tuple[BrokerId, ...] = ()
        self.maximal: tuple[BrokerId, ...] = ()
        self.in_flight: IsrProposal | None = None
        self.followers: dict[BrokerId, FollowerState] = {}
        self.effective_min_isr = 0
        self.epoch_start_offset = Offset(-1)

    @property
    def is_under_min(self) -> bool:
        """True if the committed ISR is too small for acks=all; never with `min_insync_check` off.

        Checked before an append and before the high watermark rises. Replicas that a proposal adds
        do not count, because the controller may refuse to add them.
        """
        return self._config.min_insync_check and len(self.committed) < self.effective_min_isr

    @property
    def is_maximal_under_min(self) -> bool:
        """True if even the maximal ISR is too small; never with `min_insync_check` off.

        Checked once the high watermark has passed an append. The replicas that a proposal adds
        count here: the high watermark passed only because their logs have the records, too.
        """
        return self._config.min_insync_check and len(self.maximal) < self.effective_min_isr

    # -- metadata --

    def update_eligible(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Set the brokers that may join an ISR, with their broker epochs."""
        self._eligible = eligible

    def registered_epoch(self, broker: BrokerId) -> int:
        """Return the broker epoch of an eligible broker, -1 for others."""
        return self._eligible.get(broker, -1)

    def stays_at_end(self, broker: BrokerId, broker_epoch: int, now_us: int | None) -> bool:
        """Record a Fetch from the log end if it changes nothing but the time of the last Fetch.

        Returns: True for such a Fetch. The follower is in the ISR, and its last Fetch was from the
        same log end, with the same broker epoch. So neither the ISR nor the high watermark can
        move. If the result is False, nothing was recorded, and `Partition.fetch` must handle the
        Fetch.

        now_us: the time of the Fetch. It is None if the Fetch was recorded when it arrived, and its
            partitions are only read again; then nothing is recorded here.
        """
        follower = self.followers.get(broker)
        if (
            follower is None
            or follower.log_end_offset != self._log.log_end_offset
            or follower.broker_epoch != broker_epoch
            or broker not in self.committed
            # The broker has restarted and registered again. This Fetch is from before the restart.
            or self._eligible.get(broker, -1) > broker_epoch
        ):
            return False
        if now_us is not None:
            follower.fetched_at_end(now_us)
        return True

    def assign(self, replicas: tuple[BrokerId, ...], *, is_leader: bool) -> None:
        """Set the partition's replicas; a leader keeps what it knows of remaining followers."""
        self.effective_min_isr = min(self._config.min_insync_replicas, len(replicas))
        if not is_leader:
            self.followers = {}
            self.epoch_start_offset = Offset(-1)
            return
        self.followers = {
            broker: self.followers.get(broker) or FollowerState()
            for broker in replicas
            if broker != self._broker_id
        }

    def commit(self, isr: tuple[BrokerId, ...]) -> None:
        """Set the ISR that the controller has committed. No proposal is in flight any more."""
        self.committed = isr
        self.maximal = isr
        self.in_flight = None

    def revert(self) -> None:
        """Return to the committed ISR, without the proposal in flight.

        Legal only if the controller has certainly not applied the proposal.
        """
        self.commit(self.committed)

    def begin_epoch(self, *, is_new_leader: bool, now_us: int) -> None:
        """Begin a leader epoch at the log end; followers in the ISR count as caught up.

        A leader epoch is the number of the partition's leadership. `is_new_leader`: this broker did
        not lead in the epoch before. Its knowledge of the followers may be out of date, and is
        forgotten (`FollowerState.reset`).
        """
        self.epoch_start_offset = self._log.log_end_offset
        for broker, follower in self.followers.items():
            follower.reset(
                now_us=now_us,
                leader_end_offset=self.epoch_start_offset,
                is_new_leader=is_new_leader,
                is_in_isr=broker in self.committed,
            )

    # -- high watermark --

    def maybe_increment_high_watermark(self, now_us: int) -> bool:
        """Raise the high watermark to the smallest log end of certain replicas.

        These are the replicas of the maximal ISR, and the followers that are caught up and
        eligible. Such a follower is about to join the ISR. To join, it must reach the high
        watermark. If its log end did not count, the high watermark would move on with every record,
        and the follower might never reach it.

        Returns: True if the high watermark moved.
        Source: Kafka Partition.maybeIncrementLeaderHW.
        """
        # As in Kafka, no record is committed while the ISR is smaller than min.insync.replicas.
        if self.is_under_min:
            return False
        log = self._log
        new_high_watermark = log.log_end_offset
        for broker, follower in self.followers.items():
            if follower.log_end_offset < new_high_watermark and (
                broker in self.maximal
                or (self._is_caught_up(follower, now_us) and self._is_eligible(broker, follower))
            ):
                new_high_watermark = follower.log_end_offset
        # The high watermark of a leader never falls. A new leader does not know the log ends of its
        # followers before their first Fetches (-1), and so computes a value that is too low.
        if new_high_watermark <= log.high_watermark:
            return False
        return log.update_high_watermark(new_high_watermark)

    # -- proposals --

    def propose_expansion(
        self, broker: BrokerId, *, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch
    ) -> IsrProposal | None:
        """Propose an ISR with `broker`, if the follower has every committed record.

        Source: Kafka Partition.maybeExpandIsr.
        """
        follower = self.followers[broker]
        # A follower that has reached the high watermark may still lack committed records: after an
        # election the high watermark may lag behind records that the earlier leader acknowledged.
        # All of those records are below the start of this leader epoch. So the follower must reach
        # this start, too.
        if (
            broker in self.committed
            or self.in_flight is not None
            or follower.log_end_offset < self._log.high_watermark
            or follower.log_end_offset < self.epoch_start_offset
            or not self._is_eligible(broker, follower)
        ):
            return None
        return self._propose((*self.committed, broker), leader_epoch, partition_epoch)

    def propose_shrink(
        self, *, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch, now_us: int
    ) -> IsrProposal | None:
        """Propose an ISR without the followers that are not caught up.

        Source: Kafka Partition.maybeShrinkIsr.
        """
        if self.in_flight is not None:
            return None
        kept = tuple(broker for broker in self.committed if not self._is_lagging(broker, now_us))
        if len(kept) == len(self.committed):
            return None
        return self._propose(kept, leader_epoch, partition_epoch)

    def _propose(
        self,
        new_isr: tuple[BrokerId, ...],
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    ) -> IsrProposal:
        """Put a proposal in flight; from now on, replicas that it adds count in the maximal ISR."""
        proposal = IsrProposal(
            data=AlterPartitionPartitionData(
                partition_index=self._log.topic_partition.partition,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                new_isr_with_epochs=tuple(
                    IsrBrokerState(broker, self._broker_epoch(broker)) for broker in new_isr
                ),
            ),
            new_isr=new_isr,
            added=tuple(broker for broker in new_isr if broker not in self.committed),
            removed=tuple(broker for broker in self.committed if broker not in new_isr),
        )
        self.in_flight = proposal
        # Replicas that the proposal removes stay in the maximal ISR: `committed` has them.
        self.maximal = self.committed + proposal.added
        return proposal

    # -- followers --

    def members_behind_for(self, longest_us: int, now_us: int) -> tuple[BrokerId, ...]:
        """Return the followers of the ISR that were last caught up more than `longest_us` ago."""
        return tuple(
            broker
            for broker in self.committed
            if broker != self._broker_id
            and (follower := self.followers.get(broker)) is not None
            and not follower.is_caught_up(
                leader_end_offset=self._log.log_end_offset, now_us=now_us, lag_max_us=longest_us
            )
        )

    def _broker_epoch(self, broker: BrokerId) -> int:
        """Return the broker epoch that a proposal names for a broker.

        A follower has the broker epoch of its last Fetch, or -1 if it has sent no Fetch. The leader
        has the broker epoch of its registration.
        """
        if broker == self._broker_id:
            return self.registered_epoch(broker)
        last_fetch_epoch = self.followers[broker].broker_epoch
        return -1 if last_fetch_epoch is None else last_fetch_epoch

    def _is_eligible(self, broker: BrokerId, follower: FollowerState) -> bool:
        """Return True if the follower may join the ISR (KIP-841, KIP-903)."""
        # The follower's fetches must come from its registered incarnation. After a restart, perhaps
        # without its disk, the broker has a new epoch, and its earlier fetches prove nothing about
        # its log.
        registered = self._eligible.get(broker)
        if registered is None or follower.broker_epoch is None:
            return False
        # The follower's epoch is -1 if its last Fetch was of a version without a broker epoch. As
        # in Kafka the follower may join nevertheless, because its incarnation cannot be checked.
        return follower.broker_epoch in (-1, registered)

    def _is_caught_up(self, follower: FollowerState, now_us: int) -> bool:
        """Return True if the follower was at the log end within replica.lag.time.max.ms."""
        return follower.is_caught_up(
            leader_end_offset=self._log.log_end_offset, now_us=now_us, lag_max_us=self._lag_max_us
        )

    def _is_lagging(self, broker: BrokerId, now_us: int) -> bool:
        """Return True for a member of the ISR that must leave it; never for the leader itself."""
        if broker == self._broker_id:
            return False
        follower = self.followers.get(broker)
        # A broker that is not among the replicas has no FollowerState. It must leave the ISR, too.
        return follower is None or not self._is_caught_up(follower, now_us)
