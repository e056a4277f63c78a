"""What a reader of an experiment's figures has to know of its defaults: nothing is wrong with them.

Problems and warnings are those of `rules`.
"""

from collections.abc import Iterator

from chaos.experiment.structs import Experiment


def notes_of(experiment: Experiment) -> tuple[str, ...]:
    """Return what `validate` and the closing summary say, a sentence each."""
    return tuple(_idle_members(experiment))


def _idle_members(experiment: Experiment) -> Iterator[str]:
    """Name the groups whose members take no time for a record: a stop costs them nothing."""
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
