"""The facade: the one way in to the group coordinator of a broker.

Owns which offsets partitions are owned or loading, and routes each input to the module of its
API. The broker feeds requests, completed appends, fired timers and tasks (load, unload); it
carries out the Result of each. Must not know logs, sockets or clocks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.states import GroupState
from protocol.config import BrokerConfig, Guards
from protocol.effects import AppendCompleted, Result
from protocol.envelope import RequestEnvelope
from protocol.ids import RequestId
from protocol.record_batch import RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadIgnored:
    """A load or unload that was not carried out, and the epoch that is known instead."""

    reason: str
    known_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """What may be seen of a group from outside."""

    group_id: str
    partition: int
    state: GroupState
    generation: int
    members: tuple[str, ...]


class GroupCoordinator:
    """The group coordinator of one broker incarnation (Scala's, BEHAVIOUR [S])."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        guards: Guards,
        num_offsets_partitions: int,
        new_uuid: Callable[[], str],
    ) -> None:
        raise NotImplementedError

    def handle(self, request_id: RequestId, envelope: RequestEnvelope, now_us: int) -> Result:
        """Handle a group request; its answer may come now, later, or (never) not at all."""
        raise NotImplementedError

    def append_completed(self, completed: AppendCompleted, now_us: int) -> Result:
        """Take the outcome of an append that an earlier Result asked for."""
        raise NotImplementedError

    def timer_fired(self, key: str, now_us: int) -> Result:
        """Take a fired timer; one that means nothing any more changes nothing."""
        raise NotImplementedError

    def begin_load(self, partition: int, leader_epoch: int, now_us: int) -> Result | LoadIgnored:
        """Begin to load `partition`: from here its groups answer COORDINATOR_LOAD_IN_PROGRESS."""
        raise NotImplementedError

    def load_batches(self, partition: int, batches: tuple[RecordBatch, ...]) -> Result:
        """Read one bounded chunk of the log, in offset order."""
        raise NotImplementedError

    def finish_load(self, partition: int, now_us: int) -> Result:
        """Build the groups that the log holds, start their session timers, own `partition`."""
        raise NotImplementedError

    def unload(self, partition: int, leader_epoch: int | None, now_us: int) -> Result | LoadIgnored:
        """Forget `partition`; parked callers are answered NOT_COORDINATOR."""
        raise NotImplementedError

    def load_error(self, partition: int) -> str | None:
        """Return why the last load of `partition` stopped early, None if it did not."""
        raise NotImplementedError

    def is_loading(self, partition: int) -> bool:
        """Return whether `partition` is between begin_load and finish_load."""
        raise NotImplementedError

    def is_owned(self, partition: int) -> bool:
        """Return whether this broker serves the groups of `partition`."""
        raise NotImplementedError

    def groups(self) -> tuple[GroupSummary, ...]:
        """Return every cached group, in the order in which they were created or loaded."""
        raise NotImplementedError
