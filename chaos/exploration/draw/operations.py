"""Operations: drawn rollouts and scalings of a group.

A rollout replaces each member of a group by a successor, as the deploy of a new version does. A
scaling changes the number of members. Most arguments of these operations have their names from
Kubernetes. For example, `max_surge` is the number of successors that may run in addition to all
members.

The start-up time of a successor is often drawn near the session timeout. A successor that joins
shortly before the end of its predecessor's session has another effect on the group than a successor
that joins shortly after. All times are so short that the operation ends within the run.
"""

from random import Random
from typing import Any

from chaos.experiment.structs import FaultDefinition
from chaos.exploration.draw.fault_draw import FaultDraw, length_text
from chaos.faults.base import FaultKind
from chaos.faults.registry import FAULT_KINDS
from chaos.faults.rollouts import RolloutFault, ScaleFault

_QUICK_MS = (100, 500, 1_000, 3_000)
"""Start-up times of a successor that are far shorter than a session timeout."""
_SESSIONS = (0.5, 0.9, 1.1, 1.5)
"""Start-up times of a successor near the session timeout, as multiples of this timeout."""
_GRACE_MS = (1, 200, 2_000, 30_000)
"""Grace periods. A member is asked to stop, and is killed if it still runs after this time."""
_READY_AFTER_MS = (0, 0, 1_000, 5_000)
"""Times from a successor's start until the successor counts as available.

0 stands twice in the tuple, so it is drawn in half of the draws.
"""
_EVERY_MS = (1, 500, 3_000)
"""Times between two steps of a scaling that adds or removes one member at each step."""
RANGE = 0.3
"""Share of rollouts whose start-up time is a range."""
KILLS = 0.3
"""Share of operations that kill members at once, instead of stopping them."""
BATCHES = 0.3
"""Share of rollouts that replace members in batches."""
STARTED = 0.3
"""Share of rollouts that do not wait until a successor has joined the group.

A rollout of this share goes on as soon as a successor has started.
"""
PARTIAL = 0.2
"""Share of rollouts that replace only the members from some index on.

In a StatefulSet of Kubernetes the setting `partition` has this effect.
"""
BROKEN = 0.15
"""Share of rollouts in which the new version does not start, from some successor on."""
_DEADLINES_MS = (3_000, 10_000)
"""Deadlines of a rollout whose new version does not start.

The rollout fails if it makes no progress for the time of its deadline. The deadlines are short, so
that the rollout fails within the run.
"""


def draw_operation(draw: FaultDraw, kind: FaultKind) -> FaultDefinition | None:
    """Return an operation on the group that `draw.group()` draws.

    Return None if this group has no members.
    """
    group = draw.experiment.groups[draw.group()]
    if group.members_total == 0:
        return None
    args = _scale(draw) if kind.name == ScaleFault.name else _rollout(draw)
    return draw.fault(kind.name, f"members({draw.group()})", args=args)


def deploy_in_failover(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Return a rollout of a group, and a fault of its coordinator during the rollout."""
    operation = draw_operation(draw, FAULT_KINDS[RolloutFault.name])
    if operation is None:
        return ()
    kind = draw.rng("failover").choice(("crash", "controlled_shutdown", "leadership_move"))
    # The fault of the coordinator begins at most 10 s after the rollout.
    failover = draw.fault(
        kind,
        draw.coordinator(),
        after_ms=draw.gap_ms("failover", 10_000),
        lasts_ms=None if FAULT_KINDS[kind].momentary else draw.restart_ms(),
    )
    return operation, failover


def _scale(draw: FaultDraw) -> dict[str, Any]:
    """Draw the arguments of a scaling, under the names of an experiment file."""
    rng = draw.rng("scale")
    # The largest size of the group: its members, late members and spare members together.
    places = draw.experiment.groups[draw.group()].places_total
    args: dict[str, Any] = {"to": rng.randint(0, places)}
    if rng.random() < 0.5:
        args["step"] = 1
        args["every"] = length_text(rng.choice(_EVERY_MS))
    return {**args, **_stop(rng)}


def _rollout(draw: FaultDraw) -> dict[str, Any]:
    """Draw the arguments of a rollout, under the names of an experiment file."""
    rng = draw.rng("rollout")
    group = draw.experiment.groups[draw.group()]
    surge = rng.randint(0, group.spare_members)
    args: dict[str, Any] = {
        # The number of members that may be missing at a time. 0 is drawn only if there is a surge.
        # If no member may be missing and no successor may run in addition, nothing can be replaced.
        "max_unavailable": rng.choice((1, 1, 2, "50%", "100%", 0) if surge else (1, 1, 2, "100%")),
        "start_up": _start_up(draw, rng),
    }
    if surge:
        args["max_surge"] = surge
    if rng.random() < BATCHES:
        args["in_batches"] = True
    if rng.random() < PARTIAL:
        # This partition is an index and has nothing to do with Kafka's partitions. Members with a
        # lower index are not replaced.
        args["partition"] = rng.randrange(group.members_total)
    if rng.random() < STARTED:
        args["ready"] = "started"
    ready_after_ms = rng.choice(_READY_AFTER_MS)
    if ready_after_ms:
        args["ready_after"] = length_text(ready_after_ms)
    # A rollout fails if it makes no progress for the time `progress_deadline`. Then `at_deadline`
    # decides whether the rollout stops where it is, or replaces the successors by the old version.
    args["progress_deadline"] = "30s"
    if rng.random() < BROKEN:
        args["broken_from"] = rng.randrange(group.members_total)
        args["progress_deadline"] = length_text(rng.choice(_DEADLINES_MS))
        args["at_deadline"] = rng.choice(("hang", "roll_back"))
    return {**args, **_stop(rng)}


def _stop(rng: Random) -> dict[str, Any]:
    """Draw how a member is stopped: by a kill, or with a grace period."""
    if rng.random() < KILLS:
        return {"stop": "kill"}
    return {"grace_period": length_text(rng.choice(_GRACE_MS))}


def _start_up(draw: FaultDraw, rng: Random) -> str | list[str]:
    """Draw a start-up time, or a range of start-up times."""
    if rng.random() < 0.5:
        start_up_ms = rng.choice(_QUICK_MS)
    else:
        start_up_ms = draw.around_ms("session.timeout.ms", rng.choice(_SESSIONS))
    # If the result is a range, the rollout itself draws a start-up time for each successor, between
    # the two times of the range.
    if rng.random() < RANGE:
        return [length_text(start_up_ms), length_text(2 * start_up_ms)]
    return length_text(start_up_ms)
