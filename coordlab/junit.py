"""Writes the results of a run as JUnit XML, which CI systems read.

A run becomes a test suite with a test case for each check, and one for the run itself:

    <testsuite name="coordlab.fencing" tests="3" failures="1" ...>
      <testcase name="run" .../>
      <testcase name="durable_commits" .../>
      <testcase name="one_owner" ...>
        <failure message="orders-0 has two owners" type="violated">...</failure>
      </testcase>
    </testsuite>

A check becomes a failure if it found a violation, an error if it could not judge, and skipped if it
had nothing to judge. The case of the run itself is an error if the verdict is unknown, if the run
was interrupted, or if coordlab itself failed. So the suite is green only if the verdict is pass.

The document follows the schema that Jenkins publishes (junit-10.xsd). Some tools have stricter
schemas, which demand a certain order of the elements. The document has this order.
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
"""The name of the test case of the run itself."""
_DOCUMENT_NAME = "coordlab"
"""The name of the whole document, and the first part of the names of suites."""
_CHARACTERS_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that may not be in XML 1.0, not even escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case.

    - `kind`: "failure", "error" or "skipped"; None if the case has passed.
    - `message`: one line about what has happened.
    - `story`: a longer text about what has happened, with all details.
    - `type`: the type of a failure or error, a word such as "violated".
    """

    name: str
    kind: str | None = None
    message: str = ""
    story: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The test cases of one run, or of one search of `explore`.

    - `name`: the name of the experiment, or of the space that was searched.
    - `properties`: facts about the run, such as its seed.
    - `started_at`, `ended_at`: in ISO 8601; None if the run failed before it began.
    - `host`: the machine; "" if the run failed before it began.
    """

    name: str
    cases: Sequence[Case]
    properties: Mapping[str, str]
    started_at: str | None = None
    ended_at: str | None = None
    host: str = ""


class JunitNotWritable(Exception):
    """The JUnit file of a run cannot be written. The message says why."""


def begin_junit(path: Path) -> None:
    """Prepare the JUnit file before a run: make its folder, and remove the file of an earlier run.

    If the run breaks off, there is no file. CI must not take an earlier file for the result.

    Raises: JunitNotWritable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise JunitNotWritable(f"the JUnit file {path} cannot be written: {error}") from error


def write_junit(path: Path, document: bytes) -> None:
    """Write a document to a file in one step, so that CI never reads a part of it.

    Raises: JunitNotWritable.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(document)
        temporary.replace(path)
    except OSError as error:
        raise JunitNotWritable(f"the JUnit file {path} cannot be written: {error}") from error


def junit_of_run(manifest: Manifest, results: Results, directory: Path) -> bytes:
    """Return the document of a run that has results."""
    return junit_document([suite_of_run(manifest, results, directory)])


def suite_of_run(
    manifest: Manifest, results: Results, directory: Path, *, name: str | None = None
) -> Suite:
    """Return the suite of a run that has results.

    `name`: the name of the suite; None for the name of the experiment.
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
        name=manifest.experiment if name is None else name,
        cases=[_case_of_run(results), *map(_case_of_check, results.checks)],
        # Leave out properties without a value. A run in real time has no digest, for instance.
        properties={key: value for key, value in properties.items() if value},
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        host=manifest.host,
    )


def junit_of_failure(experiment: str, error: BaseException) -> bytes:
    """Return the document of a run that failed before it had results."""
    error_type = type(error).__name__
    message = str(error) or error_type  # a KeyboardInterrupt has no message
    return junit_document([suite_of_failure(experiment, message, kind=error_type)])


def suite_of_failure(name: str, message: str, *, kind: str) -> Suite:
    """Return the suite of a run without results. `kind`: a word for the kind of failure."""
    first_line, _, _ = message.partition("\n")
    case = Case(name=RUN_CASE, kind="error", type=kind, message=first_line, story=message)
    return Suite(name=name, cases=[case], properties={"experiment": name})


def _case_of_run(results: Results) -> Case:
    """Return the case of the run itself, which is an error if the run proves nothing."""
    reasons = "\n".join(results.reasons)
    match results.outcome:
        case RunOutcome.INTERNAL_ERROR:
            error_type = "internal_error"
            message = "coordlab itself failed; this says nothing about Kafka"
        case RunOutcome.INTERRUPTED:
            error_type = "interrupted"
            message = "the run was interrupted"
        case RunOutcome.COMPLETED if results.verdict is Verdict.UNKNOWN:
            error_type = "unknown"
            message = f"the run proves nothing: {'; '.join(results.reasons)}"
        case RunOutcome.COMPLETED:
            return Case(name=RUN_CASE)
    return Case(name=RUN_CASE, kind="error", type=error_type, message=message, story=reasons)


def _case_of_check(check: CheckReport) -> Case:
    """Return the case of one check."""
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
    """Return the first violation that a check has found: `orders-0 has two owners (and 3 more)`."""
    # `findings_total` counts all violations. `findings` has only the first few, perhaps none.
    if not check.findings:
        return f"violated {check.findings_total} times"
    first = check.findings[0].summary
    more = check.findings_total - 1
    return f"{first} (and {more} more)" if more > 0 else first


def _story_lines(check: CheckReport) -> Iterable[str]:
    """Yield each violation with the events that have caused it and the events that prove it."""
    for finding in check.findings:
        yield finding.summary
        # The two lists of events need headings. Without a cause there is only one list.
        if finding.led_to:
            yield "  what led to it:"
            yield from (f"  {describe_row(row)}" for row in finding.led_to)
            yield "  what proves it:"
        yield from (f"  {line}" for line in finding.story)


def junit_document(suites: Sequence[Suite]) -> bytes:
    """Return the JUnit document that has these suites."""
    root = ET.Element("testsuites", {"name": _DOCUMENT_NAME, **_count_attributes(suites)})
    for suite in suites:
        _add_suite_element(root, suite)
    ET.indent(root)
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded + b"\n"


def _count_attributes(suites: Sequence[Suite]) -> dict[str, str]:
    """Return the attributes that count the cases: `{"tests": "12", "failures": "1", ...}`."""
    cases = [case for suite in suites for case in suite.cases]
    duration_s = sum(_run_seconds(suite) for suite in suites)
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.kind == "failure" for case in cases)),
        "errors": str(sum(case.kind == "error" for case in cases)),
        "skipped": str(sum(case.kind == "skipped" for case in cases)),
        "time": _seconds_text(duration_s),
    }


def _add_suite_element(root: ET.Element, suite: Suite) -> None:
    """Add the element of a suite, with its counts, properties and cases."""
    name = f"{_DOCUMENT_NAME}.{_without_forbidden_characters(suite.name)}"
    element = ET.SubElement(root, "testsuite", {"name": name, **_count_attributes([suite])})
    if suite.started_at is not None:
        # The schema demands a time without fraction and zone, which is as long as this example.
        element.set("timestamp", suite.started_at[: len("2026-01-31T12:00:00")])
        element.set("hostname", suite.host)
    properties = ET.SubElement(element, "properties")
    for key, value in suite.properties.items():
        ET.SubElement(
            properties, "property", {"name": key, "value": _without_forbidden_characters(value)}
        )
    duration = _seconds_text(_run_seconds(suite))
    for case in suite.cases:
        _add_case_element(element, case, classname=name, run_duration=duration)


def _add_case_element(suite: ET.Element, case: Case, *, classname: str, run_duration: str) -> None:
    """Add the element of a case.

    `run_duration`: the seconds of the whole run, as text. Only the case of the run has this time.
    The cases of the checks have the time 0, because the time of a single check is not known.
    """
    element = ET.SubElement(
        suite,
        "testcase",
        {
            "name": _without_forbidden_characters(case.name),
            "classname": classname,
            "time": run_duration if case.name == RUN_CASE else "0",
        },
    )
    if case.kind is not None:
        outcome = ET.SubElement(
            element, case.kind, {"message": _without_forbidden_characters(case.message)}
        )
        if case.kind != "skipped":
            outcome.set("type", case.type)
        # Without a text (None) the element is written as `<skipped ... />`.
        outcome.text = _without_forbidden_characters(case.story) or None


def _run_seconds(suite: Suite) -> float:
    """Return the seconds of real time that a run has taken; 0 if they are not known."""
    if suite.started_at is None or suite.ended_at is None:
        return 0.0
    began, ended = map(datetime.fromisoformat, (suite.started_at, suite.ended_at))
    # The difference is negative if the machine's clock was set back during the run.
    return max((ended - began).total_seconds(), 0.0)


def _seconds_text(seconds: float) -> str:
    """Return a number of seconds as JUnit wants it: `12.345`."""
    return f"{seconds:.3f}" if seconds else "0"


def _without_forbidden_characters(text: str) -> str:
    """Return a text in which each character that XML forbids is replaced."""
    return _CHARACTERS_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
