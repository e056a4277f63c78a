"""journal.json: what was injected, when, what it hit, and when it was undone.

Times are of the run's clock, in microseconds, as in the trace.
"""

from enum import StrEnum

import msgspec

from results_schema.manifest import PlannedFault


class FaultOutcome(StrEnum):
    """What became of a planned fault."""

    PLANNED = "planned"  # its time did not come
    HIT = "hit"
    MISSED = "missed"  # its target was nobody when it fired, or nothing could be done to it
    FAILED = "failed"  # the tool could not do it


class LinkEnds(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The two ends of the links that were hit, by node names. A node has no link to itself."""

    from_: tuple[str, ...]
    to: tuple[str, ...]


class LeaderMove(msgspec.Struct, frozen=True, kw_only=True):
    """A leadership that was moved, by broker ids."""

    partition: str
    from_broker: int
    to_broker: int


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """The groups and partitions that a fault concerns.

    Of a broker: every group that it coordinates, every partition that it leads. Of a member: its
    group, and the partitions that it owns. Of a moved leadership: the partition, and the groups
    that live in it.
    """

    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class JournalEntry(msgspec.Struct, kw_only=True):
    """One fault of the plan and what became of it.

    Units: `planned_at_us` is the planned time on the run's clock, steady state included, and None
    before that was reached. `in_force_from_us` to `in_force_until_us` is the time in which every
    node concerned had it in force: from when the injection had returned until the undoing began.
    `healed_at_us` None: still in force, never injected, or momentary.
    Shape: `node` is the first of `nodes`, the nodes hit; of links, the `from` end's. A fault that
    missed has none of what was hit.
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
    links: LinkEnds | None = None  # of a fault of links
    moves: tuple[LeaderMove, ...] = ()  # of a fault of leadership
    incarnation: int | None = None
    pid: int | None = None
    blast_radius: BlastRadius = BlastRadius()
    members_survive: bool = True
    resolved: dict[str, object] = {}
    in_force_from_us: int | None = None
    in_force_until_us: int | None = None
    healed_at_us: int | None = None
    healed_by: str | None = None  # "plan", "order", or "end" when everything was healed
    note: str | None = None  # what was remarkable about the undoing
    error: str | None = None  # why it missed or failed

    @classmethod
    def of(cls, planned: PlannedFault, *, momentary: bool = False) -> "JournalEntry":
        """Return the entry of a fault of which nothing is known but the plan."""
        return cls(
            fault_id=planned.fault_id,
            fault=planned.fault,
            target=planned.aimed_at,
            duration_us=planned.duration_us,
            momentary=momentary,
        )

    @property
    def is_by_accident(self) -> bool:
        """Whether no plan says so: a machine of the Ray cluster was lost, or disturbed."""
        return self.fault in {"machine_lost", "machine_disturbed"}

    @property
    def injected_at_us(self) -> int | None:
        """When it was injected; None if it hit nothing."""
        return self.fired_at_us if self.outcome is FaultOutcome.HIT else None

    @property
    def hit_nodes(self) -> tuple[str, ...]:
        """The nodes hit; of links, the `from` end's."""
        return self.nodes or (() if self.node is None else (self.node,))

    @property
    def from_nodes(self) -> tuple[str, ...]:
        """The `from` end of the links that were hit."""
        return () if self.links is None else self.links.from_

    @property
    def to_nodes(self) -> tuple[str, ...]:
        """The `to` end of the links that were hit."""
        return () if self.links is None else self.links.to

    @property
    def is_one_way(self) -> bool:
        """Whether of links only what the `from` end sends is hit."""
        return self.resolved.get("direction") == "one_way"

    @property
    def in_force(self) -> bool:
        """Whether it was injected and not undone."""
        lasts = not self.momentary and self.healed_at_us is None
        return lasts and self.outcome is FaultOutcome.HIT

    @property
    def perhaps_in_force(self) -> bool:
        """Whether an injection was begun and nobody knows how far it came: an error, a Ctrl-C."""
        begun = self.node is not None and not self.momentary and self.healed_at_us is None
        return begun and self.outcome in {FaultOutcome.PLANNED, FaultOutcome.FAILED}

    def forget_aim(self) -> None:
        """Forget who was aimed at: nobody was hit."""
        self.node = None
        self.nodes = ()
        self.links = None
        self.moves = ()
        self.blast_radius = BlastRadius()
        self.members_survive = True
        self.resolved = {}

    @property
    def hit(self) -> str:
        """Who was hit, for people: nodes, both ends of links, or what moved where."""
        if self.moves:
            return self.moves_text("{0.partition}: {0.from_broker} to {0.to_broker}")
        if self.links is not None:
            arrow = "->" if self.is_one_way else "<->"
            return f"{nodes_shown(self.links.from_)} {arrow} {nodes_shown(self.links.to)}"
        return nodes_shown(self.hit_nodes)

    def moves_text(self, form: str) -> str:
        """Return the first few of `moves` and the number of the others; `form` is of one move."""
        shown = [form.format(move) for move in self.moves[:_MOVES_SHOWN]]
        more = len(self.moves) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


_MOVES_SHOWN = 3
_NODES_SHOWN = 4


def nodes_shown(nodes: tuple[str, ...]) -> str:
    """Name nodes for people: all of a few, the first few of many."""
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

    Raises: msgspec.DecodeError if it is none.
    """
    return msgspec.json.decode(content, type=_JournalFile).faults
