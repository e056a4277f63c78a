"""Roles of clients from outside, such as `kafka-client(rdkafka)`.

`base` explains what a kind of target does. The clients of this module are real Kafka clients that a
user has connected to a broker of a standing cluster (`coordlab up`). All connected clients with the
same client id count as one node.
"""

from chaos.experiment.structs import Experiment
from chaos.targets.base import Hit, Miss, Situation, TargetKind, Unknown, check_no_argument
from cluster.wire.listener import client_node


class KafkaClient(TargetKind):
    """The clients with one client id."""

    name = "kafka-client"
    syntax = "kafka-client(<client id>)"
    doc = "the clients with this `client.id` that speak Kafka's wire protocol to a broker"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the client id is empty."""
        del experiment  # an experiment file does not list these clients
        if argument:
            return None
        return Unknown(
            message="names no client id", expected="a `client.id`, such as `kafka-client(rdkafka)`"
        )

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the node that stands for all connected clients with this id."""
        connected = situation.status.kafka_clients
        node = client_node(argument)
        if node in connected:
            return Hit(nodes=(node,), detail={"connections": connected[node]})
        return Miss(reason=f"{node} has no connection; connected: {', '.join(connected) or 'none'}")


class KafkaClients(TargetKind):
    """Every client from outside."""

    name = "kafka-clients"
    syntax = "kafka-clients"
    doc = "all clients that speak Kafka's wire protocol to a broker and are connected"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument."""
        del experiment
        return check_no_argument(self.name, argument)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes of all connected clients."""
        del argument
        connected = tuple(situation.status.kafka_clients)
        return Hit(nodes=connected) if connected else Miss(reason="no Kafka client is connected")
