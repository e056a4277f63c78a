"""Notes: what a reader of a run's figures must know about the defaults of its experiment.

The file of such an experiment is correct; errors and warnings about files are in `rules`. At
present there is one note, about members that do no work.
"""

from collections.abc import Iterator

from chaos.experiment.structs import Experiment


def notes_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the notes that `validate` and the last lines of `run` print, one sentence each."""
    return tuple(_idle_members(experiment))


def _idle_members(experiment: Experiment) -> Iterator[str]:
    """Yield a note if groups have members that spend no time on a record (process_us: 0)."""
    idle = [
        group_id
        for group_id, group in experiment.groups.items()
        if group.process_bounds_us[1] == 0 and group.members_total
    ]
    if idle:
        yield (
            f"members of {', '.join(idle)} do no work (process_us: 0): no rebalance waits for a "
            "busy member and nothing lags, so that figures of rebalances and of lag are a best "
            "case; set process_us to what your application takes for a record"
        )
