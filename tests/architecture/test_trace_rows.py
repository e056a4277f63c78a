"""Rows of real runs conform to the table of trace kinds (`protocol.trace_schema`).

The trace of a run has a row for each event, and each row has a kind, such as "member_removed". A
table in the code says for each kind which columns and which causes its rows may have;
docs/generated/trace.md shows this table. The test plays runs that together have every kind of fault
and nearly every kind of row, and compares all rows of these runs with the table.

Most runs are schedules from files. Functions below make the other runs. In two of them,
`run_ensemble` and `GroupLab` play servers and consumers of ZooKeeper, which a coroutine disturbs.
"""

import json
from pathlib import Path

import pytest
from msgspec import structs

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from chaos.exploration.play import play
from chaos.faults.registry import FAULT_KINDS
from cluster.links.rules import Clog
from protocol.causes import RemovalCause
from protocol.trace import MESSAGE_KINDS, TraceKind, TraceRow
from protocol.trace_schema import TRACE_KINDS, nonconformity
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.harness.ensemble import EnsembleRun, run_ensemble
from tests.support.harness.zookeeper_group import GroupLab
from tests.support.worlds.acceptance import play_virtual

TESTS = Path(__file__).resolve().parents[1]
RUNS = {
    "schedules/orders_about_groups_and_transactions": 26,
    "corpus/group_lost_with_the_last_replica_before_its_load": 2768,
    "corpus/static_member_whose_new_id_was_never_stored": 125,
    "corpus/power_loss_of_the_last_replica_in_sync": 42,
    "corpus/late_notice_of_an_older_leadership": 3,
    "corpus/acknowledged_commit_that_a_deletion_had_removed_in_flight": 0,
    "schedules/moves_resets_and_deleted_offsets": 2,
    "schedules/lost_responses_and_lost_nodes": 1,
}
"""Files of schedules, each with the seed of its run."""
RARE = {
    TraceKind.LOAD_FAILED: "needs a java switch",
    TraceKind.LOG_CLEANED: "needs a run of minutes",
    TraceKind.OFFSETS_UNREADABLE: "needs a group whose offsets no broker returns",
    TraceKind.PRODUCE_FAILED: "needs delivery.timeout.ms to pass",
    TraceKind.STEADY_STATE_MISSED: "needs a cluster that never comes to its steady state",
    TraceKind.UNLOAD_IGNORED: "needs a broker that hears of an old epoch late",
    TraceKind.VIOLATION: "needs a promise that is broken",
    TraceKind.TASK_FAILED: "a bug of the lab",
}
"""Kinds of rows that none of the runs has, with the reason."""


@pytest.mark.slow
def test_rows_of_runs_with_every_fault_conform_to_the_table() -> None:
    """The test also checks that the runs have every kind of fault, and all but the rare kinds."""
    rows: list[TraceRow] = []
    for name, seed in RUNS.items():
        experiment = load_experiment(str(TESTS / f"{name}.yaml")).experiment
        # `play` passes each row of the run to the observers.
        play(experiment, seed, observers=(rows.append,))
    # These runs have the kinds of rows and faults that the schedules lack.
    rows += run_ensemble(expiry_of_a_session).rows
    rows += GroupLab(members=2, partitions=8, late_from=1).run(owner_whose_deletes_are_lost).rows
    rows += play_virtual(pause_and_election_of_the_preferred_leader(), seed=7).rows
    rows += play_virtual(deploy_of_a_smaller_group(), seed=7).rows
    rows += play_virtual(faults_of_machines(), seed=7).rows
    rows += play_virtual(orders_about_a_topic(), seed=7).rows

    # `nonconformity` returns None for a row that conforms to the table.
    problems = {nonconformity(row) for row in rows}
    assert problems == {None}

    faults = [json.loads(row.detail or "")["fault"] for row in of_kind(rows, "fault_injected")]
    assert set(faults) == set(FAULT_KINDS)
    removal_causes = {row.cause for row in of_kind(rows, "member_removed")}
    assert RemovalCause.STATIC_MEMBER_REPLACED in removal_causes
    kinds = {TraceKind(row.kind) for row in rows}
    assert kinds >= MESSAGE_KINDS
    assert set(TRACE_KINDS) - kinds <= set(RARE)


async def expiry_of_a_session(lab: EnsembleRun) -> None:
    """Cut a client off until its session ends.

    With the session its znode vanishes. Another client watches the parent of this znode.
    """
    owner, watcher = lab.zk_client(0), lab.zk_client(1)
    await owner.create("/consumers/mine", "", ephemeral=True)

    async def ignore(_path: str) -> None:
        pass

    await watcher.subscribe_child_changes("/consumers", ignore)
    await lab.cut(["client-0"], lab.servers)  # client-0 is the node of `owner`
    await lab.runtime.sleep(10_000_000)  # 10 s: longer than the owner's session


async def owner_whose_deletes_are_lost(lab: GroupLab) -> None:
    """Start a second consumer, which tries in vain to claim its partitions, and gives up.

    The first consumer releases these partitions, but its deletes do not reach the servers.
    """
    owner, newcomer = lab.names
    # A clogged link delivers no message.
    await lab.rule(Clog(), [owner], lab.servers, apis=("Delete",))
    await lab.runtime.start_node(newcomer)
    await lab.runtime.sleep(10_000_000)


def deploy_of_a_smaller_group() -> Experiment:
    """Return a run in which a group is scaled down to one member. Then this member is replaced."""
    group = "members(readers)"
    return quick_experiment(
        faults=[
            {"at": "1s", "fault": "scale", "target": group, "args": {"to": 1}},
            {"at": "2s", "fault": "rollout", "target": group, "args": {"start_up": "1s"}},
        ]
    )


def faults_of_machines() -> Experiment:
    """Return a run on three machines: one is lost, one is paused, and one is cut off."""
    lasts = {"duration": "2s"}
    return quick_experiment(
        cluster={"machines": 3},
        faults=[
            {"at": "1s", "fault": "machine_loss", "target": "machine(1)", **lasts},
            {"at": "6s", "fault": "machine_pause", "target": "machine(2)", **lasts},
            {"at": "11s", "fault": "machine_cut", "target": "machine(0)", **lasts},
        ],
    )


def orders_about_a_topic() -> Experiment:
    """Return a run in which a topic that no client uses is deleted, and then created again."""
    topic = {"partitions": 2, "replication.factor": 3}
    order = {"target": "controller", "args": {"topic": "archive"}}
    return quick_experiment(
        topics={"orders": topic, "archive": topic},
        faults=[
            {"at": "1s", "fault": "delete_topic", **order},
            {"at": "3s", "fault": "create_topic", **order},
        ],
    )


def pause_and_election_of_the_preferred_leader() -> Experiment:
    """Return the experiment `pause_coordinator` with one more fault, an election.

    The election comes when the paused broker is in sync again.
    """
    experiment = load_experiment("pause_coordinator").experiment
    (pause,) = experiment.faults
    election = structs.replace(pause, at="40s", duration=None, fault="preferred_leader_election")
    return structs.replace(experiment, faults=(pause, election))


def of_kind(rows: list[TraceRow], kind: str) -> list[TraceRow]:
    """Return the rows of one kind."""
    return [row for row in rows if row.kind == kind]
