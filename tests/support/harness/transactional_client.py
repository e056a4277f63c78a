"""A producer that commits offsets in transactions, request by request, against virtual brokers.

A BrokerLab has three brokers in virtual time (a simulated clock), and a client that sends single
requests. The parameter `broker` is the broker to which a request is sent. A commit of an offset
must go to the coordinator of the group, and every other request to the transaction coordinator.

A transaction goes through `init` (get a producer id), `add_offsets`, `commit_offset` and `end`.
"""

from collections.abc import Awaitable, Callable

import msgspec

from cluster.spec import ClusterSpec, TopicSpec
from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TRANSACTION_STATE
from protocol.messages.discovery import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.controllers import NO_BALANCING

RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def transactional_cluster(
    *, config: BrokerConfig = NO_BALANCING, base: ClusterSpec | None = None
) -> ClusterSpec:
    """Return the cluster `base` (None: that of `broker_cluster`) with `__transaction_state`.

    In the three partitions of this topic brokers keep the state of transactions.
    """
    cluster = broker_cluster(config=config) if base is None else base
    state = TopicSpec(
        name=TRANSACTION_STATE,
        partitions=3,
        replication_factor=3,
        config=TopicConfig(min_insync_replicas=2),
    )
    return msgspec.structs.replace(cluster, topics=(*cluster.topics, state))


class TransactionalClient:
    """A producer with a transactional id.

    `id` and `epoch` are its producer id and producer epoch, as the coordinator last assigned them.
    """

    def __init__(self, lab: BrokerLab, transactional_id: str = "tx") -> None:
        self.id: int = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self._lab = lab
        self._transactional_id = transactional_id

    async def coordinator(self, asked: int = 0) -> Coordinator:
        """Ask the broker `asked` for the coordinator of the transaction."""
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION, coordinator_keys=(self._transactional_id,)
        )
        response = await self._lab.client.call(asked, request)
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0]

    async def init_once(self, broker: int, *, timeout_ms: int = 60_000) -> InitProducerIdResponse:
        """Send one InitProducerId, which requests a producer id and an epoch."""
        response = await self._lab.client.call(
            broker,
            InitProducerIdRequest(
                transactional_id=self._transactional_id, transaction_timeout_ms=timeout_ms
            ),
        )
        assert isinstance(response, InitProducerIdResponse)
        if response.error_code is ErrorCode.NONE:
            self.id, self.epoch = response.producer_id, response.producer_epoch
        return response

    async def init(self, broker: int, *, timeout_ms: int = 60_000) -> None:
        """Get an id and an epoch; repeat the request after retriable errors."""

        async def attempt() -> ErrorCode:
            return (await self.init_once(broker, timeout_ms=timeout_ms)).error_code

        assert await self._retried(attempt) is ErrorCode.NONE

    async def add_offsets(self, broker: int, group_id: str) -> ErrorCode:
        """Add a group's offsets to the transaction; repeat the request after retriable errors."""

        async def attempt() -> ErrorCode:
            response = await self._lab.client.call(
                broker,
                AddOffsetsToTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self.id,
                    producer_epoch=self.epoch,
                    group_id=group_id,
                ),
            )
            assert isinstance(response, AddOffsetsToTxnResponse)
            return response.error_code

        return await self._retried(attempt)

    async def commit_offset(
        self, broker: int, group_id: str, offset: int, *, partition: int = 0
    ) -> ErrorCode:
        """Commit an offset of `orders` in the transaction, with one request."""
        response = await self._lab.client.call(
            broker,
            TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=group_id,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=(
                    OffsetCommitRequestTopic(
                        name=ORDERS,
                        partitions=(
                            OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset
                            ),
                        ),
                    ),
                ),
            ),
        )
        assert isinstance(response, TxnOffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    async def end(self, broker: int, *, is_commit: bool = True) -> ErrorCode:
        """End the transaction; repeat the request after retriable errors."""

        async def attempt() -> ErrorCode:
            response = await self._lab.client.call(
                broker,
                EndTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self.id,
                    producer_epoch=self.epoch,
                    committed=is_commit,
                ),
            )
            assert isinstance(response, EndTxnResponse)
            return response.error_code

        return await self._retried(attempt)

    async def _retried(self, attempt: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """Repeat `attempt` until its error is not retriable, and return that error.

        Raises: TimeoutError after 400 attempts 20 ms apart.
        """
        for _ in range(400):
            error = await attempt()
            if error not in RETRIABLE:
                return error
            await self._lab.runtime.sleep(20_000)
        raise TimeoutError(error.name)


async def fetched(
    lab: BrokerLab, broker: int, group_id: str, *, partition: int = 0
) -> OffsetFetchResponsePartition | ErrorCode:
    """Return the answer for the stable offset of a partition of `orders`, or the group's error.

    An offset is stable if no open transaction has a commit for its partition. While it is not
    stable, the answer for the partition has an error.
    """
    response = await lab.client.call(
        broker,
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=(OffsetFetchRequestTopics(name=ORDERS, partition_indexes=(partition,)),),
                ),
            ),
            require_stable=True,
        ),
    )
    assert isinstance(response, OffsetFetchResponse)
    group = response.groups[0]
    if group.error_code is not ErrorCode.NONE:
        return group.error_code
    return group.topics[0].partitions[0]


async def stable_offset(
    lab: BrokerLab, broker: int, group_id: str, *, partition: int = 0, at_most_s: float = 20
) -> int:
    """Wait until the committed offset is stable, and return it."""
    # 50 attempts a second, 20 ms apart.
    for _ in range(round(at_most_s * 50)):
        answer = await fetched(lab, broker, group_id, partition=partition)
        if not isinstance(answer, ErrorCode) and answer.error_code is ErrorCode.NONE:
            return answer.committed_offset
        await lab.runtime.sleep(20_000)
    raise TimeoutError(str(answer))
