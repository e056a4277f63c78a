"""JUnit XML of a run: CI must show red for all but a pass, with the reason.

JUnit is a format of test results that CI systems read. `manifest()` and `results(...)` make the
description and the results of a run of 4.25 s, with seed 7 and in virtual time, which passed unless
a test says otherwise. A finding's story is a list of the rows that led to it.
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
    """Check an element against the common schema: known children in order, known attributes."""
    order = CHILDREN.get(element.tag, ())
    places = [order.index(child.tag) for child in element]
    assert places == sorted(places), f"children of {element.tag}"
    assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set())
    assert set(element.attrib) >= REQUIRED.get(element.tag, set())
    for child in element:
        check_structure(child)
    if element.tag == "testsuite":
        cases = element.findall("testcase")
        assert element.get("tests") == str(len(cases))
        for kind, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert element.get(counted) == str(sum(each.find(kind) is not None for each in cases))
            assert all(len(each.findall(kind)) <= 1 for each in cases)


def report(check: str, outcome: CheckOutcome, **more: object) -> CheckReport:
    """Return the report of a check; `more` replaces some of its fields."""
    return msgspec.structs.replace(CheckReport(check=check, outcome=outcome), **more)


def parsed(results: Results) -> ET.Element:
    """Return the root of a run's file, after a check of its structure."""
    root = ET.fromstring(junit_of_run(manifest(), results, Path("runs/coordinator_crash/x")))
    check_structure(root)
    return root


def case(root: ET.Element, name: str) -> ET.Element:
    (test_case,) = root.iterfind(f"testsuite/testcase[@name='{name}']")
    return test_case


def test_passed_run_is_green_and_has_its_replay_command() -> None:
    """The run and each check are one test case; the properties name directory and command."""
    root = parsed(results(report("fencing", CheckOutcome.PASS)))

    suite = root[0]
    assert [each.get("name") for each in suite.iterfind("testcase")] == ["run", "fencing"]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    assert (suite.get("time"), suite.get("timestamp")) == ("4.250", "2026-01-01T00:00:00")
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert properties["replay"] == manifest().replay
    assert properties["run_directory"] == "runs/coordinator_crash/x"
    assert (properties["seed"], properties["runtime"]) == ("7", "virtual")


def test_violated_check_is_a_failure_with_its_evidence() -> None:
    """The failure's text has the finding's story; characters that XML forbids are replaced.

    The report counts five findings and has two of them. The message has the first one's summary and
    the number of the others.
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

    failure = case(root, "fencing").find("failure")
    assert failure is not None
    assert failure.get("message") == "offset 3 <is> missing (and 4 more)"
    assert "broker-0: append acknowledged" in (failure.text or "")
    assert "bad \N{REPLACEMENT CHARACTER} character" in (failure.text or "")
    assert len(case(root, "run")) == 0


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (results(verdict=Verdict.UNKNOWN, reasons=("crash-0 hit nothing",)), "unknown"),
        (
            results(
                outcome=RunOutcome.INTERRUPTED,
                verdict=Verdict.UNKNOWN,
                reasons=("crash-0 hit nothing",),
            ),
            "interrupted",
        ),
        (
            results(
                outcome=RunOutcome.INTERNAL_ERROR,
                verdict=Verdict.UNKNOWN,
                reasons=("crash-0 hit nothing",),
            ),
            "internal_error",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inconclusive_run_is_never_green(made: Results, kind: str) -> None:
    """CI systems treat a skipped test as a success, so `unknown` is an error with the reason."""
    error = case(parsed(made), "run").find("error")

    assert error is not None
    assert error.get("type") == kind
    assert "crash-0 hit nothing" in (error.text or "")


def test_check_that_could_not_judge_is_an_error_and_one_without_a_case_is_skipped() -> None:
    """A check that judged nothing is skipped; one that could not judge makes the run unknown."""
    inconclusive = report("liveness", CheckOutcome.INCONCLUSIVE, note="no leader came back")
    nothing = report("processing", CheckOutcome.NOTHING_SEEN)

    root = parsed(results(inconclusive, nothing, verdict=Verdict.UNKNOWN))

    error, skipped = case(root, "liveness").find("error"), case(root, "processing").find("skipped")
    assert error is not None
    assert skipped is not None
    assert error.get("message") == "no leader came back"
    assert skipped.get("message") == "was not put to the test"


def test_failure_before_any_result_is_an_error_of_the_run() -> None:
    """An error has the exception's type and text; KeyboardInterrupt has no text except its name."""
    root = ET.fromstring(junit_of_failure("coordinator_crash", KeyboardInterrupt()))
    check_structure(root)

    error = case(root, "run").find("error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("KeyboardInterrupt", "KeyboardInterrupt")


def test_file_of_an_invalid_experiment_replaces_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The green file of an earlier run must not be taken for the result of this one."""
    file = tmp_path / "build" / "junit.xml"
    file.parent.mkdir()
    file.write_bytes(junit_of_run(manifest(), results(), tmp_path))

    code = run_cli(["run", "no_such_experiment", "--junit", str(file)])

    assert code == EXIT_BAD_ARGUMENTS
    error = case(ET.parse(file).getroot(), "run").find("error")
    assert error is not None
    assert error.get("type") == "ExperimentError"
    assert "there is no experiment of this name" in (error.text or "")
    assert "there is no experiment of this name" in capsys.readouterr().err


def test_unwritable_file_is_reported_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is tried before the start, so that the result of a whole run cannot be lost."""
    (tmp_path / "file").write_text("")
    runs, junit = tmp_path / "runs", tmp_path / "file" / "junit.xml"

    code = run_cli(["run", "graceful_move", "--runs", str(runs), "--junit", str(junit)])

    assert code == EXIT_BAD_ARGUMENTS
    assert f"the JUnit file {junit} cannot be written" in capsys.readouterr().err
    assert not runs.exists()
