"""journal.json: each fault of a run, with its outcome, its nodes, and its times.

A fault is a disturbance that is injected on purpose, as the plan of an experiment says, for example
a crash of broker-0. After a time the fault is healed, that is, undone: the broker starts again. A
momentary fault, such as a moved leadership, leaves nothing to undo.

All times are microseconds of the run's clock, on which the trace (the recording of the run) is
written, too.
"""

from enum import StrEnum

import msgspec

from results_schema.manifest import PlannedFault


class FaultOutcome(StrEnum):
    """What became of a planned fault."""

    PLANNED = "planned"  # not injected yet, or the run ended first
    HIT = "hit"
    # No node had the target's role at the planned time, or the injection did not affect the node.
    MISSED = "missed"
    FAILED = "failed"  # the tool failed to inject the fault


class LinkEnds(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The links (connections between nodes) that a fault affects: all links between two sets.

    For example, `from_` broker-0 and `to` broker-1, broker-2 are two links. A node that is in both
    sets still has no link with itself.
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

    - If the fault hits a broker: the groups that this broker coordinates, and the partitions that
      it leads.
    - If the fault hits a member: the member's group, and the partitions that the member owns.
    - If the fault moves a leadership: the partition, and the groups whose offsets are stored in it.
    """

    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class JournalEntry(msgspec.Struct, kw_only=True):
    """One fault of the plan, and what became of it.

    - `planned_at_us`: when the fault was to be injected, counted from the run's start. The plan
      counts from the steady state (the cluster is up, and every group is Stable). So
      `planned_at_us` is None until the steady state.
    - `fired_at_us`: when the injection began, whatever the outcome was.
    - `in_force_from_us`, `in_force_until_us`: when the injection ended, and when the healing began.
      Between these times all affected nodes certainly had the fault.
    - `healed_at_us`: None if the fault is in force, was not injected, or is momentary.
    - `nodes`: the affected nodes. If the fault affects links, the nodes of their `from` end.
    - `node`: the first of `nodes`.
    - `incarnation`, `pid`: how often `node` had been restarted before the injection, and the id of
      its process.
    - `members_survive`: False if the fault hits members of a group. The group may then rebalance.
    - `resolved`: other details that were decided at the injection, such as `direction`.

    If the fault missed, there are no nodes, no links and no moves.
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
    # "plan"; "order" if a user ordered the healing; "end" if the fault was healed at the end of the
    # run; "itself" if nothing was healed, because a disturbed machine recovered.
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
        # If `nodes` is empty, `node` alone is the affected node.
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
        """True if an error or a Ctrl-C ended the injection early, so that its effect is unknown."""
        # `node` is set just before the injection begins. If a Ctrl-C interrupts the injection, the
        # outcome stays PLANNED. An error sets the outcome to FAILED.
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
        """What the fault hit, as text: "broker-0", "broker-0 <-> broker-1", "t-0: 1 to 2"."""
        if self.moves:
            return self.moves_text("{0.partition}: {0.from_broker} to {0.to_broker}")
        if self.links is not None:
            arrow = "->" if self.is_one_way else "<->"
            return f"{nodes_shown(self.links.from_)} {arrow} {nodes_shown(self.links.to)}"
        return nodes_shown(self.hit_nodes)

    def moves_text(self, form: str) -> str:
        """Return the first three moves as text, and the number of the other moves.

        `form` says how to print a move; `{0}` stands for the LeaderMove. For example, with
        "{0.partition}" the text may be "t-0, t-1, t-2 and 4 more".
        """
        shown = [form.format(move) for move in self.moves[:_MOVES_SHOWN]]
        more = len(self.moves) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


_MOVES_SHOWN = 3
"""A text names at most this many moves."""
_NODES_SHOWN = 4
"""A text names at most this many nodes."""


def nodes_shown(nodes: tuple[str, ...]) -> str:
    """Return the names of up to four nodes as text, or three names and the number of the others.

    Example: "broker-0, broker-1, broker-2 and 3 more".
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
