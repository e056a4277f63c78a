"""The log of a server's transactions on its disk, and the epochs that the server has promised.

A transaction is on the disk before it is acknowledged (forceSync=yes), so a power loss does not
remove it. The zxid of a transaction has two parts: the epoch of the leader that has ordered the
transaction, in the high bits, and a counter.

DEVIATION: there are no snapshots, the whole log stays.
Source: ZooKeeper `FileTxnLog`, `QuorumPeer` (acceptedEpoch, currentEpoch).
"""

from bisect import bisect_right

import msgspec

from partition_log.batches import build_batch
from partition_log.storage import Storage
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.messages.zookeeper import NO_ZXID, Zxid
from protocol.messages.zookeeper_quorum import Txn
from protocol.records.batch import Record, decode_records

TXN_LOG = TopicPartition("zookeeper", 0)
"""The log's name on the disk. The disk knows only logs of partitions, so this has the form of a
partition's name."""
EPOCHS = "epochs"
"""Name of the checkpoint file that has the epochs."""
_EPOCH_BITS = 32
"""The lowest 32 bits of a zxid are the counter; the bits above are the epoch."""


class Epochs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The epochs of one server.

    `accepted_epoch` is the newest epoch that the server has promised to a leader. `current_epoch`
    is the epoch of the leader whose history this server has last copied.
    """

    accepted_epoch: int = 0
    current_epoch: int = 0


class TxnLog:
    """All transactions of one server, with growing zxids. The last ones may be uncommitted.

    On the disk, each transaction is a batch.
    """

    def __init__(self, storage: Storage) -> None:
        """Read the transactions and epochs from the disk."""
        self._storage = storage
        self._log = storage.log(TXN_LOG)
        content = storage.read_checkpoint(EPOCHS)
        self._epochs = Epochs() if content is None else msgspec.json.decode(content, type=Epochs)
        self._encoder = msgspec.msgpack.Encoder()
        decoder = msgspec.msgpack.Decoder(Txn)
        self._txns: list[Txn] = []
        self._zxids: list[Zxid] = []
        for index in range(len(self._log)):
            for record in decode_records(self._log.batch(index).records):
                if record.value is None:
                    raise SimulationError(f"transaction {index} has no value")
                self._keep(decoder.decode(record.value))

    @property
    def last_zxid(self) -> Zxid:
        """Zxid of the last transaction; NO_ZXID if the log is empty."""
        return self._zxids[-1] if self._zxids else NO_ZXID

    @property
    def accepted_epoch(self) -> int:
        """The newest epoch promised to a leader."""
        return self._epochs.accepted_epoch

    @property
    def current_epoch(self) -> int:
        """The epoch of the leader whose history this log is."""
        return self._epochs.current_epoch

    def accept_epoch(self, epoch: int) -> None:
        """Promise to follow no leader of an epoch below `epoch`.

        Raises: SimulationError if a newer epoch was promised before.
        """
        if epoch < self.accepted_epoch:
            raise SimulationError(f"epoch {epoch} after the promise of {self.accepted_epoch}")
        self._write_epochs(Epochs(accepted_epoch=epoch, current_epoch=self.current_epoch))

    def enter_epoch(self, epoch: int) -> None:
        """Record that the log is now the history of the leader of `epoch`."""
        self._write_epochs(Epochs(accepted_epoch=self.accepted_epoch, current_epoch=epoch))

    def append(self, txn: Txn) -> None:
        """Write a transaction and flush it to the disk.

        Raises: SimulationError if the transaction is not newer than the last one.
        """
        if txn.zxid <= self.last_zxid:
            raise SimulationError(f"appended {txn.zxid:#x} after {self.last_zxid:#x}")
        self._log.append(
            build_batch(
                (Record(None, self._encoder.encode(txn)),),  # a record without a key
                base_offset=len(self._txns),
                leader_epoch=epoch_of(txn.zxid),
            )
        )
        self._log.flush()
        self._keep(txn)

    def after(self, zxid: Zxid) -> tuple[Txn, ...]:
        """Return the transactions after `zxid`, which need not be in the log itself."""
        return tuple(self._txns[bisect_right(self._zxids, zxid) :])

    def between(self, zxid: Zxid, last: Zxid) -> tuple[Txn, ...]:
        """Return the transactions after `zxid`, up to and including `last`."""
        return tuple(self._txns[bisect_right(self._zxids, zxid) : bisect_right(self._zxids, last)])

    def epoch_ends(self) -> tuple[Zxid, ...]:
        """Return the last zxid of each epoch in the log, in order."""
        # epoch -> its last zxid, because a later zxid of an epoch replaces an earlier one
        ends = {epoch_of(zxid): zxid for zxid in self._zxids}
        return tuple(ends.values())

    def common_with(self, epoch_ends: tuple[Zxid, ...]) -> Zxid:
        """Return the last zxid that this log and a log with these `epoch_ends` have in common.

        The ends of the epochs are enough for this. All zxids of an epoch come from one leader, in
        order, and a server that has one of these zxids also has everything before it.
        """
        own_end_by_epoch = {epoch_of(zxid): zxid for zxid in self.epoch_ends()}
        # This list has an entry for each epoch that both logs have: the zxid at which the log that
        # has less of the epoch ends. The last entry is about the newest of these epochs.
        common_ends = [
            min(zxid, own_end_by_epoch[epoch_of(zxid)])
            for zxid in epoch_ends
            if epoch_of(zxid) in own_end_by_epoch
        ]
        return common_ends[-1] if common_ends else NO_ZXID

    def truncate(self, keep_zxid: Zxid) -> None:
        """Remove the transactions after `keep_zxid`."""
        count = bisect_right(self._zxids, keep_zxid)
        if count < len(self._txns):
            self._log.truncate(count)
            del self._txns[count:]
            del self._zxids[count:]

    def _keep(self, txn: Txn) -> None:
        """Add a transaction that is on the disk to the lists in memory."""
        self._txns.append(txn)
        self._zxids.append(txn.zxid)

    def _write_epochs(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._storage.write_checkpoint(EPOCHS, msgspec.json.encode(epochs))


def epoch_of(zxid: Zxid) -> int:
    """Return the epoch of the leader that gave out `zxid`."""
    return zxid >> _EPOCH_BITS


def first_zxid(epoch: int) -> Zxid:
    """Return the zxid just below the zxids that the leader of an epoch gives out.

    No transaction has this zxid: its low bits are 0, and the low bits of transactions count from 1.
    """
    return Zxid(epoch << _EPOCH_BITS)
