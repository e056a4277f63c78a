"""The injector injects the faults of a plan, records them, and undoes ("heals") them in any case.

The injector writes down what it does in two places: the trace, which has a row for each event of a
run, and the journal, which has one entry for each fault of the plan. A fault has an id such as
`cut-0`, which is its kind and its place in the experiment file.

The tests inject faults on a FakeRuntime, which has no nodes, and only remembers how it was called:
`run.runtime.acts` is a list of texts such as `pause broker-1` and `resume broker-1`.
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

SECOND_US = 1_000_000
PAUSE = {"at": "1s", "fault": "pause", "target": "broker(1)"}
CRASH = {"at": "1s", "fault": "crash", "target": "broker(2)"}
SHUTDOWN = {"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"}
CUT = {"at": "1s", "fault": "cut", "from": "broker(0)", "to": "controller"}


class SlowRuntime(FakeRuntime):
    """A runtime that takes a second to set link rules, to pause a node, or to resume it."""

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        await self.sleep(SECOND_US)
        await super().set_link_rules(rules)

    async def resume(self, node: NodeName) -> None:
        await self.sleep(SECOND_US)
        await super().resume(node)

    async def pause(self, node: NodeName) -> HitNode:
        await self.sleep(SECOND_US)
        return await super().pause(node)


@pytest.mark.parametrize("fault", [PAUSE, CUT])
def test_fault_is_in_force_from_the_end_of_its_injection_to_the_start_of_its_healing(
    fault: dict[str, object],
) -> None:
    """A fault is in force while it affects all of its nodes. Checkers rely on these times.

    Here the injection takes from 0 to 1 s, and the healing from 10 to 11 s. So the fault is in
    force from 1 to 10 s.
    """
    own_experiment = experiment(faults=[fault])
    run = Injecting(own_experiment=own_experiment, runtime=SlowRuntime(own_experiment))

    run.inject()
    run.runtime.time_us = 10 * SECOND_US
    entry = run.heal()

    assert (entry.fired_at_us, entry.in_force_from_us) == (0, SECOND_US)
    assert (entry.in_force_until_us, entry.healed_at_us) == (10 * SECOND_US, 11 * SECOND_US)
    assert [(row.kind, row.time_us) for row in run.rows] == [
        (TraceKind.FAULT_INJECTED, 0),
        (TraceKind.FAULT_IN_FORCE, SECOND_US),
        (TraceKind.FAULT_HEALED, 11 * SECOND_US),
    ]
    assert run.detail_of(TraceKind.FAULT_HEALED)["in_force_until_us"] == 10 * SECOND_US


def test_every_row_of_a_fault_has_its_id_and_one_peer() -> None:
    """The pipeline joins the rows of a fault by the fault's id, which is in the column `cause`.

    The column `peer` has room for one node only. For a fault of links this is the first node of
    `from`. All nodes are in the row's detail.
    """
    run = Injecting({**CUT, "from": ["broker(1)", "broker(0)"], "to": ["controller"]})

    run.inject()
    run.heal()

    # The three rows: injected, in force, healed.
    assert [(row.cause, row.peer) for row in run.rows] == [("cut-0", "broker-1")] * 3
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert detail["from"] == ["broker-1", "broker-0"]
    assert detail["nodes"] == detail["from"]  # the nodes that are hit are those of `from`
    assert detail["to"] == ["controller-100"]
    assert detail["target"] == "broker(1), broker(0) <-> controller"


@pytest.mark.parametrize(
    ("fault", "members_survive"),
    [(CRASH, True), (PAUSE, True), ({**PAUSE, "target": "member(readers, 0)"}, False)],
)
def test_members_survive_faults_of_servers_only(
    fault: dict[str, object], members_survive: bool
) -> None:
    """A fault of a server leaves the members of a group alive, so the group needs no rebalance.

    The value `members_survive` of the fault says this, both in the journal and in the trace. The
    check `needless_rebalance` relies on it.
    """
    run = Injecting(fault)

    entry = run.inject()

    assert entry.members_survive is members_survive
    assert run.detail_of(TraceKind.FAULT_INJECTED)["members_survive"] is members_survive


def test_journal_of_every_kind_of_hit_is_read_back_as_it_was_written() -> None:
    """An entry says what its fault has hit.

    A pause hits nodes, a cut hits the nodes at both ends of its links, and a leadership move
    changes the leaders of partitions.
    """
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
    """`any-broker` stands for the same broker whether or not another fault was injected before."""
    alone = Injecting({**CRASH, "target": "any-broker"})
    after_another = Injecting({**CRASH, "target": "any-broker"}, PAUSE)
    after_another.inject(1)
    after_another.heal(1)

    assert alone.inject().node == after_another.inject(0).node


def test_all_faults_in_force_are_healed_links_first() -> None:
    """Rules of links are removed first, because a restarted node must reach the other nodes.

    The nodes are healed in the reverse order of the injection.
    """
    run = Injecting(PAUSE, CRASH, CUT)
    for index in range(3):
        run.inject(index)
    run.runtime.acts.clear()

    run.heal_everything()

    assert run.runtime.acts == ["rules none", "restart broker-2", "resume broker-1"]
    assert [entry.healed_by for entry in run.journal.entries] == ["end", "end", "end"]
    assert not run.injector.may_need_healing  # no fault is in force any more


def test_healed_fault_is_not_healed_again() -> None:
    """At the end of the run, a fault that was healed before is left alone.

    So the broker is resumed once, and only one row says that the fault was healed.
    """
    run = Injecting(PAUSE)
    run.inject()
    run.heal()

    run.heal_everything()

    assert run.runtime.acts == ["pause broker-1", "resume broker-1"]
    assert len(run.rows) == 3  # injected, in force, healed


class InterruptedRuntime(FakeRuntime):
    """A runtime in which the user presses Ctrl-C when an act is done, but has not returned yet."""

    interrupts_link_rules = True
    """True if the user also presses Ctrl-C when link rules are set or removed."""

    async def pause(self, node: NodeName) -> HitNode:
        await super().pause(node)
        raise KeyboardInterrupt

    async def shut_down(self, node: NodeName) -> HitNode:
        await super().shut_down(node)
        raise KeyboardInterrupt

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        await super().set_link_rules(rules)
        if self.interrupts_link_rules:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fault", "undone"),
    [
        (PAUSE, ["resume broker-1"]),
        (SHUTDOWN, ["restart broker-2"]),
        (CUT, ["rules none"]),
    ],
    ids=["pause", "shutdown", "cut"],
)
def test_half_injected_fault_is_undone_by_the_state_of_its_nodes(
    fault: dict[str, object], undone: list[str]
) -> None:
    """The user interrupts the injection, so the injector cannot know whether it has worked.

    To heal the fault, the injector reads the states of the nodes. It resumes a node that is paused,
    and restarts a node that is down. Rules of links are removed in any case.
    """
    own_experiment = experiment(faults=[fault])
    runtime = InterruptedRuntime(own_experiment)
    run = Injecting(own_experiment=own_experiment, runtime=runtime)
    with pytest.raises(KeyboardInterrupt):
        run.inject()
    assert run.injector.may_need_healing
    runtime.acts.clear()
    runtime.interrupts_link_rules = False  # the healing is not interrupted

    run.heal_everything()

    assert runtime.acts == undone
    assert not run.injector.may_need_healing


class NeverPaused(FakeRuntime):
    """A runtime that cannot pause a process."""

    async def pause(self, node: NodeName) -> HitNode:
        raise OSError("not permitted")


def test_fault_that_was_never_injected_leaves_nothing_to_undo() -> None:
    """The pause failed, and the node is still up. So at the end there is nothing to undo."""
    own_experiment = experiment(faults=[PAUSE])
    run = Injecting(own_experiment=own_experiment, runtime=NeverPaused(own_experiment))
    with pytest.raises(ToolFailed):
        run.inject()

    run.heal_everything()

    assert run.runtime.acts == []
    assert run.entry().outcome is FaultOutcome.FAILED


class StubbornLinks(FakeRuntime):
    """A runtime whose links cannot be healed at the first attempt.

    Link rules are set three times in the test:

    1. The injection of the cut sets its rules.
    2. The healing of the cut sets an empty list of rules, and fails.
    3. The end of the run sets an empty list again.
    """

    calls = 0

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        self.calls += 1
        is_healing_of_the_cut = self.calls == 2
        if is_healing_of_the_cut:
            raise OSError("no answer")
        await super().set_link_rules(rules)


def test_rules_are_removed_even_if_a_fault_of_links_could_not_be_healed() -> None:
    """The cut cannot be healed. No rule may outlive the run, so the injector tries once more.

    The second attempt removes the rules. The failure of the first attempt is reported nevertheless.
    The failure does not keep the pause from being healed.
    """
    own_experiment = experiment(faults=[CUT, PAUSE])
    run = Injecting(own_experiment=own_experiment, runtime=StubbornLinks(own_experiment))
    run.inject(0)
    run.inject(1)

    with pytest.raises(ToolFailed, match="cut-0 could not be healed: no answer"):
        run.heal_everything()

    assert run.runtime.rules == ()
    assert run.runtime.nodes[broker_name(1)] is NodeState.UP
