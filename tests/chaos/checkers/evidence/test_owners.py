"""The owners of partitions, according to the rows that members write themselves.

An owner is a process of a consumer. `(C0, 0)` is the first process of C0, and `(C0, 1)` is the
process of C0 after a restart. The call `rows.assigned(1, C0, partitions=2)` adds a row by which C0
gets two partitions of the group `g`, t-0 and t-1, at 1 s.

- `owners.of` returns the owners of a partition.
- `owners.owned_by` returns the partitions of an owner.
- `owners.ended` lists the ownerships that the last observed row ended.
"""

from chaos.checkers.evidence.owners import Owners
from protocol.trace import TraceKind
from tests.support.builders.rows import Rows

C0, C1 = "consumer-g-0", "consumer-g-1"


def test_partition_has_two_owners_until_the_older_one_revokes_it() -> None:
    """C0 owns t-0 and t-1. At 2 s C1 gets t-0 as well, and at 3 s C0 gives up its partitions."""
    owners = Owners()
    rows = Rows()
    rows.assigned(1, C0, partitions=2)
    rows.assigned(2, C1, partitions=1)
    for row in rows.rows:
        owners.observe(row)
        assert owners.ended == []

    # `of` maps each owner to the row of its assignment. Both assignments made an owner of t-0.
    assert list(owners.of("g", "t-0").values()) == rows.rows
    assert list(owners.of("g", "t-1")) == [(C0, 0)]
    assert owners.of("another group", "t-0") == {}

    rows.revoked(3, C0)
    owners.observe(rows.rows[-1])
    assert owners.ended == [("g", "t-0", (C0, 0)), ("g", "t-1", (C0, 0))]
    assert list(owners.of("g", "t-0")) == [(C1, 0)]
    assert (owners.owned_by((C0, 0)), owners.owned_by((C1, 0))) == ((), ("t-0",))


def test_next_assignment_or_the_end_of_the_process_ends_an_ownership() -> None:
    """The second assignment of C0 replaces the first assignment.

    A killed member owns nothing any more.
    """
    owners = Owners()
    rows = Rows()
    rows.assigned(1, C0, partitions=2)
    rows.assigned(2, C0, partitions=1)
    for row in rows.rows:
        owners.observe(row)
    assert owners.owned_by((C0, 0)) == ("t-0",)

    owners.observe(rows.add(3, "driver", TraceKind.NODE_KILLED, peer=C0))
    assert owners.of("g", "t-0") == {}
