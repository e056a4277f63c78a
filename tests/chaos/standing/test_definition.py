"""What the command `up` starts: a cluster from its flags, from an experiment file, or from both.

`up` starts a cluster that runs until a person ends it. `define(file, flags)` makes the experiment
that describes this cluster, its topics and its clients. Without a file (None) the experiment is
named `lab`. Each field of Flags has the values of one flag: `topics` those of `--topic`,
`overrides` those of `--var`, and so on.
"""

from pathlib import Path

import pytest

from chaos.experiment.problems import ExperimentError
from chaos.standing.definition import Flags, define

FILE = """\
version: 1
name: orders
question: What?
expect: Nothing.
cluster: {brokers: 3}
topics:
  orders: {partitions: 2, replication.factor: 3}
groups:
  readers: {members: 2, topics: [orders]}
faults:
  - {at: 5s, fault: crash, target: coordinator-of(readers), duration: 20s}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(FILE)
    return str(path)


def problems_text(flags: Flags, file: str | None = None) -> str:
    """Define a cluster that must be refused, and return its problems as text."""
    with pytest.raises(ExperimentError) as refused:
        define(file, flags)
    return str(refused.value)


def test_default_cluster_has_three_brokers_and_no_topic() -> None:
    """The command `up` without a file and without flags starts this cluster."""
    experiment = define(None, Flags()).experiment
    assert experiment.name == "lab"
    assert experiment.cluster.brokers == 3
    assert (dict(experiment.topics), dict(experiment.groups)) == ({}, {})


def test_flags_create_topics_groups_and_producers() -> None:
    """A flag may leave out its last parts, which have defaults.

    - `--topic NAME:PARTITIONS:REPLICATION`: 6 partitions, 3 replicas;
    - `--group NAME:TOPICS:MEMBERS`: 3 members;
    - `--producer TOPIC:RATE`: 100 records per second.

    The topics `made` and `also` are created, too, although no `--topic` names them: a group reads
    `made`, and a producer writes to `also`.
    """
    flags = Flags(
        brokers=4,
        topics=("orders:8:2", "plain"),
        groups=("readers:orders:5", "others:orders,made"),
        producers=("orders:250", "also"),
        overrides=("cluster.config.group.initial.rebalance.delay.ms=0",),
    )
    experiment = define(None, flags, name="blue").experiment
    assert experiment.name == "blue"
    assert experiment.cluster.brokers == 4
    assert experiment.cluster.config.group_initial_rebalance_delay_ms == 0
    assert {
        name: (topic.partitions, topic.replication_factor)
        for name, topic in experiment.topics.items()
    } == {"orders": (8, 2), "plain": (6, 3), "made": (6, 3), "also": (6, 3)}
    assert {name: (group.members, group.topics) for name, group in experiment.groups.items()} == {
        "readers": (5, ("orders",)),
        "others": (3, ("orders", "made")),
    }
    rates = {producer.topic: producer.records_per_second for producer in experiment.producers}
    assert rates == {"orders": 250.0, "also": 100.0}


def test_replication_of_kafkas_topics_fits_a_small_cluster() -> None:
    """On one broker no topic can have three replicas, which is the default of `up` and of Kafka.

    So `define` lowers these defaults for the user's topics, and for `__consumer_offsets`.
    """
    experiment = define(None, Flags(brokers=1, topics=("orders",))).experiment
    assert experiment.cluster.config.offsets_topic_replication_factor == 1
    assert experiment.topics["orders"].replication_factor == 1


def test_plan_of_a_file_is_kept_only_to_play_it(file: str) -> None:
    """Without `--play` the faults of the file are left out, because a person injects faults.

    `plays` has the value of `--play`.
    """
    standing = define(file, Flags())
    assert standing.experiment.name == "orders"
    assert standing.experiment.faults == ()
    assert standing.warnings == ()
    assert len(define(file, Flags(), plays=True).experiment.faults) == 1


def test_flags_change_a_file(file: str) -> None:
    """The flags replace the number of brokers and the name, and add a group to that of the file."""
    experiment = define(file, Flags(brokers=5, groups=("more:orders:1",)), name="x").experiment
    assert (experiment.name, experiment.cluster.brokers) == ("x", 5)
    assert list(experiment.groups) == ["readers", "more"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # These flags cannot be read as a topic, a group or a producer.
        (Flags(topics=("orders:x",)), "--topic: is not allowed; expected `NAME[:PARTITIONS"),
        (Flags(topics=(":6",)), "--topic: is not allowed"),
        (Flags(topics=("a:1:2:3",)), "--topic: is not allowed"),
        (Flags(groups=("readers",)), "--group: is not allowed; expected `NAME:TOPIC[,TOPIC]"),
        (Flags(groups=("readers:a,,b",)), "--group: is not allowed"),
        (Flags(groups=("readers:a:many",)), "got `readers:a:many`"),
        (Flags(producers=("orders:fast",)), "--producer: is not allowed"),
        (Flags(producers=("orders:",)), "--producer: is not allowed"),
        # These flags can be read, but no cluster could run with them.
        (
            Flags(topics=("orders:6:4",)),
            "command line: topics.orders.replication.factor: more replicas than brokers",
        ),
        (Flags(topics=("bad name",)), "command line: topics.bad name"),
        (Flags(producers=("orders:-1",)), "command line: producers[0].records_per_second"),
        (Flags(overrides=("cluster.brokrs=3",)), "did you mean `brokers`?"),
    ],
)
def test_problems_of_flags_have_the_messages_of_files(flags: Flags, expected: str) -> None:
    """`define` makes an experiment of the flags, and checks it as if it came from a file."""
    assert expected in problems_text(flags)


def test_problem_in_a_file_has_its_line(tmp_path: Path) -> None:
    """The topic in line 7 has more replicas than there are brokers."""
    path = tmp_path / "bad.yaml"
    path.write_text(FILE.replace("replication.factor: 3", "replication.factor: 4"))
    assert f"{path}:7: topics.orders.replication.factor" in problems_text(Flags(), str(path))
