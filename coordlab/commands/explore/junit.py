"""An exploration as JUnit XML: a test case for each check, for determinism, and for the search.

A check that was violated is a failure with all its findings; the search is an error if it proved
nothing, was interrupted, or the lab failed. So it is green if and only if the exit code is 0.
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
    for check in dict.fromkeys((*CHECKERS, *(found.check for found in results.findings))):
        found = [each for each in results.findings if each.check == check]
        cases.append(_case_of_check(check, found))
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
    if results.outcome is RunOutcome.INTERRUPTED:
        return Case(
            name=SEARCH_CASE, kind="error", type="interrupted", message="it was interrupted"
        )
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        reasons = [each.reason for each in results.broken]
        reasons += [f"seed {seed}: {why}" for seed, why in results.lost.items()]
        reasons += [
            f"seed {each.seed} is not deterministic: {each.digest}, {each.digest_again}"
            for each in results.rechecks.different
        ]
        said = "coordlab itself failed; this says nothing about Kafka"
        return Case(
            name=SEARCH_CASE,
            kind="error",
            type="internal_error",
            message=said,
            story="\n".join(reasons),
        )
    if results.verdict is Verdict.UNKNOWN:
        reasons = [each.reason for each in results.unknown if not each.allowed]
        runs = sum(each.runs for each in results.unknown if not each.allowed)
        return Case(
            name=SEARCH_CASE,
            kind="error",
            type="unknown",
            message=f"{counted(runs, 'run')} proved nothing" if runs else "no run proved anything",
            story="\n".join(reasons),
        )
    return Case(name=SEARCH_CASE)


def _case_of_check(check: str, found: list[FoundGroup]) -> Case:
    if not found:
        return Case(name=check)
    more = len(found) - 1
    stories = [f"{each.name}: {each.summary}\n  {each.replay}" for each in found]
    return Case(
        name=check,
        kind="failure",
        type="violated",
        message=found[0].summary + (f" (and {more} more)" if more else ""),
        story="\n".join(stories),
    )
