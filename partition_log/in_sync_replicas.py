"""InSyncReplicas: the ISR (in-sync replicas) of a leader, and its high watermark.

Only the controller can change an ISR. A leader proposes a change with the request AlterPartition.
While a proposal is in flight, the leader does not know whether the controller has applied it. So
for the high watermark the leader uses the *maximal* ISR: the ISR that the controller has stored
(the *committed* ISR), together with the replicas that the proposal adds.

For example, the committed ISR is 0, 1:
- The leader proposes 0, 1, 2. Until the answer, the maximal ISR is 0, 1, 2. Replica 2 counts
  already, because the controller may have stored the proposal, and may elect replica 2.
- The leader proposes only 0. Until the answer, the maximal ISR is 0, 1. Replica 1 still counts,
  because the controller may refuse to remove it.
So a leader that is cut off from the controller can never shrink its ISR and commit records alone.

A follower is caught up if it has lately had all records of its leader (`follower_state`). A broker
is eligible if it may join an ISR: it sends heartbeats to the controller, and is not shutting down.

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

    Invariant: `committed` is a subset of `maximal`. They are equal if no proposal is in flight.

    Attributes, to read only:
    - `committed`, `maximal`: the committed ISR and the maximal ISR;
    - `in_flight`: the proposal that waits for the controller's answer, or None;
    - `followers`: what a leader knows about each follower, by broker id;
    - `effective_min_isr`: min.insync.replicas, or the number of replicas if this is smaller;
    - `epoch_start_offset`: where the log ended when the leader epoch began, -1 on a follower.
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
        """True if the committed ISR is smaller than min.insync.replicas.

        This is checked before an append with acks=all, and before the high watermark rises.
        Replicas that a proposal adds do not count, because the controller may refuse to add them.
        The value is always False if an experiment has switched off the check (`min_insync_check`).
        """
        return self._config.min_insync_check and len(self.committed) < self.effective_min_isr

    @property
    def is_maximal_under_min(self) -> bool:
        """True if even the maximal ISR is smaller than min.insync.replicas.

        This is checked when the high watermark has passed an append. Replicas that a proposal adds
        do count, because the high watermark could pass the records only when these replicas, too,
        had them. The value is always False if an experiment has switched off the check
        (`min_insync_check`).
        """
        return self._config.min_insync_check and len(self.maximal) < self.effective_min_isr

    # -- metadata --

    def update_eligible(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Set the brokers that may join an ISR, with their broker epochs."""
        self._eligible = eligible

    def registered_epoch(self, broker: BrokerId) -> int:
        """Return the broker epoch of an eligible broker, -1 for any other broker.

        A broker gets a higher broker epoch at each start.
        """
        return self._eligible.get(broker, -1)

    def stays_at_end(self, broker: BrokerId, broker_epoch: int, now_us: int | None) -> bool:
        """Note a Fetch from the log end, if it changes nothing but the time of the last Fetch.

        The Fetch changes nothing else if the follower is in the ISR, and its last Fetch was from
        the same log end with the same broker epoch. Then neither the ISR nor the high watermark can
        change, and the result is True. Otherwise the result is False, and `Partition.fetch` must
        handle the Fetch.

        `now_us` is the time of the Fetch. It is None if the Fetch was held and is only read again:
        its time was noted when it arrived.
        """
        follower = self.followers.get(broker)
        if (
            follower is None
            or follower.log_end_offset != self._log.log_end_offset
            or follower.broker_epoch != broker_epoch
            or broker not in self.committed
            # The broker has registered again after a restart. This Fetch is from before the
            # restart.
            or self._eligible.get(broker, -1) > broker_epoch
        ):
            return False
        if now_us is not None:
            follower.fetched_at_end(now_us)
        return True

    def assign(self, replicas: tuple[BrokerId, ...], *, is_leader: bool) -> None:
        """Set the partition's replicas. A leader keeps what it knows about replicas that stay."""
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
        """Set the ISR that the controller has stored. No proposal is in flight any more."""
        self.committed = isr
        self.maximal = isr
        self.in_flight = None

    def revert(self) -> None:
        """Forget the proposal in flight.

        This is legal only if the controller has certainly not applied it.
        """
        self.commit(self.committed)

    def begin_epoch(self, *, is_new_leader: bool, now_us: int) -> None:
        """Begin a leader epoch at the log end; followers in the ISR count as caught up.

        `is_new_leader` is True if this broker did not lead in the previous epoch. Then its
        knowledge about the followers may be out of date, and is forgotten (`FollowerState.reset`).
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
        """Raise the high watermark, if the replicas that count have further records.

        The high watermark becomes the smallest log end of the replicas that count. All replicas of
        the maximal ISR count. A follower that is caught up and eligible counts, too, because it is
        about to join the ISR. To join, the follower must reach the high watermark. If the follower
        did not count, the high watermark would move on with every record, and the follower might
        never reach it.

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
        # Before the first Fetch of a follower, a new leader does not know where the follower's log
        # ends. Then this log end counts as -1, and the computed value is too low. But a leader
        # never lowers its high watermark.
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
        # It is not enough that the follower has reached the high watermark. After an election, the
        # new leader's high watermark may be lower than that of the previous leader, which may have
        # acknowledged further records. All these records are below the start of this leader epoch.
        # So the follower must have reached this start, too.
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
        """Put a proposal in flight.

        From now on, the replicas that it adds are in the maximal ISR.
        """
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
        # Replicas that the proposal removes are in `committed`, so they stay in the maximal ISR.
        self.maximal = self.committed + proposal.added
        return proposal

    # -- followers --

    def members_behind_for(self, longest_us: int, now_us: int) -> tuple[BrokerId, ...]:
        """Return the followers of the ISR that were last caught up more than `longest_us` ago."""
        # A broker of the ISR that is not a replica any more has no FollowerState, and is left out.
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

        For the leader itself this is the epoch of its registration. For a follower it is the broker
        epoch in its last Fetch, because this Fetch came from the process whose log the leader
        knows. Before the first Fetch of the follower, it is -1.
        """
        if broker == self._broker_id:
            return self.registered_epoch(broker)
        last_fetch_epoch = self.followers[broker].broker_epoch
        return -1 if last_fetch_epoch is None else last_fetch_epoch

    def _is_eligible(self, broker: BrokerId, follower: FollowerState) -> bool:
        """Return True if the follower may join the ISR (KIP-841, KIP-903)."""
        # The follower's last Fetch must come from the process that is registered now. After a
        # restart, perhaps with an empty disk, the earlier Fetches say nothing about the log.
        registered = self._eligible.get(broker)
        if registered is None or follower.broker_epoch is None:
            return False
        # A Fetch in an old version has no broker epoch (-1), so the process cannot be checked. The
        # follower may join nevertheless, as in Kafka.
        return follower.broker_epoch in (-1, registered)

    def _is_caught_up(self, follower: FollowerState, now_us: int) -> bool:
        """Return True if the follower was at the log end within replica.lag.time.max.ms."""
        return follower.is_caught_up(
            leader_end_offset=self._log.log_end_offset, now_us=now_us, lag_max_us=self._lag_max_us
        )

    def _is_lagging(self, broker: BrokerId, now_us: int) -> bool:
        """Return True if a member of the ISR must leave it. The leader itself never leaves."""
        if broker == self._broker_id:
            return False
        follower = self.followers.get(broker)
        # `follower` is None if the broker is not a replica any more. Then it must leave the ISR,
        # too.
        return follower is None or not self._is_caught_up(follower, now_us)
