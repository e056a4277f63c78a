"""The invariant that no node forgets to answer a request.

A handler may answer later, as long as something still holds the request: a timer, a queue, a parked
Fetch. If nothing holds an unanswered request any more, its client waits in vain.
`lab.runtime.check_invariants()` finds such requests on all nodes.

The tests plant such a bug: they drop an answer before it leaves the node. `lab` is a cluster of
three brokers in virtual time.
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
"""The broker that gets the requests. It leads orders-0."""
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
    # The id of a test case is the name of its request. The second parameter, a class, adds nothing.
    ids=lambda value: "" if isinstance(value, type) else type(value).__name__,
)
def test_answer_that_a_broker_forgot_is_a_violation(
    monkeypatch: pytest.MonkeyPatch, request_: AnyRequest, response: type[AnyResponse]
) -> None:
    """The broker handles the request, but its answer is dropped. The error names the request."""
    lose_answers(monkeypatch, response, node=broker_name(BROKER))

    async def story(lab: BrokerLab) -> None:
        send(lab, broker_name(BROKER), request_)
        await lab.seconds(1)
        api = type(request_).__name__.removesuffix("Request")
        with pytest.raises(InvariantViolation, match=f"{api} .* of client-0 has no answer"):
            lab.runtime.check_invariants()

    # Two of the requests are for a transaction coordinator.
    BrokerLab(transactional_cluster()).run(story)


def test_answer_that_a_controller_forgot_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check also looks at the controllers: here a controller forgets an answer."""
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
        fetch_answers = send(lab, broker_name(BROKER), FETCH)
        await lab.seconds(1)  # less than the max_wait_ms of the Fetch, which is 5 s
        lab.runtime.check_invariants()
        assert not fetch_answers
        for follower in (1, 2):
            await lab.kill(follower)
        produce_answers = send(lab, broker_name(BROKER), PRODUCE)
        await lab.seconds(1)
        lab.runtime.check_invariants()
        assert not produce_answers
        await lab.seconds(10)  # the timeout of the Produce ends
        (answer,) = produce_answers
        assert isinstance(answer, ProduceResponse)
        lab.runtime.check_invariants()

    BrokerLab(broker_cluster()).run(story)


def test_request_needs_no_answer_after_the_end_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When a connection has ended, its client waits for no answer any more.

    So it does no harm that the broker forgot the answer. Here the client's request times out, which
    ends the connection.
    """
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
    """Send a request over a new connection; return a list, to which the answer is added later."""
    answers: list[object] = []
    connection = lab.client.host.connect(node, "test", setup_timeout_us=SECOND_US)
    connection.send(request, timeout_us=60 * SECOND_US, on_response=answers.append)
    return answers


def lose_answers(
    monkeypatch: pytest.MonkeyPatch, response: type[AnyResponse], *, node: str
) -> None:
    """Plant the bug: `node` never sends an answer of the type `response`."""
    original_reply = BaseHost.reply

    def reply_or_lose(host: BaseHost, request_id: RequestId, answer: AnyResponse) -> None:
        is_lost = host.name == node and isinstance(answer, response)
        if not is_lost:
            original_reply(host, request_id, answer)

    monkeypatch.setattr(BaseHost, "reply", reply_or_lose)
