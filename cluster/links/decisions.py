"""The Judge, which decides what the link rules do with a frame.

A frame is a message between two nodes. Each gate (`gate`) has one Judge for the frames that its
node sends, and another Judge for the frames that arrive. For each frame, the Judge looks for the
first rule that is about the frame, and returns a verdict: the frame goes on, goes on later, waits,
or is lost. The gate carries the verdict out. A rule has one of four effects:

- Cut holds frames, and drops them if their connection is closed.
- Clog holds frames.
- Slow delays frames.
- LoseResponses drops some responses and resets their connections.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.host.frames import Frame, OpenFrame, RequestFrame, ResponseFrame
from cluster.links.rules import Clog, Cut, LinkRule, LoseResponses, Slow
from protocol.api import API_OF_RESPONSE, error_of
from protocol.ids import NodeName


@dataclass(frozen=True, slots=True)
class Pass:
    """The frame goes on immediately."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The frame goes on after `delay_us`."""

    delay_us: int


@dataclass(frozen=True, slots=True)
class Hold:
    """The frame waits until the rules change.

    `is_cut` is True if a Cut holds it. The frame is then dropped if its connection is closed
    before the rules change.
    """

    is_cut: bool


@dataclass(frozen=True, slots=True)
class Lose:
    """The frame is a response that never leaves; its connection is reset instead."""


VerdictOfWaiting = Pass | Deliver | Hold
"""The possible verdicts on a frame that has waited in the gate."""
Verdict = VerdictOfWaiting | Lose
"""The possible verdicts on a frame that has just come to the gate."""

# These verdicts are the same for all frames, so one object of each is enough.
PASS = Pass()
LOSE = Lose()
HOLD_CUT = Hold(is_cut=True)
HOLD_CLOG = Hold(is_cut=False)

RngFor = Callable[[str], random.Random]
"""Takes the id of a rule, and returns the random stream of this rule on this host."""


class Judge:
    """The rules about the frames that one node sends, or about the frames that it receives.

    The first rule that is about a frame decides. Each Slow rule has a random stream of its own, so
    that its delays do not depend on other rules or other nodes.
    """

    def __init__(self, node: NodeName, *, is_sender: bool, rng_for: RngFor) -> None:
        self._node = node
        self._is_sender = is_sender
        self._rng_for = rng_for
        self._rngs: dict[str, random.Random] = {}
        """Id of a Slow rule -> its random stream, which is created when it is first needed."""
        self._rules: dict[NodeName, list[LinkRule]] = {}
        """Peer -> the rules about frames to or from it, in their order; only peers with rules."""
        self._lost: dict[str, int] = {}
        """Id of a LoseResponses rule -> the number of responses that it has lost at this node.

        `set_rules` does not reset these numbers, because it gets all rules anew whenever one rule
        of the run begins or ends.
        """

    @property
    def has_rules(self) -> bool:
        """True if there is any rule about the frames that this Judge judges."""
        return bool(self._rules)

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace the rules; rules about other nodes, or about the other direction, are skipped."""
        self._rules = {}
        for rule in rules:
            sources, destinations = rule.selector.sources, rule.selector.destinations
            nodes_at_this_end = sources if self._is_sender else destinations
            nodes_at_other_end = destinations if self._is_sender else sources
            if self._node in nodes_at_this_end:
                for peer in dict.fromkeys(nodes_at_other_end):  # a peer named twice counts once
                    if peer != self._node:  # no rule concerns a node's frames to itself
                        self._rules.setdefault(peer, []).append(rule)

    def verdict(self, peer: NodeName, purpose: str | None, frame: Frame) -> Verdict:
        """Judge a frame to `peer` (as sender) or from `peer` (as receiver).

        `purpose` is the purpose of the frame's connection, or None if the connection is not known.
        Without a known purpose, rules that name purposes are not about this frame.
        """
        for rule in self._rules.get(peer, ()):
            if not _selects(rule, purpose, frame):
                continue
            effect = rule.effect
            if not isinstance(effect, LoseResponses):
                return self._verdict_of(rule.rule_id, effect)
            # If this rule does not lose the frame, the next rules decide.
            if self._is_lost(rule.rule_id, effect, frame):
                return LOSE
        return PASS

    def verdict_of_waiting(
        self, peer: NodeName, purpose: str | None, frame: Frame
    ) -> VerdictOfWaiting:
        """Judge a held frame again under new rules.

        LoseResponses rules are skipped: they act only when the server sends a response.
        """
        for rule in self._rules.get(peer, ()):
            effect = rule.effect
            if not isinstance(effect, LoseResponses) and _selects(rule, purpose, frame):
                return self._verdict_of(rule.rule_id, effect)
        return PASS

    def _is_lost(self, rule_id: str, effect: LoseResponses, frame: Frame) -> bool:
        """Return True if the rule loses this frame, and count it against the rule's limit."""
        # A response is lost where it is sent, never when it is already on its way.
        if not self._is_sender or not isinstance(frame, ResponseFrame):
            return False
        if effect.errors and error_of(frame.envelope.body) not in effect.errors:
            return False
        lost = self._lost.get(rule_id, 0)
        if lost >= effect.count:
            return False
        self._lost[rule_id] = lost + 1
        return True

    def _verdict_of(self, rule_id: str, effect: Cut | Clog | Slow) -> VerdictOfWaiting:
        """Return the verdict of a rule on a frame that the rule selects."""
        match effect:
            case Cut():
                return HOLD_CUT
            case Clog():
                return HOLD_CLOG
            case Slow():
                # The delay is at the sender. At the receiver this rule lets the frame pass.
                return Deliver(self._draw_us(rule_id, effect)) if self._is_sender else PASS

    def _draw_us(self, rule_id: str, slow: Slow) -> int:
        """Draw the delay of one frame."""
        rng = self._rngs.get(rule_id)
        if rng is None:
            rng = self._rngs[rule_id] = self._rng_for(rule_id)
        # The draw is evenly distributed over the whole numbers from 0 to `jitter_us`.
        return slow.delay_us + int(rng.random() * (slow.jitter_us + 1))


def purpose_named_by(frame: Frame) -> str | None:
    """Return the purpose that the frame itself names; only an OpenFrame has one."""
    return frame.purpose if isinstance(frame, OpenFrame) else None


def api_of(frame: Frame) -> str | None:
    """Return the name of a frame's API, as Kafka prints it; None for other kinds of frames."""
    if isinstance(frame, RequestFrame):
        return frame.envelope.api_key.label
    if isinstance(frame, ResponseFrame):
        return API_OF_RESPONSE[type(frame.envelope.body)].label
    return None


def _selects(rule: LinkRule, purpose: str | None, frame: Frame) -> bool:
    """Return True if the frame has a purpose and an API of the rule; an empty list selects all."""
    selector = rule.selector
    if selector.purposes and purpose not in selector.purposes:
        return False
    return not selector.apis or api_of(frame) in selector.apis
