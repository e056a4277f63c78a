"""The invariant that a node holds each request that it has not answered.

If the code of a node forgets to answer a request, the node no longer holds the request, and its
client waits in vain. The tests plant such a bug: they drop an answer before it leaves the node.
`lab` is a cluster of three brokers in virtual time. `lab.runtime.check_invariants()` checks all
nodes.
"""

import pytest

from cluster.host.base_host import BaseHost
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import InvariantViolation
from protocol.ids import NodeName, RequestId, broker_name, controller_name
from protocol.messages.admin import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.transaction import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.builders.client_batches import client_batch
from tests.support.harness.brokers import ORDERS, SECOND_US, BrokerLab, broker_cluster
from tests.support.harness.controllers import CONTROLLER
from tests.support.harness.transactional_client import transactional_cluster

BROKER = 0
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=10_000,
    topic_data=(
        TopicProduceData(
            name=ORDERS,
            partition_data=(PartitionProduceData(index=0, records=client_batch("a")),),
        ),
    ),
)
FETCH = FetchRequest(
    max_wait_ms=5_000,
    topics=(FetchTopic(topic=ORDERS, partitions=(FetchPartition(partition=0, fetch_offset=0),)),),
)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (FindCoordinatorRequest(coordinator_keys=("group",)), FindCoordinatorResponse),
        (PRODUCE, ProduceResponse),
        (
            InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000),
            InitProducerIdResponse,
        ),
        (
            EndTxnRequest(transactional_id="tx", producer_id=1, producer_epoch=0, committed=True),
            EndTxnResponse,
        ),
        (WriteTxnMarkersRequest(markers=()), WriteTxnMarkersResponse),
        (DeleteTopicsRequest(topic_names=("none",)), DeleteTopicsResponse),
    ],
    # The class of the answer would only repeat the name of the request.
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else "",
)
def test_lost_answer_of_a_broker_is_a_violation(
    monkeypatch: pytest.MonkeyPatch, request_: AnyRequest, response: type[AnyResponse]
) -> None:
    lose_answers(monkeypatch, response, node=broker_name(BROKER))

    async def story(lab: BrokerLab) -> None:
        send(lab, broker_name(BROKER), request_)
        await lab.seconds(1)
        api = type(request_).__name__.removesuffix("Request")
        with pytest.raises(InvariantViolation, match=f"{api} .* of client-0 has no answer"):
            lab.runtime.check_invariants()

    BrokerLab(transactional_cluster()).run(story)


def test_lost_answer_of_a_controller_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = controller_name(CONTROLLER)
    lose_answers(monkeypatch, DeleteTopicsResponse, node=controller)

    async def story(lab: BrokerLab) -> None:
        send(lab, controller, DeleteTopicsRequest(topic_names=("none",)))
        await lab.seconds(1)
        with pytest.raises(InvariantViolation, match=r"DeleteTopics .* of client-0 has no answer"):
            lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_request_that_a_node_still_holds_is_no_violation() -> None:
    """A node may answer later, as long as it holds the request.

    The Fetch waits for records. The Produce waits for the followers, which the test kills.
    """

    async def story(lab: BrokerLab) -> None:
        fetch = send(lab, broker_name(BROKER), FETCH)
        await lab.seconds(1)  # less than the max_wait_ms of the Fetch, 5 s
        lab.runtime.check_invariants()
        assert not fetch
        for follower in (1, 2):
            await lab.kill(follower)
        produce = send(lab, broker_name(BROKER), PRODUCE)
        await lab.seconds(1)
        lab.runtime.check_invariants()
        assert not produce
        await lab.seconds(10)  # the timeout of the Produce
        (answer,) = produce
        assert isinstance(answer, ProduceResponse)
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_request_of_a_connection_that_ended_needs_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the end of its connection a client waits no longer, so a lost answer does no harm."""
    lose_answers(monkeypatch, FindCoordinatorResponse, node=broker_name(BROKER))

    async def story(lab: BrokerLab) -> None:
        connection = lab.client.host.connect(
            broker_name(BROKER), "test", setup_timeout_us=SECOND_US
        )
        request = FindCoordinatorRequest(coordinator_keys=("group",))
        connection.send(request, timeout_us=SECOND_US, on_response=lambda _: None)
        await lab.seconds(2)  # the request times out, which ends the connection
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def send(lab: BrokerLab, node: NodeName, request: AnyRequest) -> list[object]:
    """Send a request over a connection of its own; return the list that gets the answer."""
    answers: list[object] = []
    connection = lab.client.host.connect(node, "test", setup_timeout_us=SECOND_US)
    connection.send(request, timeout_us=60 * SECOND_US, on_response=answers.append)
    return answers


def lose_answers(
    monkeypatch: pytest.MonkeyPatch, response: type[AnyResponse], *, node: str
) -> None:
    """Let `node` lose each answer of a type."""
    reply = BaseHost.reply

    def reply_or_lose(host: BaseHost, request_id: RequestId, answer: AnyResponse) -> None:
        if host.name != node or not isinstance(answer, response):
            reply(host, request_id, answer)

    monkeypatch.setattr(BaseHost, "reply", reply_or_lose)
