"""Each incarnation (life) of a controller has a higher epoch; its log survives a power loss.

`ControllerLab(cluster, storage)` passes requests to a controller without brokers and network.
Another lab on the same storage is the next incarnation.
"""

from cluster.controller.quorum_state import begin_controller_epoch
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage, MemoryStorage
from protocol.ids import METADATA_PARTITION
from protocol.messages.log import FetchResponse
from tests.support.harness.controllers import CONTROLLER, ControllerLab, cluster_of, topic


def begin(storage: MemoryStorage) -> int:
    """Begin an incarnation on a disk, and return its epoch."""
    log = PartitionLog(METADATA_PARTITION, storage.log(METADATA_PARTITION))
    return begin_controller_epoch(storage, log, CONTROLLER)


def test_controller_epoch_grows_with_every_incarnation_even_without_a_write() -> None:
    """Two incarnations must never write in the same epoch, also after a power loss.

    So an incarnation flushes its epoch to the disk before its first write. A controller of Kafka
    (KRaft) does the same with its vote.
    """
    storage = MemoryStorage()
    assert [begin(storage) for _ in range(3)] == [1, 2, 3]
    storage.power_loss()
    assert begin(storage) == 4


def test_controller_epoch_exceeds_the_log_when_its_file_is_lost() -> None:
    """The file `quorum-state` has the epoch. If the file is lost, the epoch comes from the log.

    A controller with a lower epoch than its log could not append.
    """
    storage = MemoryStorage()
    lab = ControllerLab(cluster_of(topic()), storage.log(METADATA_PARTITION))
    lab.start_brokers(0, 1, 2)  # writes records in epoch 1, but not the file
    assert begin(storage) == 2


def test_restarted_controller_writes_and_answers_in_its_new_epoch() -> None:
    """The records of the second incarnation have epoch 2, those of the first have epoch 1."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    restarted.broker_epochs = lab.broker_epochs  # a heartbeat with another epoch is stale
    end_before = restarted.log.log_end_offset
    restarted.heartbeat(0, want_shut_down=True)  # the controller writes a record for this
    assert [epoch.epoch for epoch in restarted.log.epochs.entries()] == [1, 2]
    response = restarted.replies[restarted.fetch(end_before)]
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].leader_epoch == 2


def test_answered_records_of_a_controller_survive_a_power_loss() -> None:
    """KRaft flushes its log before it answers.

    So a broker never has more records than the restarted controller.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    records = lab.records()
    lab.storage.power_loss()
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    assert restarted.records() == records


def test_metadata_log_is_flushed_with_every_append() -> None:
    """The flush is a part of the append, so no broker can fetch the record before."""
    storage = MemoryLogStorage()
    lab = ControllerLab(cluster_of(), storage)
    lab.register(0)
    assert storage.flushed_length == len(storage) == 1
