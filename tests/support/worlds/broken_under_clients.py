"""Real clients that produce and consume while a cluster is broken under them.

Three faults, one after the other, in the middle of producing and fetching: the crash of the group's
coordinator, a move of a partition's leader, the crash and return of the controller. What must hold:
every acknowledged record is read back where the acknowledgement says, and an idempotent producer's
records are stored once each.
"""

import json
from pathlib import Path

from tests.support.harness.client_programs import ClientProgram, client_programs, wait_until
from tests.support.harness.command_line import CommandLine

TOPIC, GROUP, PARTITIONS = "orders", "payments", 4
RATE = 150
"""Records a second, for as long as the faults take."""
CLUSTER = (
    *("--topic", f"{TOPIC}:{PARTITIONS}", "--no-analyze", "--no-report"),
    *("--var", "cluster.config.group.initial.rebalance.delay.ms=0"),
    *("--var", "cluster.config.offsets.topic.num.partitions=4"),
    *("--var", "cluster.config.broker.session.timeout.ms=1500"),
    *("--var", "cluster.config.broker.heartbeat.interval.ms=300"),
    *("--var", f"topics.{TOPIC}.config.min.insync.replicas=2"),
)
IDEMPOTENCE = {
    "librdkafka": ("--set", "enable.idempotence=true"),
    "kafka-python": ("--set", "enable_idempotence=true"),
    "java": ("--set", "enable.idempotence=true"),
}
FAULTS = (
    ("crash", "--duration", "1s", "--wait", "--coordinator-of", GROUP),
    ("leadership_move", f"leader-of({TOPIC}-0)"),
    ("crash", "controller", "--duration", "1s", "--wait"),
)


def live_through_faults(family: str, bootstrap: str, command_line: CommandLine) -> None:
    """Let programs of one family live through FAULTS, and check what they say afterwards."""
    with client_programs(family, bootstrap) as programs:
        consumers = [
            programs.start("consume", TOPIC, f"reader-{index}", "--group", GROUP)
            for index in range(2)
        ]
        wait_until(
            lambda: (
                sorted(p for each in consumers for p in each.owned()) == list(range(PARTITIONS))
                and all(each.owned() for each in consumers)
            ),
            "two members share the partitions",
            *consumers,
        )
        producer = programs.start(
            *("produce", TOPIC, "writer"),
            *("--count", "0", "--rate", str(RATE), *IDEMPOTENCE[family]),
        )
        wait_until(lambda: len(producer.acknowledged()) > RATE // 2, "records flow", producer)
        for fault in FAULTS:
            ordered = command_line.run("inject", *fault)
            assert ordered.returncode == 0, ordered.stdout + ordered.stderr
        before = len(producer.acknowledged())
        wait_until(lambda: len(producer.acknowledged()) > before + RATE, "records flow", producer)
        assert producer.stop(timeout_s=90.0) == 0, producer.story()
        acknowledged = producer.acknowledged()
        assert sorted(acknowledged) == list(range(producer.events("produced")[0]["sent"]))
        wait_until(
            lambda: len(set(_values(consumers))) >= len(acknowledged),
            "every record is read",
            producer,
            *consumers,
        )
        _check_what_is_stored(acknowledged, consumers)
        status = json.loads(command_line.run("status", "--json").stdout)
        assert [each["group"] for each in status["groups"]] == [GROUP]
        for consumer in consumers:
            assert consumer.stop() == 0, consumer.story()
            assert consumer.events("closed"), consumer.story()
        assert any(consumer.events("committed") for consumer in consumers)


def _values(consumers: list[ClientProgram]) -> list[str]:
    return [value for each in consumers for value in each.consumed().values()]


def _check_what_is_stored(
    acknowledged: dict[int, tuple[int, int] | None], consumers: list[ClientProgram]
) -> None:
    stored: dict[tuple[int, int], str] = {}
    for each in consumers:
        for place, value in each.consumed().items():
            # A record may be read twice around a rebalance, and must be the same each time.
            assert stored.setdefault(place, value) == value
    values = set(stored.values())
    for number, stored_at in acknowledged.items():
        value = f"writer:{number}"
        assert value in values
        assert stored_at is None or stored[stored_at] == value
    assert len(stored) == len(acknowledged), "an idempotent producer's records are stored once each"


def bootstrap_in(line_of_up: str) -> str:
    """Return the bootstrap servers that `up` printed."""
    return line_of_up.partition("bootstrap servers: ")[2].split()[0]


def java_is_built(classes: Path) -> bool:
    """Return whether the Java program was built."""
    return (classes / "LabClient.class").exists()
