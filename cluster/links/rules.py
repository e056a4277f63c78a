"""Link rules: the effects of a fault on the frames between two nodes, in every runtime.

A rule has an effect, and selects frames (messages between nodes) by three things: the nodes between
which they travel, the connection's purpose (its use), and the API. Rules act in the Host (the
access to the network) of the node that sends a frame. Rules that hold frames act in the receiver's
Host, too: the frames that were already on their way wait there. The run sends the rules to the
hosts over the control plane. These are calls of the run itself, which do not go over the nodes'
network, and which no fault touches.
A connection is a TCP stream, so a held frame holds back all later frames of its connection.
"""

import msgspec

from protocol.ids import NodeName


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of frames by a rule.

    Selects frames from any of `sources` to any of `destinations`, in this direction only, and never
    a frame from a node to itself. `purposes` are those that clients gave to their connections
    (`coordinator`, `heartbeat` ...). `apis` are Kafka's printed names of requests; their responses
    are selected as well, but frames that open or close a connection are not. Empty `purposes` or
    `apis` select all.
    """

    sources: tuple[NodeName, ...]
    destinations: tuple[NodeName, ...]
    purposes: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """Holds every frame, as a broken cable does.

    So no connection opens, and a node does not notice that its peer's process has died.

    When the rule is withdrawn, held frames arrive in order. On a connection that one end has closed
    meanwhile only the close arrives.
    """


class Clog(msgspec.Struct, frozen=True, kw_only=True, tag="clog"):
    """Holds every frame until the rule is withdrawn; then all arrive, in order."""


class Slow(msgspec.Struct, frozen=True, kw_only=True, tag="slow"):
    """Delays every frame, in order. Units: `delay_us` plus up to `jitter_us`, drawn evenly."""

    delay_us: int
    jitter_us: int = 0


class LoseResponses(msgspec.Struct, frozen=True, kw_only=True, tag="lose_responses"):
    """Resets a connection instead of sending the answer to a request that was carried out.

    Each incarnation of a server loses `count` responses. `errors` are names of Kafka's errors
    ("NONE" is one of them). Only responses with one of these errors are lost. If `errors` is empty,
    the error of a response does not matter.
    """

    count: int = 1
    errors: tuple[str, ...] = ()


LinkEffect = Cut | Clog | Slow | LoseResponses


class LinkRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in force. `rule_id` is unique in a run: the fault's id and the direction."""

    rule_id: str
    selector: Selector
    effect: LinkEffect
