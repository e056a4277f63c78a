"""Draws which nodes die in a run and never restart.

Such a loss must not make a run fail by itself. So each group keeps at least one of the members that
start with the cluster. And a broker is lost only if every partition has more replicas than its
`min.insync.replicas`. Then every partition can do without one replica.
"""

from chaos.experiment.structs import Experiment, FaultDefinition, internal_topics, microseconds
from chaos.exploration.draw.fault_draw import MS, length_text
from chaos.exploration.space_definition import FaultSpace
from cluster.host.randomness import stream
from protocol.ids import TRANSACTION_STATE

_LOST_ROLES = ("a broker", "members", "both")
"""The nodes that a seed with losses loses. The three cases are equally likely."""


def draw_losses(
    space: FaultSpace, experiment: Experiment, seed: int
) -> tuple[FaultDefinition, ...]:
    """Return a fault `node_loss` for each node that a seed loses; most seeds lose no node."""
    rng = stream(seed, "lost")
    if rng.random() >= space.lost:
        return ()
    lost_roles = rng.choice(_LOST_ROLES)
    targets = []
    if lost_roles != "members" and may_lose_a_broker(experiment):
        targets.append(f"broker({rng.randrange(experiment.cluster.brokers)})")
    if lost_roles != "a broker":
        for group_id, group in experiment.groups.items():
            # The number is below `members`, so that at least one member stays. `max` is for a group
            # that starts without members, which loses none.
            lost_count = rng.randrange(max(1, group.members))
            targets += [
                f"member({group_id}, {index})"
                for index in sorted(rng.sample(range(group.members), lost_count))
            ]
    window_ms = microseconds(space.window) // MS
    return tuple(
        FaultDefinition(at=length_text(rng.randrange(window_ms)), fault="node_loss", target=target)
        for target in targets
    )


def may_lose_a_broker(experiment: Experiment) -> bool:
    """Return True if every partition keeps enough in-sync replicas after the loss of a broker."""
    config = experiment.cluster.config
    # `spare` has one number for each topic: how many replicas of each partition may be missing when
    # `min.insync.replicas` are still there.
    spare = []
    for name, (_, replicas) in internal_topics(experiment).items():
        is_transaction_state = name == TRANSACTION_STATE
        min_isr = (
            config.transaction_state_log_min_isr
            if is_transaction_state
            else config.min_insync_replicas
        )
        spare.append(replicas - min_isr)
    for topic in experiment.topics.values():
        # If a topic does not set `min.insync.replicas` itself, the setting of the cluster holds.
        topic_min_isr = topic.config.min_insync_replicas
        min_isr = config.min_insync_replicas if topic_min_isr is None else topic_min_isr
        spare.append(topic.replication_factor - min_isr)
    return min(spare) > 0
