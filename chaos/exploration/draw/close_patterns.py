"""Patterns whose faults come close to each other in time.

A pattern draws several faults together. Faults that are drawn one by one seldom come close to each
other. For example, only once in thousands of runs does a second fault hit a broker a few
milliseconds after the first fault. In the patterns of this module, the gap between two faults may
be as short as the round trip of a message, or as long as one of Kafka's timeouts.

Each function draws the faults of one pattern. Its argument `draw` is a FaultDraw, which draws
targets and times:

- `draw.target((role,))` draws a target with this role, such as `follower-of(orders-3)`. It returns
  None if the experiment has no such node. `draw.coordinator()`, `draw.broker()` and `draw.member()`
  draw targets with these roles.
- `draw.fault(...)` and `draw.link_fault(...)` make a fault of a target, or of the links between two
  ends.
- `draw.rng(purpose)` is a random generator. Each purpose has its own.
- `draw.gap_ms(purpose, longest_ms)` draws a gap from 1 ms to `longest_ms`. Short gaps are as likely
  as long gaps.
- `draw.restart_ms(purpose)` draws the time until a quick restart, at most 3 s.
- `draw.length_ms(purpose)` draws a length from the list of the space file, or a length near a
  timeout. It may be much longer than 3 s.
- `draw.around_ms(timeout, factor)` is not random. It returns the factor times the timeout.
- `after_ms` is the time of a fault, counted from the beginning of the pattern.
"""

from chaos.experiment.structs import FaultDefinition
from chaos.exploration.draw.fault_draw import FaultDraw
from chaos.exploration.draw.response_losses import draw_response_loss, loss_in_a_rebalance
from cluster.host import connection_purposes
from protocol.api import Api

# Roles of the nodes that a pattern hits. A role that occurs twice in a tuple is drawn twice as
# often. The same holds for the tuples in the functions below.
_RESTARTED = ("coordinator-of", "coordinator-of", "follower-of", "broker", "member", "controller")
# Roles of nodes that must keep their disk in `quick_restart`. A member has no disk. The only
# controller has one, but must not lose it.
_DISKLESS = ("member", "leader-member-of", "controller")
_ON_ONE_ROLE = ("coordinator-of", "coordinator-of", "leader-of", "follower-of", "member")
_MOST_SLOW_MS = 10_000
"""Longest delay of the messages with which a slow follower fetches records from the leader."""


def quick_restart(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Kill a process and start it again soon, up to three times.

    In three of ten draws a broker also loses its disk, so its new process starts with an empty
    disk.
    """
    rng = draw.rng("restarts")
    role = rng.choice(_RESTARTED)
    # If the experiment has no node with the role, a coordinator is hit.
    target = draw.target((role,)) or draw.coordinator()
    # A target such as `member(orders, 0)` begins with its role. A node that must keep its disk
    # crashes, and never loses power, because a loss of power also loses unsynced data of the disk.
    keeps_disk = target.startswith(_DISKLESS) or rng.random() < 0.7
    kind = "crash" if target.startswith(_DISKLESS) else rng.choice(("crash", "power_loss"))
    faults, after_ms = [], 0
    for place in range(rng.choice((1, 1, 2, 3))):
        # The process is down for `down_ms`, and then up for at most 4 s before the next kill.
        down_ms = draw.restart_ms(f"down {place}")
        faults.append(
            draw.fault(
                kind,
                target,
                after_ms=after_ms,
                lasts_ms=down_ms,
                args={} if keeps_disk else {"disk": "empty"},
            )
        )
        after_ms += down_ms + draw.gap_ms(f"up {place}", 4_000)
    return tuple(faults)


def twice_on_one_role(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Hit the holder of one role with two faults.

    The gap between the two faults may be as short as a round trip, or as long as a session timeout.
    When the second fault begins, another node may have the role. Then the second fault hits this
    other node.
    """
    rng = draw.rng("twice")
    role = rng.choice(_ON_ONE_ROLE)
    target = draw.target((role,)) or draw.coordinator()
    timeout = "session.timeout.ms" if role == "member" else "broker.session.timeout.ms"
    # The gap is at most 1.1 times the timeout, so it may also be a little longer than the timeout.
    gap_ms = draw.gap_ms("gap", draw.around_ms(timeout, 1.1))
    kinds: tuple[str, ...] = ("crash", "pause")
    if role != "member":
        kinds += ("power_loss", "controlled_shutdown", "cut")
    if role in ("coordinator-of", "leader-of"):
        kinds += ("leadership_move", "leadership_move")
    faults = []

    for place, kind in enumerate(rng.choices(kinds, k=2)):
        # In half of the draws the fault is as short as a quick restart.
        short = rng.random() < 0.5
        lasts_ms = draw.restart_ms(f"{place}") if short else draw.length_ms(f"length {place}")
        if kind == "cut":
            faults.append(
                draw.link_fault(
                    "cut",
                    target,
                    rng.choice(("controller", "brokers", "clients")),
                    after_ms=place * gap_ms,
                    lasts_ms=lasts_ms,
                )
            )
            continue
        faults.append(
            draw.fault(
                kind,
                target,
                after_ms=place * gap_ms,
                lasts_ms=None if kind == "leadership_move" else lasts_ms,
            )
        )
    return tuple(faults)


def static_restart_in_a_rebalance(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Restart a member while its group waits for the assignment of partitions.

    A rebalance has two halves. In the join phase, all members send JoinGroup. Then they send
    SyncGroup, to get their assignment. The faults of this pattern are:

    1. Messages of SyncGroup are slow, so that time passes between the join phase and the
       assignment.
    2. An administrator removes all members. Each member learns of its removal with its next
       heartbeat, and joins again.
    3. One member dies and restarts. Its new process joins before the assignment of the old process
       is stored.

    The pattern prefers groups with static members. A static member has a `group.instance.id`, with
    which it keeps its place in the group when it restarts.
    """
    rng = draw.rng("static")
    groups = draw.experiment.groups
    several = [name for name in groups if groups[name].members > 1]
    static = [name for name in several if groups[name].config.group_instance_id is not None]
    group = rng.choice(static or several or list(groups))
    coordinator, total = f"coordinator-of({group})", groups[group].members
    delay_ms = rng.choice((500, 1_500, 4_000))
    # The time until the join phase ends is the sum of two times. Within a heartbeat interval all
    # members learn of their removal. And in a group that has become empty, the coordinator waits
    # for `group.initial.rebalance.delay.ms` before it begins the rebalance.
    joined_ms = (
        draw.around_ms("heartbeat.interval.ms", 1.0, group)
        + draw.experiment.cluster.config.group_initial_rebalance_delay_ms
    )
    # SyncGroup must be slow until the last of up to three restarts, which is at most about
    # `3 * delay_ms` after the join phase: the first restart comes at most `delay_ms` after the join
    # phase, and each further restart at most `delay_ms` after the end of the restart before.
    slow = draw.link_fault(
        "slow",
        coordinator,
        f"members({group})",
        lasts_ms=joined_ms + 3 * delay_ms,
        args={"delay": f"{delay_ms}ms", "apis": [Api.SYNC_GROUP.label]},
    )
    # The target of `remove_members` is a coordinator, because the administrator's request goes to
    # the coordinator of the group whose members are removed.
    faults = [slow, draw.fault("remove_members", coordinator, after_ms=20)]
    # The member restarts one to three times. If the group starts without members (`total` is 0),
    # there is no restart.
    if total:
        member = f"member({group}, {rng.randrange(total)})"
        after_ms = joined_ms
        for place in range(rng.choice((1, 2, 3))):
            down_ms = rng.choice((100, 100, 300))
            after_ms += draw.gap_ms(f"restart {place}", delay_ms)
            faults.append(draw.fault("crash", member, after_ms=after_ms, lasts_ms=down_ms))
            after_ms += down_ms
    return tuple(faults)


def slow_follower(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Make a follower of a coordinator lag, and make one more change during the lag.

    A follower that lags for longer than `replica.lag.time.max.ms` leaves the ISR (the set of
    in-sync replicas). Here the lag is about as long as this limit. One of these changes comes
    while the follower lags:

    - Another follower is cut off.
    - The coordinator dies, moves once, or moves to and fro.
    - Responses to AlterPartition are lost. With this request a leader changes the ISR.
    """
    rng = draw.rng("lag")
    delay_ms = draw.around_ms("replica.lag.time.max.ms", rng.choice((0.1, 0.3, 0.6, 1.1)))
    lasts_ms = 1_000 + draw.length_ms()
    # `draw.broker` may draw the coordinator itself. A node has no link to itself, so the fault hits
    # nothing then.
    slow = draw.link_fault(
        "slow",
        draw.coordinator(),
        draw.broker("slow"),
        lasts_ms=lasts_ms,
        args={
            "delay": f"{min(delay_ms, _MOST_SLOW_MS)}ms",
            "jitter": f"{min(delay_ms, _MOST_SLOW_MS) // 2}ms",
            "purposes": [connection_purposes.REPLICA_FETCHER],
        },
    )
    after_ms = draw.gap_ms("then", lasts_ms)
    match rng.choice(("cut", "crash", "move", "to_and_fro", "response")):
        case "cut":
            isr_change = draw.link_fault(
                "cut",
                draw.coordinator(),
                draw.broker("cut"),
                after_ms=after_ms,
                lasts_ms=draw.length_ms("cut"),
            )
        case "crash":
            isr_change = draw.fault(
                "crash",
                draw.coordinator(),
                after_ms=after_ms,
                lasts_ms=draw.restart_ms(),
                args=draw.disk(),
            )
        case "move":
            isr_change = draw.fault("leadership_move", draw.coordinator(), after_ms=after_ms)
        case "to_and_fro":
            gap_ms = rng.choice((50, 500, 2_000))
            moves = (
                draw.fault(
                    "leadership_move", draw.coordinator(), after_ms=after_ms + place * gap_ms
                )
                for place in range(rng.randint(2, 4))
            )
            return (slow, *moves)
        case _:  # "response": the loss lasts for as long as the follower is slow
            isr_change = draw.link_fault(
                "response_loss",
                "brokers",
                "controller",
                lasts_ms=lasts_ms,
                args={"apis": [Api.ALTER_PARTITION.label], "responses": rng.choice((1, 2, 5))},
            )
    return (slow, isr_change)


def fenced_while_it_serves(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Lose a broker's heartbeats for about `broker.session.timeout.ms`.

    All other messages of the broker arrive. When the timeout has passed, the controller fences the
    broker: it counts the broker as dead. Other brokers become leaders of the broker's partitions,
    and the ISRs shrink. But the broker still fetches and answers. When its heartbeats arrive again,
    the controller unfences it.

    In half of the draws the broker also learns late of the controller's decisions.
    """
    rng = draw.rng("fenced")
    broker = rng.choice((draw.coordinator(), draw.broker()))
    lasts_ms = draw.around_ms("broker.session.timeout.ms", rng.choice((0.9, 1.1, 1.5)))
    no_heartbeats = draw.link_fault(
        "cut",
        broker,
        "controller",
        lasts_ms=lasts_ms,
        args={"purposes": [connection_purposes.BROKER_HEARTBEAT]},
    )
    if rng.random() < 0.5:
        return (no_heartbeats,)
    late_metadata = draw.link_fault(
        "slow",
        broker,
        "controller",
        lasts_ms=2 * lasts_ms,  # so metadata still comes late when the broker is unfenced
        args={
            "delay": f"{rng.choice((100, 500, 2_000))}ms",
            "purposes": [connection_purposes.METADATA],
        },
    )
    return (no_heartbeats, late_metadata)


def response_lost_in_a_rebalance(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Lose responses that a member needs, while its group rebalances.

    The rebalance has one of three causes: an administrator removes all members, the coordinator
    moves, or a member dies.
    """
    rng = draw.rng("rebalance")
    loss = loss_in_a_rebalance(draw)
    member = draw.member()
    if member is None or rng.random() < 0.3:
        return (loss, draw.fault("remove_members", draw.coordinator(), after_ms=10))
    if rng.random() < 0.3:
        return (loss, draw.fault("leadership_move", draw.coordinator(), after_ms=10))
    return (loss, draw.fault("crash", member, after_ms=10, lasts_ms=draw.restart_ms()))


def response_lost_in_a_failover(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Lose responses of one API while a coordinator dies or moves."""
    rng = draw.rng("failover")
    after_ms = draw.gap_ms("after", 3_000)
    loss = draw_response_loss(draw)
    if rng.random() < 0.5:
        return (loss, draw.fault("leadership_move", draw.coordinator(), after_ms=after_ms))
    return (
        loss,
        draw.fault("crash", draw.coordinator(), after_ms=after_ms, lasts_ms=draw.length_ms()),
    )
