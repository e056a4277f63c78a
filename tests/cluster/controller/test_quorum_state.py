"""A controller has a higher epoch after each restart, and its log survives a power loss.

The log is the metadata log, in which the controller writes its decisions.
`ControllerLab(cluster, storage)` is a controller without brokers and network: the lab passes
requests to it. A second lab on the same storage is the restarted controller.
"""

from cluster.controller.quorum_state import begin_controller_epoch
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage, MemoryStorage
from protocol.ids import METADATA_PARTITION
from protocol.messages.log import FetchResponse
from tests.support.harness.controllers import CONTROLLER, ControllerLab, cluster_of, topic


def start_controller(storage: MemoryStorage) -> int:
    """Take the first step of a controller that starts on a disk, and return its new epoch."""
    log = PartitionLog(METADATA_PARTITION, storage.log(METADATA_PARTITION))
    return begin_controller_epoch(storage, log, CONTROLLER)


def test_controller_epoch_grows_with_every_restart_even_without_a_write() -> None:
    """Records from before and after a restart must never have the same epoch.

    So a controller flushes its epoch to the disk before its first write, because the restart may
    follow a power loss. Kafka's controller does the same with its vote.
    """
    storage = MemoryStorage()
    assert [start_controller(storage) for _ in range(3)] == [1, 2, 3]
    storage.power_loss()
    assert start_controller(storage) == 4


def test_controller_epoch_exceeds_the_log_when_its_file_is_lost() -> None:
    """If the file `quorum-state` with the epoch is lost, the epoch follows from the log.

    A controller whose epoch were lower than that of the last record could not append a record.
    """
    storage = MemoryStorage()
    lab = ControllerLab(cluster_of(topic()), storage.log(METADATA_PARTITION))
    lab.start_brokers(0, 1, 2)  # the lab writes records in epoch 1, but no file `quorum-state`
    assert start_controller(storage) == 2


def test_restarted_controller_writes_and_answers_in_its_new_epoch() -> None:
    """Records from before the restart have epoch 1, later ones have epoch 2."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    restarted.broker_epochs = lab.broker_epochs  # the brokers are still registered
    end_before = restarted.log.log_end_offset
    restarted.heartbeat(0, want_shut_down=True)  # makes the controller write a record
    assert [epoch.epoch for epoch in restarted.log.epochs.entries()] == [1, 2]
    response = restarted.replies[restarted.fetch(end_before)]
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].leader_epoch == 2


def test_records_survive_a_power_loss_if_their_requests_were_answered() -> None:
    """As in Kafka, the controller flushes its log before it answers.

    So a broker never has records that the restarted controller lacks.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    records = lab.records()
    lab.storage.power_loss()
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    assert restarted.records() == records


def test_metadata_log_is_flushed_with_every_append() -> None:
    """The flush is a part of the append, so no broker can fetch a record that may be lost."""
    storage = MemoryLogStorage()
    lab = ControllerLab(cluster_of(), storage)
    lab.register(0)
    # The log has one batch, with the registration, and this batch is flushed.
    assert storage.flushed_length == len(storage) == 1
