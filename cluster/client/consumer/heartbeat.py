"""Heartbeats of a member: when it sends one, and what each answer makes it do.

Kafka uses a thread that checks every `retry.backoff.ms` whether something must be done. Here a task
sleeps until something is due or has changed. The task does four things:

- It sends a heartbeat every `heartbeat.interval.ms`.
- If the coordinator has not answered for `session.timeout.ms`, the member forgets the coordinator.
- If no coordinator is known, the member asks a broker for it (a *lookup*).
- If the application has not polled for `max.poll.interval.ms`, the member leaves the group.

Source: Kafka AbstractCoordinator.HeartbeatThread, HeartbeatResponseHandler, Heartbeat; docs/kafka,
BEHAVIOUR 7.4.
"""

from cluster.client.consumer.generation import Generation, MemberState, StateReason, reset_reason
from cluster.client.consumer.membership import Membership
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError, error_from_code, unexpected_error
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import MS, ExponentialBackoff
from cluster.host.host import Host
from protocol.causes import CoordinatorUnknownCause, MemberStateCause
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse


class Heartbeat:
    """Sends one member's heartbeats, and watches the session timeout and the poll interval."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        membership: Membership,
        discovery: CoordinatorDiscovery,
        backoff: ExponentialBackoff,
        *,
        application: Wakeup,
    ) -> None:
        """Create a disabled heartbeat.

        `application` is the wakeup of the application's poll. It is set when poll must raise
        `failure`.
        """
        self.failure: ClientError | None = None
        """Error that the application's next poll must raise; None if no heartbeat was fatal."""
        self._host = host
        self._config = config
        self._membership = membership
        self._discovery = discovery
        self._backoff = backoff
        self._application = application
        self._wakeup = Wakeup(host)
        self._is_enabled = False
        self._is_closed = False
        self._failures = 0  # heartbeats that failed since the last success; sets the backoff
        self._heartbeat_due_us = 0
        # Time at which the client considers its session over. The coordinator's timer may end
        # earlier or later.
        self._session_ends_us = 0
        # Time of the next lookup, while the coordinator is unknown.
        self._lookup_due_us = 0
        self._awaited_lookup: RequestFuture[None] | None = None
        """The lookup that the last call of `_look_up` found or began.

        None if the last call abandoned a lookup."""
        self._next_step_us: int | None = None
        """Time of the task's next step, if nothing wakes the task earlier.

        None if the task takes its next step only when it is woken.
        """
        self._poll_ended_us: int | None = None
        """Time of the application's last return from poll; None while it is inside poll."""

    def enable(self) -> None:
        """Begin to send heartbeats, because the member has entered a generation."""
        now_us = self._host.now_us()
        self._is_enabled = True
        self._failures = 0
        self._heartbeat_due_us = now_us + self._config.heartbeat_interval_ms * MS
        self.reset_session_timeout()
        self.wake()

    def close(self) -> None:
        """Stop sending heartbeats; the task ends."""
        self._is_closed = True
        self.wake()

    def wake(self) -> None:
        """Make the task check now what is due, because the coordinator, state or a time changed."""
        self._wakeup.set()

    def reset_session_timeout(self) -> None:
        """Restart the session timeout, because the coordinator answered or was found."""
        self._session_ends_us = self._host.now_us() + self._config.session_timeout_ms * MS

    def poll_entered(self) -> None:
        """Stop the poll interval, because the application is inside poll now."""
        self._poll_ended_us = None

    def poll_left(self) -> None:
        """Start the poll interval, `max.poll.interval.ms`, in which the application must poll."""
        now_us = self._host.now_us()
        self._poll_ended_us = now_us
        # Polls end many times a second. To save work, the task is woken only if it would otherwise
        # take its next step too late for the new deadline.
        deadline_us = now_us + self._config.max_poll_interval_ms * MS
        if self._next_step_us is not None and deadline_us < self._next_step_us:
            self.wake()

    async def run(self) -> None:
        """Send heartbeats until `close`."""
        while not self._is_closed:
            self._next_step_us = self._step()
            await self._wakeup.wait(self._next_step_us)

    def _step(self) -> int | None:
        """Do what is due; return the time of the next step, None if only a wakeup causes it."""
        if not self._is_enabled:
            return None
        state = self._membership.member.state
        # A member that is in no generation sends no heartbeats. The same is true after a fatal
        # error of a heartbeat. The next successful JoinGroup calls `enable` again.
        if self.failure is not None or state in (
            MemberState.UNJOINED,
            MemberState.PREPARING_REBALANCE,
        ):
            self._is_enabled = False
            return None

        # Kafka's order: an unknown coordinator, the two timeouts, and only then a heartbeat.
        now_us = self._host.now_us()
        if self._discovery.coordinator() is None:
            if now_us >= self._lookup_due_us:
                # Kafka's thread waits retry.backoff.ms, without jitter, between two checks.
                self._lookup_due_us = now_us + self._config.retry_backoff_ms * MS
                self._look_up()
            return self._lookup_due_us
        if now_us >= self._session_ends_us:
            self._discovery.mark_unknown(CoordinatorUnknownCause.SESSION_TIMEOUT)
            return now_us  # the next step comes immediately, and begins the lookup
        poll_deadline_us = self._poll_deadline_us()
        if poll_deadline_us is not None and now_us >= poll_deadline_us:
            self._membership.leave(
                StateReason(
                    cause=MemberStateCause.MISSED_POLL, text="consumer poll timeout has expired"
                )
            )
            return now_us  # the member is UNJOINED now: the next step disables the heartbeat
        if now_us >= self._heartbeat_due_us:
            self._heartbeat_due_us = now_us + self._config.heartbeat_interval_ms * MS
            self._send()
        due_us = min(self._heartbeat_due_us, self._session_ends_us)
        return due_us if poll_deadline_us is None else min(due_us, poll_deadline_us)

    def _look_up(self) -> None:
        """Begin a lookup, or abandon a lookup that this method has found in flight before.

        The broker that was asked may be silent. If its lookup is abandoned, the next lookup goes to
        a broker with fewer requests in flight. Kafka's thread abandons every lookup that it finds
        in flight. This task is woken as soon as the coordinator is forgotten, so it runs earlier
        than Kafka's thread would. Therefore it abandons a lookup only when it finds the lookup for
        the second time.
        """
        lookup = self._discovery.lookup()
        if lookup is not self._awaited_lookup:
            self._awaited_lookup = lookup
        else:
            self._discovery.abandon_lookup()
            self._awaited_lookup = None

    def _poll_deadline_us(self) -> int | None:
        """Return when the application must have polled again; None while it is inside poll."""
        if self._poll_ended_us is None:
            return None
        return self._poll_ended_us + self._config.max_poll_interval_ms * MS

    def _send(self) -> None:
        """Send a heartbeat; `_answered` gets the generation that it carried, as `sent`."""
        member = self._membership.member
        sent = member.generation
        self._discovery.send(
            HeartbeatRequest(
                group_id=member.group_id,
                generation_id=sent.generation_id,
                member_id=sent.member_id,
                group_instance_id=self._config.group_instance_id,
            ),
            HeartbeatResponse,
        ).add_listener(lambda answer: self._answered(answer, sent))

    def _answered(self, answer: RequestFuture[HeartbeatResponse], sent: Generation) -> None:
        """React to the answer as Kafka does; `sent` is the generation of the request."""
        if answer.error is not None:
            self._failed()
            return
        membership = self._membership
        member = membership.member
        code = answer.value.error_code
        match code:
            case ErrorCode.NONE:
                self._received()
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self._discovery.mark_unknown(code.name)
                self._failed()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # In any other state, the member takes part in the rebalance already.
                if member.state is MemberState.STABLE:
                    membership.request_rejoin("group is already rebalancing")
                self._received()
            case (
                ErrorCode.ILLEGAL_GENERATION
                | ErrorCode.UNKNOWN_MEMBER_ID
                | ErrorCode.FENCED_INSTANCE_ID
            ):
                if member.generation != sent:
                    # The error is about a generation that the member has left since. But it shows
                    # that the coordinator is alive.
                    self._received()
                elif code is ErrorCode.FENCED_INSTANCE_ID:
                    self._fatal(error_from_code(code))
                else:
                    membership.reset_and_rejoin(
                        reset_reason("Heartbeat", code),
                        reset_member_id=code is ErrorCode.UNKNOWN_MEMBER_ID,
                    )
                    self._failed()
            case _:
                self._fatal(unexpected_error(code))

    def _received(self) -> None:
        """Record that the coordinator has answered, so that the session goes on."""
        self._failures = 0
        self.reset_session_timeout()

    def _failed(self) -> None:
        """Schedule the next heartbeat after the retry backoff instead of a whole interval."""
        self._heartbeat_due_us = self._host.now_us() + self._backoff.delay_us(self._failures)
        self._failures += 1
        self.wake()

    def _fatal(self, error: ClientError) -> None:
        """Stop heartbeats, and make the application's next poll raise `error`."""
        self.failure = error
        self.wake()
        self._application.set()
