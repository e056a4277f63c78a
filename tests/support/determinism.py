"""Run scenarios in virtual time, and print a digest of each run as JSON.

In virtual time (with a simulated clock) the same seed must give the same run in every process. To
test this, the tests of determinism start this module in several processes and compare the digests.
(The digest of a run is a hash over all rows of its trace, its recorded events.) The processes get
different options:

- `--heap 5000` first fills the heap, so that objects get other addresses.
- `--gc off` switches Python's garbage collector off.
- `--order reversed` runs the scenarios in the reversed order. If a run leaves state behind that
  changes the next run, the digests differ.

In the scenarios called `fake`, the nodes only exchange heartbeats. In the scenarios called `real`,
the nodes are our brokers, controllers and clients. With `copy_messages` each message is encoded and
decoded, as between processes.

Some scenarios plant a source of differences in a node: a function whose values differ between
processes, such as the order of a set. The digests of these scenarios must differ. Otherwise the
tests could not find such a source in our code.
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
"""The length of a run of the fake cluster."""
REAL_RUN_US = 16 * SECOND_US
"""The length of a run of the real cluster.

Half of this time, 8 s, is enough for the group to become stable. Then `digest` crashes a broker.
After another quarter, 4 s, the broker is restarted. Meanwhile another broker has taken over,
because the session timeout of brokers is 2 s.
"""
SCHEDULES = Path(__file__).resolve().parents[1] / "schedules"
JUNK: list[object] = []
"""Objects that keep their places on the heap as long as the process lives."""


class PlantedNode:
    """A node with one more task, which writes the values of a source into the trace."""

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
        """Report what the node itself reports."""
        self._node.report(status)

    async def _run(self) -> None:
        """Write the values of the source every tenth of a second."""
        while True:
            await self._host.sleep(SECOND_US // 10)
            for text in self._source():
                # Rows of the kind RUN_STAGE may have any text. That is all that matters here.
                self._host.trace(TraceEvent(kind=TraceKind.RUN_STAGE, detail={"stage": text}))


def set_of_strings() -> list[str]:
    """Return the items of a set of strings. Their order depends on the process's hash seed."""
    return list({"broker-0", "broker-1", "broker-2", "broker-3"})


def global_random() -> list[str]:
    """Return a number from Python's global generator, which does not depend on a run's seed."""
    return [str(random.random())]


class _Member:
    """An object with Python's default hash, which is made of the object's address."""

    def __init__(self, name: str) -> None:
        self.name = name


def set_of_objects() -> list[str]:
    """Return the names of a set of objects. Their order depends on the addresses of the objects.

    Real code might iterate over a set of tasks in this way.
    """
    return [member.name for member in {_Member(name) for name in "abcdefgh"}]


def planted(build: NodeBuilder, source: Callable[[], list[str]]) -> NodeBuilder:
    """Return a builder of nodes that plants the source in the first consumer."""

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
    """Run a cluster in which a broker crashes after half of the time; return the run's digest.

    The broker that crashes is the coordinator of the group, or the first broker if there is no
    group. It is restarted after another quarter of the time.

    seed: determines all random choices of the run.
    run_us: how long the run lasts in virtual time.
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
        has_group = GROUP in groups
        victim = broker_name(groups[GROUP][0].coordinator if has_group else 0)
        await runtime.crash(victim)
        await runtime.sleep(run_us // 4)
        await runtime.restart(victim)
        await runtime.sleep(run_us // 4)
        if has_group:
            await runtime.ask_as_admin(fetch_committed_offsets, GROUP)
        await runtime.stop()

    runtime.run(main())
    return f"{observer.hexdigest()} of {observer.rows} rows"


def digest_of_faults(seed: int) -> str:
    """Run the fake cluster with every kind of fault, and return the run's digest.

    When the cluster stops, some faults are still in force.
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
    """Return an experiment that the search once drew at random. Its file is in tests/schedules."""
    return load_experiment(str(SCHEDULES / f"{name}.yaml")).experiment


def digest_of_drawn(name: str, seed: int) -> str:
    """Play an experiment of tests/schedules as the search does, and return the run's digest."""
    played = play(drawn_schedule(name), seed)
    return f"{played.digest} of {played.rows} rows, {played.result}"


def digest_of_violated() -> str:
    """Play an experiment that breaks a promise of Kafka; return the run's digest and findings."""
    played = play(failing_experiment(), 0)
    findings = ", ".join(f"{finding.summary} at {finding.time_us}" for finding in played.findings)
    return f"{played.digest} of {played.rows} rows, {played.result}: {findings}"


def digest_with_messages(name: str, seed: int) -> str:
    """Play an experiment of tests/schedules with rows about messages.

    Return the digest of all other rows. This digest must be the same as in a run without rows about
    messages, because these rows must change nothing else.
    """
    experiment = drawn_schedule(name)
    # Checkers read the rows, as they do in `play`.
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    observer = TraceDigest()
    runtime = VirtualRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id="determinism",
        # EventsOnly drops the rows about messages before the digest is made.
        observers=(suite.observe, EventsOnly(observer)),
        copy_messages=True,
    )
    ExperimentRun(experiment, plan_of(experiment), runtime, suite, seed=seed).execute()
    return f"{observer.hexdigest()} of {observer.rows} rows"


# The function `digest` for each of the two clusters. The scenarios below add the arguments that are
# missing: the builder of the nodes, the seed, and sometimes `copy_messages`.
fake = partial(digest, fake_spec(), run_us=FAKE_RUN_US)
real = partial(digest, real_spec(), run_us=REAL_RUN_US)
SOURCES = (set_of_strings, set_of_objects, global_random)
# A scenario whose name ends with CODEC or MESSAGES is a variant. It must have the same digest as
# the scenario without this ending.
CODEC = " through the codec"
"""In this variant, messages are encoded and decoded."""
MESSAGES = " with messages"
"""In this variant, the trace has rows about messages, which are left out of the digest."""
DRAWN = {
    "crashes_pauses_and_slow_links": 0,
    "moves_resets_and_deleted_offsets": 2,
    "three_groups_through_cuts_pauses_and_shutdowns": 3,
    "split_view_on_zookeeper": 1,
    "zombie_on_zookeeper": 1,
}
"""Experiment of tests/schedules -> the seed of its run. The experiments have many faults."""
WITH_MESSAGES = "moves_resets_and_deleted_offsets"
"""The experiment of DRAWN that is also played with rows about messages."""
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
    # A short run of a small group is enough here, because a PlantedNode writes rows from its start.
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
"""The name of a scenario -> a function that plays it and returns the digest of the run."""


def fill_heap(count: int) -> None:
    """Allocate many objects of different sizes, and free every third of them.

    Later objects get the places of the freed objects. So they have other addresses than in a
    process that has not called this function.
    """
    for number in range(count):
        is_even = number % 2 == 0
        if is_even:
            JUNK.append({number: str(number), "name": (number,)})
        else:
            JUNK.append([None] * (number % 37))
    del JUNK[::3]


def main() -> None:
    """Print a JSON object with the digest of each scenario."""
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
