"""The injector: rows and journal of each injection and healing, and healing after any outcome.

A fault is healed when it is undone. Faults have ids such as `cut-0`: the kind, and the place in the
file. The journal has an entry for each planned fault. `Injecting` injects the faults of an
experiment on a FakeRuntime, a runtime without nodes. An act is a call of the runtime that changes
the cluster; `run.runtime.acts` has each act, as text.
"""

from collections.abc import Sequence

import pytest

from chaos.run.injection import ToolFailed
from cluster.links.rules import LinkRule
from cluster.runtime import HitNode, NodeState
from protocol.ids import NodeName, broker_name
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome, decode_journal, encode_journal
from tests.support.builders.experiments import experiment
from tests.support.builders.injecting import Injecting
from tests.support.harness.fake_runtime import FakeRuntime

S = 1_000_000  # microseconds of a second
PAUSE = {"at": "1s", "fault": "pause", "target": "broker(1)"}
CRASH = {"at": "1s", "fault": "crash", "target": "broker(2)"}
SHUTDOWN = {"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"}
CUT = {"at": "1s", "fault": "cut", "from": "broker(0)", "to": "controller"}


class SlowRuntime(FakeRuntime):
    """A runtime whose every act takes a second."""

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        await self.sleep(S)
        await super().set_link_rules(rules)

    async def resume(self, node: NodeName) -> None:
        await self.sleep(S)
        await super().resume(node)

    async def pause(self, node: NodeName) -> HitNode:
        await self.sleep(S)
        return await super().pause(node)


@pytest.mark.parametrize("fault", [PAUSE, CUT])
def test_fault_is_in_force_from_the_end_of_its_injection_to_the_start_of_its_healing(
    fault: dict[str, object],
) -> None:
    """While a fault is in force, every affected node has it, and checkers rely on it.

    Each act of the runtime takes a second: injection from 0 to 1 s, healing from 10 to 11 s.
    """
    own_experiment = experiment(faults=[fault])
    run = Injecting(own_experiment=own_experiment, runtime=SlowRuntime(own_experiment))

    run.inject()
    run.runtime.time_us = 10 * S
    entry = run.heal()

    assert (entry.fired_at_us, entry.in_force_from_us) == (0, S)
    assert (entry.in_force_until_us, entry.healed_at_us) == (10 * S, 11 * S)
    assert [(row.kind, row.time_us) for row in run.rows] == [
        (TraceKind.FAULT_INJECTED, 0),
        (TraceKind.FAULT_IN_FORCE, S),
        (TraceKind.FAULT_HEALED, 11 * S),
    ]
    assert run.detail_of(TraceKind.FAULT_HEALED)["in_force_until_us"] == 10 * S


def test_every_row_of_a_fault_has_its_id_and_one_peer() -> None:
    """The pipeline joins the rows by the id (`cause`).

    A row has room for one peer, which is here the first node of `from`. The detail has all nodes.
    """
    run = Injecting({**CUT, "from": ["broker(1)", "broker(0)"], "to": ["controller"]})

    run.inject()
    run.heal()

    # The three rows: injected, in force, healed.
    assert [(row.cause, row.peer) for row in run.rows] == [("cut-0", "broker-1")] * 3
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert detail["from"] == ["broker-1", "broker-0"]
    assert detail["nodes"] == detail["from"]
    assert detail["to"] == ["controller-100"]
    assert detail["target"] == "broker(1), broker(0) <-> controller"


@pytest.mark.parametrize(
    ("fault", "members_survive"),
    [(CRASH, True), (PAUSE, True), ({**PAUSE, "target": "member(readers, 0)"}, False)],
)
def test_members_survive_faults_of_servers_only(
    fault: dict[str, object], members_survive: bool
) -> None:
    """While its members survive, a group needs no rebalance, and a check relies on this."""
    run = Injecting(fault)

    entry = run.inject()

    assert entry.members_survive is members_survive
    assert run.detail_of(TraceKind.FAULT_INJECTED)["members_survive"] is members_survive


def test_journal_of_every_kind_of_hit_is_read_back_as_it_was_written() -> None:
    """A hit has nodes, the ends of links, or moves of leadership."""
    run = Injecting(
        PAUSE, CUT, {**PAUSE, "fault": "leadership_move", "target": "leader-of(orders-0)"}
    )
    for index in range(3):
        run.inject(index)

    entries = run.journal.entries

    assert decode_journal(encode_journal(entries)) == entries
    # In Python the field is `from_`, because `from` is a keyword; in the file it is `from`.
    assert b'"from":' in encode_journal(entries).replace(b" ", b"")


def test_random_target_depends_on_the_seed_and_the_fault_only() -> None:
    """Another fault that is injected before must not change which broker is drawn."""
    alone = Injecting({**CRASH, "target": "any-broker"})
    after_another = Injecting({**CRASH, "target": "any-broker"}, PAUSE)
    after_another.inject(1)
    after_another.heal(1)

    assert alone.inject().node == after_another.inject(0).node


def test_all_faults_in_force_are_healed_links_first() -> None:
    """Rules of links are removed before a node is restarted, because it must reach the others."""
    run = Injecting(PAUSE, CRASH, CUT)
    for index in range(3):
        run.inject(index)
    run.runtime.acts.clear()

    run.heal_everything()

    assert run.runtime.acts == ["rules none", "restart broker-2", "resume broker-1"]
    assert [entry.healed_by for entry in run.journal.entries] == ["end", "end", "end"]
    assert not run.injector.may_need_healing


def test_healed_fault_is_not_healed_again() -> None:
    """Neither the act nor its row is repeated. The rows are: injected, in force, healed."""
    run = Injecting(PAUSE)
    run.inject()
    run.heal()

    run.heal_everything()

    assert run.runtime.acts == ["pause broker-1", "resume broker-1"]
    assert len(run.rows) == 3


class InterruptedRuntime(FakeRuntime):
    """A runtime in which the user presses Ctrl-C after each act, before the act has returned."""

    is_interrupted = True
    """False: link rules can be set without an interrupt."""

    async def pause(self, node: NodeName) -> HitNode:
        await super().pause(node)
        raise KeyboardInterrupt

    async def shut_down(self, node: NodeName) -> HitNode:
        await super().shut_down(node)
        raise KeyboardInterrupt

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        await super().set_link_rules(rules)
        if self.is_interrupted:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fault", "undone"),
    [
        (PAUSE, ["resume broker-1"]),
        (SHUTDOWN, ["restart broker-2"]),
        (CUT, ["rules none"]),
    ],
)
def test_half_injected_fault_is_undone_by_the_state_of_its_nodes(
    fault: dict[str, object], undone: list[str]
) -> None:
    """The interrupt comes before the act returns, so the injector does not know its outcome.

    So the injector reads the states of the nodes, and removes the rules in any case.
    """
    own_experiment = experiment(faults=[fault])
    runtime = InterruptedRuntime(own_experiment)
    run = Injecting(own_experiment=own_experiment, runtime=runtime)
    with pytest.raises(KeyboardInterrupt):
        run.inject()
    assert run.injector.may_need_healing
    runtime.acts.clear()
    runtime.is_interrupted = False

    run.heal_everything()

    assert runtime.acts == undone
    assert not run.injector.may_need_healing


class NeverPaused(FakeRuntime):
    """A runtime that cannot pause a process."""

    async def pause(self, node: NodeName) -> HitNode:
        raise OSError("not permitted")


def test_fault_that_was_never_injected_leaves_nothing_to_undo() -> None:
    """The pause failed and the node is up, so it is neither resumed nor started a second time."""
    own_experiment = experiment(faults=[PAUSE])
    run = Injecting(own_experiment=own_experiment, runtime=NeverPaused(own_experiment))
    with pytest.raises(ToolFailed):
        run.inject()

    run.heal_everything()

    assert run.runtime.acts == []
    assert run.entry().outcome is FaultOutcome.FAILED


class StubbornLinks(FakeRuntime):
    """A runtime that fails to remove rules the first time.

    Its first call sets the rules of the cut; its second call, which removes them, fails.
    """

    attempts = 0

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        self.attempts += 1
        if self.attempts == 2:
            raise OSError("no answer")
        await super().set_link_rules(rules)


def test_rules_are_removed_even_if_a_fault_of_links_could_not_be_healed() -> None:
    """No rule may outlive the run, so at the end another attempt removes the rules.

    The failure of the first attempt is reported.
    """
    own_experiment = experiment(faults=[CUT, PAUSE])
    run = Injecting(own_experiment=own_experiment, runtime=StubbornLinks(own_experiment))
    run.inject(0)
    run.inject(1)

    with pytest.raises(ToolFailed, match="cut-0 could not be healed: no answer"):
        run.heal_everything()

    assert run.runtime.rules == ()
    assert run.runtime.nodes[broker_name(1)] is NodeState.UP
