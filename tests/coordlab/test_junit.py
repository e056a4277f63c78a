"""The JUnit file of a run, from which CI systems take the run's result.

The run is a test suite. Its test cases are the run as a whole, and each check of the run. Unless
the run passed, CI must show the suite as failed, with the reason.

The builders `manifest()` and `results(...)` describe a run in virtual time that took 4.25 s. It
passed, unless a test says otherwise.
"""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from coordlab.cli import run_cli
from coordlab.junit import junit_of_failure, junit_of_run
from results_schema.results import (
    EXIT_BAD_ARGUMENTS,
    CheckOutcome,
    CheckReport,
    Finding,
    Results,
    RunOutcome,
    Verdict,
)
from tests.support.builders.past_runs import manifest, results

# The common schema of JUnit files: for each element, its children in order, and its attributes.
CHILDREN = {
    "testsuites": ("testsuite",),
    "testsuite": ("properties", "testcase", "system-out", "system-err"),
    "properties": ("property",),
    "testcase": ("skipped", "error", "failure", "system-out", "system-err"),
}
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors", "skipped"},
    "testsuite": {
        "name",
        "tests",
        "failures",
        "errors",
        "skipped",
        "time",
        "timestamp",
        "hostname",
    },
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "skipped": {"message"},
    "error": {"message", "type"},
    "failure": {"message", "type"},
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "property": {"name", "value"},
    "testcase": {"name", "classname"},
}


def check_structure(element: ET.Element) -> None:
    """Check an element, and all elements below it, against the common schema.

    The children of an element must be known and in order, and its attributes known and complete.
    The counts of a test suite must be right.
    """
    order = CHILDREN.get(element.tag, ())
    positions = [order.index(child.tag) for child in element]
    assert positions == sorted(positions), f"children of {element.tag}"
    assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set())
    assert set(element.attrib) >= REQUIRED.get(element.tag, set())
    for child in element:
        check_structure(child)
    if element.tag == "testsuite":
        cases = element.findall("testcase")
        assert element.get("tests") == str(len(cases))
        for outcome, count_attribute in (
            ("failure", "failures"),
            ("error", "errors"),
            ("skipped", "skipped"),
        ):
            cases_with_outcome = [case for case in cases if case.find(outcome) is not None]
            assert element.get(count_attribute) == str(len(cases_with_outcome))
            assert all(len(case.findall(outcome)) <= 1 for case in cases)


def report(check: str, outcome: CheckOutcome, **more: object) -> CheckReport:
    """Return the report of a check; `more` replaces some of its fields."""
    return msgspec.structs.replace(CheckReport(check=check, outcome=outcome), **more)


def parsed(results: Results) -> ET.Element:
    """Return the root of a run's file, after a check of its structure."""
    root = ET.fromstring(junit_of_run(manifest(), results, Path("runs/coordinator_crash/x")))
    check_structure(root)
    return root


def case_named(root: ET.Element, name: str) -> ET.Element:
    """Return the only test case of this name: `run`, or the name of a check."""
    (test_case,) = root.iterfind(f"testsuite/testcase[@name='{name}']")
    return test_case


def test_passed_run_is_green_and_has_its_replay_command() -> None:
    """The run and each check are a test case; the properties name the directory and the command."""
    root = parsed(results(report("fencing", CheckOutcome.PASS)))

    (suite,) = root
    assert [test_case.get("name") for test_case in suite.iterfind("testcase")] == ["run", "fencing"]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    assert (suite.get("time"), suite.get("timestamp")) == ("4.250", "2026-01-01T00:00:00")
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert properties["replay"] == manifest().replay
    assert properties["run_directory"] == "runs/coordinator_crash/x"
    assert (properties["seed"], properties["runtime"]) == ("7", "virtual")


def test_violated_check_is_a_failure_with_its_evidence() -> None:
    """The failure's text has the finding's story, which lists the events that led to the finding.

    Characters that XML forbids are replaced. The check made five findings, and the report keeps two
    of them. The message has the summary of the first finding, and says that there are 4 more.
    """
    finding = Finding(
        check="fencing",
        summary="offset 3 <is> missing",
        time_us=1,
        story=("  1.0 s  broker-0: append acknowledged", "bad \x1b character"),
    )
    violated = report(
        "fencing", CheckOutcome.VIOLATED, findings=(finding, finding), findings_total=5
    )

    root = parsed(results(violated, verdict=Verdict.VIOLATED))

    failure = case_named(root, "fencing").find("failure")
    assert failure is not None
    assert failure.get("message") == "offset 3 <is> missing (and 4 more)"
    assert "broker-0: append acknowledged" in (failure.text or "")
    assert "bad \N{REPLACEMENT CHARACTER} character" in (failure.text or "")
    assert len(case_named(root, "run")) == 0, "the test case `run` has no failure and no error"


@pytest.mark.parametrize(
    ("outcome", "error_type"),
    [
        (RunOutcome.COMPLETED, "unknown"),
        (RunOutcome.INTERRUPTED, "interrupted"),
        (RunOutcome.INTERNAL_ERROR, "internal_error"),
    ],
    ids=["unknown", "interrupted", "internal_error"],
)
def test_inconclusive_run_is_never_green(outcome: RunOutcome, error_type: str) -> None:
    """CI systems treat a skipped test as a success, so `unknown` is an error with the reason."""
    unknown = results(outcome=outcome, verdict=Verdict.UNKNOWN, reasons=("crash-0 hit nothing",))
    error = case_named(parsed(unknown), "run").find("error")

    assert error is not None
    assert error.get("type") == error_type
    assert "crash-0 hit nothing" in (error.text or "")


def test_check_that_could_not_judge_is_an_error_and_check_without_a_case_is_skipped() -> None:
    """The check `processing` had nothing to judge in this run, so it is skipped.

    `liveness` had something to judge, but could not judge it. So the run's verdict is unknown, and
    CI must show this.
    """
    inconclusive = report("liveness", CheckOutcome.INCONCLUSIVE, note="no leader came back")
    nothing = report("processing", CheckOutcome.NOTHING_SEEN)

    root = parsed(results(inconclusive, nothing, verdict=Verdict.UNKNOWN))

    error = case_named(root, "liveness").find("error")
    skipped = case_named(root, "processing").find("skipped")
    assert error is not None
    assert skipped is not None
    assert error.get("message") == "no leader came back"
    assert skipped.get("message") == "was not put to the test"


def test_failure_before_any_result_is_an_error_of_the_run() -> None:
    """An error has the exception's type and text; KeyboardInterrupt has no text except its name."""
    root = ET.fromstring(junit_of_failure("coordinator_crash", KeyboardInterrupt()))
    check_structure(root)

    error = case_named(root, "run").find("error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("KeyboardInterrupt", "KeyboardInterrupt")


def test_file_of_an_invalid_experiment_replaces_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of an earlier run, which passed, must not be taken for the result of this run."""
    file = tmp_path / "build" / "junit.xml"
    file.parent.mkdir()
    file.write_bytes(junit_of_run(manifest(), results(), tmp_path))

    code = run_cli(["run", "no_such_experiment", "--junit", str(file)])

    assert code == EXIT_BAD_ARGUMENTS
    error = case_named(ET.parse(file).getroot(), "run").find("error")
    assert error is not None
    assert error.get("type") == "ExperimentError"
    assert "there is no experiment of this name" in (error.text or "")
    assert "there is no experiment of this name" in capsys.readouterr().err


def test_unwritable_file_is_reported_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program tries to write the file before the start, so that no result is lost."""
    (tmp_path / "file").write_text("")
    runs, junit = tmp_path / "runs", tmp_path / "file" / "junit.xml"

    code = run_cli(["run", "graceful_move", "--runs", str(runs), "--junit", str(junit)])

    assert code == EXIT_BAD_ARGUMENTS
    assert f"the JUnit file {junit} cannot be written" in capsys.readouterr().err
    assert not runs.exists()
