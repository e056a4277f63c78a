"""The speed and the memory of the group coordinator alone.

The coordinator runs here without a broker, a network, an event loop or a log. For each request it
returns a Result, which says what its host must do. Here the benchmark is the host, with as little
code as possible: timers are entries in a dict, and appends are acknowledged immediately.

The benchmark measures three things, the first two in CPU time:

1. Requests a second. The baseline is a handler that does nothing, and is called in the same way.
2. How fast groups are loaded from the log of a partition. The baseline is to decode the same
   batches, keys and values with msgpack.
3. Memory. The baseline is the size of the records in the log.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import msgspec

from benchmarks.measurement import Measurement, median_ratio
from coordinator.coordinator import GroupCoordinator
from protocol.api import GroupRequest
from protocol.config import BrokerConfig, Guards
from protocol.effects import AppendCompleted, Result, SetTimer
from protocol.envelope import RequestEnvelope
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import JoinGroupResponse
from protocol.records.batch import Record, RecordBatch, encode_records
from protocol.records.offsets import (
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tests.support.builders.requests import (
    envelope,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)

MEMBERS = 1_000
ROUNDS = 5
HEARTBEATS = 20
"""Heartbeats of each member in one round."""
COMMITS = 5
"""OffsetCommits of each member in one round."""
SMALL, LARGE = 250, 2_000
"""Sizes of the two groups whose join phases are compared."""
LINEAR_RATIO = 1.25
"""Goal: the cost of a rebalance grows linearly with the members of the group. So a member of the
LARGE group must cost at most 1.25 times as much as a member of the SMALL group.
"""
LOAD_GOAL = 0.4
"""Least ratio of records loaded a second to records decoded a second."""
LOADED_COMMITS = 1_000_000
"""Number of commits in the loaded log."""
LOADED_GROUPS = 1_000
"""Number of groups that share these commits."""
PARTITIONS = 50
"""Number of partitions for which each group commits offsets."""
RECORDS_PER_BATCH = 10
"""Number of records in each batch of the loaded log."""
BATCHES_PER_CHUNK = 1_000
"""Number of batches that are loaded by one call."""
NOW_US = 1_700_000_000_000_000
"""The time of all requests. In this benchmark, time stands still for the coordinator."""

Handle = Callable[[RequestId, RequestEnvelope, int], Result]
_NOTHING = Result()
"""The Result that `do_nothing` returns."""


class Core:
    """A coordinator of one partition of `__consumer_offsets`, with as little broker as possible."""

    def __init__(self, *, loads: tuple[RecordBatch, ...] | None = None) -> None:
        uuids = count()
        self.coordinator = GroupCoordinator(
            config=BrokerConfig(group_initial_rebalance_delay_ms=0),
            guards=Guards(),
            num_offsets_partitions=1,
            new_uuid=lambda: f"00000000-0000-0000-0000-{next(uuids):012d}",
        )
        self.timers: dict[str, int] = {}
        self.appended: list[Record] = []
        self._ids = count(1)
        self._offsets = count()
        # A coordinator serves groups only after a load. Here it loads partition 0 in leader epoch
        # 0. Without `loads`, the log of the partition is empty.
        self.coordinator.begin_load(0, 0, NOW_US)
        for start in range(0, len(loads or ()), BATCHES_PER_CHUNK):
            chunk = (loads or ())[start : start + BATCHES_PER_CHUNK]
            self.coordinator.load_batches(0, chunk)
        self.carry_out(self.coordinator.finish_load(0, NOW_US))

    def send(self, requests: list[RequestEnvelope], handle: Handle | None = None) -> list[Result]:
        """Pass every request to the coordinator, or to `handle`, and return the Results."""
        handle = self.coordinator.handle if handle is None else handle
        results = []
        for request in requests:
            result = handle(RequestId(next(self._ids)), request, NOW_US)
            self.carry_out(result)
            results.append(result)
        return results

    def carry_out(self, result: Result) -> None:
        """Set and cancel the timers of a Result, and acknowledge its appends immediately."""
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.delay_us
            else:
                self.timers.pop(timer.key, None)
        for append in result.appends:
            self.appended += append.records
            completed = AppendCompleted(append_id=append.append_id, base_offset=next(self._offsets))
            answered = self.coordinator.append_completed(completed, NOW_US)
            # The caller looks for the answer in the Result of its own request.
            result.replies += answered.replies
            self.carry_out(answered)

    # -- groups --

    def stable_group(self, size: int) -> list[str]:
        """Make a Stable group of `size` members; return their ids, with the leader first.

        The leader is the member that computes the assignment. The members are dynamic: they have no
        configured `group.instance.id`, and the coordinator invents their ids.
        """
        # The answer to the first JoinGroup of a dynamic member is an error (MEMBER_ID_REQUIRED),
        # but it has a member id. The member must join again with this id.
        without_id = self.send([joining("") for _ in range(size)])
        ids = [_join_answer(result).member_id for result in without_id]
        self.send([joining(member) for member in ids])
        # No clock runs here, so this loop fires the timers that end the join phase.
        while join_timers := [key for key in self.timers if key.startswith("join-")]:
            del self.timers[join_timers[0]]
            self.carry_out(self.coordinator.timer_fired(join_timers[0], NOW_US))
        self.send(syncing(ids, self.generation()))
        return ids

    def generation(self) -> int:
        """Return the generation of the only group."""
        return self.coordinator.groups()[0].generation


def joining(member: str) -> RequestEnvelope:
    """Return a JoinGroup of a member, which has the id "" before the coordinator gives it one."""
    return _request(join_group(member))


def syncing(ids: list[str], generation: int) -> list[RequestEnvelope]:
    """Return the SyncGroups of one generation. The first member is the leader, which assigns."""
    # Kafka's ConsumerProtocolAssignment: version 1, one topic "t0" with partition 0, no user data.
    assignments = {member: b"\0\1\0\0\0\1\0\2t0\0\0\0\1\0\0\0\0\xff\xff\xff\xff" for member in ids}
    return [
        _request(sync_group(member, generation, assignments if member == ids[0] else None))
        for member in ids
    ]


def _request(body: GroupRequest) -> RequestEnvelope:
    """Return a request as the coordinator's `handle` takes it."""
    return envelope(body)


def _join_answer(result: Result) -> JoinGroupResponse:
    """Return the answer to a JoinGroup. Raises: TypeError if it is another kind of answer."""
    response = result.replies[0].response
    if not isinstance(response, JoinGroupResponse):
        raise TypeError(f"expected an answer to a JoinGroup, not {response}")
    return response


def do_nothing(request_id: RequestId, request: RequestEnvelope, now_us: int) -> Result:
    """Take the arguments of the coordinator's `handle`, and return an empty Result."""
    return _NOTHING


@contextmanager
def cpu_time(times: list[float]) -> Iterator[None]:
    """Append the CPU seconds of a block to `times`.

    During the block, Python's garbage collector is off.
    """
    gc.collect()
    gc.disable()
    began = time.process_time()
    try:
        yield
    finally:
        times.append(time.process_time() - began)
        gc.enable()


# -- requests ---------------------------------------------------------------------------------


def requests_per_second() -> list[Measurement]:
    """Measure JoinGroup, SyncGroup, Heartbeat and OffsetCommit in a group of 1,000 members."""
    rates: dict[str, list[float]] = {}
    do_nothing_rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        core = Core()
        ids = core.stable_group(MEMBERS)

        def measure(
            name: str,
            requests: list[RequestEnvelope],
            core: Core = core,  # keeps the Core of this round, although the loop goes on
        ) -> None:
            times: list[float] = []
            with cpu_time(times):
                core.send(requests)
            with cpu_time(times):
                core.send(requests, do_nothing)
            rates.setdefault(name, []).append(len(requests) / times[0])
            do_nothing_rates.setdefault(name, []).append(len(requests) / times[1])

        measure("join", [joining(member) for member in ids])
        generation = core.generation()
        measure("sync", syncing(ids, generation))
        beats = [_request(heartbeat(member, generation)) for member in ids] * HEARTBEATS
        measure("heartbeat", beats)
        measure(
            "commit",
            [
                _request(
                    offset_commit({("orders", index % PARTITIONS): number}, member, generation)
                )
                for number in range(COMMITS)
                for index, member in enumerate(ids)
            ],
        )
        _check(core, ids, generation)
    return [
        Measurement(
            name=f"{name}, group of {MEMBERS:,} members",
            value=statistics.median(rates[name]),
            baseline=statistics.median(do_nothing_rates[name]),
            unit="requests/s",
            baseline_name="a handler that does nothing",
            ratio=median_ratio(rates[name], do_nothing_rates[name]),
            note=note,
        )
        for name, note in (
            ("heartbeat", ""),
            ("commit", "of one offset, its append acknowledged at once"),
            ("join", "of members of the group; the last request completes the join phase"),
            ("sync", ""),
        )
    ]


def _check(core: Core, ids: list[str], generation: int) -> None:
    """Check that the group is in the state that the measured requests must lead to.

    Without this check, requests that fail would be measured as fast ones.

    Raises: RuntimeError if the group is in another state.
    """
    (group,) = core.coordinator.groups()
    actual = (group.state.value, group.generation, len(group.members))
    if actual != ("Stable", generation, len(ids)):
        raise RuntimeError(f"the benchmark left the group as {actual}")


def join_phases() -> Measurement:
    """Measure what a member costs in a rebalance of a large group and of a small one."""
    # The CPU seconds for a member in each round, by the size of the group.
    member_costs: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for _ in range(ROUNDS):
        for size, costs in member_costs.items():
            # The smaller group has more rebalances, so that both have equally many requests.
            phases = LARGE // size
            core = Core()
            ids = core.stable_group(size)
            times: list[float] = []
            for _ in range(phases):
                requests = [joining(member) for member in ids]
                syncs = syncing(ids, core.generation() + 1)
                with cpu_time(times):
                    core.send(requests)
                    core.send(syncs)
            costs.append(sum(times) / phases / size)
    ratio = median_ratio(member_costs[LARGE], member_costs[SMALL])
    return Measurement(
        name=f"join and sync of a member, group of {LARGE:,}",
        value=1e6 * statistics.median(member_costs[LARGE]),
        baseline=1e6 * statistics.median(member_costs[SMALL]),
        unit="us/member",
        baseline_name=f"group of {SMALL}",
        ratio=ratio,
        goal=f"at most {LINEAR_RATIO}: linear",
        met=ratio <= LINEAR_RATIO,
    )


# -- loads ------------------------------------------------------------------------------------


def commit_records(number: int, *, groups: int, partitions: int) -> list[Record]:
    """Return `number` records of commits, which the groups have made in turn.

    With 2 groups and 3 partitions, the first two records are about partition 0: one of group 0 and
    one of group 1. The next two records are about partition 1, and so on.
    """
    return [
        Record(
            encode_offset_commit_key(
                f"group-{index % groups}", TopicPartition("orders", index // groups % partitions)
            ),
            encode_offset_commit_value(
                OffsetCommitValue(offset=index, commit_timestamp_ms=NOW_US // 1_000)
            ),
            NOW_US // 1_000,
        )
        for index in range(number)
    ]


def batches_of(records: list[Record], size: int = RECORDS_PER_BATCH) -> tuple[RecordBatch, ...]:
    """Return a log with `records`, in batches of `size` records."""
    return tuple(
        RecordBatch(
            base_offset=start,
            partition_leader_epoch=0,
            last_offset_delta=len(records[start : start + size]) - 1,
            max_timestamp_ms=NOW_US // 1_000,
            records=encode_records(tuple(records[start : start + size])),
        )
        for start in range(0, len(records), size)
    )


def load() -> Measurement:
    """Measure the load of a log of commits."""
    batches = batches_of(
        commit_records(LOADED_COMMITS, groups=LOADED_GROUPS, partitions=PARTITIONS)
    )
    loaded: list[float] = []
    decoded: list[float] = []
    # Fewer rounds than ROUNDS, because each takes seconds.
    for _ in range(3):
        with cpu_time(loaded):
            core = Core(loads=batches)
        if len(core.coordinator.groups()) != LOADED_GROUPS:
            raise RuntimeError("the load lacks groups of the log")
        with cpu_time(decoded):
            _decode_everything(batches)
    rates = [LOADED_COMMITS / seconds for seconds in loaded]
    baselines = [LOADED_COMMITS / seconds for seconds in decoded]
    ratio = median_ratio(rates, baselines)
    return Measurement(
        name=f"load of {LOADED_COMMITS:,} commits, {RECORDS_PER_BATCH} in a batch",
        value=statistics.median(rates),
        baseline=statistics.median(baselines),
        unit="records/s",
        baseline_name="msgpack decoding of the same batches, keys and values",
        ratio=ratio,
        goal=f"at least {LOAD_GOAL}",
        met=ratio >= LOAD_GOAL,
        note=f"{LOADED_GROUPS:,} groups with {PARTITIONS} offsets each",
    )


def _decode_everything(batches: tuple[RecordBatch, ...]) -> None:
    """Decode every batch, and every key and value without the version at its beginning."""
    decode = msgspec.msgpack.Decoder().decode
    version_bytes = 2
    for batch in batches:
        for key, value, _ in decode(batch.records):
            decode(key[version_bytes:])
            decode(value[version_bytes:])


# -- memory -----------------------------------------------------------------------------------


def weight(make: Callable[[], object]) -> int:
    """Return the memory in bytes of an object that `make` returns, with all that it refers to."""
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def memory() -> list[Measurement]:
    """Measure the memory of an offset, a group and a member, beside their records in the log.

    For example, the coordinator is measured with 1,000 offsets and with 50,000. The difference of
    the two, divided by 49,000, is the memory of one offset, without what the coordinator needs in
    any case.
    """
    many, few = 50_000, 1_000

    # Each of these functions returns the bytes of the coordinator, and those of the records.
    def with_offsets(number: int) -> tuple[int, int]:
        records = commit_records(number, groups=1, partitions=number)
        batches = batches_of(records)
        return weight(lambda: Core(loads=batches).coordinator), _size(records)

    def with_groups(number: int) -> tuple[int, int]:
        records = commit_records(number, groups=number, partitions=1)
        batches = batches_of(records)
        return weight(lambda: Core(loads=batches).coordinator), _size(records)

    def with_members(number: int) -> tuple[int, int]:
        # `weight` measures what `stable` returns, which must be the coordinator alone. So `stable`
        # hands the size of the records out in this list.
        sizes_of_records: list[int] = []

        def stable() -> GroupCoordinator:
            core = Core()
            core.stable_group(number)
            sizes_of_records.append(_size(core.appended))
            return core.coordinator

        size = weight(stable)
        return size, sizes_of_records[-1]

    measurements = []
    for name, measure, (small, large) in (
        ("committed offset", with_offsets, (few, many)),
        ("group with one offset", with_groups, (few, many)),
        ("member of a Stable group", with_members, (MEMBERS // 2, MEMBERS)),
    ):
        small_bytes, small_records_bytes = measure(small)
        large_bytes, large_records_bytes = measure(large)
        value = (large_bytes - small_bytes) / (large - small)
        baseline = (large_records_bytes - small_records_bytes) / (large - small)
        measurements.append(
            Measurement(
                name=f"memory of a {name}",
                value=value,
                baseline=baseline,
                unit="bytes",
                baseline_name="its records, uncompressed",
                ratio=value / baseline,
            )
        )
    return measurements


def _size(records: list[Record]) -> int:
    """Return the bytes of the keys and values of records."""
    return sum(len(record.key or b"") + len(record.value or b"") for record in records)


def run() -> tuple[Measurement, ...]:
    """Measure requests, join phases, a load, and memory."""
    return (*requests_per_second(), join_phases(), load(), *memory())
