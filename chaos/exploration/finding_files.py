"""Makes the file of a finding: an experiment file whose run shows the finding.

A finding is a violation that a checker reported in a run of the search. For each kind of finding
the search writes one file, from the run that is the best example. The experiment of this run was
not stored, so it is drawn from the run's seed again. Users replay the file, or shrink it.

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
    """Return the text of the file of a group's finding.

    `commit` is the commit of the code with which the search found the violation.
    """
    run, finding = group.example, group.finding
    # If the plan was changed from an earlier plan, `lineage` has the seeds from the first plan to
    # this one. Otherwise the lineage is (), and the run's seed alone defines the plan.
    grown = grow(space, run.lineage or (run.seed,))
    experiment = grown.experiment
    # The stamp at the end of the file has the seed with which `replay` plays the file. This must be
    # the seed of the network. If the plan was changed from an earlier plan, the run may have the
    # network seed of the earlier run, which is not the same as `run.seed`.
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
    """Return the text by which users name a run: its seed, or its lineage if it has one."""
    return lineage_text(run.lineage or (run.seed,))
