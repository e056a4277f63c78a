"""How many runs `coordlab explore` plays a minute on one core, and the gain of a second core.

explorations/reference.yaml describes a space of possible runs: clusters of several sizes, with
several kinds of faults. Each seed draws one run from this space. All checkers are on, and messages
are not in the trace. Each run must do at least the work that the file requires (`minimum`), because
runs in which nothing happens would look fast.

Events a second are compared with those of a bare heapq loop, the smallest program that can run
events at all.
"""

import cProfile
import statistics
import time
from functools import partial

from benchmarks.measurement import Measurement, machine, median_ratio
from benchmarks.profiles import profile_text
from benchmarks.virtual_loop import bare_heap
from chaos.exploration.batches import decode_runs, play_seed, play_seeds
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.required_work import missing_work
from chaos.exploration.space import Space, load_space
from cluster.fan_out import Died, WorkerName
from cluster.ray.actors import LOCAL
from cluster.ray.tasks import RayWorkers

RUNS = 20
"""Number of runs in every round: the seeds 0 to 19 are played.

A round of this length takes about a minute, and gives nearly the same figures as hundreds of seeds.
"""
ROUNDS = 5
"""Number of measurements of each figure."""
GOAL_RUNS_PER_MINUTE = 1_000
"""Least number of runs a minute on one core."""
FAN_OUT_RUNS = 60
"""Number of seeds that are played in every round, first by one worker, then by two together."""
BATCH = 5
"""Number of seeds that a worker gets at once."""
GOAL_TWO_WORKERS = 1.5
"""Least ratio of the speed of two workers to the speed of one. It is less than 2, because the two
workers share the machine's memory and caches, and the process that gives them their work."""


def check_minimum(space: Space, played: PlayedRun) -> None:
    """Raise RuntimeError if the run failed, or did less than the space's minimum."""
    missing = missing_work(space.minimum, played)
    if played.result is not PlayResult.PASS or missing:
        raise RuntimeError(
            f"seed {played.seed} of {space.name} is {played.result}, {played.reasons}; {missing}"
        )


def play_all(space: Space, seeds: range) -> tuple[float, list[PlayedRun]]:
    """Draw and play all seeds; return the CPU seconds that this took, and the runs."""
    began = time.process_time()
    runs = [play_seed(space, seed) for seed in seeds]
    took_s = time.process_time() - began
    for played in runs:
        check_minimum(space, played)
    return took_s, runs


def one_core(space: Space) -> tuple[Measurement, ...]:
    """Measure one process, in turn with the bare loop."""
    play_seed(space, 0)  # a first run fills caches and is not measured
    per_minute, events_per_s, bare, virtual_s_per_s = [], [], [], []
    for _ in range(ROUNDS):
        bare.append(bare_heap())
        took_s, runs = play_all(space, range(RUNS))
        per_minute.append(60 * len(runs) / took_s)
        events_per_s.append(sum(played.events for played in runs) / took_s)
        virtual_s_per_s.append(sum(played.virtual_us for played in runs) / 1e6 / took_s)
    # These are the runs of the last round. All rounds have the same means, because they play the
    # same seeds.
    mean = {
        "virtual s": sum(played.virtual_us for played in runs) / 1e6 / RUNS,
        "events": sum(played.events for played in runs) / RUNS,
        "requests": sum(sum(played.requests.values()) for played in runs) / RUNS,
        "fetches": sum(played.requests.get("Fetch", 0) for played in runs) / RUNS,
        "commits": sum(played.requests.get("OffsetCommit", 0) for played in runs) / RUNS,
        "faults": sum(played.faults_hit for played in runs) / RUNS,
        "rows": sum(played.rows for played in runs) / RUNS,
    }
    value = statistics.median(per_minute)
    return (
        Measurement(
            name="explored runs, trace off, one core",
            value=value,
            # The baseline is the number of runs a minute in real time, in which a virtual second
            # would take a second. Here a second is enough for `virtual_s_per_s` virtual seconds, so
            # in real time there would be so many times fewer runs.
            baseline=value / statistics.median(virtual_s_per_s),
            unit="runs/min",
            baseline_name="in real time",
            ratio=statistics.median(virtual_s_per_s),
            goal=f"at least {GOAL_RUNS_PER_MINUTE:,} runs/min",
            met=value >= GOAL_RUNS_PER_MINUTE,
            note="a run is, on average, "
            + ", ".join(f"{figure:,.0f} {name}" for name, figure in mean.items()),
        ),
        Measurement(
            name="events of explored runs",
            value=statistics.median(events_per_s),
            baseline=statistics.median(bare),
            unit="events/s",
            baseline_name="bare heapq loop",
            ratio=median_ratio(events_per_s, bare),
            note="an event of a run does a node's work; an event of the bare loop, nothing",
        ),
    )


def _fan_out_s(workers: RayWorkers, names: tuple[WorkerName, ...]) -> float:
    """Return the seconds that the workers in `names` need for FAN_OUT_RUNS seeds."""
    batches = [
        tuple(range(first, min(first + BATCH, FAN_OUT_RUNS)))
        for first in range(0, FAN_OUT_RUNS, BATCH)
    ]
    began = time.perf_counter()
    done = 0
    while done < FAN_OUT_RUNS:
        for name in workers.idle():
            if name in names and batches:
                workers.give(name, batches.pop(0))
        # Wait for answers, but at most one second.
        for event in workers.wait(1.0):
            if isinstance(event, Died):
                # Ruff's rule TRY004 asks for a TypeError after `isinstance`. But here the type is
                # no mistake: Died is the event that reports the death of a worker.
                raise RuntimeError(f"a worker died: {event.why}")  # noqa: TRY004
            done += len(decode_runs(event.answer))
    return time.perf_counter() - began


def two_workers(space: Space) -> Measurement:
    """Measure one worker, and then two of them, in each round. The workers are Ray's."""
    with RayWorkers(LOCAL, partial(play_seeds, space), size=2) as workers:
        # Wait until both workers have started.
        while len(workers.idle()) < workers.size:
            workers.wait(1.0)
        names = workers.idle()
        _fan_out_s(workers, names)  # fills the caches of both workers
        rounds = [
            (_fan_out_s(workers, names[:1]), _fan_out_s(workers, names)) for _ in range(ROUNDS)
        ]
    ones = [60 * FAN_OUT_RUNS / one_s for one_s, _ in rounds]
    twos = [60 * FAN_OUT_RUNS / two_s for _, two_s in rounds]
    ratio = median_ratio(twos, ones)
    return Measurement(
        name="explored runs, two workers",
        value=statistics.median(twos),
        baseline=statistics.median(ones),
        unit="runs/min",
        baseline_name="one worker",
        ratio=ratio,
        goal=f"at least {GOAL_TWO_WORKERS}",
        met=ratio >= GOAL_TWO_WORKERS,
        note=f"Ray's workers, batches of {BATCH} seeds, wall-clock time, median of {ROUNDS}",
    )


def profile_of(space: Space) -> str:
    """Return where the time of the runs goes, as text."""
    profile = cProfile.Profile()
    profile.enable()
    play_all(space, range(RUNS))
    profile.disable()
    return profile_text(profile, f"{RUNS} explored runs", functions=30)


def run() -> tuple[Measurement, ...]:
    """Measure one core, then two workers; print the profile of one."""
    space = load_space("reference")
    measurements = (*one_core(space), two_workers(space))
    print(profile_of(space))
    return measurements


def main() -> None:
    """Print the figures, the machine and the profile."""
    print(machine())
    for measurement in run():
        print(measurement.line())


if __name__ == "__main__":
    main()
