"""`explore --junit`: writes the result of a search as JUnit XML, which build servers read.

There is a test case for each check. The case fails if some seed has violated the check, and then it
lists all findings of the check. One more case, `explore`, is about the search itself. This case is
an error if the search proved nothing or was interrupted, or if coordlab itself failed. So the build
is green only if the exit code is 0.
"""

from pathlib import Path

from chaos.checkers.registry import CHECKERS
from chaos.exploration.results import ExplorationResults, FoundGroup
from chaos.exploration.store import ExplorationManifest
from coordlab.junit import Case, Suite, junit_document
from pipeline.summary.story import counted
from results_schema.results import RunOutcome, Verdict

SEARCH_CASE = "explore"


def junit_of_exploration(
    manifest: ExplorationManifest, results: ExplorationResults, path: Path
) -> bytes:
    """Return the JUnit document of a search that has ended, even if it was broken off."""
    cases = [_case_of_search(results)]
    # A finding may be of a check that this version of coordlab does not know.
    checks = dict.fromkeys((*CHECKERS, *(finding.check for finding in results.findings)))
    for check in checks:
        findings = [finding for finding in results.findings if finding.check == check]
        cases.append(_case_of_check(check, findings))
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
    return junit_document([suite])


def _case_of_search(results: ExplorationResults) -> Case:
    """Return the case of the search itself. It passes even if the search has found violations."""
    if results.outcome is RunOutcome.INTERRUPTED:
        return Case(
            name=SEARCH_CASE, kind="error", type="interrupted", message="it was interrupted"
        )
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        # List the runs in which coordlab failed, and the seeds that ended their worker process.
        # Also list the seeds that gave two different results when they were played twice.
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
        # No run proved anything, or some proved nothing although the space does not allow this.
        not_allowed = [unknown for unknown in results.unknown if not unknown.allowed]
        reasons = [unknown.reason for unknown in not_allowed]
        runs = sum(unknown.runs for unknown in not_allowed)
        message = f"{counted(runs, 'run')} proved nothing" if runs else "no run proved anything"
        return Case(
            name=SEARCH_CASE,
            kind="error",
            type="unknown",
            message=message,
            story="\n".join(reasons),
        )
    return Case(name=SEARCH_CASE)


def _case_of_check(check: str, findings: list[FoundGroup]) -> Case:
    """Return the case of one check, which passes if there are no findings."""
    if not findings:
        return Case(name=check)
    message = findings[0].summary
    more = len(findings) - 1
    if more:
        message += f" (and {more} more)"
    stories = [f"{finding.name}: {finding.summary}\n  {finding.replay}" for finding in findings]
    return Case(
        name=check,
        kind="failure",
        type="violated",
        message=message,
        story="\n".join(stories),
    )
