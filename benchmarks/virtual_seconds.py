"""How many seconds of a run's simulated clock pass in one second of CPU.

This is the speed of a run in virtual time, compared with real time. The cluster has one controller,
three brokers, and twelve consumers in a stable group. It is measured under three loads:

1. 10 records a second, one commit a second of each member, without a trace.
2. 120 records a second (10 for each member), otherwise as load 1.
3. The load of the experiment `coordinator_crash`: 100 records a second, a commit of each member
   every 200 ms, and every message traced. The rows go to a digest and a list, as in a recorded run.

The benchmark also prints a profile of the third load, by layer and by function. The baseline is
real time, which is 1.
"""

import cProfile
import statistics
import time

from benchmarks.measurement import Measurement, machine
from benchmarks.profiles import ROOT, profile_text
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import to_cluster_spec
from cluster.runtime import RowObserver
from cluster.spec import ClusterSpec
from cluster.trace.digest import TraceDigest
from cluster.virtual.runtime import VirtualRuntime
from protocol.trace import TraceRow

SECOND_US = 1_000_000
SETTLE_S = 15
"""Virtual seconds before measuring, for the registration, elections and the first rebalance."""
ROUNDS = 5
"""Number of measurements of each load, with the seeds 0 to 4."""
COMMIT_EACH_SECOND = "groups.orders-readers.commit_interval_ms=1000"
"""An override of a setting of the experiment, as for `--var`."""
LIGHT = (COMMIT_EACH_SECOND, "producers.0.records_per_second=10")
BUSY = (COMMIT_EACH_SECOND, "producers.0.records_per_second=120")
"""The overrides for the first and the second load."""


def cluster_of(overrides: tuple[str, ...] = ()) -> ClusterSpec:
    """Return the cluster of the coordinator_crash experiment, changed by `overrides`.

    Only the cluster and its clients are used: the experiment's crash does not happen.
    """
    path = ROOT / "experiments" / "coordinator_crash.yaml"
    return to_cluster_spec(load_experiment(str(path), overrides).experiment)


def speed(
    spec: ClusterSpec,
    *,
    seed: int,
    virtual_s: int,
    traced: bool,
    profile: cProfile.Profile | None = None,
) -> tuple[float, int]:
    """Return virtual seconds per CPU second in a stable group, and the number of traced rows.

    Raises: RuntimeError if the group is not stable when measuring begins.
    """
    rows: list[TraceRow] = []
    observers: tuple[RowObserver, ...] = (TraceDigest(), rows.append) if traced else ()
    runtime = VirtualRuntime(
        spec, seed=seed, run_id="benchmark", observers=observers, trace_messages=traced
    )

    async def main() -> float:
        await runtime.start()
        await runtime.sleep(SETTLE_S * SECOND_US)
        status = await runtime.status()
        # `status.groups` has the groups of each coordinator. Only one group must be there.
        states = [group.state for groups in status.groups.values() for group in groups]
        if states != ["Stable"]:
            raise RuntimeError(f"the group is not stable after {SETTLE_S} s: {states}")
        # Only the rows after this moment count.
        rows.clear()
        if profile is not None:
            profile.enable()
        started = time.process_time()
        await runtime.sleep(virtual_s * SECOND_US)
        elapsed = time.process_time() - started
        if profile is not None:
            profile.disable()
        await runtime.stop()
        return elapsed

    elapsed = runtime.run(main())
    return virtual_s / elapsed, len(rows)


def profile_of(spec: ClusterSpec, *, virtual_s: int, traced: bool) -> str:
    """Return the profile of a run: time per layer, and the slowest functions."""
    profile = cProfile.Profile()
    speed(spec, seed=7, virtual_s=virtual_s, traced=traced, profile=profile)
    return profile_text(profile, f"{virtual_s} virtual seconds")


def run() -> tuple[Measurement, ...]:
    """Measure the loads; each figure is the median of several seeds."""
    measurements = []
    # `virtual_s` is how many virtual seconds are measured. The goal is the least number of virtual
    # seconds per CPU second; None means no goal.
    for name, overrides, virtual_s, traced, goal in (
        ("10 records/s, trace off", LIGHT, 60, False, 100.0),
        ("120 records/s, trace off", BUSY, 20, False, None),
        ("coordinator_crash's load, trace on", (), 20, True, 20.0),
    ):
        spec = cluster_of(overrides)
        results = [
            speed(spec, seed=seed, virtual_s=virtual_s, traced=traced) for seed in range(ROUNDS)
        ]
        value = statistics.median(virtual_s_per_s for virtual_s_per_s, _ in results)
        rows = statistics.median(traced_rows / virtual_s for _, traced_rows in results)
        measurements.append(
            Measurement(
                name=f"virtual time, {name}",
                value=value,
                baseline=1.0,
                unit="s/s",
                baseline_name="real time",
                ratio=value,
                goal="" if goal is None else f"at least {goal:g}",
                met=None if goal is None else value >= goal,
                note=f"{rows:,.0f} rows a virtual second" if traced else "",
            )
        )
    print(profile_of(cluster_of(), virtual_s=20, traced=True))
    return tuple(measurements)


def main() -> None:
    """Print the figures, the machine and the profile."""
    print(machine())
    for measurement in run():
        print(measurement.line())


if __name__ == "__main__":
    main()
