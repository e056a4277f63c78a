"""A run as JUnit XML, the form in which CI systems take results.

A run is a test suite. It has one test case for each check, and the test case `run`:

- a check that passed is a passed test case;
- a violated check is a failure, with its story;
- a check that could not judge is an error;
- a check that had nothing to judge is skipped;
- `run` is an error if the verdict is unknown, the run was interrupted or coordlab itself failed.

So the verdict is pass if and only if no test case is a failure or an error.

The document follows the schema that Jenkins publishes (junit-10.xsd). Some tools have stricter
schemas, so the elements are in the order that the stricter ones demand.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from results_schema.evidence_text import describe_row
from results_schema.manifest import Manifest
from results_schema.results import CheckOutcome, CheckReport, Results, RunOutcome, Verdict

RUN_CASE = "run"
"""The test case of the run itself."""
_SUITE = "coordlab"
"""The name of the whole document, and the first part of the names of suites."""
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case.

    In JUnit's XML, an element `failure`, `error` or `skipped` inside a test case says its outcome.
    A passed case has no such element.

    - `kind`: the name of the element; None for a passed case.
    - `message`: the attribute `message` of the element, which is one line.
    - `story`: the text of the element.
    - `type`: the attribute `type` of a failure or an error: a word such as `violated`.
    """

    name: str
    kind: str | None = None
    message: str = ""
    story: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The test cases of one run, or of one search.

    A search (`coordlab explore`) plays experiments that it draws from a file, the space.

    - `name`: the name of the experiment or of the space.
    - `properties`: facts about the run, such as its seed.
    - `started_at`, `ended_at`, `host`: values of the manifest, the file of a run directory that
      says what the run is. A run that failed early has no manifest; its values are None and "".
    """

    name: str
    cases: Sequence[Case]
    properties: Mapping[str, str]
    started_at: str | None = None
    ended_at: str | None = None
    host: str = ""


class JunitNotWritable(Exception):
    """The JUnit file of a run cannot be written; the message has the reason."""


def begin_junit(path: Path) -> None:
    """Create the folder of a run's JUnit file, and remove the file of an older run.

    If the new run breaks off, CI must not read the older file as the result of the new run.

    Raises: JunitNotWritable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise JunitNotWritable(f"the JUnit file {path} cannot be written: {error}") from error


def write_junit(path: Path, document: bytes) -> None:
    """Write a document in one step, so that CI reads all of it or nothing.

    Raises: JunitNotWritable.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(document)
        temporary.replace(path)
    except OSError as error:
        raise JunitNotWritable(f"the JUnit file {path} cannot be written: {error}") from error


def junit_of_run(manifest: Manifest, results: Results, directory: Path) -> bytes:
    """Return the document of a run that has results: finished, failed or interrupted."""
    return document([suite_of_run(manifest, results, directory)])


def suite_of_run(
    manifest: Manifest, results: Results, directory: Path, *, name: str | None = None
) -> Suite:
    """Return the suite of a run with results.

    `name`: the suite's name. If it is None, the suite has the name of the experiment.
    """
    properties = {
        "experiment": manifest.experiment,
        "verdict": results.verdict.value,
        "outcome": results.outcome.value,
        "exit_code": str(results.exit_code),
        "runtime": manifest.runtime,
        "seed": str(manifest.seed),
        "replay": manifest.replay,
        "run_directory": str(directory),
        "git_commit": manifest.git_commit or "",
        "trace_digest": manifest.digest or "",
    }
    return Suite(
        name=name or manifest.experiment,
        cases=[_case_of_run(results), *map(_case_of_check, results.checks)],
        # Properties without a value are left out. For instance, a run in real time has no digest.
        properties={key: value for key, value in properties.items() if value},
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        host=manifest.host,
    )


def junit_of_failure(experiment: str, error: BaseException) -> bytes:
    """Return the document of a run that failed before it had results."""
    error_type = type(error).__name__
    # The text of some errors is "", for instance that of KeyboardInterrupt.
    return document([suite_of_failure(experiment, str(error) or error_type, kind=error_type)])


def suite_of_failure(name: str, message: str, *, kind: str) -> Suite:
    """Return the suite of a run without results; `kind` is the type of the failure."""
    first_line, _, _ = message.partition("\n")
    case = Case(name=RUN_CASE, kind="error", type=kind, message=first_line, story=message)
    return Suite(name=name, cases=[case], properties={"experiment": name})


def _case_of_run(results: Results) -> Case:
    """Return the case of the run itself: passed if the run is complete and has a known verdict."""
    reasons = "\n".join(results.reasons)
    match results.outcome:
        case RunOutcome.INTERNAL_ERROR:
            message, error_type = (
                "coordlab itself failed; this says nothing about Kafka",
                "internal_error",
            )
        case RunOutcome.INTERRUPTED:
            message, error_type = "the run was interrupted", "interrupted"
        case RunOutcome.COMPLETED if results.verdict is Verdict.UNKNOWN:
            message, error_type = f"the run proves nothing: {'; '.join(results.reasons)}", "unknown"
        case RunOutcome.COMPLETED:
            return Case(name=RUN_CASE)
    return Case(name=RUN_CASE, kind="error", type=error_type, message=message, story=reasons)


def _case_of_check(check: CheckReport) -> Case:
    """Return the case of a check: passed, failed, an error if inconclusive, or skipped."""
    match check.outcome:
        case CheckOutcome.PASS:
            return Case(name=check.check)
        case CheckOutcome.VIOLATED:
            return Case(
                name=check.check,
                kind="failure",
                type="violated",
                message=_violation_message(check),
                story="\n".join(_story_lines(check)),
            )
        case CheckOutcome.INCONCLUSIVE:
            return Case(
                name=check.check,
                kind="error",
                type="inconclusive",
                message=check.note or "could not be judged",
            )
        case CheckOutcome.NOTHING_SEEN:
            note = f": {check.note}" if check.note else ""
            return Case(name=check.check, kind="skipped", message=f"was not put to the test{note}")


def _violation_message(check: CheckReport) -> str:
    """Return the message about a violated check: its first finding, and the number of others.

    A finding is one violation. `findings` has only the first findings of the check, perhaps none;
    `findings_total` is the number of all.
    """
    if not check.findings:
        return f"violated {check.findings_total} times"
    more = check.findings_total - 1
    return check.findings[0].summary + (f" (and {more} more)" if more > 0 else "")


def _story_lines(check: CheckReport) -> Iterable[str]:
    """Yield the lines of the findings of a check.

    A finding has its `summary`, and in `story` the events that prove the violation. `led_to` has
    earlier events, which are the cause.
    """
    for finding in check.findings:
        yield finding.summary
        # If `led_to` is empty, there is only the list of `story`, which then needs no heading.
        if finding.led_to:
            yield "  what led to it:"
            yield from (f"  {describe_row(row)}" for row in finding.led_to)
            yield "  what proves it:"
        yield from (f"  {line}" for line in finding.story)


def document(suites: Sequence[Suite]) -> bytes:
    """Return the document of suites, in their order."""
    root = ET.Element("testsuites", {"name": _SUITE, **_counts(suites)})
    for suite in suites:
        _add_suite(root, suite)
    ET.indent(root)
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded + b"\n"


def _counts(suites: Sequence[Suite]) -> dict[str, str]:
    """Return attributes: the numbers of cases by outcome, and the total time of the suites."""
    cases = [case for suite in suites for case in suite.cases]
    duration_s = sum(_seconds(suite) for suite in suites)
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.kind == "failure" for case in cases)),
        "errors": str(sum(case.kind == "error" for case in cases)),
        "skipped": str(sum(case.kind == "skipped" for case in cases)),
        "time": _seconds_text(duration_s),
    }


def _add_suite(root: ET.Element, suite: Suite) -> None:
    """Add the element of a suite, with its counts, properties and cases."""
    name = f"{_SUITE}.{_clean(suite.name)}"
    element = ET.SubElement(root, "testsuite", {"name": name, **_counts([suite])})
    if suite.started_at is not None:
        # The schema demands ISO 8601 without fraction and zone: as many characters as this example.
        element.set("timestamp", suite.started_at[: len("2026-01-31T12:00:00")])
        element.set("hostname", suite.host)
    properties = ET.SubElement(element, "properties")
    for key, value in suite.properties.items():
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    duration = _seconds_text(_seconds(suite))
    for case in suite.cases:
        _add_case(element, case, classname=name, run_duration=duration)


def _add_case(suite: ET.Element, case: Case, *, classname: str, run_duration: str) -> None:
    """Add the element of a case.

    `run_duration`: seconds of the whole run, as text. The case `run` gets them; the cases of checks
    get 0, because their own time is not known.
    """
    element = ET.SubElement(
        suite,
        "testcase",
        {
            "name": _clean(case.name),
            "classname": classname,
            "time": run_duration if case.name == RUN_CASE else "0",
        },
    )
    if case.kind is not None:
        outcome = ET.SubElement(element, case.kind, {"message": _clean(case.message)})
        if case.kind != "skipped":
            outcome.set("type", case.type)
        # An element whose text is None is written as one tag, `<skipped ... />`.
        outcome.text = _clean(case.story) or None


def _seconds(suite: Suite) -> float:
    """Return the wall-clock seconds that a run took; 0 if unknown."""
    if suite.started_at is None or suite.ended_at is None:
        return 0.0
    began, ended = map(datetime.fromisoformat, (suite.started_at, suite.ended_at))
    # The difference is negative if the machine's clock was set back during the run.
    return max((ended - began).total_seconds(), 0.0)


def _seconds_text(seconds: float) -> str:
    """Return a number of seconds in the format of JUnit."""
    return f"{seconds:.3f}" if seconds else "0"


def _clean(text: str) -> str:
    """Return a text in which a replacement character stands for each one that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
