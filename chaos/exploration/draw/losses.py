"""Losses of nodes that never restart; enough nodes stay for each partition and each group.

A seed loses a broker only if every partition has more replicas than it needs in sync. Each group
keeps at least one of the members that start with the cluster.
"""

from chaos.experiment.structs import Experiment, FaultDefinition, internal_topics, microseconds
from chaos.exploration.draw.fault_draw import MS, length_text
from chaos.exploration.space_definition import FaultSpace
from cluster.host.randomness import stream
from protocol.ids import TRANSACTION_STATE

_LOST_ROLES = ("a broker", "members", "both")


def draw_losses(
    space: FaultSpace, experiment: Experiment, seed: int
) -> tuple[FaultDefinition, ...]:
    """Return a `node_loss` for each node that a seed loses; most seeds lose none."""
    rng = stream(seed, "lost")
    if rng.random() >= space.lost:
        return ()
    lost_roles = rng.choice(_LOST_ROLES)
    targets = []
    if lost_roles != "members" and may_lose_a_broker(experiment):
        targets.append(f"broker({rng.randrange(experiment.cluster.brokers)})")
    if lost_roles != "a broker":
        for group_id, group in experiment.groups.items():
            lost_members = rng.randrange(max(1, group.members))
            targets += [
                f"member({group_id}, {index})"
                for index in sorted(rng.sample(range(group.members), lost_members))
            ]
    window_ms = microseconds(space.window) // MS
    return tuple(
        FaultDefinition(at=length_text(rng.randrange(window_ms)), fault="node_loss", target=target)
        for target in targets
    )


def may_lose_a_broker(experiment: Experiment) -> bool:
    """Return True if every partition has enough in-sync replicas without one of its brokers."""
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
