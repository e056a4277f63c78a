"""Shared fixtures: one Ray and one Spark for a session, one browser for a module.

Slow imports are made in the functions that need them.

pytest-xdist's option `-n` divides the tests among processes. All tests of one xdist group run in
the same process. The group "standard space" has one test: it explores (plays many runs) and starts
worker processes of its own.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

NICENESS = 5
"""Niceness of an xdist process while it runs tests without Ray; higher means less processor."""

# With Python's own thresholds the garbage collector takes a tenth of the time of a run in virtual
# time. Its search is nearly useless: almost all rows live as long as the test.
gc.set_threshold(50_000, 20, 20)

# Mutants, coverage and patches of modules need interpreted code, in children too.
os.environ["COORDLAB_COMPILED"] = "0"

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

    from tests.support.harness.golden import Golden
    from tests.support.worlds.analysed_runs import Analysis
    from tests.support.worlds.reports import Reports

if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
    # A shell starts background commands with SIGINT ignored. Children inherit this setting, so the
    # runs that tests interrupt would ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`: files of expected text are written anew, for a person to review the diff."""
    parser.addoption("--rewrite", action="store_true", help="write expected texts anew")


def pytest_configure(config: pytest.Config) -> None:
    """Let no Hypothesis test fail because the machine is slow.

    The option `--hypothesis-profile` and Hypothesis's own profile for CI go first.
    """
    from hypothesis import HealthCheck, settings

    if "CI" in os.environ or config.getoption("--hypothesis-profile", None) is not None:
        return
    settings.register_profile(
        "coordlab", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("coordlab")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the stories of a transcript: a text of commands with their expected output."""
    if file_path.suffix != ".txt" or file_path.parent.name != "scenarios":
        return None
    from tests.support.transcripts.collector import TranscriptFile

    return TranscriptFile.from_parent(parent, path=file_path)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a Ray, a Spark or the fixtures of a module in one process of `-n`.

    A test that names its own group shares none of them.

    Slow tests come first, those on Ray before all others: with short tests at the end no process
    waits long for another. The standard space comes last: then the other processes have finished,
    and its workers can use both cores.
    """
    slow_modules = {item.path for item in items if item.get_closest_marker("slow")}
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        # Tests that share neither Ray nor Spark are grouped by their module.
        engine = next((name for name in ("ray", "spark") if item.get_closest_marker(name)), None)
        item.add_marker(pytest.mark.xdist_group(engine or item.path.name))
    # Of the other groups, modules with slow tests get 2, and the rest 3.
    ranks = {"ray": 0, "spark": 1, "standard space": 4}
    items.sort(
        key=lambda item: ranks.get(_group_of(item), 2 if item.path in slow_modules else 3),
    )


@pytest.hookimpl(tryfirst=True)  # before fixtures start processes, which inherit the niceness
def pytest_runtest_setup(item: pytest.Item) -> None:
    """With `-n`, leave the processor to the tests on Ray, which depend on real time.

    A process cannot lower its niceness again. So the tests on Ray must come first in their process,
    as `pytest_collection_modifyitems` sorts them.
    """
    in_several_processes = hasattr(item.config, "workerinput")
    # `nice(0)` returns the present niceness, `nice(n)` adds n to it.
    if in_several_processes and _group_of(item) != "ray" and os.nice(0) < NICENESS:
        os.nice(NICENESS - os.nice(0))


def _group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return "" if marker is None else str(marker.args[0])


@pytest.fixture(scope="session", autouse=True)
def checked_rows() -> Iterator[None]:
    """Make hosts raise an error for a trace row with a field that its kind does not declare.

    A host is the object through which a node writes trace rows (recorded events). `stamp` builds
    each row.
    """
    from cluster.host import base_host
    from cluster.virtual import runtime as virtual_runtime
    from tests.support.checked_stamp import checked_stamp

    with pytest.MonkeyPatch.context() as patch:
        for module in (base_host, virtual_runtime):
            patch.setattr(module, "stamp", checked_stamp)
        yield


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Start a Ray for the whole session, which every RayRuntime of this process uses."""
    from cluster.ray.actors import LOCAL, connect_ray, disconnect_ray

    connect_ray(LOCAL)
    try:
        yield
    finally:
        disconnect_ray()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Start a local Spark for the session.

    Without a suitable Java the test is skipped; in CI it fails.
    """
    from pipeline.engine.java import JavaProblem, find_java
    from pipeline.engine.session import spark_session

    java = find_java()
    if isinstance(java, JavaProblem):
        _skip_unless_in_ci(f"no suitable Java: {java.found}. {java.advice}")
    with spark_session(short_work=True, name="coordlab-tests") as session:
        yield session


@pytest.fixture(scope="session")
def analysis(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Analysis":
    """Analyse all runs whose tables and reports are tested, in a single call, which saves time."""
    from tests.support.worlds.analysed_runs import analyse_together

    return analyse_together(spark, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def reports(analysis: "Analysis") -> "Reports":
    """Write the reports that are tested, once."""
    from tests.support.worlds.reports import make_reports

    return make_reports(analysis.played)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    """Compare text with a file beside the test; with `--rewrite` write the file."""
    from tests.support.harness.golden import Golden

    return Golden(folder=request.path.parent, rewrite=bool(request.config.getoption("--rewrite")))


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Start a headless Chromium for one module; while it runs, its tests cannot use asyncio."""
    from tests.support.harness.browser import INSTALL, PROGRAMS, chromium, find_chromium

    program = find_chromium()
    if program is None:
        _skip_unless_in_ci(f"none of {', '.join(PROGRAMS)} on the PATH. {INSTALL}")
    with chromium(program) as started:
        yield started


def _skip_unless_in_ci(reason: str) -> NoReturn:
    """Skip a test whose program is missing; in CI this is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
