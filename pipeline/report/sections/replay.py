"""The section `replay`: what a reader needs to repeat the run.

The section has the command that repeats the run, the seed, the versions of the software, and the
text of the experiment's file. It also suggests a command for another runtime. The runtimes are
`virtual` (on a simulated clock), `local` (one process in real time), and `ray` (real processes on
Ray).
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.facts import RunFacts
from pipeline.report.rendering import render_block
from pipeline.report.report_input import ReportInput

_OTHER_RUNTIMES = {
    "virtual": ("ray", "with real processes, on Ray"),
    "local": ("virtual", "in virtual time"),
    "ray": ("virtual", "in virtual time"),
}
"""Runtime of the run -> another runtime, on which the page suggests to repeat the run, and the
words about it in the sentence above the command.
"""
_NO_DIGEST = "none was computed"
"""Text in place of the digest (the checksum) of the trace."""


def replay_section(run: ReportInput) -> Section:
    """Return the section, which every report has."""
    return Section(
        id="replay",
        title="Run it again",
        lead=_exactness(run.facts.manifest.runtime),
        parts=tuple(_parts(run.facts)),
    )


def _exactness(runtime: str) -> str:
    """Return a sentence on the exactness of a repeated run, which depends on the runtime."""
    if runtime == "virtual":
        return (
            "Virtual time: the same code with the same plan and seed gives the same trace, byte "
            "for byte; compare the digest."
        )
    processes = "One process in real time" if runtime == "local" else "Real processes"
    return (
        f"{processes}: the same plan and seed give the same faults at the same times, but no two "
        "runs are alike to the microsecond."
    )


def _parts(facts: RunFacts) -> Iterator[Part]:
    """Yield the commands, the facts that identify the run, its experiment file and its links."""
    manifest = facts.manifest
    yield Paragraph(html=render_block("replay", "command", manifest.replay))
    other_runtime = _OTHER_RUNTIMES.get(manifest.runtime)
    option = f"--runtime {manifest.runtime}"
    # A command without this option has no place for another runtime.
    if other_runtime is not None and option in manifest.replay:
        name, description = other_runtime
        command = manifest.replay.replace(option, f"--runtime {name}")
        yield Paragraph(html=render_block("replay", "elsewhere", description, command))

    yield TextTable(headings=("what", "value"), rows=tuple(_provenance(facts)))
    if facts.experiment_yaml:
        yield Paragraph(html=render_block("replay", "file", manifest, facts.experiment_yaml))
    if facts.links:
        # The links come from the experiment's file, whose author may not be trusted. A link of the
        # scheme `javascript` would run code on the page.
        safe = [
            (name, url) for name, url in facts.links if urlsplit(url).scheme in {"http", "https"}
        ]
        yield Paragraph(html=render_block("replay", "links", safe))


def _provenance(facts: RunFacts) -> Iterator[tuple[Cell, ...]]:
    """Yield the facts that identify a run, as pairs of name and value."""
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
