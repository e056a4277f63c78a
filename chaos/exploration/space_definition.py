"""Structs of a space file: all its keys, with their defaults.

A space file is the input of an exploration, which is a search for violations. Each seed of the
exploration draws an experiment: its settings, and a plan of faults. The file says which settings
and faults the seeds may draw. The times of a plan count from the steady state, which is the moment
when the cluster and its clients work normally.

This module must not depend on YAML, or on how values are drawn.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.experiment.structs import FORMAT_VERSION, Duration, Name

# Types of values, with their bounds. Weights compare the names from which a seed draws one: a name
# with weight 2 is drawn twice as often as a name with weight 1.
Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[int, Meta(ge=1, le=1_000)]
Factor = Annotated[float, Meta(gt=0, le=100)]
KEYS_SET_BY_DRAW = ("version", "name", "question", "expect", "faults", "replay")
"""Keys that every draw sets in its experiment. So a space's `experiment` must not have them."""


class FaultSpace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults to draw, with their times and durations."""

    window: Duration = "30s"
    """Length of the period in which faults begin; it starts at the steady state."""
    gaps: Annotated[tuple[Duration, ...], Meta(min_length=1)] = ("1s", "3s", "10s")
    """Mean times between two faults; each seed draws one of them."""
    kinds: dict[str, Weight] = {}
    """Kinds of faults, each with its weight in the draw of the next fault."""
    patterns: dict[str, Weight] = {}
    """Patterns (named combinations of faults), each with its weight.

    One draw chooses among all kinds and patterns, so a weight counts relative to all others.
    """
    kept: Share = 0.7
    """Probability that a seed keeps a kind or a pattern; the seed never draws the others.

    A seed with few kinds draws each of them often, and so reaches states that an even mixture of
    all kinds rarely reaches (swarm testing).
    """
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
    """Names of Kafka's timeouts. If any is listed, half of the durations are near a timeout.

    Such a duration is the value of a drawn timeout, multiplied by one of `factors`.
    """
    factors: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (0.3, 0.9, 1.1, 3)
    """A duration near a timeout is the timeout multiplied by one of these factors."""
    longest: Duration = "30s"
    """Longest duration of a fault. A longer duration near a timeout is reduced to it."""
    unhealed: Share = 0.0
    """Share of the faults that get no duration. Such a fault lasts until the run heals all faults.

    Momentary faults, which have no duration in any case, do not count.
    """
    empty_disks: Share = 0.0
    """Share of the kills and power losses of a broker in which it loses its disk, too."""
    lost: Share = 0.0
    """Share of the seeds in which a broker, some members, or both die and never restart.

    Every partition keeps enough in-sync replicas, and every group keeps a member.
    """


class Minimum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Least work that each run must do. A run with less work is fast, but shows little.

    `fetches` counts Fetch requests, and `commits` counts OffsetCommit and TxnOffsetCommit requests,
    that reached a live node. `faults` counts faults that hit their target.
    """

    fetches: int = 0
    commits: int = 0
    faults: int = 0


class SpaceDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a space.

    The keys of `counts`, of `settings` and of the sets in `together` are dotted paths into
    `experiment`. A `*` in a path stands for every group, topic or list element at its place, and
    each of them draws its own value. A value that is listed twice is drawn twice as often. If the
    drawn value is null, the experiment does not have the path's key.
    """

    version: Annotated[int, Meta(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    """Version of this format."""
    name: Name
    """Name of the space. A drawn experiment is named after its space and seed: `NAME-SEED`."""
    question: str
    """Question that the search answers, in a sentence."""
    experiment: dict[str, Any]  # checked as an experiment when the file is read
    """Experiment without faults, as in an experiment file of its own."""
    counts: dict[str, tuple[int, ...]] = {}
    """Paths of lists and mappings, such as `groups: [1, 2]`.

    A seed draws one of the numbers, and keeps as many items of the list or mapping.
    """
    settings: dict[str, tuple[Any, ...]] = {}
    """Paths, each with the values from which a seed draws one."""
    together: dict[str, tuple[dict[str, Any], ...]] = {}
    """Settings that must fit together.

    Each name has a list of mappings from paths to values. A seed draws one mapping of each name,
    and sets all its paths.
    """
    faults: FaultSpace
    """Faults to draw."""
    mutated: Share = 0.4
    """Share of the seeds that mutate the plan of an earlier run, instead of drawing a plan.

    The earlier run reached a coverage mark, or a pair of marks, that few runs reach.
    """
    minimum: Minimum = Minimum()
    """Work that each run must do."""
    may_be_unknown: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Beginnings of the reasons for which a run may end UNKNOWN.

    `N` in the text stands for any number. A run that is UNKNOWN for another reason prevents the
    verdict PASS of the search.
    """
