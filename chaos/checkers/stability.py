"""Stability: while nothing is broken, no leader, replica, coordinator or connection is lost.

"While nothing is broken" means two periods of a run:
- the time from the start to the first fault;
- the time after the faults, once their consequences are over. They are over `settling_us` (of the
  context) after the last fault has ended, and also `settling_us` after the last change of a leader.

In these periods three rules are judged:

1. No broker is fenced, and no partition gets another leader, except its preferred one.
2. No replica leaves an ISR, and no log is truncated.
3. No member, producer or broker loses its coordinator or a connection, and no record and no commit
   fails. This rule begins only with the steady state, in which every group is Stable and all
   replicas are in sync.

Rule 3 has exceptions:
- A commit may fail if a rebalance causes it, or if its metadata is longer than
  `offset.metadata.max.bytes`.
- Members that have left their group, and consumers on ZooKeeper, close connections on purpose.
- Nothing is judged while a partition has no leader and cannot get one, because the broker with its
  last in-sync replica stays away.

One more rule is judged all the time, even during faults: a replica that was in the ISR when its
leader was elected stays there for half of `replica.lag.time.max.ms`, unless its broker is fenced or
stops. A leader must not remove a replica before it has waited for the whole of that time. But this
rule asks for only half of the time, because clocks may run at different speeds.

Stability is judged only in virtual time (the run's own simulated clock). In real time a busy
machine can delay a process so long that it loses a connection or its place in an ISR.
"""

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.evidence.replicas import REPLICA_KINDS
from cluster.client.net.errors import CommitFailedError
from cluster.client.producer.transactional_producer import TRANSACTION_ABORTED
from protocol.causes import MemberStateCause
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

DISCONNECTED = "DISCONNECTED"
TOO_MUCH_METADATA = ErrorCode.OFFSET_METADATA_TOO_LARGE.name
OF_A_REBALANCE = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS.name,
        ErrorCode.ILLEGAL_GENERATION.name,
        ErrorCode.UNKNOWN_MEMBER_ID.name,
        ErrorCode.FENCED_INSTANCE_ID.name,
        CommitFailedError().name,
        TRANSACTION_ABORTED,
    }
)
"""Errors of a commit that a rebalance causes: the member must join again, or was replaced."""
_LOSSES = {
    TraceKind.COORDINATOR_UNKNOWN: "loses its coordinator",
    TraceKind.COORDINATOR_LOOKUP_FAILED: "does not find its coordinator",
    TraceKind.REQUEST_FAILED: "has lost a connection",
    TraceKind.PRODUCE_FAILED: "cannot produce",
    TraceKind.COMMIT_FAILED: "cannot commit",
}
"""Kinds of rows in which a client reports a loss.

The text follows the client's name in the finding, as in `consumer-a-1 loses its coordinator`.
"""


class Stability(Checker):
    """No broker, replica, leader or coordinator is lost while nothing is broken."""

    name = "stability"
    promise = (
        "while nothing is broken, no broker is fenced, no leader changes but to the preferred one, "
        "no replica leaves an ISR, no log is truncated, and no client loses its coordinator, a "
        "connection, a record or a commit (judged in virtual time)"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.LOG_TRUNCATED,
            TraceKind.MEMBER_STATE,
            *_LOSSES,
            *FAULT_KINDS,
            *REPLICA_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._leaders: dict[str, str] = {}  # partition -> leader, "" for none
        self._in_sync: dict[str, tuple[int, ...]] = {}  # partition -> ISR, by broker ids
        self._elected_us: dict[str, int] = {}  # partition -> when its present leader was elected
        # partition -> replicas that were in the ISR at that election and have not left it since.
        # The rule about a new leader's ISR protects them.
        self._elected_with: dict[str, tuple[int, ...]] = {}
        self._unfenced: dict[str, None] = {}  # brokers
        self._replicas = self.evidence.replicas
        self._clients = {
            *(consumer for group in context.groups.values() for consumer in group.consumers),
            *(producer.name for producer in context.producers),
        }
        self._long_metadata = {
            group_id for group_id, group in context.groups.items() if group.has_long_metadata
        }
        self._left: dict[str, None] = {}  # members whose application has closed its consumer
        self._was_broken = False  # True from the first fault on
        self._leader_changed_us = 0
        self._is_steady = False
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._reported: dict[tuple[str, str], None] = {}  # kind of loss and node
        # Number of rows about the run's stages. Every whole trace of a run has some. If this one
        # has none, it is only a part of a trace, from which nothing can be concluded.
        self._judged = 0

    def judge(self, row: TraceRow) -> None:
        """Judge a row that shows a loss, and follow stages, elections and ISRs.

        In the rows about fencing and elections, which the controller writes, `row.peer` is the
        broker that is fenced or elected.
        """
        if row.kind == TraceKind.RUN_STAGE:
            self._observe_stage(row)
        if self._over or not self.context.in_virtual_time:
            return
        since_us = self._stable_since_us(row)
        match row.kind:
            case TraceKind.BROKER_UNFENCED:
                self._unfenced[row.peer or ""] = None
            case TraceKind.BROKER_FENCED:
                broker = row.peer or ""
                if broker in self._unfenced:  # a broker that is still starting loses nothing
                    del self._unfenced[broker]
                    self._report_loss(row, since_us, f"{broker} is fenced")
            case TraceKind.LEADER_ELECTED:
                self._judge_election(row, since_us)
            case TraceKind.ISR_CHANGED:
                self._judge_isr(row, since_us)
            case TraceKind.LOG_TRUNCATED:
                self._report_loss(row, since_us, f"{row.node} truncates {row.partition}")
            case TraceKind.MEMBER_STATE if row.cause == MemberStateCause.LEFT:
                self._left[row.node] = None
            case TraceKind.MEMBER_STATE:
                self._left.pop(row.node, None)
            case TraceKind.REQUEST_FAILED if row.error != DISCONNECTED or row.node in self._left:
                pass  # not a lost connection, or one that a leaving member has closed itself
            case TraceKind.COMMIT_FAILED if (
                row.error == TOO_MUCH_METADATA and row.group in self._long_metadata
            ):
                pass  # an exception of rule 3
            case TraceKind.COMMIT_FAILED if row.error in OF_A_REBALANCE:
                pass  # an exception of rule 3
            # All other rows of _LOSSES are judged by rule 3.
            case kind if kind in _LOSSES and self._is_steady and self._is_client(row.node):
                if since_us is not None and not self._replicas.is_any_without_possible_leader():
                    self._report_loss(row, since_us, f"{row.node} {_LOSSES[TraceKind(kind)]}")
            case _:
                pass
        # `quiet_since_us` is 0 before the first fault, and None during a fault. After a fault it is
        # the time at which the fault ended.
        self._was_broken = self._was_broken or self._faults.quiet_since_us != 0

    def _is_client(self, node: str) -> bool:
        """Return True for members, producers and brokers, the nodes that rule 3 is about."""
        return node in self._clients or node.startswith("broker-")

    def _observe_stage(self, row: TraceRow) -> None:
        stage = detail_of(row).get("stage")
        self._judged += 1
        if stage == "steady":
            self._is_steady = True
        elif stage == "stopping":
            self._over = True

    def _stable_since_us(self, row: TraceRow) -> int | None:
        """Return the beginning of the judged period that contains `row`; None if none does."""
        if not self._was_broken:
            return 0
        # If this row is itself a fault, the fault has already ended the quiet time. What counts is
        # whether it was quiet just before the row.
        is_fault = row.kind in FAULT_KINDS
        quiet_us = self._faults.was_quiet_since_us if is_fault else self._faults.quiet_since_us
        if quiet_us is None:
            return None
        settled_us = max(quiet_us, self._leader_changed_us) + self.context.settling_us
        return settled_us if row.time_us > settled_us else None

    def _judge_election(self, row: TraceRow, since_us: int | None) -> None:
        """Note an election; report a leader that changed, except to the preferred one."""
        partition, leader = row.partition or "", row.peer or ""
        before = self._leaders.get(partition, "")
        self._leaders[partition] = leader
        self._in_sync[partition] = tuple(detail_of(row).get("isr", ()))
        if before != leader:
            self._elected_us[partition] = row.time_us
            self._elected_with[partition] = self._in_sync[partition]
        if before in ("", leader):
            return  # the first leader, or a leader after none: nothing is lost
        self._leader_changed_us = row.time_us
        known = self._replicas.of(partition)
        if known is None or leader not in known.possibly_preferred:
            what = f"the leader of {partition} is {leader or 'none'}, no longer {before}"
            self._report_loss(row, since_us, what)

    def _judge_isr(self, row: TraceRow, since_us: int | None) -> None:
        """Note a new ISR; report replicas that left it."""
        partition = row.partition or ""
        now = tuple(detail_of(row).get("isr", ()))
        before = self._in_sync.get(partition, ())
        self._in_sync[partition] = now
        removed = [broker for broker in before if broker not in now]
        if not removed:
            return
        what = f"{' and '.join(map(_broker, removed))} left the ISR of {partition}"
        # The rule about a new leader's ISR: find the removed replicas that had been in the ISR
        # since the leader's election, and left too early.
        elected_with = self._elected_with.get(partition, ())
        left_early = [broker for broker in elected_with if broker in removed]
        self._elected_with[partition] = tuple(
            broker for broker in elected_with if broker not in removed
        )

        since_election_us = row.time_us - self._elected_us.get(partition, 0)
        if since_election_us >= self.context.replica_lag_us // 2:
            left_early = []
        # `may_lead` has the unfenced brokers that are not stopping.
        is_unfenced = any(_broker(broker) in self._replicas.may_lead for broker in left_early)
        # Outside the judged periods (`since_us` is None) only the rule about a new leader's ISR is
        # judged. `_report_loss` reports nothing without a time, so it gets the row's own time. The
        # finding shows the text of the last argument instead of this time.
        if since_us is None and is_unfenced:
            self._report_loss(
                row, row.time_us, what, f"{seconds(since_election_us)} after its leader was elected"
            )
        else:
            self._report_loss(row, since_us, what)

    def _report_loss(self, row: TraceRow, since_us: int | None, what: str, when: str = "") -> None:
        """Report a loss, once for each kind of loss and each node; later ones are only counted.

        - `since_us`: the beginning of the judged period. None: the loss is allowed, and not
          reported.
        - `what`: the loss, such as `broker-1 is fenced`.
        - `when`: text to use in the finding instead of the time since `since_us`.
        """
        if since_us is None:
            return
        case = (row.kind, row.node)
        if case in self._reported:
            self.findings_total += 1  # the same kind of loss again
            return
        self._reported[case] = None
        if when:
            duration = when
        elif self._was_broken:
            quiet = seconds(row.time_us - since_us)
            duration = f"although nothing has been broken for {quiet} and more"
        else:
            duration = "before the first fault"
        # `row.explanation` is the text for `row.cause`.
        error = f" ({row.error or row.explanation})" if row.error or row.cause else ""
        self.report_finding(
            f"{what}{error}, {duration}", [row], group=row.group, partition=row.partition
        )

    def finish(self) -> CheckReport:
        """Report. In real time nothing was judged, nor in a part of a trace without run stages."""
        is_judged = self.context.in_virtual_time
        return self.report(
            judged=self._judged if is_judged else 0,
            seen={"losses": self.findings_total},
            note="" if is_judged else "judged in virtual time only",
        )


def _broker(broker_id: int) -> str:
    return broker_name(BrokerId(broker_id))
