"""Link rules: what a fault makes of the frames between two nodes, in both runtimes.

A rule selects frames by the nodes they travel between, by the connection's purpose and by the API,
and says what becomes of them. Rules live in the sender's Host; those that hold frames live in the
receiver's too, for what was on its way. They arrive over the control plane, which no fault touches.
What was held on a connection holds back everything behind it there: a connection is a TCP stream.
"""

import msgspec

from protocol.ids import NodeName


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Which frames a rule is about.

    Shape: a frame from any of `sources` to any of `destinations` (one way; a node is never
    selected against itself). `purposes` are those that clients gave their connections
    (`coordinator`, `heartbeat` ...), `apis` Kafka's printed names of requests, whose responses
    count too; empty means every one. With `apis`, opening and closing a connection is untouched.
    """

    sources: tuple[NodeName, ...]
    destinations: tuple[NodeName, ...]
    purposes: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """Nothing passes: bytes are held, new connections hang, nobody hears of a process's death.

    When the rule is withdrawn, what is held arrives in order, but for connections that an end has
    closed meanwhile: of those only the end arrives.
    """


class Clog(msgspec.Struct, frozen=True, kw_only=True, tag="clog"):
    """Nothing passes until the rule is withdrawn; then everything arrives, in order."""


class Slow(msgspec.Struct, frozen=True, kw_only=True, tag="slow"):
    """Everything takes longer, in order. Units: `delay_us`, plus up to `jitter_us` drawn evenly."""

    delay_us: int
    jitter_us: int = 0


class LoseResponses(msgspec.Struct, frozen=True, kw_only=True, tag="lose_responses"):
    """A server carries requests out, and their connections are reset before it can answer.

    It happens to `count` responses at each server's host, by incarnation. `errors` are names of
    Kafka's errors, "NONE" among them: only responses with one of them; empty means every one.
    """

    count: int = 1
    errors: tuple[str, ...] = ()


LinkEffect = Cut | Clog | Slow | LoseResponses


class LinkRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in force. `rule_id` is unique in a run: the fault's id and the direction."""

    rule_id: str
    selector: Selector
    effect: LinkEffect
