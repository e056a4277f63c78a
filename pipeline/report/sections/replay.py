"""The section `replay`: the command, the seed, and all that a run was made of."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from markupsafe import Markup

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.facts import RunFacts
from pipeline.report.report_input import ReportInput
from results_schema.manifest import Manifest

_RUNTIMES = {"virtual": "ray", "ray": "virtual"}
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
    return (
        "Real processes: the same plan and seed give the same faults at the same times, but no two "
        "runs are alike to the microsecond."
    )


def _parts(facts: RunFacts) -> Iterator[Part]:
    manifest = facts.manifest
    yield Paragraph(html=_command(manifest.replay))
    other = _RUNTIMES.get(manifest.runtime)
    here = f"--runtime {manifest.runtime}"
    if other is not None and here in manifest.replay:
        where = "with real processes, on Ray" if other == "ray" else "in virtual time"
        command = manifest.replay.replace(here, f"--runtime {other}")
        yield Paragraph(
            html=Markup("<p>The same {}:</p>{}").format(where, _command(command)),
        )
    yield TextTable(headings=("what", "value"), rows=tuple(_made_of(facts)))
    if facts.experiment_yaml:
        yield Paragraph(html=_file(manifest, facts.experiment_yaml))
    if facts.links:
        yield Paragraph(html=_links(facts))


def _command(text: str) -> Markup:
    return Markup('<pre class="command" tabindex="0"><code>{}</code></pre>').format(text)


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


def _file(manifest: Manifest, yaml: str) -> Markup:
    name = f"{manifest.experiment}.yaml"
    return Markup(
        "<details><summary>The experiment as a file, all overrides in it</summary><p>Save it as "
        "<code>{}</code> and run <code>python -m coordlab run {} --runtime {} --seed {}</code>."
        '</p><pre class="scroll" tabindex="0"><code>{}</code></pre></details>'
    ).format(name, name, manifest.runtime, manifest.seed, yaml)


def _links(facts: RunFacts) -> Markup:
    links = Markup("").join(
        Markup('<li><a href="{}" rel="noreferrer">{}</a></li>').format(url, name)
        for name, url in facts.links
        if urlsplit(url).scheme in {"http", "https"}
    )
    return Markup("<p>To read on:</p><ul>{}</ul>").format(links)
