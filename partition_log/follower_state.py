"""What a leader knows of one follower. Source: Kafka `Replica`.

A follower is caught up while it has reached, within `replica.lag.time.max.ms`, what was the log
end when it fetched.
"""

from protocol.ids import Offset

NEVER_US = -(2**62)
"""A time before every run: what a follower has that has never fetched, or never caught up."""
UNKNOWN_OFFSET = Offset(-1)


class SharedFetchTime:
    """When a follower last fetched from the log ends of many partitions: one time for all.

    A follower asks for all that it follows after every append, and lacks something of one
    partition: to note the time with each of the others is most of what such a Fetch costs.
    Units: `time_us` is on the leader's clock.
    """

    __slots__ = ("time_us",)

    def __init__(self) -> None:
        self.time_us = NEVER_US


class FollowerState:
    """One follower as its leader sees it.

    Units: times are microseconds on the leader's clock.
    Attributes, to read only: `log_end_offset` (-1 before its first fetch), `broker_epoch` (of its
    last fetch, None before the first).
    """

    __slots__ = (
        "_last_caught_up_time_us",
        "_last_fetch_leader_log_end_offset",
        "_last_fetch_time_us",
        "_shared",
        "broker_epoch",
        "log_end_offset",
    )

    def __init__(self) -> None:
        self._shared: SharedFetchTime | None = None
        """Counts as a fetch at the log end, as often as it is set, until `count_alone`."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None
        self._last_caught_up_time_us = NEVER_US
        self._last_fetch_time_us = NEVER_US
        self._last_fetch_leader_log_end_offset = UNKNOWN_OFFSET

    def reset(
        self, *, now_us: int, leader_end_offset: Offset, is_new_leader: bool, is_in_isr: bool
    ) -> None:
        """Begin a leader epoch: a follower in the ISR counts as caught up now, another never.

        A leader that is elected again keeps what it knows of the follower's log end.
        Source: Kafka Replica.resetReplicaState.
        """
        self.count_alone()
        caught_up_us = now_us if is_in_isr else NEVER_US
        self._last_caught_up_time_us = caught_up_us
        if is_new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.broker_epoch = None
            self._last_fetch_time_us = NEVER_US
            self._last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        else:
            self._last_fetch_time_us = caught_up_us
            self._last_fetch_leader_log_end_offset = leader_end_offset

    def update_fetch_state(
        self, *, fetch_offset: Offset, leader_end_offset: Offset, broker_epoch: int, now_us: int
    ) -> None:
        """Take note of a fetch from `fetch_offset`, which is the follower's log end.

        It is caught up now if it reads from the log end, or as of its previous fetch if it has
        reached what was the log end then: a follower that keeps up with a busy leader is never
        at the end, and never lags. Source: Kafka Replica.updateFetchStateOrThrow.
        """
        self.count_alone()
        if fetch_offset >= leader_end_offset:
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        elif fetch_offset >= self._last_fetch_leader_log_end_offset:
            self._last_caught_up_time_us = max(
                self._last_caught_up_time_us, self._last_fetch_time_us
            )
        self.log_end_offset = fetch_offset
        self._last_fetch_leader_log_end_offset = max(
            leader_end_offset, self._last_fetch_leader_log_end_offset
        )
        self._last_fetch_time_us = now_us
        self.broker_epoch = broker_epoch

    def fetched_at_end(self, now_us: int) -> None:
        """Take note of a fetch that is at the leader's log end, as the one before was."""
        self.count_alone()
        self._last_caught_up_time_us = max(self._last_caught_up_time_us, now_us)
        self._last_fetch_time_us = now_us

    def count_with(self, shared: SharedFetchTime) -> None:
        """Take each time that `shared` is set to as a fetch at the log end, as the one before."""
        self.count_alone()
        self._shared = shared

    def count_alone(self) -> None:
        """Keep the last shared time, and take no later one."""
        shared = self._shared
        if shared is not None:
            self._shared = None
            self._last_fetch_time_us = max(self._last_fetch_time_us, shared.time_us)
            self._last_caught_up_time_us = max(self._last_caught_up_time_us, shared.time_us)

    def is_caught_up(self, *, leader_end_offset: Offset, now_us: int, lag_max_us: int) -> bool:
        """Say whether it is at the log end, or was caught up within `lag_max_us`."""
        caught_up_us = self._last_caught_up_time_us
        if self._shared is not None:
            caught_up_us = max(caught_up_us, self._shared.time_us)
        return self.log_end_offset == leader_end_offset or now_us - caught_up_us <= lag_max_us
