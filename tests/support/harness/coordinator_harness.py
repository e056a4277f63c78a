"""A GroupCoordinator with the parts of a broker that it needs: a log, virtual timers, the answers.

Each call of the coordinator returns a Result: appends, timers, replies, trace events, and requests
to verify that a transaction is open. The harness carries the Result out. After every input it
checks the coordinator's invariants.

The log is a list of batches for each partition of `__consumer_offsets`; the broker that leads such
a partition coordinates its groups. By default the harness acknowledges each append immediately.
With `holds_appends` it holds each append until a test decides its outcome.

The high watermark is the offset below which every in-sync replica has the records, so that they are
committed. A coordinator with Java's switches (`JavaSwitches`) follows its logs: the broker reports
each new log end and high watermark to it. With such a coordinator a held append is already in the
log, above the high watermark.

Terms: a load reads the groups of a partition into memory, an unload drops them. The generation is
the number of a group's rebalance. A dynamic member has no configured id, and gets its member id
from the coordinator. A marker is the record that ends a transaction in a partition.
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
"""Wall clock at the start of every test, microseconds since the epoch."""


def new_uuids() -> Callable[[], str]:
    """Return a function that returns 1, 2, 3, ...: uuids that a reader of a test can compare."""
    numbers = count(1)
    return lambda: str(next(numbers))


class CoordinatorHarness:
    """A coordinator with simulated parts of its broker.

    num_partitions: the number of partitions of `__consumer_offsets`.
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
        # By default the first join phase of a group does not wait for further members.
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
        self.checks_invariants = True  # False where a test forces an illegal state
        self.holds_appends = False  # True: a test calls `complete` for each append
        self.held: list[Append] = []
        self.holds_verifications = False  # True: a test calls `verify` for each verification
        self.verifying: list[VerifyTransaction] = []
        self.trace: list[TraceEvent] = []
        self.responses: dict[RequestId, AnyResponse] = {}
        self.answer_order: list[RequestId] = []
        self._requests = count(1)
        # For each running timer, by its key: the time at which it fires, and a number. Each call
        # that sets a timer gives it a new number.
        self._deadlines: dict[str, tuple[int, int]] = {}
        # Times, numbers and keys of timers. Timers that were cancelled or set anew stay in the
        # heap; `_deadlines` shows that they no longer count.
        self._timer_heap: list[tuple[int, int, str]] = []
        self._timer_sequence = count()
        self._to_acknowledge: list[tuple[Append, int]] = []  # each with its base offset
        self._base_offsets: dict[AppendId, int] = {}  # of held appends that are in the log
        self._high_watermarks: dict[int, int] = {}  # by partition
        self._reported: dict[int, LogPosition] = {}  # the last report, by partition
        for partition in owned:
            self.load(partition)

    # -- inputs --

    def submit(
        self, body: GroupRequest, *, version: int | None = None, client_id: str = "client"
    ) -> RequestId:
        """Feed a request and return its id, under which `responses` later has the answer."""
        request_id = RequestId(next(self._requests))
        request = envelope(body, version=version, client_id=client_id)
        self.execute(self.coordinator.handle(request_id, request, self.now_us))
        return request_id

    def advance(self, delay_ms: float) -> None:
        """Advance virtual time, and fire every timer at its own time.

        A timer that is due exactly at the end of the advance fires, too.
        """
        end_us = self.now_us + round(delay_ms * 1_000)
        while self._timer_heap and self._timer_heap[0][0] <= end_us:
            deadline_us, sequence, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) != (deadline_us, sequence):
                continue  # the timer was cancelled or set anew
            del self._deadlines[key]
            self.now_us = max(self.now_us, deadline_us)
            self.execute(self.coordinator.timer_fired(key, self.now_us))
        self.now_us = end_us

    def tick(self, delay_ms: int) -> None:
        """First set the clock to the new time, then fire the timers that were due before it.

        The times in Kafka's own tests depend on this order. A timer that is due exactly at the new
        time does not fire yet. If a fired timer sets another one, the delay of that one counts from
        the new time.
        """
        self.now_us += delay_ms * 1_000
        while self._timer_heap and self._timer_heap[0][0] < self.now_us:
            deadline_us, sequence, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) == (deadline_us, sequence):
                del self._deadlines[key]
                self.execute(self.coordinator.timer_fired(key, self.now_us))

    def complete(self, error: ErrorCode = ErrorCode.NONE, *, index: int = 0) -> None:
        """Complete one held append, or let it fail with `error`.

        If the coordinator follows its logs, the append is already in the log, and it stays there
        even if it fails with a timeout.
        """
        append = self.held.pop(index)
        # It is None if the coordinator does not follow its logs: the append is not in the log yet.
        base_offset = self._base_offsets.pop(append.append_id, None)
        if error is ErrorCode.NONE:
            if base_offset is None:
                base_offset = self._write(append)
            end_offset = base_offset + len(append.records)
            high_watermark = self._high_watermarks.get(append.partition, 0)
            self._high_watermarks[append.partition] = max(end_offset, high_watermark)
        elif error is not ErrorCode.REQUEST_TIMED_OUT:
            # Of the failed appends, only one that timed out is reported with its place in the log.
            base_offset = None
        self._complete(append, error, base_offset)

    def commit_everything(self, partition: int = 0) -> None:
        """Complete all held appends, then move the high watermark to the end of the log.

        This also commits appends that failed with a timeout before: they are still in the log.
        """
        while self.held:
            self.complete()
        self._high_watermarks[partition] = self._end_of(partition)
        self._report_logs()

    def report_high_watermark(self, offset: int, partition: int = 0) -> None:
        """Report the log end and the high watermark `offset` of a partition to the coordinator."""
        position = LogPosition(self._end_of(partition), offset)
        self.execute(self.coordinator.log_moved(partition, position, self.now_us))

    def lose_leadership(self, partition: int = 0) -> None:
        """Report to the coordinator that another broker leads the partition; unload nothing."""
        self.execute(self.coordinator.log_moved(partition, None, self.now_us))

    def verify(self, error: ErrorCode = ErrorCode.NONE, *, guard: int | None = 1) -> None:
        """Complete the oldest held verification, or let it fail with `error`.

        `guard` is a token for a transaction that is not in the log yet. The later append must show
        it. It is None if the transaction is already in the log.
        """
        verification = self.verifying.pop(0)
        self._verify(verification, error, guard if error is ErrorCode.NONE else None)

    def end_transaction(
        self, producer_id: int, *, is_commit: bool, partitions: tuple[int, ...] = (0,)
    ) -> None:
        """Write markers into partitions, and report their acknowledgement to the coordinator."""
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
        """Load a partition from the log as its leader in `epoch`.

        Returns the reason if the coordinator ignores the load, else None.
        """
        begun = self.coordinator.begin_load(partition, epoch, self.now_us)
        if isinstance(begun, LoadIgnored):
            return begun
        self.execute(begun)
        batches = self.log.get(partition, [])
        for start in range(0, len(batches), batches_per_chunk):
            chunk = tuple(batches[start : start + batches_per_chunk])
            self.execute(self.coordinator.load_batches(partition, chunk))
        self._reported.pop(partition, None)  # a loaded coordinator knows no position yet
        self.execute(self.coordinator.finish_load(partition, self.now_us))
        return None

    def unload(self, partition: int = 0, epoch: int | None = 0) -> LoadIgnored | None:
        """Unload a partition, which another broker leads in `epoch`, or in an unknown epoch (None).

        Returns the reason if the coordinator ignores the unload, else None.
        """
        result = self.coordinator.unload(partition, epoch, self.now_us)
        if isinstance(result, LoadIgnored):
            return result
        self.execute(result)
        return None

    def failover(self) -> "CoordinatorHarness":
        """Return the harness of another broker that has loaded this one's log."""
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
        """Send a JoinGroup and return its answer, which must come without waiting."""
        response = self._ask(body, version)
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync(self, body: GroupRequest, *, version: int = 5) -> SyncGroupResponse:
        """Send a SyncGroup and return its answer, which must come without waiting."""
        response = self._ask(body, version)
        assert isinstance(response, SyncGroupResponse)
        return response

    def beat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        """Send a Heartbeat and return its answer."""
        response = self._ask(heartbeat(member_id, generation_id, instance=instance), 4)
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self, body: GroupRequest, *, version: int = 5) -> LeaveGroupResponse:
        """Send a LeaveGroup and return its answer."""
        response = self._ask(body, version)
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(self, body: GroupRequest, *, version: int = 9) -> list[ErrorCode]:
        """Send an OffsetCommit and return its errors, partition by partition."""
        return commit_errors(self._ask(body, version))

    def txn_commit(self, body: GroupRequest, *, version: int = 4) -> list[ErrorCode]:
        """Send a TxnOffsetCommit and return its errors, partition by partition."""
        return txn_commit_errors(self._ask(body, version))

    def fetch(self, body: GroupRequest, *, version: int = 9) -> OffsetFetchResponse:
        """Send an OffsetFetch and return its answer."""
        response = self._ask(body, version)
        assert isinstance(response, OffsetFetchResponse)
        return response

    # -- whole groups --

    def new_member_id(self, *, client_id: str = "client", group_id: str = GROUP) -> str:
        """Return the member id that a new dynamic client must join again with."""
        request_id = self.submit(join_group(group_id=group_id), client_id=client_id)
        response = self.join_response(request_id)
        assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def stable_group(
        self, size: int = 2, *, group_id: str = GROUP, session_timeout_ms: int = 10_000
    ) -> list[str]:
        """Let dynamic members form a group that is Stable in generation 1.

        Return their member ids. The first one is that of the leader.
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
        # The first member begins the initial delay, and the others extend it once.
        self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        leader = self.join_response(joins[0]).leader
        assert leader == ids[0]
        self.sync_all(ids, 1, group_id=group_id)
        return ids

    def sync_all(self, ids: list[str], generation_id: int, *, group_id: str = GROUP) -> None:
        """Let every member send SyncGroup, so that the group becomes Stable.

        `ids[0]` is the leader and sends last: its request brings the assignments, for which the
        requests of the others wait.
        """
        assignments = {member_id: b"for-" + member_id.encode() for member_id in ids}
        for member_id in ids[1:]:
            self.submit(sync_group(member_id, generation_id, group_id=group_id))
        self.submit(sync_group(ids[0], generation_id, assignments, group_id=group_id))
        assert self.summary(group_id).state is GroupState.STABLE

    # -- observations --

    def response(self, request_id: RequestId) -> AnyResponse | None:
        """Return the answer of a request; None while it has none."""
        return self.responses.get(request_id)

    def join_response(self, request_id: RequestId) -> JoinGroupResponse:
        """Return the answer of a JoinGroup."""
        response = self.responses[request_id]
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync_response(self, request_id: RequestId) -> SyncGroupResponse:
        """Return the answer of a SyncGroup."""
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
        """Return the trace events of one kind."""
        return [event for event in self.trace if event.kind is kind]

    def timer_keys(self) -> list[str]:
        """Return the keys of the running timers, soonest first."""
        return [key for key, _ in self.deadlines()]

    def deadlines(self) -> list[tuple[str, int]]:
        """Return the keys of the running timers and their times, soonest first."""
        by_deadline = sorted(self._deadlines.items(), key=lambda item: item[1])
        return [(key, deadline_us) for key, (deadline_us, _) in by_deadline]

    def offset(self, topic: str, partition: int, *, group_id: str = GROUP) -> int:
        """Return the committed offset in memory; -1 if there is none."""
        return self.fetched(topic, partition, group_id=group_id).committed_offset

    def fetched(
        self, topic: str, partition: int, *, group_id: str = GROUP, require_stable: bool = False
    ) -> OffsetFetchResponsePartition:
        """Send an OffsetFetch and return its answer for one partition."""
        response = self.fetch(
            offset_fetch((topic, partition), group_id=group_id, require_stable=require_stable)
        )
        return response.groups[0].topics[0].partitions[0]

    # -- the broker's part --

    def execute(self, result: Result) -> None:
        """Carry out a Result, and each Result that follows from it.

        The coordinator returns further Results when appends complete, when verifications are
        answered, and when the ends of its logs are reported.
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
        """Append a batch to the log, as an earlier leader, and return its base offset."""
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
        """Append the marker that ends a producer's transaction, and return its offset."""
        marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0)
        return self.write_records(
            encode_marker(marker, self.now_us // 1_000),
            partition=partition,
            producer_id=producer_id,
            is_transactional=True,
            is_control=True,
        )

    def _carry_out(self, result: Result) -> None:
        """Set timers, write or hold appends, note verifications and answers, check invariants."""
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                assert timer.delay_us >= 0
                entry = (self.now_us + timer.delay_us, next(self._timer_sequence))
                self._deadlines[timer.key] = entry
                heapq.heappush(self._timer_heap, (*entry, timer.key))
            else:
                self._deadlines.pop(timer.key, None)
        for append in result.appends:
            if append.required_acks == 0:
                self._write(append)  # no request waits for the outcome
            elif self.holds_appends or self.held:  # no append overtakes a held one
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
        """Report new log ends and high watermarks to a coordinator that follows its logs."""
        for partition in self.log if self.coordinator.follows_log else ():
            end_offset = self._end_of(partition)
            # While no append is held, all replicas have the whole log.
            if not self.holds_appends and not self.held:
                self._high_watermarks[partition] = end_offset
            high_watermark = self._high_watermarks.get(partition, 0)
            position = LogPosition(end_offset, high_watermark)
            if self._reported.get(partition) != position and self.coordinator.is_owned(partition):
                self._reported[partition] = position
                self.execute(self.coordinator.log_moved(partition, position, self.now_us))

    def _end_of(self, partition: int) -> int:
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

    def _verify(self, verification: VerifyTransaction, error: ErrorCode, guard: int | None) -> None:
        verified = TransactionVerified(
            verification_id=verification.verification_id, error=error, guard=guard
        )
        self.execute(self.coordinator.transaction_verified(verified, self.now_us))

    def _complete(self, append: Append, error: ErrorCode, base_offset: int | None) -> None:
        completed = AppendCompleted(
            append_id=append.append_id, error=error, base_offset=base_offset
        )
        self.execute(self.coordinator.append_completed(completed, self.now_us))

    def _ask(self, body: GroupRequest, version: int) -> AnyResponse:
        """Feed a request and return its answer, which must come without waiting."""
        request_id = self.submit(body, version=version)
        response = self.response(request_id)
        assert response is not None, "the request waits for its answer"
        return response


def commit_errors(response: AnyResponse | None) -> list[ErrorCode]:
    """Return the errors of an OffsetCommit's answer, partition by partition."""
    assert isinstance(response, OffsetCommitResponse)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def txn_commit_errors(response: AnyResponse | None) -> list[ErrorCode]:
    """Return the errors of a TxnOffsetCommit's answer, partition by partition."""
    assert isinstance(response, TxnOffsetCommitResponse)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]
