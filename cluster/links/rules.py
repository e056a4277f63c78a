"""Link rules: the effects of a fault on the frames between two nodes, in every runtime.

A rule says which frames (messages between nodes) it is about, and what happens to them. For
example: every frame from broker-0 to broker-1 waits until the rule is withdrawn. Frames are
selected by the nodes between which they travel, by the purpose of their connection, and by their
API.

Rules act at the host that sends a frame. Rules that make frames wait also act at the host that
receives them, for frames that were already on their way. The run passes the rules to the hosts by
calls of its own, which no fault disturbs. A connection is like a TCP stream: if a frame waits, all
later frames of its connection wait behind it.
"""

import msgspec

from protocol.ids import NodeName


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of frames by a rule.

    A Selector selects frames from one of `sources` to one of `destinations`, in this direction
    only, and never a frame from a node to itself. If `purposes` is not empty, only frames of
    connections with these purposes, such as "heartbeat", are selected. If `apis` is not empty, only
    requests and responses of these APIs are selected, and no frames that open or close a
    connection. APIs have the names that Kafka prints.
    """

    sources: tuple[NodeName, ...]
    destinations: tuple[NodeName, ...]
    purposes: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """Makes every frame wait, as a broken cable does.

    No connection opens, and a node does not notice if the process of its peer dies. When the rule
    is withdrawn, the frames arrive in order. But if one end has closed a connection meanwhile, only
    the close arrives.
    """


class Clog(msgspec.Struct, frozen=True, kw_only=True, tag="clog"):
    """Makes every frame wait until the rule is withdrawn; then all arrive, in order."""


class Slow(msgspec.Struct, frozen=True, kw_only=True, tag="slow"):
    """Delays every frame by `delay_us` plus a random time of up to `jitter_us`, in order."""

    delay_us: int
    jitter_us: int = 0


class LoseResponses(msgspec.Struct, frozen=True, kw_only=True, tag="lose_responses"):
    """Resets a connection instead of sending the answer to a request that was carried out.

    Each server loses `count` responses between two of its restarts. If `errors` is not empty, only
    responses with one of these errors are lost. The errors are Kafka's names, such as "NONE".
    """

    count: int = 1
    errors: tuple[str, ...] = ()


LinkEffect = Cut | Clog | Slow | LoseResponses


class LinkRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in force. `rule_id` is unique in a run: the fault's id and the direction."""

    rule_id: str
    selector: Selector
    effect: LinkEffect
