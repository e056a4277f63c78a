"""The two runtimes start, kill, pause and resume nodes in the same way.

The virtual runtime simulates a cluster in one process. Ray's runtime has a process for each node.
An experiment may run on either runtime, so what it does to a node must have the same effect on
both. Something that is done to a node, for example a pause, is called an act. An act is allowed
only in some states of the node: a node that is down or already paused cannot be paused.

The test tries each act in each state, on both runtimes, and compares the outcomes. Ray's runtime
has fake processes here. The node is NODE, a broker that runs from the beginning, or LATE, a
consumer that is not started yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from cluster.lives import LifeAct
from cluster.ray.lives import RayLives
from cluster.runtime import NodeState, UnknownNode
from cluster.virtual.lives import VirtualLives
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow
from tests.support.harness.fake_cluster import fake_builder
from tests.support.harness.fake_fleet import LATE, NODE, LivesLab, spec_with_a_late_consumer

Lives = VirtualLives | RayLives
Act = Callable[[Lives, NodeName], Awaitable[object]]
LIFE_KINDS = (
    TraceKind.NODE_KILLED,
    TraceKind.NODE_STOPPING,
    TraceKind.NODE_PAUSED,
    TraceKind.NODE_RESUMED,
)


class Outcome(NamedTuple):
    """What an act has done."""

    answer: str
    """The text "done", or the text of the refusal."""
    next_state: NodeState
    """The state of the node after the act."""
    events: tuple[str, ...]
    """The events that the act recorded, with their causes: "node_killed(power loss)"."""


ACTS: dict[str, tuple[LifeAct, Act]] = {
    "start_node": (LifeAct.START, lambda lives, node: lives.start_node(node)),
    "restart": (LifeAct.RESTART, lambda lives, node: lives.restart(node)),
    "crash": (LifeAct.KILL, lambda lives, node: lives.crash(node)),
    "power_loss": (LifeAct.KILL, lambda lives, node: lives.power_loss(node)),
    "shut_down": (LifeAct.SHUT_DOWN, lambda lives, node: lives.shut_down(node)),
    "pause": (LifeAct.PAUSE, lambda lives, node: lives.pause(node)),
    "resume": (LifeAct.RESUME, lambda lives, node: lives.resume(node)),
}
"""The acts, by the names of the methods of a runtime. A LifeAct knows the states that allow it."""
ACTS_BEFORE: dict[NodeState, tuple[str, ...]] = {
    NodeState.NOT_STARTED: (),
    NodeState.UP: (),
    NodeState.STOPPING: ("shut_down",),
    NodeState.PAUSED: ("pause",),
    NodeState.DOWN: ("crash",),
}
"""The acts that bring the node into a state, from its state at the start of the run."""
STATE_AFTER = {
    LifeAct.START: NodeState.UP,
    LifeAct.RESTART: NodeState.UP,
    LifeAct.KILL: NodeState.DOWN,
    LifeAct.SHUT_DOWN: NodeState.STOPPING,
    LifeAct.PAUSE: NodeState.PAUSED,
    LifeAct.RESUME: NodeState.UP,
}
"""The state of the node after an act that was allowed."""


def node_for(state: NodeState) -> NodeName:
    """Return the node on which the acts in this state are tried."""
    return LATE if state is NodeState.NOT_STARTED else NODE


def life_events(rows: Sequence[TraceRow | TraceEvent]) -> list[str]:
    """Return the rows whose kind is in LIFE_KINDS, as texts such as "node_paused(None)"."""
    return [f"{row.kind}({row.cause})" for row in rows if row.kind in LIFE_KINDS]


async def outcome_of(
    lives: Lives, state: NodeState, act: str, rows: Sequence[TraceRow | TraceEvent]
) -> Outcome:
    """Bring the node into `state`, then do the act, and return its outcome.

    The runtime adds a row to `rows` when it records an event.
    """
    node = node_for(state)
    for act_before in ACTS_BEFORE[state]:
        _life_act, do = ACTS[act_before]
        await do(lives, node)
    assert lives.states()[node] is state
    rows_before = len(rows)

    _life_act, do = ACTS[act]
    try:
        await do(lives, node)
        answer = "done"
    except UnknownNode as refusal:
        answer = str(refusal)
    return Outcome(answer, lives.states()[node], tuple(life_events(rows[rows_before:])))


def in_virtual_time(state: NodeState, act: str) -> Outcome:
    """Do the act on the virtual runtime."""
    rows: list[TraceRow] = []
    runtime = VirtualRuntime(
        spec_with_a_late_consumer(),
        seed=1,
        run_id="run",
        observers=(rows.append,),
        build=fake_builder(),
    )

    async def story() -> Outcome:
        await runtime.start()
        # A shutdown takes some virtual time. `outcome_of` reads the state of the node at once, when
        # the node is still stopping.
        outcome = await outcome_of(runtime, state, act, rows)
        await runtime.stop()
        return outcome

    return runtime.run(story())


def on_fake_processes(state: NodeState, act: str, run_dir: Path) -> Outcome:
    """Do the act on Ray's runtime, with fake processes."""

    async def story() -> Outcome:
        lab = LivesLab(run_dir, spec_with_a_late_consumer())
        # None makes the call `shut_down_node` of a fake process wait for ever. So after a shutdown
        # the node is still stopping when its state is read.
        lab.fleet.trouble["shut_down_node"] = None
        await lab.lives.start_all()
        outcome = await outcome_of(lab.lives, state, act, lab.rows)
        assert lab.failures == []
        return outcome

    return asyncio.run(story())


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", NodeState)
def test_every_act_in_every_state_is_the_same_in_both_runtimes(
    tmp_path: Path, state: NodeState, act: str
) -> None:
    """The outcome of an act must be the same in both runtimes.

    - An act that is not allowed is refused with a text, and changes and records nothing.
    - An act that is allowed leads to its state, and most acts record an event.
    """
    outcome = in_virtual_time(state, act)
    assert on_fake_processes(state, act, tmp_path) == outcome

    life_act, _do = ACTS[act]
    if state not in life_act.legal_in:
        assert outcome.answer == f"{node_for(state)} is {state} {life_act.refusal}"
        assert outcome.next_state is state
        assert outcome.events == ()
        return

    assert outcome.answer == "done"
    assert outcome.next_state is STATE_AFTER[life_act]
    cause = "power loss" if act == "power_loss" else None
    if life_act.traced is None:
        assert outcome.events == ()
    else:
        assert outcome.events == (f"{life_act.traced}({cause})",)
