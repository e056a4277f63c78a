"""Makes the file of a finding: an experiment file whose run shows the finding.

For each kind of finding a search writes one such file, from the run that is the best example. The
experiment of this run is not stored, so it is drawn from its seed again. Users replay the file, or
shrink it.

Data flow: FindingGroup -> seed drawn again -> experiment_text -> findings/<check>-<n>.yaml.
"""

import msgspec

from chaos.experiment.dump import experiment_text
from chaos.exploration.guided.lineage import grow, lineage_text
from chaos.exploration.play import PlayedRun
from chaos.exploration.replay_file import stamp_of
from chaos.exploration.running_totals import FindingGroup
from chaos.exploration.space import Space


def finding_text(group: FindingGroup, space: Space, commit: str | None) -> str:
    """Return the text of a finding's file. `commit` is the commit of the code that found it."""
    run, finding = group.example, group.finding
    # A drawn run has no lineage, because its seed alone defines it.
    grown = grow(space, run.lineage or (run.seed,))
    experiment = grown.experiment
    # The stamp at the end of the file has the seed with which `replay` plays it. This must be the
    # seed of the network. A run whose plan was changed from an earlier one may have the network
    # seed of that run, not its own.
    stamp = msgspec.structs.replace(
        stamp_of(experiment, run, finding=finding), commit=commit, seed=grown.network_seed
    )
    experiment = msgspec.structs.replace(experiment, replay=stamp)
    return experiment_text(experiment, comment=_comment(group, space))


def _comment(group: FindingGroup, space: Space) -> str:
    """Return the comment at the top of the file: the finding, and the commands for this file."""
    story = ", then ".join(group.signature.story)
    lines = [
        f"Found by `coordlab explore {space.name}`, seed {name_of_run(group.example)}, at "
        f"{group.finding.time_us / 1e6:.3f} s:",
        f"{group.signature.check}: {group.finding.summary}",
        *([f"story: {story}"] if story else []),
        "Play it again:  python -m coordlab replay FILE",
        "Make it small:  python -m coordlab shrink FILE",
    ]
    return "\n".join(lines)


def name_of_run(run: PlayedRun) -> str:
    """Return a run's seed as text; for a mutated seed, its lineage."""
    return lineage_text(run.lineage or (run.seed,))
