"""journal.json: each fault of a run, with its outcome, its nodes, and its times.

A fault is a disturbance that the plan of an experiment injects on purpose. To heal a fault is to
undo it. A momentary fault, such as a moved leadership, is not healed. The plan's times count from
the steady state, which is reached when the cluster is up and every group is Stable. Units:
microseconds of the run's clock. The trace, the recording of the run's events, has the same clock.
"""

from enum import StrEnum

import msgspec

from results_schema.manifest import PlannedFault


class FaultOutcome(StrEnum):
    """The outcome of a planned fault."""

    PLANNED = "planned"  # not injected yet, or the run ended first
    HIT = "hit"
    # No node had the target's role at the planned time, or the injection did not affect the node.
    MISSED = "missed"
    FAILED = "failed"  # the tool failed to inject the fault


class LinkEnds(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The two ends of the affected links (connections between nodes), as names of nodes.

    Each end is a set of nodes. The fault affects each link between a node of `from_` and a node of
    `to`. A node that is in both sets has no link with itself.
    """

    from_: tuple[str, ...]
    to: tuple[str, ...]


class LeaderMove(msgspec.Struct, frozen=True, kw_only=True):
    """The leadership of a partition that a fault has moved, with both leaders' broker ids."""

    partition: str
    from_broker: int
    to_broker: int


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """The groups and partitions that a fault concerns.

    - Fault of a broker: the groups that it coordinates, and the partitions that it leads.
    - Fault of a member: its group, and the partitions that it owns.
    - Moved leadership: the partition, and the groups whose offsets the partition stores.
    """

    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class JournalEntry(msgspec.Struct, kw_only=True):
    """One fault of the plan, and its outcome.

    - `planned_at_us`: planned time, counted from the run's start. It is None until the steady state
      is reached.
    - `fired_at_us`: time at which the injection began, whatever the outcome.
    - `in_force_from_us`, `in_force_until_us`: the end of the injection, and the beginning of the
      healing. Between these times all affected nodes certainly had the fault.
    - `healed_at_us`: None if the fault is in force, was not injected, or is momentary.
    - `nodes`: the affected nodes; for a fault of links, the nodes of the `from` end.
    - `node`: the first of `nodes`.
    - `incarnation`, `pid`: number of restarts and process id of `node` at the injection.
    - `members_survive`: False if the fault hits members of a group. The group may then rebalance,
      that is, give their partitions to other members.
    - `resolved`: other details that were decided at the injection, such as `direction`.

    A fault that missed has no nodes, no links and no moves.
    """

    fault_id: str
    fault: str
    target: str
    duration_us: int | None
    momentary: bool = False  # nothing is left to undo
    planned_at_us: int | None = None
    outcome: FaultOutcome = FaultOutcome.PLANNED
    fired_at_us: int | None = None
    node: str | None = None
    nodes: tuple[str, ...] = ()
    links: LinkEnds | None = None  # only a fault of links has it
    moves: tuple[LeaderMove, ...] = ()  # only a fault that moves leaderships has them
    incarnation: int | None = None
    pid: int | None = None
    blast_radius: BlastRadius = BlastRadius()
    members_survive: bool = True
    resolved: dict[str, object] = {}
    in_force_from_us: int | None = None
    in_force_until_us: int | None = None
    healed_at_us: int | None = None
    # "plan", "order" if a user ordered the healing, "end" if the end of the run healed all faults.
    healed_by: str | None = None
    note: str | None = None  # remark on the healing
    error: str | None = None  # reason for which the fault missed or failed

    @classmethod
    def of(cls, planned: PlannedFault, *, momentary: bool = False) -> "JournalEntry":
        """Return the entry of a fault that is not injected yet."""
        return cls(
            fault_id=planned.fault_id,
            fault=planned.fault,
            target=planned.aimed_at,
            duration_us=planned.duration_us,
            momentary=momentary,
        )

    @property
    def is_by_accident(self) -> bool:
        """True if the fault was not planned: a machine of the Ray cluster was lost or disturbed."""
        return self.fault in {"machine_lost", "machine_disturbed"}

    @property
    def injected_at_us(self) -> int | None:
        """Time of the injection; None if the fault did not hit."""
        return self.fired_at_us if self.outcome is FaultOutcome.HIT else None

    @property
    def hit_nodes(self) -> tuple[str, ...]:
        """The affected nodes; for a fault of links, the nodes of the `from` end."""
        return self.nodes or (() if self.node is None else (self.node,))

    @property
    def from_nodes(self) -> tuple[str, ...]:
        """The nodes of the affected links' `from` end."""
        return () if self.links is None else self.links.from_

    @property
    def to_nodes(self) -> tuple[str, ...]:
        """The nodes of the affected links' `to` end."""
        return () if self.links is None else self.links.to

    @property
    def is_one_way(self) -> bool:
        """True if a fault of links affects only messages from the `from` end."""
        return self.resolved.get("direction") == "one_way"

    @property
    def in_force(self) -> bool:
        """True if the fault was injected and is not healed."""
        lasts = not self.momentary and self.healed_at_us is None
        return lasts and self.outcome is FaultOutcome.HIT

    @property
    def perhaps_in_force(self) -> bool:
        """True if an error or a Ctrl-C interrupted the injection, so that its effect is unknown."""
        # `node` is set just before the injection begins. If a Ctrl-C interrupts the injection, the
        # outcome stays PLANNED. An error sets it to FAILED.
        begun = self.node is not None and not self.momentary and self.healed_at_us is None
        return begun and self.outcome in {FaultOutcome.PLANNED, FaultOutcome.FAILED}

    def forget_aim(self) -> None:
        """Clear what was recorded about the nodes to hit, because the fault did not hit them."""
        self.node = None
        self.nodes = ()
        self.links = None
        self.moves = ()
        self.blast_radius = BlastRadius()
        self.members_survive = True
        self.resolved = {}

    @property
    def hit(self) -> str:
        """A text about what the fault hit: nodes, both ends of links, or moved leaderships."""
        if self.moves:
            return self.moves_text("{0.partition}: {0.from_broker} to {0.to_broker}")
        if self.links is not None:
            arrow = "->" if self.is_one_way else "<->"
            return f"{nodes_shown(self.links.from_)} {arrow} {nodes_shown(self.links.to)}"
        return nodes_shown(self.hit_nodes)

    def moves_text(self, form: str) -> str:
        """Return the first `moves` as text, with the number of the others.

        `form`: a format string, in which `{0}` is a LeaderMove, for example `{0.partition}`.
        """
        shown = [form.format(move) for move in self.moves[:_MOVES_SHOWN]]
        more = len(self.moves) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


_MOVES_SHOWN = 3
"""Maximum number of moves in a text; the number of further moves follows them."""
_NODES_SHOWN = 4
"""Maximum number of nodes in a text."""


def nodes_shown(nodes: tuple[str, ...]) -> str:
    """Return the names of nodes as text.

    If there are more than _NODES_SHOWN nodes, the last of the shown names is replaced by the number
    of nodes that are not named.
    """
    if len(nodes) <= _NODES_SHOWN:
        return ", ".join(nodes) or "nobody"
    return f"{', '.join(nodes[: _NODES_SHOWN - 1])} and {len(nodes) - _NODES_SHOWN + 1} more"


def encode_journal(entries: tuple[JournalEntry, ...]) -> bytes:
    """Return the journal file's content."""
    return msgspec.json.format(msgspec.json.encode({"faults": entries}), indent=2) + b"\n"


class _JournalFile(msgspec.Struct, kw_only=True):
    faults: tuple[JournalEntry, ...]


def decode_journal(content: bytes) -> tuple[JournalEntry, ...]:
    """Return the entries of a journal file.

    Raises: msgspec.DecodeError if `content` is no journal.
    """
    return msgspec.json.decode(content, type=_JournalFile).faults
