"""A producer that commits offsets in transactions, request by request.

A test sends the requests of a transaction one after the other: `init`, `add_offsets`,
`commit_offset` and `end`. Between two requests the test can crash a broker, for example. The three
brokers run in virtual time (BrokerLab).

In all functions `broker` is the broker to which the request is sent. `commit_offset` must be sent
to the coordinator of the group. The other requests must be sent to the coordinator of the
transaction.
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
"""Errors after which the same request may succeed a moment later."""


def transactional_cluster(
    *, config: BrokerConfig = NO_BALANCING, base: ClusterSpec | None = None
) -> ClusterSpec:
    """Return a cluster with the topic `__transaction_state`, which stores states of transactions.

    Apart from this topic, the cluster is equal to `base`, by default to `broker_cluster`.
    """
    cluster = broker_cluster(config=config) if base is None else base
    transaction_state = TopicSpec(
        name=TRANSACTION_STATE,
        partitions=3,
        replication_factor=3,
        config=TopicConfig(min_insync_replicas=2),
    )
    return msgspec.structs.replace(cluster, topics=(*cluster.topics, transaction_state))


class TransactionalClient:
    """A producer with a transactional id."""

    def __init__(self, lab: BrokerLab, transactional_id: str = "tx") -> None:
        # The producer id and the producer epoch that the coordinator assigned last.
        self.id: int = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self._lab = lab
        self._transactional_id = transactional_id

    async def coordinator(self, asked: int = 0) -> Coordinator:
        """Ask the broker `asked` which broker is the coordinator of the transaction."""
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION, coordinator_keys=(self._transactional_id,)
        )
        response = await self._lab.client.call(asked, request)
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0]

    async def init_once(self, broker: int, *, timeout_ms: int = 60_000) -> InitProducerIdResponse:
        """Send one InitProducerId, and keep the producer id and the epoch of its answer."""
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
        """Get a producer id and an epoch. The request is repeated after retriable errors."""

        async def attempt() -> ErrorCode:
            return (await self.init_once(broker, timeout_ms=timeout_ms)).error_code

        assert await self._retried(attempt) is ErrorCode.NONE

    async def add_offsets(self, broker: int, group_id: str) -> ErrorCode:
        """Add the offsets of a group to the transaction, and return the error code.

        The request is repeated after retriable errors.
        """

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
        """Commit an offset of topic `orders` within the transaction, with a single request."""
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
        """Commit or abort the transaction, and return the error code.

        The request is repeated after retriable errors.
        """

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
        """Repeat `attempt` until its error code is not retriable, and return this error code.

        Raises: TimeoutError after 8 s.
        """
        # 400 attempts that are 20 ms apart make 8 s.
        for _ in range(400):
            error = await attempt()
            if error not in RETRIABLE:
                return error
            await self._lab.runtime.sleep(20_000)
        raise TimeoutError(error.name)


async def fetched(
    lab: BrokerLab, broker: int, group_id: str, *, partition: int = 0
) -> OffsetFetchResponsePartition | ErrorCode:
    """Ask for the stable offset of a partition of `orders`; return the answer for the partition.

    An offset is stable if no open transaction has committed an offset for the partition. If the
    offset is not stable, the answer for the partition has an error code. If the answer has an error
    code for the whole group, this error code is returned instead.
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
    """Wait until the committed offset of a partition is stable, and return this offset.

    Raises: TimeoutError after `at_most_s`.
    """
    # An attempt every 20 ms makes 50 attempts in a second.
    for _ in range(round(at_most_s * 50)):
        answer = await fetched(lab, broker, group_id, partition=partition)
        if not isinstance(answer, ErrorCode) and answer.error_code is ErrorCode.NONE:
            return answer.committed_offset
        await lab.runtime.sleep(20_000)
    raise TimeoutError(str(answer))
