"""Patterns: combinations of faults that would come together only rarely if drawn one by one.

For example, the pattern `move_during_rebalance` kills a member of a group, and moves the group's
coordinator during the rebalance that follows.

Each function below draws the faults of one pattern. PATTERNS has an entry with the name and the
meaning of each pattern. So a new pattern needs a function and an entry.

The argument `draw` of each function is a FaultDraw. It draws what the function needs, such as a
coordinator, a member or a length of time. `draw.rng(purpose)` is a random generator for one
purpose. `after_ms` is the time of a fault, counted from the beginning of the pattern.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.experiment.structs import FaultDefinition, zookeeper_groups
from chaos.exploration.draw.close_patterns import (
    fenced_while_it_serves,
    quick_restart,
    response_lost_in_a_failover,
    response_lost_in_a_rebalance,
    slow_follower,
    static_restart_in_a_rebalance,
    twice_on_one_role,
)
from chaos.exploration.draw.fault_draw import FaultDraw
from chaos.exploration.draw.operations import deploy_in_failover
from chaos.exploration.draw.zookeeper_patterns import (
    cut_from_zookeeper,
    ensemble_in_trouble,
    lagging_server,
    lost_connections,
    members_at_once,
    paused_past_a_session,
    restart_on_zookeeper,
    slow_then_cut,
)

Faults = tuple[FaultDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A named combination of faults.

    - `doc`: the meaning of the pattern, in a few words.
    - `draw`: the function that draws its faults.
    """

    name: str
    doc: str
    draw: Callable[[FaultDraw], Faults]


# Each function below draws the faults of the pattern of the same name. The pattern's entry in
# PATTERNS says in `doc` what the pattern is. So a function has a docstring only if there is more to
# say than the entry says.


def _isolated_coordinator(draw: FaultDraw) -> Faults:
    lasts_ms = draw.length_ms()
    return (
        draw.link_fault("cut", draw.coordinator(), ("controller", "brokers"), lasts_ms=lasts_ms),
    )


def _coordinator_without_controller(draw: FaultDraw) -> Faults:
    # The random generator of this draw is seeded with the word "hears". The word no longer fits
    # what is drawn, but with another word the plans of all seeds would change.
    cuts_to_coordinator = draw.chance("hears", 0.5)
    ends = (
        ("controller", draw.coordinator())
        if cuts_to_coordinator
        else (draw.coordinator(), "controller")
    )
    return (draw.link_fault("cut", *ends, lasts_ms=draw.length_ms(), one_way=True),)


def _coordinator_without_clients(draw: FaultDraw) -> Faults:
    # The length of the cut and the time of the move are drawn separately. The time of the move is
    # half of a drawn length, so the move mostly comes before the cut ends.
    return (
        draw.link_fault("cut", draw.coordinator(), "clients", lasts_ms=draw.length_ms()),
        draw.fault("leadership_move", draw.coordinator(), after_ms=draw.length_ms("move") // 2),
    )


def _rolling_restart(draw: FaultDraw) -> Faults:
    down_ms = min(draw.length_ms(), 5_000)
    gap_ms = draw.rng("gap").choice((100, 1_000, 4_000))
    return tuple(
        draw.fault(
            "controlled_shutdown",
            f"broker({broker})",
            after_ms=place * (down_ms + gap_ms),
            lasts_ms=down_ms,
        )
        for place, broker in enumerate(draw.broker_ids)
    )


def _swizzle_clog(draw: FaultDraw) -> Faults:
    """Clog brokers one by one, and unclog them in another order.

    While a broker is clogged, all messages from and to this broker wait.
    """
    rng = draw.rng("swizzle")
    nodes = [f"broker({broker})" for broker in draw.broker_ids]
    nodes = rng.sample(nodes, rng.randint(1, len(nodes)))
    # Each half of the span must have at least one millisecond, because `randrange` of 0 raises an
    # exception.
    span_ms = max(2, draw.length_ms())
    faults = []
    for node in nodes:
        # Each clog begins in the first half of the span and ends in the second half. So all clogs
        # overlap.
        begin_ms = rng.randrange(span_ms // 2)
        end_ms = rng.randrange(span_ms // 2, span_ms) + 1
        faults.append(
            draw.link_fault(
                "clog",
                node,
                ("controller", "brokers", "clients"),
                after_ms=begin_ms,
                lasts_ms=end_ms - begin_ms,
            )
        )
    return tuple(faults)


def _paused_past_a_timeout(draw: FaultDraw) -> Faults:
    # A pause past `session.timeout.ms` hits a member in half of the draws, and otherwise a
    # coordinator. A pause past the broker's timeout always hits a coordinator.
    rng = draw.rng("timeout")
    timeout = rng.choice(("broker.session.timeout.ms", "session.timeout.ms"))
    lasts_ms = draw.around_ms(timeout, rng.choice((1.02, 1.1, 1.3)))
    target = draw.member() if timeout == "session.timeout.ms" and rng.random() < 0.5 else None
    return (draw.fault("pause", target or draw.coordinator(), lasts_ms=lasts_ms),)


def _next_coordinator_too(draw: FaultDraw) -> Faults:
    """Hit the coordinator, and then its successor about as soon as it can have been elected.

    The controller elects a successor when the session of the first broker has ended.
    """
    later_ms = draw.around_ms("broker.session.timeout.ms", draw.rng("later").choice((1.0, 1.2)))
    kind = draw.rng("kind").choice(("crash", "pause"))
    lasts_ms = draw.length_ms()
    # Both faults have the target `coordinator-of(<group>)`. The second fault hits the broker that
    # is the coordinator when the second fault begins.
    return tuple(
        draw.fault(kind, draw.coordinator(), after_ms=place * later_ms, lasts_ms=lasts_ms)
        for place in range(2)
    )


def _leadership_to_and_fro(draw: FaultDraw) -> Faults:
    rng = draw.rng("moves")
    gap_ms = rng.choice((20, 150, 800))
    return tuple(
        draw.fault("leadership_move", draw.coordinator(), after_ms=place * gap_ms)
        for place in range(rng.randint(2, 6))
    )


def _move_during_rebalance(draw: FaultDraw) -> Faults:
    """Kill a member, and move the coordinator during the rebalance that the kill causes."""
    rng = draw.rng("move")
    member = draw.member()
    if member is None:  # the group has no members, so only the coordinator can be moved
        return (draw.fault("leadership_move", draw.coordinator()),)
    down_ms = draw.length_ms()
    # The group rebalances when the dead member restarts, or when its session ends, whichever comes
    # first. In half of the draws the move comes after the restart, in the other half at about the
    # end of the session.
    after_ms = down_ms + rng.choice((5, 30, 150, 1_000))
    if rng.random() < 0.5:
        after_ms = draw.around_ms("session.timeout.ms", rng.choice((0.95, 1.0, 1.05)))
    return (
        draw.fault("crash", member, lasts_ms=down_ms),
        draw.fault("leadership_move", draw.coordinator(), after_ms=after_ms),
    )


def _members_one_by_one(draw: FaultDraw) -> Faults:
    rng = draw.rng("members")
    group = draw.group()
    kind = rng.choice(("crash", "pause"))
    gap_ms = rng.choice((50, 700, 3_000))
    lasts_ms = draw.length_ms()
    return tuple(
        draw.fault(kind, f"member({group}, {index})", after_ms=index * gap_ms, lasts_ms=lasts_ms)
        for index in range(draw.experiment.groups[group].members_total)
    )


def _orders_for_an_empty_group(draw: FaultDraw) -> Faults:
    """Empty a group, then let an administrator reset or delete its offsets, or delete the group.

    To empty the group, all its members are killed. The coordinator removes dead members only when
    their sessions end. In half of the draws, the administrator removes the members before this.
    """
    rng = draw.rng("empty")
    group = draw.group()
    removed_by_admin = rng.random() < 0.5
    empty_ms = 1_000 if removed_by_admin else draw.around_ms("session.timeout.ms", 1.2, group)
    # The members restart 3 s after the administrator's first order. If there is a second order, it
    # comes 0.5 s after the first order.
    removal = tuple(
        draw.fault("crash", f"member({group}, {index})", lasts_ms=empty_ms + 3_000)
        for index in range(draw.experiment.groups[group].members_total)
    )
    if removed_by_admin:
        removal += (draw.fault("remove_members", f"coordinator-of({group})", after_ms=100),)
    args = {"delete_offsets": {"unknown_partitions": True}} if rng.random() < 0.5 else {}
    orders = tuple(
        draw.fault(
            order,
            f"coordinator-of({group})",
            after_ms=empty_ms + index * 500,
            args=args.get(order),
        )
        for index, order in enumerate(
            rng.sample(("reset_offsets", "delete_offsets", "delete_group"), rng.choice((1, 1, 2)))
        )
    )
    return (*removal, *orders)


def _expired_group(draw: FaultDraw) -> Faults:
    """Keep all members down until the group's offsets have expired, and a little longer.

    The offsets expire when the group has been empty for a retention time. The group is empty when
    the sessions of all members have ended. If the experiment keeps offsets for more than a minute,
    they do not expire within a run. The offsets of a group on ZooKeeper never expire. In these
    cases the faults of `_orders_for_an_empty_group` are drawn instead.
    """
    config = draw.experiment.cluster.config
    group = draw.group()
    if config.offsets_retention_minutes > 1 or group in zookeeper_groups(draw.experiment):
        return _orders_for_an_empty_group(draw)
    session_ms = draw.experiment.groups[group].config.session_timeout_ms
    check_ms = config.offsets_retention_check_interval_ms
    # The members stay down for a session, and then for the retention time of one minute (60_000
    # ms). In one of three draws they return at about the time of the expiry. In all other draws
    # they return later, after one or two of the coordinator's checks for expired offsets.
    late_ms = draw.rng("expiry").choice((0, check_ms, 2 * check_ms + 1_000))
    return tuple(
        draw.fault("crash", f"member({group}, {index})", lasts_ms=session_ms + 60_000 + late_ms)
        for index in range(draw.experiment.groups[group].members_total)
    )


def _asleep_in_a_rebalance(draw: FaultDraw) -> Faults:
    """Pause a member during a rebalance, and resume it before its own session ends.

    There are two faults:

    1. A member crashes. If it is a static member (with a `group.instance.id`), its group rebalances
       when its session ends. Otherwise the group rebalances when the member restarts.
    2. Another member is paused during this rebalance. The rebalance waits for a member for as long
       as `max.poll.interval.ms`, and the pause is a little longer.

    Groups with at least three members are preferred, because the rebalance can complete with the
    third member alone during the pause. Among these groups, groups with static members are
    preferred. Among the groups with static members, groups that commit in transactions are
    preferred.
    """
    rng = draw.rng("sleeper")
    groups = draw.experiment.groups
    large = [name for name in groups if groups[name].members_total > 2]
    static = [name for name in large if groups[name].config.group_instance_id is not None]
    transactional = [name for name in static if groups[name].transactional]
    group = rng.choice(transactional or static or large or list(groups))
    total = groups[group].members_total
    if total < 2:  # no other member can cause a rebalance
        return (draw.fault("pause", f"coordinator-of({group})", lasts_ms=draw.length_ms()),)
    sleeper, other = rng.sample(range(total), 2)
    sleeps_ms = draw.around_ms("max.poll.interval.ms", rng.choice((1.02, 1.1)), group)
    asleep_ms, down_ms = 0, rng.choice((50, 300))
    if groups[group].config.group_instance_id is not None:
        # The session of the crashed member counts from its last heartbeat, which came at most one
        # heartbeat interval before the crash. So the session ends between
        # `session_ms - heartbeat_ms` and `session_ms` after the crash.
        session_ms = draw.around_ms("session.timeout.ms", 1.0, group)
        heartbeat_ms = draw.around_ms("heartbeat.interval.ms", 1.0, group)
        # The pause begins at the earliest possible end of the session. So that it also covers the
        # rebalance if the session ends later, it is longer by one heartbeat interval. The crashed
        # member restarts long after its session has ended.
        sleeps_ms += heartbeat_ms
        asleep_ms, down_ms = max(0, session_ms - heartbeat_ms), 3 * session_ms
    return (
        draw.fault("crash", f"member({group}, {other})", after_ms=20, lasts_ms=down_ms),
        draw.fault("pause", f"member({group}, {sleeper})", after_ms=asleep_ms, lasts_ms=sleeps_ms),
    )


def _two_halves(draw: FaultDraw) -> Faults:
    """Split the network into two sides.

    At most half of the brokers are on one side. The controller and all other brokers are on the
    other side, and in half of the draws the members of a group, too. If the cut is one-way, only
    the messages of the smaller side are lost.
    """
    rng = draw.rng("halves")
    brokers = [f"broker({broker})" for broker in draw.broker_ids]
    minority = rng.sample(brokers, rng.randint(1, max(1, len(brokers) // 2)))
    controllers_side = [broker for broker in brokers if broker not in minority]
    if rng.random() < 0.5:
        controllers_side.append(f"members({draw.group()})")
    return (
        draw.link_fault(
            "cut",
            tuple(minority),
            ("controller", *controllers_side),
            lasts_ms=draw.length_ms(),
            one_way=rng.random() < 0.2,
        ),
    )


def _follower_behind(draw: FaultDraw) -> Faults:
    """Cut a follower off from the coordinator, and then crash or move the coordinator."""
    rng = draw.rng("follower")
    lasts_ms = draw.length_ms()
    after_ms = rng.randrange(lasts_ms) if lasts_ms > 1 else 0
    # `broker` may draw the coordinator itself. Then the cut has no effect, because a node has no
    # link to itself.
    other = draw.broker()
    second_fault = rng.choice(("crash", "leadership_move"))
    return (
        draw.link_fault("cut", draw.coordinator(), other, lasts_ms=lasts_ms, one_way=True),
        draw.fault(
            second_fault,
            draw.coordinator(),
            after_ms=after_ms,
            lasts_ms=draw.length_ms("crash") if second_fault == "crash" else None,
        ),
    )


PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern(
            name="isolated_coordinator",
            doc="a coordinator cut off from brokers and controller, but not from its clients",
            draw=_isolated_coordinator,
        ),
        Pattern(
            name="coordinator_without_controller",
            doc="messages between a coordinator and the controller are lost in one direction",
            draw=_coordinator_without_controller,
        ),
        Pattern(
            name="coordinator_without_clients",
            doc="a coordinator moves while it is cut off from all clients",
            draw=_coordinator_without_clients,
        ),
        Pattern(
            name="rolling_restart",
            doc="every broker is stopped and started, one after the other",
            draw=_rolling_restart,
        ),
        Pattern(
            name="swizzle_clog",
            doc="brokers are clogged one by one, and unclogged in another order",
            draw=_swizzle_clog,
        ),
        Pattern(
            name="paused_past_a_timeout",
            doc="a coordinator or a member pauses for a little longer than a session",
            draw=_paused_past_a_timeout,
        ),
        Pattern(
            name="next_coordinator_too",
            doc="a coordinator is lost, and the next one as soon as it has been elected",
            draw=_next_coordinator_too,
        ),
        Pattern(
            name="leadership_to_and_fro",
            doc="a coordinator moves several times, faster than it can be loaded",
            draw=_leadership_to_and_fro,
        ),
        Pattern(
            name="move_during_rebalance",
            doc="a coordinator moves while its group rebalances",
            draw=_move_during_rebalance,
        ),
        Pattern(
            name="members_one_by_one",
            doc="the members of a group die or pause one after the other",
            draw=_members_one_by_one,
        ),
        Pattern(
            name="orders_for_an_empty_group",
            doc="a group's members die; an administrator deletes it, or deletes or resets offsets",
            draw=_orders_for_an_empty_group,
        ),
        Pattern(
            name="expired_group",
            doc="a group's members stay down until its offsets expire (offsets.retention.minutes)",
            draw=_expired_group,
        ),
        Pattern(
            name="asleep_in_a_rebalance",
            doc="a member pauses while its group rebalances, and resumes within its session",
            draw=_asleep_in_a_rebalance,
        ),
        Pattern(
            name="two_halves",
            doc="the network is partitioned in two, with the controller on one side",
            draw=_two_halves,
        ),
        Pattern(
            name="follower_behind",
            doc="a coordinator dies or moves while a follower gets no messages from it",
            draw=_follower_behind,
        ),
        Pattern(
            name="deploy_in_failover",
            doc="the coordinator dies, stops or moves while the members of its group are replaced",
            draw=deploy_in_failover,
        ),
        Pattern(
            name="quick_restart",
            doc="a process is killed and started again within 3 s, up to three times in a row",
            draw=quick_restart,
        ),
        Pattern(
            name="twice_on_one_role",
            doc="two faults hit the holder of one role, a round trip to a timeout apart",
            draw=twice_on_one_role,
        ),
        Pattern(
            name="static_restart_in_a_rebalance",
            doc="a static member restarts while the assignment of its group is being stored",
            draw=static_restart_in_a_rebalance,
        ),
        Pattern(
            name="slow_follower",
            doc="a follower lags by about `replica.lag.time.max.ms` while the ISR changes",
            draw=slow_follower,
        ),
        Pattern(
            name="fenced_while_it_serves",
            doc="a broker's heartbeats are lost for about its session, its other messages are not",
            draw=fenced_while_it_serves,
        ),
        Pattern(
            name="response_lost_in_a_rebalance",
            doc="a response that a member needs is lost while its group rebalances",
            draw=response_lost_in_a_rebalance,
        ),
        Pattern(
            name="response_lost_in_a_failover",
            doc="a response is lost while a coordinator dies or moves",
            draw=response_lost_in_a_failover,
        ),
        Pattern(
            name="cut_from_zookeeper",
            doc="a member is cut off from ZooKeeper alone, for around its session timeout",
            draw=cut_from_zookeeper,
        ),
        Pattern(
            name="lost_connections",
            doc="a member loses its connections to ZooKeeper while its group changes",
            draw=lost_connections,
        ),
        Pattern(
            name="lagging_server",
            doc="a ZooKeeper server gets its leader's messages late while a group changes",
            draw=lagging_server,
        ),
        Pattern(
            name="slow_then_cut",
            doc="ZooKeeper answers a member late, and the member is cut off during that",
            draw=slow_then_cut,
        ),
        Pattern(
            name="restart_on_zookeeper",
            doc="a member on ZooKeeper is killed and started again while its old session goes on",
            draw=restart_on_zookeeper,
        ),
        Pattern(
            name="paused_past_a_session",
            doc="members on ZooKeeper pause for around their session timeout",
            draw=paused_past_a_session,
        ),
        Pattern(
            name="ensemble_in_trouble",
            doc="ZooKeeper servers die, lose power or pause while a group changes",
            draw=ensemble_in_trouble,
        ),
        Pattern(
            name="members_at_once",
            doc="several members on ZooKeeper die and restart at nearly the same moment",
            draw=members_at_once,
        ),
    )
}
"""Every pattern by its name."""
