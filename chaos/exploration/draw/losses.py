"""Nodes that are lost for good: no more than leave each partition and each group enough to go on.

A broker is lost where every partition has a replica more than it needs in sync; of a group's
members at least one of those that are there from the start stays.
"""

from chaos.experiment.structs import Experiment, FaultDefinition, internal_topics, microseconds
from chaos.exploration.draw.fault_draw import MS, length_text
from chaos.exploration.space_definition import FaultSpace
from cluster.host.randomness import stream
from protocol.ids import TRANSACTION_STATE

_WHO = ("a broker", "members", "both")


def draw_losses(
    space: FaultSpace, experiment: Experiment, seed: int
) -> tuple[FaultDefinition, ...]:
    """Return the nodes that a seed loses; most seeds lose none."""
    rng = stream(seed, "lost")
    if rng.random() >= space.lost:
        return ()
    who = rng.choice(_WHO)
    targets = []
    if who != "members" and may_lose_a_broker(experiment):
        targets.append(f"broker({rng.randrange(experiment.cluster.brokers)})")
    if who != "a broker":
        for group_id, group in experiment.groups.items():
            leaves = rng.randrange(max(1, group.members))
            targets += [
                f"member({group_id}, {index})"
                for index in sorted(rng.sample(range(group.members), leaves))
            ]
    window_ms = microseconds(space.window) // MS
    return tuple(
        FaultDefinition(at=length_text(rng.randrange(window_ms)), fault="node_loss", target=target)
        for target in targets
    )


def may_lose_a_broker(experiment: Experiment) -> bool:
    """Return whether every partition has enough replicas in sync without one of them."""
    config = experiment.cluster.config
    least = {
        name: config.transaction_state_log_min_isr
        if name == TRANSACTION_STATE
        else config.min_insync_replicas
        for name in internal_topics(experiment)
    }
    spare = [replicas - least[name] for name, (_, replicas) in internal_topics(experiment).items()]
    for topic in experiment.topics.values():
        own = topic.config.min_insync_replicas
        spare.append(
            topic.replication_factor - (config.min_insync_replicas if own is None else own)
        )
    return min(spare) > 0
