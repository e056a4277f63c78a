"""Forbidden constructs of node code, found by `unordered` and by ruff's banned names (TID251).

Node code is the code of brokers, clients and controllers. In virtual time (a simulated clock), one
seed must give the same trace in every process. So node code must not depend on anything that
differs between processes. `unordered` finds such constructs in sources, such as a loop over a set,
and returns them as texts of the form `file:line: problem`. Ruff finds real clocks and real
randomness by their names. Ruff also checks code that judges runs, such as `chaos/checkers`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node_code import node_files, unordered

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_node_code_never_depends_on_addresses_hashes_or_the_order_of_sets() -> None:
    """Addresses, hashes and the order of sets differ between processes.

    A run that depended on them could not be repeated in another process.
    """
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in node_files(ROOT)}

    assert len(sources) > 100  # the search has found the packages
    assert unordered(sources) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = hash('a')", "calls hash()"),
        ("x = {id(y): y}", "calls id()"),
        ("for x in {1, 2}: pass", "iterates a set"),
        ("names = set(y)\nz = [n for n in names]", "iterates a set"),
        ("def f(names: frozenset[str]) -> None:\n    g(*names)", "unpacks a set"),
        ("def f(names: set[str] | None): return tuple(names)", "gives a set to tuple()"),
        # The type of `a` is unknown. But a class of the module has a set with the name `seen`.
        ("class A:\n    seen: set[int]\n\ndef f(a): return list(a.seen)", "gives a set to list()"),
        ("self.seen = {1}\nfor x in self.seen - {2}: pass", "iterates a set"),
        ("x = ','.join({n for n in y})", "gives a set to join()"),
        ("x = dict.fromkeys(set(y) & z)", "gives a set to fromkeys()"),
        ("s = set()\ns.pop()", "pops from a set"),
        # The order has no effect on max, but it may have an effect on g.
        ("x = max((n for n in {1, 2}), key=f) if g((n for n in {1})) else 0", "iterates a set"),
    ],
)
def test_planted_dependence_is_found(source: str, expected: str) -> None:
    """Each source depends on an address, a hash or the order of a set in exactly one place."""
    (problem,) = unordered({"planted.py": source})
    assert expected in problem


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({1, 2}): pass",
        "x = any(n > 1 for n in {1, 2}), len({1}), 1 in {1}, {n for n in {1}}",
        "x: dict[str, int] = {}\nfor n in x: pass",
        "x = frozenset(y) | {1}",
    ],
)
def test_sets_whose_order_has_no_effect_are_allowed(source: str) -> None:
    """Sorting, counting, membership tests and building another set do not depend on the order."""
    assert unordered({"planted.py": source}) == []


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        *((folder, False) for folder in ("protocol", "partition_log", "coordinator")),
        *((f"cluster/{part}", False) for part in ("broker", "client", "controller", "virtual")),
        ("cluster", False),
        ("chaos/checkers", False),
        ("coordlab", True),
        ("tests/cluster", True),
    ],
)
def test_banned_names_are_refused_in_node_code_and_allowed_beside_it(
    folder: str, allowed: bool
) -> None:
    """Ruff refuses clocks, randomness and sleeping in node code, even under another name.

    The planted module uses each banned name once. It imports `time` under the name `t`.
    """
    planted_module = (
        "import asyncio\nimport time as t\nfrom datetime import datetime\n"
        "from random import choice\nfrom uuid import uuid4\n\n"
        "from tenacity import stop_after_delay\n\n"
        "t.monotonic()\ndatetime.now()\nchoice([1])\nuuid4()\n"
        "asyncio.sleep(1)\nasyncio.TaskGroup()\nstop_after_delay(1)\n"
    )
    ruff = Path(sys.executable).parent / "ruff"
    findings = subprocess.run(
        [
            *(ruff, "check", "--select", "TID251", "--output-format", "concise"),
            *("--stdin-filename", f"{folder}/planted.py", "-"),
        ],
        cwd=ROOT,
        input=planted_module,
        capture_output=True,
        text=True,
        check=False,
    ).stdout

    for name in (
        "time.monotonic",
        "datetime.now",
        "random.choice",
        "uuid.uuid4",
        "asyncio.sleep",
        "asyncio.TaskGroup",
        "tenacity.stop_after_delay",
    ):
        is_refused = f"{name}` is banned" in findings
        assert is_refused is not allowed
