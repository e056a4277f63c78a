"""The file of a space: what an exploration draws from, as its structs.

Owns the vocabulary of such a file; it knows nothing of YAML, nor of how anything is drawn.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.experiment.structs import FORMAT_VERSION, Duration, Name

Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[int, Meta(ge=1, le=1_000)]
Factor = Annotated[float, Meta(gt=0, le=100)]
OWN_OF_A_DRAW = ("version", "name", "question", "expect", "faults", "replay")
"""What each drawn experiment gets of its own, and the experiment of a space must not have."""


class FaultSpace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which faults are drawn, when, and for how long."""

    window: Duration = "30s"
    """How long faults begin, from the steady state on."""
    gaps: Annotated[tuple[Duration, ...], Meta(min_length=1)] = ("1s", "3s", "10s")
    """Mean times between two faults; a seed draws one."""
    kinds: dict[str, Weight] = {}
    """The faults, each with its weight among those that a seed keeps."""
    patterns: dict[str, Weight] = {}
    """Several faults that belong together, by name, with their weights among the faults."""
    kept: Share = 0.7
    """How likely a seed keeps a fault or pattern: what is left gets more of the run (swarm)."""
    durations: Annotated[tuple[Duration, ...], Meta(min_length=1)] = (
        "100ms",
        "500ms",
        "2s",
        "5s",
        "10s",
        "20s",
    )
    """How long those last that have an end."""
    timeouts: tuple[str, ...] = ()
    """Kafka's settings around which half of the lengths are drawn instead."""
    factors: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (0.3, 0.9, 1.1, 3)
    """What such a timeout is multiplied with."""
    longest: Duration = "30s"
    """No fault lasts longer, whatever its timeout is."""
    unhealed: Share = 0.0
    """How many of those that could have an end last until everything is healed."""
    empty_disks: Share = 0.0
    """How many of the brokers that are killed, or lose power, lose their disk as well."""

    lost: Share = 0.0
    """How many seeds lose a broker, or members, for good: as many as the rest can do without."""


class Minimum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run must have done to count as one: less work would make the search look fast.

    `fetches` and `commits` are requests (Fetch; OffsetCommit, TxnOffsetCommit) that reached a live
    node, `faults` those that hit. Of each run on its own.
    """

    fetches: int = 0
    commits: int = 0
    faults: int = 0


class SpaceDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a space.

    Shape: what varies is written as dotted paths into `experiment`, one `*` in a path stands for
    every group, topic or element there, each of which draws its own. Of the values listed a seed
    takes one; to make one likelier, list it twice. A value of nothing leaves the key out.
    """

    version: Annotated[int, Meta(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    """The version of this format."""
    name: Name
    """The space's name; a drawn experiment is called by it and by its seed."""
    question: str
    """What the search wants to know, in a sentence."""
    experiment: dict[str, Any]  # checked as an experiment when the file is read
    """An experiment without faults, as its own file would have it."""
    counts: dict[str, tuple[int, ...]] = {}
    """Lists and mappings of which only the first so many are there, such as `groups: [1, 2]`."""
    settings: dict[str, tuple[Any, ...]] = {}
    """Paths, each with the values from which a seed draws one."""
    together: dict[str, tuple[dict[str, Any], ...]] = {}
    """Settings that are drawn together, because they must fit: a name, and its sets of values."""
    faults: FaultSpace
    """What is broken."""
    mutated: Share = 0.4
    """How many seeds change a plan that reached something rare, instead of drawing one."""
    minimum: Minimum = Minimum()
    """What each run must have done."""
    may_be_unknown: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Reasons for which a run of this space may prove nothing: how each begins, numbers as N."""
