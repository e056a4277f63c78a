"""Notes: what a reader of a run's figures must know about the defaults of the run's experiment.

A note is neither an error nor a warning about the file (those are in `rules`): the file is correct.
At present there is only one note, about members that do no work.
"""

from collections.abc import Iterator

from chaos.experiment.structs import Experiment


def notes_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the notes, each as one sentence. The commands `validate` and `run` print them."""
    return tuple(_idle_members(experiment))


def _idle_members(experiment: Experiment) -> Iterator[str]:
    """Yield a note if the members of a group spend no time on a record (`process_us: 0`)."""
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
