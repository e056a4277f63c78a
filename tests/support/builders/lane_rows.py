"""Rows for tests of the lanes: the charts that stand one below the other on a report's time line.

Each function returns a row of one table, with all columns of the table. A test passes only the
times and names that matter to the test. Times are seconds of the run's clock (`..._s`). Through
`changes` a test sets any other column, as in `tenure("broker-2", 0, 5, 60, commits=7)`. Every run
ends at 60 s. A time of None stands for an event that had not happened when the run ended.

Most rows are about the group `readers`, whose offsets are in the partition `__consumer_offsets-2`.
The leader of this partition coordinates the group. The time during which one broker does so is
called a tenure of this broker. Several functions are about `crash-0`, the only fault of the run: at
11.25 s broker-2 crashes.
"""

from typing import Any

Row = dict[str, Any]
SECOND_US = 1_000_000
GROUP = "readers"
OFFSETS_2 = "__consumer_offsets-2"


def us(time_s: float) -> int:
    """Return seconds as microseconds."""
    return round(time_s * SECOND_US)


def _us_or_none(time_s: float | None) -> int | None:
    return None if time_s is None else us(time_s)


def _length_us(from_s: float, to_s: float | None) -> int:
    """Return the microseconds from `from_s` to `to_s`, or to the end of the run at 60 s."""
    end_s = 60 if to_s is None else to_s
    return us(end_s - from_s)


def tenure(broker: str, epoch: int, from_s: float, to_s: float, **changes: object) -> Row:
    """Return a row of `coordinator_tenures`: `broker` coordinates __consumer_offsets-2.

    By default the tenure ends because the run ends. For another reason, pass `end_reason`.
    """
    return {
        "partition": OFFSETS_2,
        "leader_epoch": epoch,
        "broker": broker,
        "incarnation": 0,
        "start_us": us(from_s),
        "end_us": us(to_s),
        "end_reason": "run end",
        "overlap_us": 0,
        "paused_us": 0,
        "paused_from_us": None,
        "paused_to_us": None,
        "cut_us": 0,
        "cut_from_us": None,
        "cut_to_us": None,
        "commits": 0,
        **changes,
    }


def group(name: str = GROUP, partition: str | None = OFFSETS_2) -> Row:
    """Return a row of `groups`: a group with two consumers."""
    return {"group": name, "partition": partition, "consumers": 2}


def load(leader: str, epoch: int, from_s: float, to_s: float, **changes: object) -> Row:
    """Return a row of `broker_phases`: `leader` takes over __consumer_offsets-2 after crash-0.

    The controller decides on the new leader 0.1 s before `from_s`. At `from_s` the new leader
    learns of this decision, and begins to load the partition's groups. At `to_s` all groups are
    loaded.
    """
    return {
        "fault": "crash-0",
        "partition": OFFSETS_2,
        "old_leader": "broker-2",
        "new_leader": leader,
        "leader_epoch": epoch,
        "groups": [GROUP],
        "fault_us": us(11.25),
        "decided_us": us(from_s - 0.1),
        "applied_us": us(from_s),
        "load_started_us": us(from_s),
        "active_us": us(to_s),
        "load_us": us(to_s - from_s),
        # A report shows this time as a text. It is so short that the times above do not show it.
        "load_wait_us": 1_200,
        "records": 265,
        "bytes": 33_290,
        **changes,
    }


def tenure_overlap(from_s: float, to_s: float) -> Row:
    """Return a row of `tenure_overlaps`: broker-2 still coordinates, although broker-0 took over.

    Both brokers coordinate the groups of __consumer_offsets-2 from `from_s` to `to_s`.
    """
    return {
        "partition": OFFSETS_2,
        "older_broker": "broker-2",
        "older_epoch": 0,
        "newer_broker": "broker-0",
        "newer_epoch": 1,
        "from_us": us(from_s),
        "to_us": us(to_s),
        "length_us": us(to_s - from_s),
    }


def state(name: str, from_s: float, to_s: float | None, **changes: object) -> Row:
    """Return a row of `group_states`: on broker-2 the group `readers` is in the state `name`.

    The group has two members and is in generation 1.
    """
    return {
        "group": GROUP,
        "partition": OFFSETS_2,
        "broker": "broker-2",
        "incarnation": 0,
        "leader_epoch": 0,
        "state": name,
        "generation": 1,
        "members": 2,
        "cause": None,
        "from_us": us(from_s),
        "to_us": _us_or_none(to_s),
        "length_us": _length_us(from_s, to_s),
        **changes,
    }


def rebalance(
    started_s: float, joined_s: float | None, stable_s: float | None, **changes: object
) -> Row:
    """Return a row of `rebalances`: consumer-1 joins `readers`, whose coordinator is broker-2.

    At `joined_s` all members have joined, and generation 2 of the group begins. At `stable_s` the
    assignment of this generation is stored. `joined_s` or `stable_s` is None if the rebalance did
    not get that far.
    """
    return {
        "group": GROUP,
        "broker": "broker-2",
        "leader_epoch": 0,
        "generation": 1,
        "new_generation": None if joined_s is None else 2,
        "reason": "join",
        "member": "consumer-1-abc",
        "consumer": "consumer-1",
        "cause": "member consumer-1-abc joined",
        "client_reason": None,
        "removed": [],
        "removed_because": [],
        "added": ["consumer-1"],
        "store_error": None,
        "fault": None,
        "started_us": us(started_s),
        "joined_us": _us_or_none(joined_s),
        "stable_us": _us_or_none(stable_s),
        "join_us": None,
        "sync_us": None,
        "length_us": None if stable_s is None else us(stable_s - started_s),
        **changes,
    }


def ownership(
    partition: str, consumer: str, from_s: float, to_s: float | None, **changes: object
) -> Row:
    """Return a row of `ownership`: a consumer owns a partition from `from_s` to `to_s`.

    The consumer got the partition in generation 1 from broker-2, which coordinated the group in
    leader epoch 0.
    """
    return {
        "group": GROUP,
        "partition": partition,
        "consumer": consumer,
        "generation": 1,
        "coordinator": "broker-2",
        "leader_epoch": 0,
        "from_us": us(from_s),
        "to_us": _us_or_none(to_s),
        "length_us": _length_us(from_s, to_s),
        "ended_by": "run end" if to_s is None else "revoked",
        "paused_us": 0,
        "records": 10,
        **changes,
    }


def ownership_overlap(
    partition: str, first: str, second: str, from_s: float, to_s: float | None
) -> Row:
    """Return a row of `ownership_overlaps`: two consumers own a partition at the same time.

    The consumer `first` got the partition in generation 1 from broker-2. The consumer `second` got
    the same partition in generation 2 from broker-0.
    """
    return {
        "group": GROUP,
        "partition": partition,
        "from_us": us(from_s),
        "to_us": _us_or_none(to_s),
        "length_us": _length_us(from_s, to_s),
        "first_consumer": first,
        "first_generation": 1,
        "first_coordinator": "broker-2",
        "first_epoch": 0,
        "second_consumer": second,
        "second_generation": 2,
        "second_coordinator": "broker-0",
        "second_epoch": 1,
        "records_both": 40,
    }


def gap(kind: str, subject: str, from_s: float, to_s: float | None, **changes: object) -> Row:
    """Return a row of `availability`: how long a subject had no success around crash-0.

    The subject is a group, a member or a partition. `kind` says which of the three it is, and
    `subject` is its name. The subject's last success before the crash is at `from_s`, and its first
    success after the crash at `to_s`.
    """
    return {
        "fault": "crash-0",
        "subject_kind": kind,
        "group": GROUP,
        "subject": subject,
        "gap_us": None if to_s is None else us(to_s - from_s),
        "before_us": us(from_s),
        "after_us": _us_or_none(to_s),
        **changes,
    }


def message(api: str, sender: str, receiver: str, sent_s: float, **changes: object) -> Row:
    """Return a row of `messages` around crash-0: a request and its answer.

    The request takes 1 ms to its receiver, which answers at once. The answer takes 1 ms, too.
    """
    return {
        "fault": "crash-0",
        "api": api,
        "purpose": "client",
        "from_node": sender,
        "to_node": receiver,
        "group": GROUP,
        "member": None,
        "correlation_id": 7,
        "sent_us": us(sent_s),
        "received_us": us(sent_s + 0.001),
        "answered_us": us(sent_s + 0.001),
        "ended_us": us(sent_s + 0.002),
        "outcome": "NONE",
        # The broker that the answer names; only an answer to FindCoordinator names one.
        "named": None,
        "repeats": 1,
        "last_ended_us": us(sent_s + 0.002),
        **changes,
    }
