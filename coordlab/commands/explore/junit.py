"""An exploration as JUnit XML: a test case for each check, and one for the search itself.

A violated check is a failure with all its findings. The search is an error if it proved nothing,
was interrupted, or if coordlab itself failed. So all cases pass if and only if the exit code is 0.

JUnit XML is the format of test results that build servers read. A finding (FoundGroup) stands for
all runs whose violations have the same evidence.
"""

from pathlib import Path

from chaos.checkers.registry import CHECKERS
from chaos.exploration.results import ExplorationResults, FoundGroup
from chaos.exploration.store import ExplorationManifest
from coordlab.junit import Case, Suite, document
from pipeline.summary.story import counted
from results_schema.results import RunOutcome, Verdict

SEARCH_CASE = "explore"


def junit_of_exploration(
    manifest: ExplorationManifest, results: ExplorationResults, path: Path
) -> bytes:
    """Return the document of an exploration that ended: completely, interrupted or failed."""
    cases = [_case_of_search(results)]
    # Each check has a case, which passes if the check has no findings. The keys of the dict are the
    # names of the checks, each once.
    for check in dict.fromkeys((*CHECKERS, *(found.check for found in results.findings))):
        of_check = [finding for finding in results.findings if finding.check == check]
        cases.append(_case_of_check(check, of_check))
    properties = {
        "space": manifest.space,
        "verdict": results.verdict.value,
        "outcome": results.outcome.value,
        "exit_code": str(results.exit_code),
        "seeds": str(results.seeds),
        "code": manifest.code,
        "git_commit": manifest.commit or "",
        "exploration_directory": str(path),
    }
    suite = Suite(
        name=manifest.space,
        cases=cases,
        properties={name: value for name, value in properties.items() if value},
        started_at=manifest.started_at,
        host=manifest.host,
    )
    return document([suite])


def _case_of_search(results: ExplorationResults) -> Case:
    """Return the case of the search itself. Violations are no errors of the search.

    Of the results, `broken` has the failures of coordlab itself, `lost` the seeds whose workers
    died, and `rechecks` the seeds that were played twice. `unknown` has the runs that proved
    nothing; the space allows some of these runs.
    """
    if results.outcome is RunOutcome.INTERRUPTED:
        return Case(
            name=SEARCH_CASE, kind="error", type="interrupted", message="it was interrupted"
        )
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        reasons = [broken.reason for broken in results.broken]
        reasons += [f"seed {seed}: {why}" for seed, why in results.lost.items()]
        reasons += [
            f"seed {recheck.seed} is not deterministic: {recheck.digest}, {recheck.digest_again}"
            for recheck in results.rechecks.different
        ]
        return Case(
            name=SEARCH_CASE,
            kind="error",
            type="internal_error",
            message="coordlab itself failed; this says nothing about Kafka",
            story="\n".join(reasons),
        )
    if results.verdict is Verdict.UNKNOWN:
        # If there is no such run, the verdict is UNKNOWN because no run at all proved anything.
        not_allowed = [unknown for unknown in results.unknown if not unknown.allowed]
        reasons = [unknown.reason for unknown in not_allowed]
        runs = sum(unknown.runs for unknown in not_allowed)
        return Case(
            name=SEARCH_CASE,
            kind="error",
            type="unknown",
            message=f"{counted(runs, 'run')} proved nothing" if runs else "no run proved anything",
            story="\n".join(reasons),
        )
    return Case(name=SEARCH_CASE)


def _case_of_check(check: str, findings: list[FoundGroup]) -> Case:
    """Return the case of one check: a failure with all findings, or a pass without findings."""
    if not findings:
        return Case(name=check)
    more = len(findings) - 1
    stories = [f"{finding.name}: {finding.summary}\n  {finding.replay}" for finding in findings]
    return Case(
        name=check,
        kind="failure",
        type="violated",
        message=findings[0].summary + (f" (and {more} more)" if more else ""),
        story="\n".join(stories),
    )
