"""The section `replay`: the command, the seed, and all that a run was made of."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.facts import RunFacts
from pipeline.report.rendering import as_it_is
from pipeline.report.report_input import ReportInput

_ELSEWHERE = {
    "virtual": ("ray", "with real processes, on Ray"),
    "local": ("virtual", "in virtual time"),
    "ray": ("virtual", "in virtual time"),
}
"""By runtime: another one that says more, and what a run is there."""
_NO_DIGEST = "none was computed"


def replay_section(run: ReportInput) -> Section:
    """Return how to run the same again."""
    return Section(
        id="replay",
        title="Run it again",
        lead=_promise(run.facts.manifest.runtime),
        parts=tuple(_parts(run.facts)),
    )


def _promise(runtime: str) -> str:
    if runtime == "virtual":
        return (
            "Virtual time: the same code with the same plan and seed gives the same trace, byte "
            "for byte; compare the digest."
        )
    what = "One process in real time" if runtime == "local" else "Real processes"
    return (
        f"{what}: the same plan and seed give the same faults at the same times, but no two "
        "runs are alike to the microsecond."
    )


def _parts(facts: RunFacts) -> Iterator[Part]:
    manifest = facts.manifest
    yield Paragraph(html=as_it_is("replay", "command", manifest.replay))
    elsewhere = _ELSEWHERE.get(manifest.runtime)
    here = f"--runtime {manifest.runtime}"
    if elsewhere is not None and here in manifest.replay:
        other, where = elsewhere
        command = manifest.replay.replace(here, f"--runtime {other}")
        yield Paragraph(html=as_it_is("replay", "elsewhere", where, command))
    yield TextTable(headings=("what", "value"), rows=tuple(_made_of(facts)))
    if facts.experiment_yaml:
        yield Paragraph(html=as_it_is("replay", "file", manifest, facts.experiment_yaml))
    if facts.links:
        safe = [each for each in facts.links if urlsplit(each[1]).scheme in {"http", "https"}]
        yield Paragraph(html=as_it_is("replay", "links", safe))


def _made_of(facts: RunFacts) -> Iterator[tuple[Cell, ...]]:
    manifest = facts.manifest
    yield "run", manifest.run
    yield "seed", str(manifest.seed)
    yield "trace digest", manifest.digest or _NO_DIGEST
    yield "commit of coordlab", manifest.git_commit
    yield from manifest.versions.items()
    yield "started", manifest.started_at
    yield "ended", manifest.ended_at
    if facts.experiment_file:
        yield "experiment file", facts.experiment_file
