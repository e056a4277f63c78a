"""The same code, configuration, plan and seed give the same trace, byte for byte, in any process.

Three processes play the same scenarios: small clusters, and schedules of tests/schedules. For each
scenario, a process prints a digest, which is a hash over all rows of the trace (all recorded
events). The three digests of a scenario must be equal.

The processes differ in everything that could make a difference: the hashes of strings, the layout
of memory, garbage collection, optimisation, and the order of the scenarios. To show that the
comparison would notice a difference, some scenarios have a planted source of nondeterminism.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Process(NamedTuple):
    """The properties in which a process differs from the other processes."""

    hash_seed: str
    """PYTHONHASHSEED: the order of sets of strings depends on it."""
    interpreter_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of `tests.support.determinism`.

    For example, `--heap 50001` first allocates 50,001 objects, which changes the addresses of later
    objects.
    """


PROCESSES = (
    Process("0"),
    Process("random", options=("--heap", "50001", "--order", "reversed")),
    Process(
        "4294967295",  # the largest hash seed
        interpreter_options=("-O",),
        options=("--heap", "1234", "--gc", "off", "--order", "reversed"),
    ),
)


def _play_scenarios(process: Process) -> dict[str, str]:
    """Play all scenarios in a process, and return the digest of each."""
    command = [
        sys.executable,
        *process.interpreter_options,
        "-m",
        "tests.support.determinism",
        *process.options,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": process.hash_seed},
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
        results = list(pool.map(_play_scenarios, PROCESSES))
    return {name: [result[name] for result in results] for name in results[0]}


@pytest.mark.slow
def test_a_seed_gives_one_trace_in_every_process(digests: dict[str, list[str]]) -> None:
    """All processes give a scenario the same digest, and no two scenarios have the same digest.

    There is an exception: the variants "through the codec" and "with messages" repeat another
    scenario, and have the same digest as this scenario.
    """
    sound = {
        name: by_process for name, by_process in digests.items() if not name.startswith("planted")
    }
    assert sound
    not_equal = {name: by_process for name, by_process in sound.items() if len(set(by_process)) > 1}
    assert not_equal == {}
    digests_of_originals = [
        by_process[0]
        for name, by_process in sound.items()
        if not name.endswith(("through the codec", "with messages"))
    ]
    assert len(set(digests_of_originals)) == len(digests_of_originals)


@pytest.mark.slow
def test_a_trace_is_the_same_when_every_message_passes_through_the_codec(
    digests: dict[str, list[str]],
) -> None:
    """Encoding and decoding the messages must not change a run.

    In virtual time, nodes usually get the message objects themselves. On Ray they get bytes.
    """
    variants = [name for name in digests if name.endswith(" through the codec")]
    assert len(variants) == 2
    for name in variants:
        assert digests[name] == digests[name.removesuffix(" through the codec")]


@pytest.mark.slow
def test_a_drawn_schedule_is_the_same_run_with_and_without_message_tracing(
    digests: dict[str, list[str]],
) -> None:
    """A search plays without message tracing, and `replay` with it. Both must play the same run.

    The digest of the run with messages leaves out the rows about messages, so the digests can be
    compared. For the run without messages, the text is the digest followed by the verdict, so the
    comparison uses `startswith`.
    """
    variants = [name for name in digests if name.endswith(" with messages")]
    assert len(variants) == 1
    for name in variants:
        (digest_and_verdict,) = set(digests[name.removesuffix(" with messages")])
        (digest_with_messages,) = set(digests[name])
        assert digest_and_verdict.startswith(digest_with_messages)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["set_of_strings", "set_of_objects", "global_random"])
def test_a_planted_source_of_nondeterminism_is_noticed(
    digests: dict[str, list[str]], source: str
) -> None:
    """A check that cannot fail proves nothing, so each planted source must give several digests.

    Each source is planted twice: in a cluster of simple test nodes, and in a cluster of real
    brokers and clients.
    """
    for cluster in ("fake", "real"):
        assert len(set(digests[f"planted in {cluster}: {source}"])) > 1
