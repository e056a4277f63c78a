"""How owners that gave way learnt of it: the answers that told them, as steps in time order.

Pure functions over rows of `client_phases` and `messages`. The latter is bounded: an answer that is
not in it is not told, the moment at which partitions were lost stands elsewhere.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pipeline.report.report_input import Row, Settings
from pipeline.summary.outcomes import in_number_order, listed

_UNKNOWN = "UNKNOWN_MEMBER_ID"
_SAID_SO = frozenset({"NOT_COORDINATOR"})
"""What an old coordinator answers once it knows that it is none; other causes are no answer."""


@dataclass(frozen=True, slots=True)
class MemberStep:
    """One thing that led to two owners, or ended it; `lane` is where it is seen."""

    time_us: int
    text: str
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveWay:
    """Members that lost their partitions: whom the steps are about.

    Shape: `fault` is the one whose messages count (None: no fault, nothing is told); `broker` is
    the coordinator that did not know them; `from_us` to `to_us` is the time of two owners.
    """

    group: str
    fault: str | None
    members: Collection[str]
    broker: str | None
    from_us: int
    to_us: int


def old_coordinator_steps(
    gave: GaveWay, clients: Sequence[Row], settings: Settings
) -> Iterator[MemberStep]:
    """Tell when the old coordinator's answers sent members to the new one."""
    rows = [
        row
        for row in clients
        if row["fault"] == gave.fault
        and row["group"] == gave.group
        and row["consumer"] in gave.members
        and row["noticed_by"] in _SAID_SO
        and row["unknown_us"] is not None
        and gave.from_us <= row["unknown_us"] <= gave.to_us
    ]
    if not rows:
        return
    names = in_number_order({row["consumer"] for row in rows})
    errors = listed(dict.fromkeys(row["noticed_by"] for row in rows))
    interval = settings.of_group(gave.group, "heartbeat.interval.ms")
    every = "" if interval is None else f" (heartbeat.interval.ms = {interval})"
    yield MemberStep(
        min(row["unknown_us"] for row in rows),
        f"{listed(names)}: {errors} from the old coordinator, at the next request{every}. "
        f"{'They look' if len(names) > 1 else 'It looks'} for the new one.",
        f"lane-messages-{gave.fault}",
    )


def unknown_members(gave: GaveWay, messages: Sequence[Row]) -> list[Row]:
    """Return the answers by which the new coordinator said that it knows no such member."""
    return [
        row
        for row in messages
        if row["outcome"] == _UNKNOWN
        and row["fault"] == gave.fault
        and row["from_node"] in gave.members
        and row["to_node"] == gave.broker
        and row["ended_us"] is not None
        and gave.from_us <= row["ended_us"] <= gave.to_us
    ]


def new_coordinator_steps(gave: GaveWay, messages: Sequence[Row]) -> Iterator[MemberStep]:
    """Tell the first answer that took partitions away; the last one is the end of the story."""
    rows = unknown_members(gave, messages)
    if len({row["from_node"] for row in rows}) < 2:
        return
    first = min(rows, key=lambda row: (row["ended_us"], row["from_node"]))
    yield MemberStep(
        first["ended_us"],
        f"{first['from_node']} is the first to lose its partitions: {first['api']} is answered "
        f"{_UNKNOWN} by {gave.broker}.",
        f"lane-messages-{gave.fault}",
    )
