"""Rows of the tables that the lanes read. By default nothing goes wrong in the rows.

A lane is a chart of the report's time line. The arguments `..._s` are seconds of the run's clock.
An end of None means that the run ended first, at 60 s. `changes` replace or add columns.

Terms: an offsets partition is a partition of `__consumer_offsets`, and the broker that leads it
coordinates its groups. The leader epoch counts the partition's leaders. A tenure is the time in
which a broker coordinates in one leader epoch. A rebalance gives the members of a group new
partitions; the generation counts the rebalances.
"""

from typing import Any

Row = dict[str, Any]  # Any: a cell of a table
SECOND_US = 1_000_000
GROUP = "readers"
OFFSETS_2 = "__consumer_offsets-2"


def us(time_s: float) -> int:
    """Return seconds as microseconds."""
    return round(time_s * SECOND_US)


def _maybe_us(time_s: float | None) -> int | None:
    return None if time_s is None else us(time_s)


def tenure(broker: str, epoch: int, from_s: float, to_s: float, **changes: object) -> Row:
    """Return a row of `coordinator_tenures`: `broker` coordinates __consumer_offsets-2.

    By default the tenure ends with the run. For another end, pass `end_reason`.
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
    """Return a row of `groups`."""
    return {"group": name, "partition": partition, "consumers": 2}


def load(leader: str, epoch: int, from_s: float, to_s: float, **changes: object) -> Row:
    """Return a row of `broker_phases`: `leader` loads __consumer_offsets-2 because of crash-0.

    A load reads the groups of the partition into memory. The controller decides on the new leader
    0.1 s before `from_s`. At `from_s` the new leader applies its leadership and begins the load. At
    `to_s` the load is complete.
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
        "load_wait_us": 1_200,
        "records": 265,
        "bytes": 33_290,
        **changes,
    }


def tenure_overlap(from_s: float, to_s: float) -> Row:
    """Return a row of `tenure_overlaps`: broker-2 and broker-0 coordinate at the same time."""
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
    """Return a row of `group_states`: `readers` on broker-2, in generation 1 with two members."""
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
        "to_us": _maybe_us(to_s),
        "length_us": us((60 if to_s is None else to_s) - from_s),
        **changes,
    }


def rebalance(
    started_s: float, joined_s: float | None, stable_s: float | None, **changes: object
) -> Row:
    """Return a row of `rebalances`: a join to `readers` on broker-2, from generation 1 to 2.

    joined_s: when the new generation began; None if none began.
    stable_s: when its assignment was stored; None if it was not.
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
        "joined_us": _maybe_us(joined_s),
        "stable_us": _maybe_us(stable_s),
        "join_us": None,
        "sync_us": None,
        "length_us": None if stable_s is None else us(stable_s - started_s),
        **changes,
    }


def ownership(
    partition: str, consumer: str, from_s: float, to_s: float | None, **changes: object
) -> Row:
    """Return a row of `ownership`, assigned by broker-2 in generation 1 and epoch 0."""
    return {
        "group": GROUP,
        "partition": partition,
        "consumer": consumer,
        "generation": 1,
        "coordinator": "broker-2",
        "leader_epoch": 0,
        "from_us": us(from_s),
        "to_us": _maybe_us(to_s),
        "length_us": us((60 if to_s is None else to_s) - from_s),
        "ended_by": "run end" if to_s is None else "revoked",
        "paused_us": 0,
        "records": 10,
        **changes,
    }


def ownership_overlap(
    partition: str, first: str, second: str, from_s: float, to_s: float | None
) -> Row:
    """Return a row of `ownership_overlaps`: consumers `first` and `second` own the partition.

    `first` got it in generation 1 from broker-2, `second` in generation 2 from broker-0.
    """
    return {
        "group": GROUP,
        "partition": partition,
        "from_us": us(from_s),
        "to_us": _maybe_us(to_s),
        "length_us": us((60 if to_s is None else to_s) - from_s),
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
    """Return a row of `availability`: the gap between two successes of a subject around crash-0.

    The last success before the crash is at `from_s`, the first one after it at `to_s`. `kind` is
    group, member or partition, and `subject` is the name of that group, member or partition.
    """
    return {
        "fault": "crash-0",
        "subject_kind": kind,
        "group": GROUP,
        "subject": subject,
        "gap_us": None if to_s is None else us(to_s - from_s),
        "before_us": us(from_s),
        "after_us": _maybe_us(to_s),
        **changes,
    }


def message(api: str, sender: str, receiver: str, sent_s: float, **changes: object) -> Row:
    """Return a row of `messages` around crash-0: a request and its answer.

    The receiver answers in the moment in which the request arrives. Each way takes 1 ms.
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
        "named": None,  # only FindCoordinator's answer names a broker
        "repeats": 1,
        "last_ended_us": us(sent_s + 0.002),
        **changes,
    }
