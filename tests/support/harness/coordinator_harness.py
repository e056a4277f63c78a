"""A GroupCoordinator for tests, with simple parts in place of its broker.

The coordinator does no I/O. A call that gives it an input returns a Result, which lists what is
to be done: appends to the log, timers, replies, trace events, and verifications (to find out
whether a transaction is still open). The harness carries the Result out, and then checks the
coordinator's invariants.

The log is a list of batches for each partition of `__consumer_offsets`. By default an append
succeeds at once. If a test sets `holds_appends`, each append waits until the test calls `complete`,
and so decides how the append ends.

A coordinator that imitates Java's (with JavaSwitches) follows its logs: the broker tells it each
new log end and high watermark. With such a coordinator, an append that is held is already in the
log, but above the high watermark.
"""

import heapq
from collections.abc import Callable
from itertools import count

from coordinator.coordinator import GroupCoordinator, GroupSummary, LoadIgnored
from coordinator.group import Group
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import LogPosition
from protocol.api import AnyResponse, GroupRequest
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.effects import (
    Append,
    AppendCompleted,
    Result,
    SetTimer,
    TransactionVerified,
    VerifyTransaction,
)
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AppendId, RequestId
from protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from protocol.messages.offset import (
    OffsetCommitResponse,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from protocol.messages.transaction import TxnOffsetCommitResponse
from protocol.records.batch import Record, RecordBatch, encode_records
from protocol.records.control import EndTransactionMarker, encode_marker
from protocol.trace import TraceEvent, TraceKind
from tests.support.builders.requests import (
    GROUP,
    envelope,
    heartbeat,
    join_group,
    offset_fetch,
    sync_group,
)

EPOCH_US = 1_700_000_000_000_000
"""The time at which every test begins, in microseconds since 1970."""


def new_uuids() -> Callable[[], str]:
    """Return a function that makes "uuids" which are easy to read in a test: "1", "2", "3"."""
    numbers = count(1)
    return lambda: str(next(numbers))


class CoordinatorHarness:
    """A group coordinator, and the parts of a broker that it needs.

    num_partitions: how many partitions `__consumer_offsets` has.
    owned: the partitions that the coordinator loads from `log` before the test begins.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig | None = None,
        guards: Guards | None = None,
        java: JavaSwitches | None = None,
        num_partitions: int = 1,
        owned: tuple[int, ...] = (0,),
        log: dict[int, list[RecordBatch]] | None = None,
    ) -> None:
        # By default a new group does not wait for more members.
        self.config = config or BrokerConfig(group_initial_rebalance_delay_ms=0)
        self.guards = guards or Guards()
        self.java = java or JavaSwitches()
        self.num_partitions = num_partitions
        self.coordinator = GroupCoordinator(
            config=self.config,
            guards=self.guards,
            java=self.java,
            num_offsets_partitions=num_partitions,
            new_uuid=new_uuids(),
        )
        self.now_us = EPOCH_US
        self.log: dict[int, list[RecordBatch]] = log or {}
        # A test that forces an illegal state sets this to False.
        self.checks_invariants = True
        # If True, each append waits in `held` until a test calls `complete`.
        self.holds_appends = False
        self.held: list[Append] = []
        # If True, each verification waits in `verifying` until a test calls `verify`.
        self.holds_verifications = False
        self.verifying: list[VerifyTransaction] = []
        self.trace: list[TraceEvent] = []
        self.responses: dict[RequestId, AnyResponse] = {}
        # The requests in the order in which they were answered.
        self.answer_order: list[RequestId] = []
        self._request_ids = count(1)
        # Key of each running timer -> the time at which it fires, and a number. Of two timers with
        # equal times, the timer that was set first (with the smaller number) fires first.
        self._deadlines: dict[str, tuple[int, int]] = {}
        # Time, number and key of each timer that was ever set. An entry is stale if the timer was
        # cancelled or set again since. Then `_deadlines` no longer has its time and number.
        self._timer_heap: list[tuple[int, int, str]] = []
        self._timer_numbers = count()
        # Appends that are not held, each with its base offset. They succeed, in this order, when
        # the rest of the Result has been carried out.
        self._to_acknowledge: list[tuple[Append, int]] = []
        # The base offsets of held appends that are in the log already.
        self._base_offsets: dict[AppendId, int] = {}
        # Partition -> its high watermark.
        self._high_watermarks: dict[int, int] = {}
        # Partition -> what the coordinator was told last about its log.
        self._reported: dict[int, LogPosition] = {}
        for partition in owned:
            self.load(partition)

    # -- inputs --

    def submit(
        self, body: GroupRequest, *, version: int | None = None, client_id: str = "client"
    ) -> RequestId:
        """Send a request and return its id. The answer will be in `responses`, at once or later."""
        request_id = RequestId(next(self._request_ids))
        request = envelope(body, version=version, client_id=client_id)
        self.execute(self.coordinator.handle(request_id, request, self.now_us))
        return request_id

    def advance(self, delay_ms: float) -> None:
        """Let time pass, and fire the timers that become due, each at its own time.

        A timer that is due exactly at the end fires, too.
        """
        end_us = self.now_us + round(delay_ms * 1_000)
        while self._timer_heap and self._timer_heap[0][0] <= end_us:
            deadline_us, number, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) != (deadline_us, number):
                # The entry is stale.
                continue
            del self._deadlines[key]
            self.now_us = max(self.now_us, deadline_us)
            self.execute(self.coordinator.timer_fired(key, self.now_us))
        self.now_us = end_us

    def tick(self, delay_ms: int) -> None:
        """Let time pass as in Kafka's own tests: first set the clock, and then fire timers.

        This differs from `advance` in two ways. A timer that is due exactly at the new time does
        not fire yet. And if a fired timer sets another timer, the delay of the other timer counts
        from the new time.
        """
        self.now_us += delay_ms * 1_000
        while self._timer_heap and self._timer_heap[0][0] < self.now_us:
            deadline_us, number, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) == (deadline_us, number):
                del self._deadlines[key]
                self.execute(self.coordinator.timer_fired(key, self.now_us))

    def complete(self, error: ErrorCode = ErrorCode.NONE, *, index: int = 0) -> None:
        """Let a held append, by default the oldest, succeed or fail with `error`.

        If the coordinator follows its logs, the append is already in the log, and it stays there
        even if it fails with a timeout.
        """
        append = self.held.pop(index)
        # None if the coordinator does not follow its logs: the append is not in the log yet.
        base_offset = self._base_offsets.pop(append.append_id, None)
        if error is ErrorCode.NONE:
            if base_offset is None:
                base_offset = self._write(append)
            end_offset = base_offset + len(append.records)
            high_watermark = self._high_watermarks.get(append.partition, 0)
            self._high_watermarks[append.partition] = max(end_offset, high_watermark)
        elif error is not ErrorCode.REQUEST_TIMED_OUT:
            # The coordinator learns the base offset of a failed append only if it timed out.
            base_offset = None
        self._complete(append, error, base_offset)

    def commit_everything(self, partition: int = 0) -> None:
        """Let all held appends succeed, and move the high watermark to the end of the log.

        This also commits appends that have failed with a timeout, because they are in the log.
        """
        while self.held:
            self.complete()
        self._high_watermarks[partition] = self._end_of(partition)
        self._report_logs()

    def report_high_watermark(self, offset: int, partition: int = 0) -> None:
        """Tell the coordinator that the high watermark of a partition is at `offset`."""
        position = LogPosition(self._end_of(partition), offset)
        self.execute(self.coordinator.log_moved(partition, position, self.now_us))

    def lose_leadership(self, partition: int = 0) -> None:
        """Tell the coordinator that another broker leads the partition, but unload nothing yet."""
        self.execute(self.coordinator.log_moved(partition, None, self.now_us))

    def verify(self, error: ErrorCode = ErrorCode.NONE, *, guard: int | None = 1) -> None:
        """Let the oldest held verification succeed, or fail with `error`.

        If the log has no records of the transaction yet, a success comes with a `guard`, a token
        that the later append must show. Otherwise the guard is None.
        """
        verification = self.verifying.pop(0)
        verified = TransactionVerified(
            verification_id=verification.verification_id,
            error=error,
            guard=guard if error is ErrorCode.NONE else None,
        )
        self.execute(self.coordinator.transaction_verified(verified, self.now_us))

    def end_transaction(
        self, producer_id: int, *, is_commit: bool, partitions: tuple[int, ...] = (0,)
    ) -> None:
        """Write the markers that end a transaction, and tell the coordinator about them."""
        for partition in partitions:
            self.write_marker(producer_id, is_commit=is_commit, partition=partition)
        self.execute(
            self.coordinator.transaction_completed(
                producer_id, partitions, is_commit=is_commit, now_us=self.now_us
            )
        )

    def load(
        self, partition: int = 0, epoch: int = 0, *, batches_per_chunk: int = 1_000
    ) -> LoadIgnored | None:
        """Load a partition from the log, as its leader in this leader epoch.

        Return None, or the reason if the coordinator ignores the load.
        """
        begun = self.coordinator.begin_load(partition, epoch, self.now_us)
        if isinstance(begun, LoadIgnored):
            return begun
        self.execute(begun)
        batches = self.log.get(partition, [])
        for start in range(0, len(batches), batches_per_chunk):
            chunk = tuple(batches[start : start + batches_per_chunk])
            self.execute(self.coordinator.load_batches(partition, chunk))
        # After a load the coordinator must be told anew where the log ends.
        self._reported.pop(partition, None)
        self.execute(self.coordinator.finish_load(partition, self.now_us))
        return None

    def unload(self, partition: int = 0, epoch: int | None = 0) -> LoadIgnored | None:
        """Unload a partition, because another broker leads it in this leader epoch.

        The epoch may be unknown (None). Return None, or the reason if the coordinator ignores the
        unload.
        """
        result = self.coordinator.unload(partition, epoch, self.now_us)
        if isinstance(result, LoadIgnored):
            return result
        self.execute(result)
        return None

    def failover(self) -> "CoordinatorHarness":
        """Return another coordinator, which has loaded copies of this coordinator's logs."""
        return CoordinatorHarness(
            config=self.config,
            guards=self.guards,
            java=self.java,
            num_partitions=self.num_partitions,
            owned=tuple(range(self.num_partitions)),
            log={partition: list(batches) for partition, batches in self.log.items()},
        )

    # -- requests of one API that must be answered before `submit` returns --

    def join(self, body: GroupRequest, *, version: int = 9) -> JoinGroupResponse:
        """Send a JoinGroup and return its answer, which must come at once."""
        response = self._ask(body, version)
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync(self, body: GroupRequest, *, version: int = 5) -> SyncGroupResponse:
        """Send a SyncGroup and return its answer, which must come at once."""
        response = self._ask(body, version)
        assert isinstance(response, SyncGroupResponse)
        return response

    def beat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        """Send a Heartbeat and return its error code."""
        response = self._ask(heartbeat(member_id, generation_id, instance=instance), 4)
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self, body: GroupRequest, *, version: int = 5) -> LeaveGroupResponse:
        """Send a LeaveGroup and return its answer."""
        response = self._ask(body, version)
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(self, body: GroupRequest, *, version: int = 9) -> list[ErrorCode]:
        """Send an OffsetCommit and return the error code of each partition."""
        return commit_errors(self._ask(body, version))

    def txn_commit(self, body: GroupRequest, *, version: int = 4) -> list[ErrorCode]:
        """Send a TxnOffsetCommit and return the error code of each partition."""
        return txn_commit_errors(self._ask(body, version))

    def fetch(self, body: GroupRequest, *, version: int = 9) -> OffsetFetchResponse:
        """Send an OffsetFetch and return its answer."""
        response = self._ask(body, version)
        assert isinstance(response, OffsetFetchResponse)
        return response

    # -- whole groups --

    def new_member_id(self, *, client_id: str = "client", group_id: str = GROUP) -> str:
        """Let a new client ask to join, and return the id with which it must join again."""
        request_id = self.submit(join_group(group_id=group_id), client_id=client_id)
        response = self.join_response(request_id)
        assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def stable_group(
        self, size: int = 2, *, group_id: str = GROUP, session_timeout_ms: int = 10_000
    ) -> list[str]:
        """Make a Stable group of `size` members, in generation 1; return the members' ids.

        The first member is the leader.
        """
        ids = [
            self.new_member_id(client_id=f"c{number}", group_id=group_id) for number in range(size)
        ]
        joins = [
            self.submit(
                join_group(member_id, group_id=group_id, session_timeout_ms=session_timeout_ms)
            )
            for member_id in ids
        ]
        # The first member begins the initial delay. The other members join during this delay, so
        # the group waits for the same delay once more.
        self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        leader = self.join_response(joins[0]).leader
        assert leader == ids[0]
        self.sync_all(ids, 1, group_id=group_id)
        return ids

    def sync_all(self, ids: list[str], generation_id: int, *, group_id: str = GROUP) -> None:
        """Let every member send SyncGroup, so that the group becomes Stable.

        The leader, `ids[0]`, sends last. Its request brings the assignments. The requests of the
        other members wait for these assignments.
        """
        assignments = {member_id: b"for-" + member_id.encode() for member_id in ids}
        for member_id in ids[1:]:
            self.submit(sync_group(member_id, generation_id, group_id=group_id))
        self.submit(sync_group(ids[0], generation_id, assignments, group_id=group_id))
        assert self.summary(group_id).state is GroupState.STABLE

    # -- observations --

    def response(self, request_id: RequestId) -> AnyResponse | None:
        """Return the answer to a request, or None as long as there is no answer."""
        return self.responses.get(request_id)

    def join_response(self, request_id: RequestId) -> JoinGroupResponse:
        """Return the answer to a JoinGroup, which must have come."""
        response = self.responses[request_id]
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync_response(self, request_id: RequestId) -> SyncGroupResponse:
        """Return the answer to a SyncGroup, which must have come."""
        response = self.responses[request_id]
        assert isinstance(response, SyncGroupResponse)
        return response

    def summary(self, group_id: str = GROUP) -> GroupSummary:
        """Return the description of an existing group."""
        return next(
            summary for summary in self.coordinator.groups() if summary.group_id == group_id
        )

    def state(self, group_id: str = GROUP) -> GroupState:
        """Return the state of an existing group."""
        return self.summary(group_id).state

    def group(self, group_id: str = GROUP) -> Group:
        """Return an existing group."""
        group = self.coordinator.group(group_id)
        assert group is not None
        return group

    def events(self, kind: TraceKind) -> list[TraceEvent]:
        """Return the trace events of this kind."""
        return [event for event in self.trace if event.kind is kind]

    def timer_keys(self) -> list[str]:
        """Return the keys of the running timers; the timer that fires next comes first."""
        return [key for key, _ in self.deadlines()]

    def deadlines(self) -> list[tuple[str, int]]:
        """Return key and time of each running timer; the timer that fires next comes first."""
        by_deadline = sorted(self._deadlines.items(), key=lambda item: item[1])
        return [(key, deadline_us) for key, (deadline_us, _) in by_deadline]

    def offset(self, topic: str, partition: int, *, group_id: str = GROUP) -> int:
        """Return the committed offset, as an OffsetFetch gets it; -1 if there is none."""
        return self.fetched(topic, partition, group_id=group_id).committed_offset

    def fetched(
        self, topic: str, partition: int, *, group_id: str = GROUP, require_stable: bool = False
    ) -> OffsetFetchResponsePartition:
        """Send an OffsetFetch for one partition, and return the answer for this partition."""
        response = self.fetch(
            offset_fetch((topic, partition), group_id=group_id, require_stable=require_stable)
        )
        return response.groups[0].topics[0].partitions[0]

    # -- the broker's part --

    def execute(self, result: Result) -> None:
        """Carry out a Result, and all Results that follow from it.

        The coordinator is told when an append ends, when a verification is answered, and when its
        logs have changed. In each of these cases it returns another Result.
        """
        self._carry_out(result)
        while self._to_acknowledge:
            append, base_offset = self._to_acknowledge.pop(0)
            self._complete(append, ErrorCode.NONE, base_offset)
        while self.verifying and not self.holds_verifications:
            self.verify()
        self._report_logs()

    def write_records(
        self,
        *records: Record,
        partition: int = 0,
        producer_id: int = NO_PRODUCER_ID,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> int:
        """Append records to the log as one batch, and return its base offset.

        A test calls this to write what an earlier leader has written.
        """
        batches = self.log.setdefault(partition, [])
        base_offset = batches[-1].next_offset if batches else 0
        batches.append(
            RecordBatch(
                base_offset=base_offset,
                partition_leader_epoch=0,
                last_offset_delta=len(records) - 1,
                max_timestamp_ms=self.now_us // 1_000,
                records=encode_records(records),
                producer_id=producer_id,
                producer_epoch=0 if is_transactional else NO_PRODUCER_EPOCH,
                is_transactional=is_transactional,
                is_control=is_control,
            )
        )
        return base_offset

    def write_marker(self, producer_id: int, *, is_commit: bool, partition: int = 0) -> int:
        """Append the marker that ends a producer's transaction, and return the marker's offset."""
        marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0)
        return self.write_records(
            encode_marker(marker, self.now_us // 1_000),
            partition=partition,
            producer_id=producer_id,
            is_transactional=True,
            is_control=True,
        )

    def _carry_out(self, result: Result) -> None:
        """Set timers, write or hold appends, keep all else, and check the invariants."""
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                assert timer.delay_us >= 0
                deadline = (self.now_us + timer.delay_us, next(self._timer_numbers))
                self._deadlines[timer.key] = deadline
                heapq.heappush(self._timer_heap, (*deadline, timer.key))
            else:
                self._deadlines.pop(timer.key, None)
        for append in result.appends:
            if append.required_acks == 0:
                # Nobody waits for the outcome.
                self._write(append)
            elif self.holds_appends or self.held:
                # A log acknowledges appends in their order. So an append after a held append is
                # held, too.
                if self.coordinator.follows_log:
                    self._base_offsets[append.append_id] = self._write(append)
                self.held.append(append)
            else:
                self._to_acknowledge.append((append, self._write(append)))
        for verification in result.verifications:
            self.verifying.append(verification)
        for reply in result.replies:
            assert reply.request_id not in self.responses, "answered twice"
            self.responses[reply.request_id] = reply.response
            self.answer_order.append(reply.request_id)
        self.trace.extend(result.trace)
        if self.checks_invariants:
            self.coordinator.check_invariants()

    def _report_logs(self) -> None:
        """Tell a coordinator that follows its logs their new log ends and high watermarks."""
        if not self.coordinator.follows_log:
            return
        for partition in self.log:
            end_offset = self._end_of(partition)
            # If no append is held, all replicas have the whole log.
            if not self.holds_appends and not self.held:
                self._high_watermarks[partition] = end_offset
            high_watermark = self._high_watermarks.get(partition, 0)
            position = LogPosition(end_offset, high_watermark)
            if self._reported.get(partition) != position and self.coordinator.is_owned(partition):
                self._reported[partition] = position
                self.execute(self.coordinator.log_moved(partition, position, self.now_us))

    def _end_of(self, partition: int) -> int:
        """Return the log end offset of a partition."""
        batches = self.log.get(partition)
        return batches[-1].next_offset if batches else 0

    def _write(self, append: Append) -> int:
        """Write an append into the log, and return its base offset."""
        return self.write_records(
            *append.records,
            partition=append.partition,
            producer_id=append.producer_id,
            is_transactional=append.is_transactional,
        )

    def _complete(self, append: Append, error: ErrorCode, base_offset: int | None) -> None:
        """Tell the coordinator how an append ended."""
        completed = AppendCompleted(
            append_id=append.append_id, error=error, base_offset=base_offset
        )
        self.execute(self.coordinator.append_completed(completed, self.now_us))

    def _ask(self, body: GroupRequest, version: int) -> AnyResponse:
        """Send a request and return its answer, which must come at once."""
        request_id = self.submit(body, version=version)
        response = self.response(request_id)
        assert response is not None, "the request waits for its answer"
        return response


def commit_errors(response: AnyResponse | None) -> list[ErrorCode]:
    """Return the error codes of an answer to an OffsetCommit, one for each partition."""
    assert isinstance(response, OffsetCommitResponse)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def txn_commit_errors(response: AnyResponse | None) -> list[ErrorCode]:
    """Return the error codes of an answer to a TxnOffsetCommit, one for each partition."""
    assert isinstance(response, TxnOffsetCommitResponse)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]
