"""The same code, configuration, plan and seed give the same trace, byte for byte, in any process.

Three processes play the same scenarios: small clusters, and schedules of tests/schedules. The
processes differ in hash seed, heap layout, garbage collection, optimisation, and the order of the
scenarios. Different values of PYTHONHASHSEED alone would not suffice, because an order may also
depend on addresses. Some scenarios have a planted source of nondeterminism, which the comparison
must notice. A digest is a hash over all rows of a trace.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = (
    ("0", ()),
    ("random", ("--heap", "50001", "--order", "reversed")),
    ("4294967295", ("-O", "--heap", "1234", "--gc", "off", "--order", "reversed")),
)
"""PYTHONHASHSEED and the options of each process; -O is an option of the interpreter."""


def _run(process: tuple[str, tuple[str, ...]]) -> dict[str, str]:
    """Play all scenarios in one of PROCESSES, and return the digest of each."""
    hash_seed, options = process
    command = [
        sys.executable,
        *(option for option in options if option == "-O"),
        "-m",
        "tests.support.determinism",
        *(option for option in options if option != "-O"),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    digests: dict[str, str] = json.loads(done.stdout)
    return digests


@pytest.fixture(scope="module")
def digests() -> dict[str, list[str]]:
    """Return the digests of each scenario, one for each process."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(_run, PROCESSES))
    return {name: [result[name] for result in results] for name in results[0]}


@pytest.mark.slow
def test_a_seed_gives_one_trace_in_every_process(digests: dict[str, list[str]]) -> None:
    """All processes give a scenario the same digest, and no two scenarios have the same digest.

    The second comparison leaves out the variants "through the codec" and "with messages", because
    each of them repeats a scenario and has its digest.
    """
    # Scenario -> its different digests.
    different = {
        name: set(by_process)
        for name, by_process in digests.items()
        if not name.startswith("planted")
    }
    assert different
    assert {name: len(values) for name, values in different.items()} == dict.fromkeys(different, 1)
    digests_of_scenarios = [
        next(iter(values))
        for name, values in different.items()
        if not name.endswith(("through the codec", "with messages"))
    ]
    assert len(set(digests_of_scenarios)) == len(digests_of_scenarios)


@pytest.mark.slow
def test_a_trace_is_the_same_when_every_message_passes_through_the_codec(
    digests: dict[str, list[str]],
) -> None:
    """Nodes exchange objects in virtual time and bytes on Ray: both must give the same trace."""
    pairs = [name for name in digests if name.endswith(" through the codec")]
    assert len(pairs) == 2
    for name in pairs:
        assert digests[name] == digests[name.removesuffix(" through the codec")]


@pytest.mark.slow
def test_a_drawn_schedule_is_the_same_run_with_and_without_message_tracing(
    digests: dict[str, list[str]],
) -> None:
    """The search plays without message tracing, `replay` with it: both must be the same run.

    The digest of the run with messages leaves their rows out. The text of the run without messages
    has the verdict behind the digest, so the comparison uses `startswith`.
    """
    pairs = [name for name in digests if name.endswith(" with messages")]
    assert len(pairs) == 1
    for name in pairs:
        (played,) = set(digests[name.removesuffix(" with messages")])
        (written,) = set(digests[name])
        assert played.startswith(written)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["set_of_strings", "set_of_objects", "global_random"])
def test_a_planted_source_of_nondeterminism_is_noticed(
    digests: dict[str, list[str]], source: str
) -> None:
    """A check that cannot fail proves nothing, so each planted source must give several digests.

    The source is planted in a cluster of simple test nodes ("fake") and in one of the lab's own
    nodes ("real").
    """
    for cluster in ("fake", "real"):
        assert len(set(digests[f"planted in {cluster}: {source}"])) > 1
