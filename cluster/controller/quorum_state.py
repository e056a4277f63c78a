"""The epoch of a controller, which must be higher each time that the controller starts.

The controller writes its epoch into every batch of the metadata log. But if it stops before it has
written a record, the log does not show its epoch. So it also stores the epoch in a file when it
starts.

Source: KRaft's `quorum-state` file, which a candidate syncs before it asks for votes.
"""

import msgspec

from partition_log.log import PartitionLog
from partition_log.storage import Storage
from protocol.ids import BrokerId, LeaderEpoch

QUORUM_STATE = "quorum-state"
"""Name of the file with the epoch."""
FIRST_CONTROLLER_EPOCH = LeaderEpoch(1)
"""In KRaft, epoch 0 precedes the first election."""


class QuorumState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last leader of the metadata log, in KRaft's format: JSON with names in camel case."""

    leader_id: int
    leader_epoch: int


def begin_controller_epoch(
    storage: Storage, log: PartitionLog, controller_id: BrokerId
) -> LeaderEpoch:
    """Return the epoch of the incarnation that begins now, and store it on the disk."""
    content = storage.read_checkpoint(QUORUM_STATE)
    # The file is missing at the first start.
    known = -1 if content is None else msgspec.json.decode(content, type=QuorumState).leader_epoch
    # The log counts, too, because the file may be lost in a power failure.
    epoch = next_controller_epoch(log, known)
    state = QuorumState(leader_id=controller_id, leader_epoch=epoch)
    storage.write_checkpoint(QUORUM_STATE, msgspec.json.encode(state))
    return epoch


def next_controller_epoch(log: PartitionLog, known: int = -1) -> LeaderEpoch:
    """Return an epoch above `known` and above all epochs in `log`.

    The default -1 is for a caller that knows no epoch: it is below every epoch.
    """
    return LeaderEpoch(max(FIRST_CONTROLLER_EPOCH, known + 1, log.latest_epoch + 1))
