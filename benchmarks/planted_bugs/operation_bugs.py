"""Bugs that only a rollout or a scaling shows: they are in what a consumer does when it closes.

No fault of the space `standard` closes a consumer that works: its members are killed, paused or cut
off, and a consumer that closes there does so because of an error (`ended_by`). Each bug acts on a
consumer that was asked to stop, so no seed of `standard` reaches it.
"""

from contextlib import ExitStack
from unittest.mock import patch

from benchmarks.planted_bugs.planted_bug import PlantedBug
from cluster.client.consumer.generation import Generation
from cluster.client.consumer.group_consumer import GroupConsumer
from cluster.client.consumer.offset_commits import OffsetCommits, Offsets
from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture
from protocol.trace import TraceKind

SPACE = "operations"


def _closing_commit_covers_what_was_fetched(stack: ExitStack) -> None:
    close = GroupConsumer.close

    async def close_ahead(self: GroupConsumer, ended_by: ClientError | None = None) -> None:
        if ended_by is None:
            for partition, fetched in self._fetcher._completed.items():
                assigned = self.subscription.assigned.get(partition)
                if assigned is not None and assigned.position is not None:
                    assigned.position = fetched.next_position
        await close(self, ended_by)

    stack.enter_context(patch.object(GroupConsumer, "close", close_ahead))


def _closing_commit_counts_although_it_failed(stack: ExitStack) -> None:
    close, failed = GroupConsumer.close, OffsetCommits._fail
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
    )
}
