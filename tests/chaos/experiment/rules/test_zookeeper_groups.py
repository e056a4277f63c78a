"""Groups on ZooKeeper: the settings of the file, and the cluster that is built.

The group readers has a coordinator, as in today's Kafka. The group "old" is on ZooKeeper: its
consumers divide the partitions among themselves, by means of an ensemble of ZooKeeper servers.
"""

import msgspec
import pytest

from chaos.experiment.rules.all_rules import errors, warnings
from chaos.experiment.structs import Experiment, to_cluster_spec
from tests.support.builders.experiments import experiment

# The settings of a group with a coordinator, and of a group on ZooKeeper.
NEW = {"members": 2, "topics": ["orders"]}
OLD = NEW | {"coordination": "zookeeper"}


def with_old(**changes: object) -> Experiment:
    """Return an experiment with the groups readers and old. `changes` are settings of old."""
    return experiment(groups={"readers": NEW, "old": OLD | changes})


def test_ensemble_is_built_only_if_a_group_asks_for_it() -> None:
    """If no group is on ZooKeeper, the cluster has no ZooKeeper servers and consumers."""
    without, both = to_cluster_spec(experiment()), to_cluster_spec(with_old())

    assert without.zookeepers == ()
    assert without.zookeeper_consumers == ()
    assert [server.name for server in both.zookeepers] == ["zookeeper-1"]
    assert [member.name for member in both.zookeeper_consumers] == [
        "consumer-old-0",
        "consumer-old-1",
    ]
    assert [member.group_id for member in both.consumers] == ["readers", "readers"]


def test_settings_of_the_file_reach_servers_and_members() -> None:
    """The settings of the file are passed on to the nodes.

    If the lab dropped a setting, no error would show this. In the file the settings have the names
    that they have in Kafka and ZooKeeper.
    """
    file = with_old(
        zookeeper={"zookeeper.session.timeout.ms": 12_000, "rebalance.max.retries": 10},
        late_members=[{"at": "5s", "members": 1}],
        process_us=30_000,
    )
    file = msgspec.structs.replace(
        file,
        cluster=msgspec.structs.replace(
            file.cluster,
            zookeeper=msgspec.convert(
                {"servers": 3, "config": {"tickTime": 1_000}}, type(file.cluster.zookeeper)
            ),
        ),
    )

    spec = to_cluster_spec(file)

    assert len(spec.zookeepers) == 3
    assert spec.zookeeper_config.tick_time == 1_000
    assert [member.starts_later for member in spec.zookeeper_consumers] == [False, False, True]
    for member in spec.zookeeper_consumers:
        assert member.config.zookeeper_session_timeout_ms == 12_000
        assert member.config.rebalance_max_retries == 10
        assert member.process_us == 30_000


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"config": {"session.timeout.ms": 6_000}}, "groups.old.config"),
        (
            {"late_members": [{"at": "5s", "members": 1, "config": {"fetch.min.bytes": 2}}]},
            "groups.old.late_members[0].config",
        ),
        ({"commit_interval_ms": 200}, "groups.old.commit_interval_ms"),
        ({"zookeeper": {"consumer.id": "fixed"}}, "groups.old.zookeeper.consumer.id"),
    ],
)
def test_settings_of_the_other_kind_of_group_are_refused(
    changes: dict[str, object], path: str
) -> None:
    """In a group on ZooKeeper, a setting of a group with a coordinator would have no effect.

    Nor may the file set `consumer.id`, which must differ between the members.
    """
    assert list(errors(with_old())) == []  # without these settings the file is valid
    assert [problem.path for problem in errors(with_old(**changes))] == [path]


def test_settings_for_zookeeper_need_a_group_on_zookeeper() -> None:
    """In a group with a coordinator the section `zookeeper` would have no effect."""
    group = NEW | {"zookeeper": {"rebalance.max.retries": 8}}

    (problem,) = errors(experiment(groups={"readers": group}))
    assert problem.path == "groups.readers.zookeeper"


def test_members_whose_retries_end_before_a_session_are_warned_about() -> None:
    """The retries of a member must last longer than a session (ZK-50).

    `rebalance.max.retries x rebalance.backoff.ms > zookeeper.session.timeout.ms`

    Otherwise there is a warning. By default 4 retries at 2 s last longer than a session of 6 s. 4
    retries at 1.5 s do not. ZK-50 is a rule of docs/kafka/ZOOKEEPER_CONSUMER.md.
    """

    def warned_paths(**settings: object) -> list[str]:
        """Return the paths of the warnings about the group on ZooKeeper."""
        problems = warnings(with_old(zookeeper=settings))
        return [problem.path for problem in problems if problem.path.startswith("groups.old")]

    assert warned_paths() == []
    assert warned_paths(**{"rebalance.backoff.ms": 1_500}) == [
        "groups.old.zookeeper.rebalance.max.retries"
    ]


def test_filter_names_the_topics_of_the_group_or_excludes_the_others() -> None:
    """In the file, `topics` of a group lists the names of the topics that its members read.

    With `topic_filter`, a member gets a pattern instead. The pattern of a white list matches the
    names of these topics. The pattern of a black list matches the names of all other topics.
    Without `topic_filter` a member gets the names.
    """
    topics = {name: {"partitions": 2, "replication.factor": 1} for name in ("a.b", "c", "d")}
    for kind, regex in (("white_list", "a[.]b|c"), ("black_list", "d")):
        group = {"members": 1, "topics": ["a.b", "c"], "coordination": "zookeeper"}
        file = experiment(topics=topics, groups={"old": group | {"topic_filter": kind}})
        (member,) = to_cluster_spec(file).zookeeper_consumers
        assert member.topic_filter is not None
        assert (member.topic_filter.pattern, member.topic_filter.regex) == (kind, regex)
    (without_filter,) = to_cluster_spec(
        experiment(
            topics=topics,
            groups={"old": {"members": 1, "topics": ["c"], "coordination": "zookeeper"}},
        )
    ).zookeeper_consumers
    assert without_filter.topic_filter is None


def test_filter_is_only_for_members_on_zookeeper() -> None:
    """A group with a coordinator would ignore `topic_filter`."""
    (problem,) = errors(experiment(groups={"readers": NEW | {"topic_filter": "white_list"}}))
    assert problem.path == "groups.readers.topic_filter"
