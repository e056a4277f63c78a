"""Forwarding of CreateTopics and DeleteTopics, which clients send to any broker.

The broker sends the request on to the controller, and the controller's answer back to the client.

A broker also asks the controller to create topics for which no client has sent a CreateTopics. This
happens if a client asks for the metadata of a topic that does not exist. The client and the
configuration (auto.create.topics.enable) must both allow it.

Source: Kafka `ForwardingManager`, `AutoTopicCreationManager`.
DEVIATION: the request itself is sent. Kafka wraps it into an Envelope, which names the client for
authorization.
"""

from functools import partial

from cluster.broker.channels import ControllerChannel
from cluster.host.host import Disconnected, Host, RequestTimedOut
from protocol.api import AnyResponse, error_of
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId
from protocol.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    refused_creation,
    refused_deletion,
)
from protocol.topic_names import topic_name_problem

FORWARDING_TIMEOUT_US = 60_000_000
"""Time after which a request is given up.

Source: Kafka NodeToControllerChannelManager retryTimeoutMs."""
RETRY_BACKOFF_US = 100_000
"""retry.backoff.ms of the channel."""
ATTEMPT_TIMEOUT_US = 30_000_000
"""request.timeout.ms of a broker."""

TopicRequest = CreateTopicsRequest | DeleteTopicsRequest
"""A request that brokers forward."""


class _Forwarded:
    """A request on its way to the controller.

    `request_id` is the id of the client's request; None if the broker itself creates topics. At
    `deadline_us` the request is given up.
    """

    __slots__ = ("deadline_us", "request", "request_id")

    def __init__(
        self, request_id: RequestId | None, request: TopicRequest, deadline_us: int
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.deadline_us = deadline_us


class TopicForwarding:
    """Sends each topic request to the controllers until the active controller has answered."""

    def __init__(self, host: Host, channel: ControllerChannel, config: BrokerConfig) -> None:
        self._host = host
        self._channel = channel
        self._config = config
        self._in_creation: dict[str, None] = {}
        """Topics that this broker is creating by itself, as the keys of the dict."""
        self._waiting: set[RequestId] = set()
        """Requests of clients that the controller has not answered yet."""

    def waiting(self) -> frozenset[RequestId]:
        """Return the clients' requests that the controller has not answered yet."""
        return frozenset(self._waiting)

    def forward(self, request_id: RequestId, request: TopicRequest) -> None:
        """Send a client's request to the controller, and the controller's answer to the client."""
        self._waiting.add(request_id)
        self._send(_Forwarded(request_id, request, self._host.now_us() + FORWARDING_TIMEOUT_US))

    def create_missing(self, names: tuple[str, ...]) -> None:
        """Begin to create topics, with num.partitions and default.replication.factor.

        Illegal names, and topics that are being created already, are left out.
        """
        new = [
            name
            for name in dict.fromkeys(names)  # a request may name a topic twice
            if name not in self._in_creation and topic_name_problem(name) is None
        ]
        if not new:
            return
        self._in_creation.update(dict.fromkeys(new))
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=name,
                    num_partitions=self._config.num_partitions,
                    replication_factor=self._config.default_replication_factor,
                )
                for name in new
            )
        )
        self._send(_Forwarded(None, request, self._host.now_us() + FORWARDING_TIMEOUT_US))

    def _send(self, forwarded: _Forwarded) -> None:
        """Send a request to the channel's controller; after its deadline, give the request up."""
        left_us = forwarded.deadline_us - self._host.now_us()
        if left_us <= 0:
            self._give_up(forwarded)
            return
        self._channel.connection().send(
            forwarded.request,
            timeout_us=min(left_us, ATTEMPT_TIMEOUT_US),
            on_response=partial(self._answered, forwarded),
        )

    def _answered(
        self, forwarded: _Forwarded, outcome: AnyResponse | Disconnected | RequestTimedOut
    ) -> None:
        """Finish the request, or send it again if no active controller has answered."""
        if isinstance(outcome, Disconnected | RequestTimedOut):
            # The connection has ended, because a request that times out ends it, too. So the
            # channel will connect to the next controller.
            self._host.after(RETRY_BACKOFF_US, self._send, forwarded)
            return
        if not isinstance(outcome, CreateTopicsResponse | DeleteTopicsResponse):
            raise SimulationError(f"{type(forwarded.request).__name__} was answered by {outcome}")
        # `error_of` returns the name of the answer's error.
        if error_of(outcome) == ErrorCode.NOT_CONTROLLER.name:
            self._channel.try_next_controller()
            self._host.after(RETRY_BACKOFF_US, self._send, forwarded)
            return
        self._finish(forwarded, outcome)

    def _give_up(self, forwarded: _Forwarded) -> None:
        """Finish a request after its deadline with REQUEST_TIMED_OUT for each topic."""
        error = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(forwarded.request, CreateTopicsRequest):
            self._finish(forwarded, refused_creation(forwarded.request, error))
        else:
            self._finish(forwarded, refused_deletion(forwarded.request, error))

    def _finish(
        self, forwarded: _Forwarded, response: CreateTopicsResponse | DeleteTopicsResponse
    ) -> None:
        """Answer the client, or end the creation of the broker's own topics."""
        if forwarded.request_id is not None:
            self._waiting.discard(forwarded.request_id)
            self._host.reply(forwarded.request_id, response)
        elif isinstance(response, CreateTopicsResponse):
            for topic in response.topics:
                self._in_creation.pop(topic.name, None)
                # Another broker may have created the topic at the same time.
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._host.log(
                        f"topic {topic.name} was not created automatically: "
                        f"{topic.error_code.name}: {topic.error_message}"
                    )
