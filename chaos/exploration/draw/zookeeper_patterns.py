"""Patterns for groups on ZooKeeper: faults of sessions, of their connections and of the ensemble.

In a group on ZooKeeper each member computes its own share of the partitions. The ensemble (all
ZooKeeper servers) keeps a session for each member. The session ends if the member is silent for the
session timeout.

A pattern draws several faults together (see `patterns`). Its function draws all values by the
methods of `draw`, which `fault_draw` explains. If the experiment has no group on ZooKeeper, a
pattern draws no faults. Most patterns also restart a member of the group, because most races need a
change of the group's members. A value that occurs twice in a tuple is drawn twice as often.

An id in parentheses, such as ZK-58, names a rule in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from chaos.experiment.structs import FaultDefinition, zookeeper_ids
from chaos.exploration.draw.fault_draw import FaultDraw
from cluster.host import connection_purposes

Faults = tuple[FaultDefinition, ...]
SESSION = "zookeeper.session.timeout.ms"
"""The timeout near which pauses and cuts of this module end."""
ALL_SERVERS = "zookeepers"
"""The target that stands for all servers of the ensemble."""
_ONE_WAY = {"direction": "one_way"}


def cut_from_zookeeper(draw: FaultDraw) -> Faults:
    """Cut a member off from the ensemble (not from brokers), for 0.5 to 3 sessions (ZK-58)."""
    member = draw.zookeeper_member()
    if member is None:
        return ()
    factor = draw.rng("factor").choice((0.5, 1.0, 1.5, 3.0))
    lasts_ms = draw.around_ms(SESSION, factor, draw.zookeeper_group())
    return (
        draw.link_fault("cut", member, ALL_SERVERS, lasts_ms=lasts_ms),
        *_change_of_members(draw, lasts_ms),
    )


def lost_connections(draw: FaultDraw) -> Faults:
    """Reset the connections of a member one to four times while the group changes (ZK-20)."""
    member = draw.zookeeper_member()
    if member is None:
        return ()
    rng = draw.rng("resets")
    span_ms = rng.choice((300, 2_000, 5_000))
    resets = tuple(
        FaultDefinition(
            at=draw.moment(rng.randrange(span_ms)), fault="reset", from_=member, to=ALL_SERVERS
        )
        for _ in range(rng.randint(1, 4))
    )
    return (*resets, *_change_of_members(draw, span_ms))


def lagging_server(draw: FaultDraw) -> Faults:
    """Delay the leader's messages to another server while the group changes (ZK-71)."""
    server = draw.zookeeper_server()
    # A single server is the leader itself, so there is no other server.
    if server is None or len(zookeeper_ids(draw.experiment)) == 1:
        return ()
    lasts_ms = max(3_000, draw.length_ms())
    delay_ms = draw.rng("lag").choice((20, 100, 400, 1_500))
    slow = draw.link_fault(
        "slow",
        "zookeeper-leader",
        server,
        lasts_ms=lasts_ms,
        args={
            "delay": f"{delay_ms}ms",
            "jitter": "0s",
            "purposes": [connection_purposes.ZOOKEEPER_QUORUM],
        },
    )
    return (slow, *_change_of_members(draw, lasts_ms))


def slow_then_cut(draw: FaultDraw) -> Faults:
    """Delay the ensemble's answers to a member; often cut the member off meanwhile, too (ZK-74)."""
    member = draw.zookeeper_member()
    if member is None:
        return ()
    rng = draw.rng("late")
    slow_ms = max(3_000, draw.length_ms())
    slow = draw.link_fault(
        "slow",
        ALL_SERVERS,
        member,
        lasts_ms=slow_ms,
        args={"delay": f"{rng.choice((20, 60, 120, 250))}ms", "jitter": "0s", **_ONE_WAY},
    )
    change = _change_of_members(draw, 500)
    if rng.random() < 0.3:
        return (slow, *change)  # three of ten draws have no cut
    factor = rng.choice((0.5, 1.5, 3.0))
    cut = draw.link_fault(
        "cut",
        member,
        ALL_SERVERS,
        after_ms=rng.randrange(300, 3_000),
        lasts_ms=draw.around_ms(SESSION, factor, draw.zookeeper_group()),
    )
    return (slow, *change, cut)


def restart_on_zookeeper(draw: FaultDraw) -> Faults:
    """Kill a member and restart it while its old session is still open (ZK-49, ZK-50)."""
    member = draw.zookeeper_member()
    if member is None:
        return ()
    faults, after_ms = [], 0
    for place in range(draw.rng("restarts").choice((1, 1, 2))):
        # The member is down for `down_ms`, and then up for at most 5 s before the next kill.
        down_ms = draw.restart_ms(f"down {place}")
        faults.append(draw.fault("crash", member, after_ms=after_ms, lasts_ms=down_ms))
        after_ms += down_ms + draw.gap_ms(f"up {place}", 5_000)
    return tuple(faults)


def paused_past_a_session(draw: FaultDraw) -> Faults:
    """Pause one or two members for 0.8 to 3 session timeouts (ZK-14, ZK-70)."""
    member = draw.zookeeper_member()
    if member is None:
        return ()
    rng = draw.rng("pauses")
    group = draw.zookeeper_group()
    lasts_ms = draw.around_ms(SESSION, rng.choice((0.8, 1.3, 1.6, 3.0)), group)
    # `other` may be the same member again. Then only one pause is drawn.
    other = draw.zookeeper_member("other")
    faults = [draw.fault("pause", member, lasts_ms=lasts_ms)]
    if other is not None and other != member and rng.random() < 0.4:
        later_ms = rng.randrange(1_000)
        faults.append(draw.fault("pause", other, after_ms=later_ms, lasts_ms=lasts_ms))
    return tuple(faults)


def ensemble_in_trouble(draw: FaultDraw) -> Faults:
    """Kill or pause servers of the ensemble one after the other while the group changes (ZK-15)."""
    if not zookeeper_ids(draw.experiment):
        return ()
    rng = draw.rng("servers")
    faults, after_ms = [], 0
    for place in range(rng.choice((1, 1, 2, 3))):
        # The experiment has servers, so `zookeeper_server` does not return None, and `or ""` is
        # only for the type checker.
        target = rng.choice(("zookeeper-leader", draw.zookeeper_server(f"server {place}") or ""))
        down_ms = rng.choice((300, 1_000, 3_000, 8_000))
        kind = rng.choice(("crash", "pause", "power_loss"))
        faults.append(draw.fault(kind, target, after_ms=after_ms, lasts_ms=down_ms))
        # If the choice is `down_ms`, the next server goes down when this server comes back.
        after_ms += rng.choice((100, 1_000, down_ms))
    return (*faults, *_change_of_members(draw, 1_000))


def members_at_once(draw: FaultDraw) -> Faults:
    """Kill and restart several members at nearly the same moment (ZK-39, ZK-77).

    Their claims of the same partitions then collide in ZooKeeper.
    """
    group = draw.zookeeper_group()
    if group is None:
        return ()
    rng = draw.rng("herd")
    total = draw.experiment.groups[group].members_total
    # A group may have no members at all. `randint` would then raise an exception.
    killed = rng.sample(range(total), rng.randint(1, total)) if total else []
    down_ms = rng.choice((200, 1_000, 9_000))
    return tuple(
        draw.fault(
            "crash",
            f"member({group}, {index})",
            after_ms=rng.randrange(400),
            lasts_ms=down_ms + rng.randrange(100),
        )
        for index in sorted(killed)
    )


def _change_of_members(draw: FaultDraw, within_ms: int) -> Faults:
    """Return the restart of a member in 65 of 100 draws, and otherwise nothing.

    The restarted member may by chance be the member that the pattern itself hits.
    """
    other = draw.zookeeper_member("changes")
    if other is None or not draw.chance("changes", 0.65):
        return ()
    after_ms = draw.rng("changes at").randrange(max(1, within_ms))
    down_ms = draw.rng("changes for").choice((300, 2_000, 10_000))
    return (draw.fault("crash", other, after_ms=after_ms, lasts_ms=down_ms),)
