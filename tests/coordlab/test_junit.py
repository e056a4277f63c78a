"""JUnit XML of a run: CI must show red for all but a pass, with the reason."""

import xml.etree.ElementTree as ET
from pathlib import Path

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
            assert element.get(counted) == str(sum(case.find(kind) is not None for case in cases))
            assert all(len(case.findall(kind)) <= 1 for case in cases)


def report(check: str, outcome: CheckOutcome, **more: object) -> CheckReport:
    made = CheckReport(check=check, outcome=outcome)
    return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | more)


def parsed(of: Results) -> ET.Element:
    root = ET.fromstring(junit_of_run(manifest(), of, Path("runs/coordinator_crash/x")))
    check_structure(root)
    return root


def case(root: ET.Element, name: str) -> ET.Element:
    (found,) = root.iterfind(f"testsuite/testcase[@name='{name}']")
    return found


def test_passed_run_is_green_and_has_its_replay_command() -> None:
    """Each check is one test case, and so is the run; the properties lead to the evidence."""
    root = parsed(results(report("fencing", CheckOutcome.PASS)))

    suite = root[0]
    assert [each.get("name") for each in suite.iterfind("testcase")] == ["run", "fencing"]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    assert (suite.get("time"), suite.get("timestamp")) == ("4.250", "2026-01-01T00:00:00")
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["replay"] == manifest().replay
    assert properties["run_directory"] == "runs/coordinator_crash/x"
    assert (properties["seed"], properties["runtime"]) == ("7", "virtual")


def test_violated_check_is_a_failure_with_its_evidence() -> None:
    """CI shows the text on its own page."""
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
    """CI systems treat a skipped test as a success: unknown is an error, with the reason."""
    error = case(parsed(made), "run").find("error")

    assert error is not None
    assert error.get("type") == kind
    assert "crash-0 hit nothing" in (error.text or "")


def test_check_that_could_not_judge_is_an_error_and_one_without_a_case_is_skipped() -> None:
    """Nothing to judge is no fault of the run; a check that cannot judge makes it unknown."""
    inconclusive = report("liveness", CheckOutcome.INCONCLUSIVE, note="no leader came back")
    nothing = report("processing", CheckOutcome.NOTHING_SEEN)

    root = parsed(results(inconclusive, nothing, verdict=Verdict.UNKNOWN))

    error, skipped = case(root, "liveness").find("error"), case(root, "processing").find("skipped")
    assert error is not None
    assert skipped is not None
    assert error.get("message") == "no leader came back"
    assert skipped.get("message") == "was not put to the test"


def test_failure_before_any_result_is_an_error_of_the_run() -> None:
    """The text has its cause, Ctrl-C by its name."""
    root = ET.fromstring(junit_of_failure("coordinator_crash", KeyboardInterrupt()))
    check_structure(root)

    error = case(root, "run").find("error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("KeyboardInterrupt", "KeyboardInterrupt")


def test_file_of_an_invalid_experiment_replaces_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A green file left by yesterday's run must not pass for today's."""
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
    """Otherwise a minute's run would be lost."""
    (tmp_path / "file").write_text("")
    runs, junit = tmp_path / "runs", tmp_path / "file" / "junit.xml"

    code = run_cli(["run", "graceful_move", "--runs", str(runs), "--junit", str(junit)])

    assert code == EXIT_BAD_ARGUMENTS
    assert f"the JUnit file {junit} cannot be written" in capsys.readouterr().err
    assert not runs.exists()
