"""Runs scenarios in one process and prints the digest of each run's trace as JSON.

A digest is a hash over all rows of a run's trace: equal digests mean equal runs. The tests of
determinism start this module in several processes, with different options, and compare the digests:

- `--heap 5000` first fills the heap, so that objects have other addresses than in other processes.
- `--gc off` switches Python's garbage collector off.
- `--order reversed` runs the scenarios in the reversed order. If a run left state behind that
  changes the next run, another order would give another digest.

All scenarios run in virtual time (the run's own simulated clock). In scenarios called `fake` the
nodes only exchange heartbeats. In those called `real` they are the project's brokers, controllers
and clients. With `copy_messages` each message is encoded and decoded, as between processes.

A planted source gives values that differ between processes on purpose, such as the order of a set.
Some scenarios plant it in a node. The tests must find different digests for these scenarios.
"""

import argparse
import gc
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.exploration.play import play
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.client.admin.orders import fetch_committed_offsets
from cluster.host.host import Host
from cluster.lives import NodeBuilder
from cluster.node_factory import Node, build_node
from cluster.runtime import ClusterStatus
from cluster.spec import ClusterSpec, ConsumerSpec, NodeSpec
from cluster.trace.digest import EventsOnly, TraceDigest
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import broker_name
from protocol.trace import TraceEvent, TraceKind
from tests.support.builders.quick_experiment import failing_experiment
from tests.support.harness.fake_cluster import fake_builder, fake_spec
from tests.support.harness.real_cluster import GROUP, real_spec
from tests.support.random_worlds.fault_mix import SlowToStop, everything

SECOND_US = 1_000_000
FAKE_RUN_US = 3 * SECOND_US
"""Length of a run of the fake cluster."""
REAL_RUN_US = 16 * SECOND_US
"""Length of a run of the real cluster.

`digest` crashes a broker after half of the run. These 8 s are enough for the group to become
stable. The broker restarts after another quarter. Within these 4 s another broker takes over,
because the session timeout is 2 s.
"""
SCHEDULES = Path(__file__).resolve().parents[1] / "schedules"
JUNK: list[object] = []
"""Objects that stay on the heap for as long as the process lives."""


class PlantedNode:
    """A node with a task that traces the values of a planted source."""

    def __init__(self, node: Node, host: Host, source: Callable[[], list[str]]) -> None:
        self._node = node
        self._host = host
        self._source = source

    def start(self) -> None:
        """Start the node and the task."""
        self._node.start()
        self._host.spawn(self._run(), name="planted")

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report the node."""
        self._node.report(status)

    async def _run(self) -> None:
        while True:
            await self._host.sleep(SECOND_US // 10)
            for text in self._source():
                # The kind of the row does not matter. This kind can contain any text.
                self._host.trace(TraceEvent(kind=TraceKind.RUN_STAGE, detail={"stage": text}))


def set_of_strings() -> list[str]:
    """Return the items of a set of strings. Their order depends on the process's hash seed."""
    return list({"broker-0", "broker-1", "broker-2", "broker-3"})


def global_random() -> list[str]:
    """Draw from the process's own generator."""
    return [str(random.random())]


class _Member:
    """An object whose default hash is its address."""

    def __init__(self, name: str) -> None:
        self.name = name


def set_of_objects() -> list[str]:
    """Return the names of a set of objects. Their order depends on the objects' addresses.

    Code might iterate over a set of tasks in the same way.
    """
    return [member.name for member in {_Member(name) for name in "abcdefgh"}]


def planted(build: NodeBuilder, source: Callable[[], list[str]]) -> NodeBuilder:
    """Return a builder that plants `source` in the first consumer."""

    def build_planted(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        node = build(spec, cluster, host)
        if isinstance(spec, ConsumerSpec) and spec.index == 0:
            return PlantedNode(node, host, source)
        return node

    return build_planted


def digest(
    spec: ClusterSpec,
    build: NodeBuilder,
    *,
    seed: int,
    run_us: int,
    copy_messages: bool = False,
) -> str:
    """Run a cluster in which a broker crashes half way and restarts; return the trace's digest.

    The broker is the group's coordinator, or the first broker in a cluster without the group.

    seed: determines all random choices of the run.
    run_us: length of the run in virtual time.
    """
    observer = TraceDigest()
    runtime = VirtualRuntime(
        spec,
        seed=seed,
        run_id="determinism",
        observers=(observer,),
        copy_messages=copy_messages,
        build=build,
    )

    async def main() -> None:
        await runtime.start()
        await runtime.sleep(run_us // 2)
        groups = (await runtime.status()).groups
        victim = broker_name(groups[GROUP][0].coordinator if GROUP in groups else 0)
        await runtime.crash(victim)
        await runtime.sleep(run_us // 4)
        await runtime.restart(victim)
        await runtime.sleep(run_us // 4)
        if GROUP in groups:
            await runtime.ask_as_admin(fetch_committed_offsets, GROUP)
        await runtime.stop()

    runtime.run(main())
    return f"{observer.hexdigest()} of {observer.rows} rows"


def digest_of_faults(seed: int) -> str:
    """Run the fake cluster with every kind of fault, and return the trace's digest.

    Some faults are still active when the cluster stops. SlowToStop is a fake broker whose shutdown
    takes time.
    """
    observer = TraceDigest()
    runtime = VirtualRuntime(
        fake_spec(),
        seed=seed,
        run_id="determinism",
        observers=(observer,),
        build=fake_builder(broker=SlowToStop),
    )

    async def main() -> None:
        await runtime.start()
        await everything(runtime)
        await runtime.stop()

    runtime.run(main())
    return f"{observer.hexdigest()} of {observer.rows} rows"


def drawn_schedule(name: str) -> Experiment:
    """Return an experiment of tests/schedules.

    An exploration draws experiments at random, each with a cluster and a schedule of faults, and
    plays them. These were kept.
    """
    return load_experiment(str(SCHEDULES / f"{name}.yaml")).experiment


def digest_of_drawn(name: str, seed: int) -> str:
    """Play a drawn schedule as an exploration does."""
    played = play(drawn_schedule(name), seed)
    return f"{played.digest} of {played.rows} rows, {played.result}"


def digest_of_violated() -> str:
    """Play an experiment that breaks a promise of Kafka; the result includes the findings."""
    played = play(failing_experiment(), 0)
    findings = ", ".join(f"{finding.summary} at {finding.time_us}" for finding in played.findings)
    return f"{played.digest} of {played.rows} rows, {played.result}: {findings}"


def digest_with_messages(name: str, seed: int) -> str:
    """Run a drawn schedule with message tracing, and return the digest of all other rows.

    Message tracing adds a row for each message. It must not change the other rows.
    """
    experiment = drawn_schedule(name)
    # The checks observe the run, as in `play`.
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    observer = TraceDigest()
    runtime = VirtualRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id="determinism",
        # EventsOnly drops the rows of messages: the digest must equal that without tracing.
        observers=(suite.observe, EventsOnly(observer)),
        copy_messages=True,
    )
    ExperimentRun(experiment, plan_of(experiment), runtime, suite, seed=seed).execute()
    return f"{observer.hexdigest()} of {observer.rows} rows"


# `digest` without the arguments in which the scenarios differ: the builder of the nodes, the seed,
# and perhaps `copy_messages`.
fake = partial(digest, fake_spec(), run_us=FAKE_RUN_US)
real = partial(digest, real_spec(), run_us=REAL_RUN_US)
SOURCES = (set_of_strings, set_of_objects, global_random)
# Two scenarios whose names differ only by one of these ends must give equal digests. The first end
# says that the messages are encoded, the second that the trace has rows of messages.
CODEC = " through the codec"
MESSAGES = " with messages"
DRAWN = {
    "crashes_pauses_and_slow_links": 0,
    "moves_resets_and_deleted_offsets": 2,
    "three_groups_through_cuts_pauses_and_shutdowns": 3,
    "split_view_on_zookeeper": 1,
    "zombie_on_zookeeper": 1,
}
"""Drawn schedules with the seeds of their runs; together they have many faults and settings."""
WITH_MESSAGES = "moves_resets_and_deleted_offsets"
"""The drawn schedule that also runs with message tracing."""
SCENARIOS: dict[str, Callable[[], str]] = {
    **{f"fake {seed}": partial(fake, fake_builder(), seed=seed) for seed in range(5)},
    **{f"faults {seed}": partial(digest_of_faults, seed) for seed in range(2)},
    f"fake 0{CODEC}": partial(fake, fake_builder(), seed=0, copy_messages=True),
    **{
        f"planted in fake: {source.__name__}": partial(
            fake, planted(fake_builder(), source), seed=0
        )
        for source in SOURCES
    },
    **{f"real {seed}": partial(real, build_node, seed=seed) for seed in range(2)},
    **{f"drawn {name}": partial(digest_of_drawn, name, seed) for name, seed in DRAWN.items()},
    f"drawn {WITH_MESSAGES}{MESSAGES}": partial(
        digest_with_messages, WITH_MESSAGES, DRAWN[WITH_MESSAGES]
    ),
    "violated": digest_of_violated,
    f"real 0{CODEC}": partial(real, build_node, seed=0, copy_messages=True),
    # A short run of a small group is enough, because a PlantedNode writes rows from its start on.
    **{
        f"planted in real: {source.__name__}": partial(
            digest,
            real_spec(consumers=3),
            planted(build_node, source),
            run_us=REAL_RUN_US // 4,
            seed=0,
        )
        for source in SOURCES
    },
}


def fill_heap(count: int) -> None:
    """Allocate `count` objects of many sizes, and free every third of them.

    New objects get the places of the freed ones. JUNK keeps the other two thirds alive.
    """
    # Every second object is a dictionary. The others are lists of different lengths.
    JUNK.extend(
        [None] * (number % 37) if number % 2 else {number: str(number), "name": (number,)}
        for number in range(count)
    )
    del JUNK[::3]


def main() -> None:
    """Print one JSON object: scenario -> digest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--heap", type=int, default=0)
    parser.add_argument("--gc", choices=["on", "off"], default="on")
    parser.add_argument("--order", choices=["given", "reversed"], default="given")
    parser.add_argument("--only", default="", help="prefix of the scenarios to run")
    args = parser.parse_args()
    if args.gc == "off":
        gc.disable()
    fill_heap(args.heap)
    names = [name for name in SCENARIOS if name.startswith(args.only)]
    if args.order == "reversed":
        names.reverse()
    print(json.dumps({name: SCENARIOS[name]() for name in names}))


if __name__ == "__main__":
    main()
