"""Structs of a space file, which defines what an exploration draws.

Owns the vocabulary of such files. Must know neither YAML nor how anything is drawn.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.experiment.structs import FORMAT_VERSION, Duration, Name

Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[int, Meta(ge=1, le=1_000)]
Factor = Annotated[float, Meta(gt=0, le=100)]
OWN_OF_A_DRAW = ("version", "name", "question", "expect", "faults", "replay")
"""Keys that each drawn experiment sets, and that the experiment of a space must not have."""


class FaultSpace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults to draw, with their times and durations."""

    window: Duration = "30s"
    """Length of the time from the steady state on in which faults begin."""
    gaps: Annotated[tuple[Duration, ...], Meta(min_length=1)] = ("1s", "3s", "10s")
    """Mean times between two faults; a seed draws one."""
    kinds: dict[str, Weight] = {}
    """Faults, each with its weight among those that a seed keeps."""
    patterns: dict[str, Weight] = {}
    """Patterns: groups of faults that belong together, by name, with weights among the faults."""
    kept: Share = 0.7
    """Probability that a seed keeps a fault or pattern; kept ones occur more often then (swarm)."""
    durations: Annotated[tuple[Duration, ...], Meta(min_length=1)] = (
        "100ms",
        "500ms",
        "2s",
        "5s",
        "10s",
        "20s",
    )
    """Durations of the faults that have an end."""
    timeouts: tuple[str, ...] = ()
    """Kafka's timeouts; half of the durations are drawn near one of them instead."""
    factors: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (0.3, 0.9, 1.1, 3)
    """Factors by which such a timeout is multiplied."""
    longest: Duration = "30s"
    """Longest duration of a fault, also of one drawn near a timeout."""
    unhealed: Share = 0.0
    """Share of the faults with an end that instead last until everything is healed."""
    empty_disks: Share = 0.0
    """Share of the brokers that lose their disk when they are killed or lose power."""

    lost: Share = 0.0
    """Share of the seeds that lose a broker or members for good, as many as the cluster allows."""


class Minimum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work that a run must do to count: runs with less would make the search look fast.

    `fetches` and `commits` are requests (Fetch; OffsetCommit, TxnOffsetCommit) that reached a live
    node; `faults` are faults that hit. Each run is judged alone.
    """

    fetches: int = 0
    commits: int = 0
    faults: int = 0


class SpaceDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a space.

    Shape: variations are dotted paths into `experiment`. A `*` in a path stands for every group,
    topic or element there, and each of them draws its own value. A seed draws one of the listed
    values; list a value twice to make it likelier. An empty value leaves the key out.
    """

    version: Annotated[int, Meta(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    """Version of this format."""
    name: Name
    """Name of the space; a drawn experiment's name is made of it and of the seed."""
    question: str
    """Question that the search answers, in a sentence."""
    experiment: dict[str, Any]  # checked as an experiment when the file is read
    """Experiment without faults, as in an experiment file of its own."""
    counts: dict[str, tuple[int, ...]] = {}
    """Lists and mappings that are cut to a drawn number of items, such as `groups: [1, 2]`."""
    settings: dict[str, tuple[Any, ...]] = {}
    """Paths, each with the values from which a seed draws one."""
    together: dict[str, tuple[dict[str, Any], ...]] = {}
    """Settings that are drawn together because they must fit: a name, and its sets of values."""
    faults: FaultSpace
    """Faults to draw."""
    mutated: Share = 0.4
    """Share of the seeds that mutate a plan with a rare result, instead of drawing a plan."""
    minimum: Minimum = Minimum()
    """Work that each run must do."""
    may_be_unknown: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Reasons for which a run may prove nothing, by their beginnings, with N for numbers."""
