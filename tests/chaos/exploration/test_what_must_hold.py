"""`must_hold`: an experiment can demand a property that the system under test does not promise.

Old consumers, which coordinate over ZooKeeper, do not promise that only one member at a time
processes the records of a partition. The reason is that each member computes its own share of the
partitions. So it is no finding by default if two members process a partition. But a group may
demand that only one does, with `must_hold: [one_owner_processes]` in its experiment file. Then two
such members are a finding. The group in these experiments is named `old`.

Ids such as ZK-58 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from pathlib import Path

from chaos.checkers.context import detail_of
from chaos.experiment.loader import load_experiment
from chaos.exploration.play import PlayResult, play
from protocol.trace import TraceKind, TraceRow

SCHEDULES = Path(__file__).resolve().parents[2] / "schedules"
ZOMBIE = SCHEDULES / "zombie_on_zookeeper.yaml"
SPLIT_VIEW = SCHEDULES / "split_view_on_zookeeper.yaml"
LAGGING_SERVER = "zookeeper-1"
CHECK = "one_owner_processes"


def test_zombie_is_a_finding_where_its_group_asks_for_one_owner() -> None:
    """One pause of a consumer is enough for a second owner (ZK-58).

    After the pause the consumer is a zombie: it has lost its ZooKeeper session, but keeps
    processing. The marks (names of rare situations that a run reached) show this, too.
    """
    played = play(load_experiment(str(ZOMBIE)).experiment, seed=1)

    assert played.result is PlayResult.VIOLATED
    assert {finding.signature.check for finding in played.findings} == {CHECK}
    assert {"processed_without_a_session", "lost_with_its_session"} <= set(played.marks)


def test_zombie_is_no_finding_where_no_group_asks() -> None:
    """The same run without `must_hold` passes, because no promise is broken."""
    demanding = load_experiment(str(ZOMBIE)).experiment
    without_demand = load_experiment(str(ZOMBIE), ["groups.old.must_hold=[]"]).experiment
    assert demanding.faults == without_demand.faults

    assert play(without_demand, seed=1).result is PlayResult.PASS


def test_split_view_is_a_finding_where_its_group_asks_for_one_owner() -> None:
    """Two consumers read the group's members from different servers, one of which lags (ZK-71).

    When the consumers compute their shares, one of them sees a single member, and the other
    consumer sees two. So for some partitions both claim to be the owner. The seed 86 shows this.
    """
    rows: list[TraceRow] = []
    experiment = load_experiment(str(SPLIT_VIEW)).experiment

    played = play(experiment, seed=86, observers=(rows.append,))

    assert len(experiment.faults) == 1  # slow messages, because of which LAGGING_SERVER lags
    assert {finding.signature.check for finding in played.findings} == {CHECK}

    # Find out what was so at the time of the finding: the server of each consumer, and the number
    # of members that each consumer saw when it last computed its share.
    first_finding_us = min(finding.time_us for finding in played.findings)
    servers: dict[str, str | None] = {}
    members_seen: dict[str, int] = {}
    for row in rows:
        if row.time_us > first_finding_us:
            break
        if row.kind == TraceKind.ZOOKEEPER_CLIENT_STATE:
            servers[row.node] = row.peer  # None: not connected
        elif row.kind == TraceKind.ZOOKEEPER_VIEW:
            members_seen[row.node] = len(detail_of(row)["members"])

    # Only the consumer at the lagging server saw two members.
    (lagging,) = (node for node, server in servers.items() if server == LAGGING_SERVER)
    assert members_seen[lagging] == 2
    assert [count for node, count in members_seen.items() if node != lagging] == [1]
