"""Two runtimes treat the acts on a node in the same way: the virtual runtime and Ray's.

An act (a LifeAct) starts, restarts, kills, stops, pauses or resumes a node. It is legal only in
some states of the node. Both runtimes must allow or refuse it in the same states, and write the
same rows into the trace, which has the recorded events. Ray's runtime has fake processes here. NODE
is a broker that is up. LATE is a consumer that is not started yet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cluster.lives import LifeAct
from cluster.ray.lives import RayLives
from cluster.runtime import NodeState, UnknownNode
from cluster.virtual.lives import VirtualLives
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import NodeName
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.fake_cluster import fake_builder
from tests.support.harness.fake_fleet import LATE, NODE, LivesLab, spec_with_a_late_consumer

Lives = VirtualLives | RayLives
Act = Callable[[Lives, NodeName], Awaitable[object]]
Outcome = tuple[str, NodeState, tuple[str, ...]]
"""What an act has done: "done" or the text of the refusal; the state of the node afterwards; the
rows of the trace, each as KIND(cause)."""

ACTS: dict[str, tuple[LifeAct, Act]] = {
    "start_node": (LifeAct.START, lambda lives, node: lives.start_node(node)),
    "restart": (LifeAct.RESTART, lambda lives, node: lives.restart(node)),
    "crash": (LifeAct.KILL, lambda lives, node: lives.crash(node)),
    "power_loss": (LifeAct.KILL, lambda lives, node: lives.power_loss(node)),
    "shut_down": (LifeAct.SHUT_DOWN, lambda lives, node: lives.shut_down(node)),
    "pause": (LifeAct.PAUSE, lambda lives, node: lives.pause(node)),
    "resume": (LifeAct.RESUME, lambda lives, node: lives.resume(node)),
}
# The acts that bring a node into a state, from its state at the start of the run.
WAY_TO: dict[NodeState, tuple[str, ...]] = {
    NodeState.NOT_STARTED: (),
    NodeState.UP: (),
    NodeState.STOPPING: ("shut_down",),
    NodeState.PAUSED: ("pause",),
    NodeState.DOWN: ("crash",),
}
# The state of a node after a legal act.
BECOMES = {
    LifeAct.START: NodeState.UP,
    LifeAct.RESTART: NodeState.UP,
    LifeAct.KILL: NodeState.DOWN,
    LifeAct.SHUT_DOWN: NodeState.STOPPING,
    LifeAct.PAUSE: NodeState.PAUSED,
    LifeAct.RESUME: NodeState.UP,
}
LIFE_KINDS = (
    TraceKind.NODE_KILLED,
    TraceKind.NODE_STOPPING,
    TraceKind.NODE_PAUSED,
    TraceKind.NODE_RESUMED,
)


async def outcome_of(
    lives: Lives, node: NodeName, state: NodeState, act: str, traced: Callable[[], list[str]]
) -> Outcome:
    """Bring a node into `state`, then do the act, and return its outcome.

    `traced` returns all trace rows so far, as KIND(cause).
    """
    for step in WAY_TO[state]:
        await ACTS[step][1](lives, node)
    assert lives.states()[node] is state
    rows_before = len(traced())
    try:
        await ACTS[act][1](lives, node)
        answer = "done"
    except UnknownNode as refusal:
        answer = str(refusal)
    return answer, lives.states()[node], tuple(traced()[rows_before:])


def in_virtual_time(state: NodeState, act: str) -> Outcome:
    """Do the act in virtual time. A shutdown has not ended yet when the state is read."""
    rows: list[TraceRow] = []
    runtime = VirtualRuntime(
        spec_with_a_late_consumer(),
        seed=1,
        run_id="run",
        observers=(rows.append,),
        build=fake_builder(),
    )
    node = LATE if state is NodeState.NOT_STARTED else NODE

    def traced() -> list[str]:
        return [f"{row.kind}({row.cause})" for row in rows if row.kind in LIFE_KINDS]

    async def story() -> Outcome:
        await runtime.start()
        outcome = await outcome_of(runtime, node, state, act, traced)
        await runtime.stop()
        return outcome

    return runtime.run(story())


def on_fake_processes(state: NodeState, act: str, run_dir: Path) -> Outcome:
    """Do the act on Ray's runtime, with fake processes."""
    node = LATE if state is NodeState.NOT_STARTED else NODE

    async def story() -> Outcome:
        lab = LivesLab(run_dir, spec_with_a_late_consumer())
        lab.fleet.trouble["shut_down_node"] = None  # the shutdown does not finish
        await lab.lives.start_all()

        def traced() -> list[str]:
            return [f"{row.kind}({row.cause})" for row in lab.rows if row.kind in LIFE_KINDS]

        outcome = await outcome_of(lab.lives, node, state, act, traced)
        assert lab.failures == []
        return outcome

    return asyncio.run(story())


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", NodeState)
def test_every_act_in_every_state_is_the_same_in_both_runtimes(
    tmp_path: Path, state: NodeState, act: str
) -> None:
    """Both runtimes give the same refusal or the same next state, and the same trace rows."""
    virtual_outcome = in_virtual_time(state, act)
    assert on_fake_processes(state, act, tmp_path) == virtual_outcome

    life_act = ACTS[act][0]
    answer, next_state, rows = virtual_outcome
    node = LATE if state is NodeState.NOT_STARTED else NODE
    if state in life_act.legal_in:
        assert (answer, next_state) == ("done", BECOMES[life_act])
        cause = "power loss" if act == "power_loss" else None
        assert rows == (() if life_act.traced is None else (f"{life_act.traced}({cause})",))
    else:
        assert (answer, next_state, rows) == (f"{node} is {state} {life_act.refusal}", state, ())
