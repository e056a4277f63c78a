"""Bugs that only a rollout or a scaling shows, because they are in a consumer's orderly close.

A rollout replaces consumers: it stops each of them with SIGTERM, and starts a successor. Upon
SIGTERM, a consumer closes without an error. In the space `standard`, faults only kill members,
pause them or cut them off, so a consumer closes there only because of an error (`ended_by`). These
bugs act only on a close without an error, so no seed of `standard` reaches them.
"""

from contextlib import ExitStack
from typing import cast
from unittest.mock import patch
from weakref import WeakKeyDictionary

from benchmarks.planted_bugs.planted_bug import PlantedBug
from cluster.client.consumer.generation import Generation
from cluster.client.consumer.group_consumer import GroupConsumer
from cluster.client.consumer.offset_commits import OffsetCommits, Offsets
from cluster.client.consumer.positions import Positions
from cluster.client.consumer.subscription import AssignedPartition, Position
from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture
from cluster.host.host import Host
from cluster.virtual.host import VirtualHost
from cluster.virtual.loop import VirtualLoop
from protocol.causes import PositionCause
from protocol.ids import NodeName
from protocol.trace import TraceKind

SPACE = "operations"


def _closing_commit_covers_what_was_fetched(stack: ExitStack) -> None:
    """Let the last commit of a closing consumer cover records that poll has not returned."""
    close = GroupConsumer.close

    async def close_ahead(self: GroupConsumer, ended_by: ClientError | None = None) -> None:
        if ended_by is None:
            # `_completed` has, for each partition, the fetched records that poll has not returned.
            # The close commits `position`, so the bug moves it behind these records.
            for partition, fetched in self._fetcher._completed.items():
                assigned = self.subscription.assigned.get(partition)
                if assigned is not None and assigned.position is not None:
                    assigned.position = fetched.next_position
        await close(self, ended_by)

    stack.enter_context(patch.object(GroupConsumer, "close", close_ahead))


def _closing_commit_counts_although_it_failed(stack: ExitStack) -> None:
    """Count the last commit of a closing consumer as acknowledged when it failed."""
    close, failed = GroupConsumer.close, OffsetCommits._fail
    # The OffsetCommits of closing consumers, by identity. The dict also keeps these objects alive,
    # so that no other object gets the same identity.
    closing: dict[int, object] = {}

    async def close_noted(self: GroupConsumer, ended_by: ClientError | None = None) -> None:
        if ended_by is None:
            closing[id(self.commits)] = self.commits
        await close(self, ended_by)

    def acknowledge(
        self: OffsetCommits,
        offsets: Offsets,
        sent: Generation,
        result: RequestFuture[None],
        error: ClientError,
        *,
        peer: str | None = None,
    ) -> None:
        if closing.get(id(self)) is not self:
            failed(self, offsets, sent, result, error, peer=peer)
            return
        for partition in offsets:
            self._trace(TraceKind.OFFSETS_COMMITTED, offsets, partition, sent, peer)
        result.complete(None)

    stack.enter_context(patch.object(GroupConsumer, "close", close_noted))
    stack.enter_context(patch.object(OffsetCommits, "_fail", acknowledge))


def _successor_goes_on_where_its_predecessor_was(stack: ExitStack) -> None:
    """Let a successor begin after the records that its closed predecessor had fetched.

    If the committed offset is later than that, the successor begins at the committed offset.
    """
    close, set_position = GroupConsumer.close, Positions._set
    # The positions after the records that closed members had fetched, by run (each run has its own
    # loop), then by node and partition. A successor has the node name of its predecessor, so it
    # finds its predecessor's positions.
    positions: WeakKeyDictionary[VirtualLoop, dict[tuple[NodeName, object], Position]] = (
        WeakKeyDictionary()
    )

    def positions_in_run(host: Host) -> dict[tuple[NodeName, object], Position]:
        loop = cast(VirtualHost, host)._loop  # one for each run
        return positions.setdefault(loop, {})

    async def close_noted(self: GroupConsumer, ended_by: ClientError | None = None) -> None:
        if ended_by is None:
            for partition, fetched in self._fetcher._completed.items():
                positions_in_run(self._host)[self._host.name, partition] = fetched.next_position
        await close(self, ended_by)

    def set_later(
        self: Positions, state: AssignedPartition, position: Position, cause: PositionCause
    ) -> None:
        left_by_predecessor = positions_in_run(self._host).pop(
            (self._host.name, state.partition), None
        )
        if left_by_predecessor is not None and left_by_predecessor.offset > position.offset:
            position = left_by_predecessor
        set_position(self, state, position, cause)

    stack.enter_context(patch.object(GroupConsumer, "close", close_noted))
    stack.enter_context(patch.object(Positions, "_set", set_later))


OPERATION_BUGS: dict[str, PlantedBug] = {
    bug.name: bug
    for bug in (
        PlantedBug(
            name="closing_commit_covers_what_was_fetched",
            where="consumer",
            what="the last commit of a closing consumer covers records that poll has not returned",
            rule="BEHAVIOUR 7.5: a commit has the position after the records that poll returned",
            plant=_closing_commit_covers_what_was_fetched,
            space=SPACE,
        ),
        PlantedBug(
            name="closing_commit_counts_although_it_failed",
            where="consumer",
            what="the last commit of a closing consumer counts as acknowledged when it failed",
            rule="BEHAVIOUR 7.5: a commit is acknowledged by its answer",
            plant=_closing_commit_counts_although_it_failed,
            space=SPACE,
        ),
        PlantedBug(
            name="successor_goes_on_where_its_predecessor_was",
            where="consumer",
            what="a member that starts in the place of one that closed begins after the records "
            "that its predecessor had fetched, if that is later than the committed offset",
            rule="BEHAVIOUR 7.5: the first position is the committed offset",
            plant=_successor_goes_on_where_its_predecessor_was,
            space=SPACE,
        ),
    )
}
