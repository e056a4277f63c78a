"""The creation of a topic that an administrator orders, and the rows that show its effect.

The row of the order has the partitions that the topic is to have; none if the order's number is not
positive. The controller elects the first leader of each new partition. So a row LEADER_ELECTED with
TOPIC_CREATED as its reason shows a partition, with its active replicas as its ISR (the in-sync
replicas). No row shows the other replicas.
Source: Kafka ReplicationControlManager.createTopic.
"""

from collections.abc import Sequence

from chaos.checkers.context import detail_of, topic_of
from protocol.causes import TOPIC_CREATED
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind, TraceRow

CREATE_TOPIC = "create_topic"  # name of the fault


class TopicCreation:
    """One order, and what the controller did with its topic since then.

    - `row`: the row of the order.
    - `must_succeed`: nothing was broken when the order was given.
    - `exists`: the topic existed when the order was given.
    """

    def __init__(self, row: TraceRow, *, must_succeed: bool, exists: bool) -> None:
        detail = detail_of(row)
        self.row = row
        self.must_succeed = must_succeed
        self.topic = str(detail.get("topic"))
        self._partitions: tuple[str, ...] = tuple(detail.get("partitions", ()))
        self._replication_factor = int(detail.get("replication_factor", 0))
        self._has_existed = exists
        self._is_deleted = False  # since the order
        self._elected: dict[str, TraceRow] = {}
        """Partitions created since the order, each with the row of its first election."""

    def observe(self, row: TraceRow) -> None:
        """Take a row LEADER_ELECTED or TOPIC_DELETED."""
        detail = detail_of(row)
        if row.kind == TraceKind.TOPIC_DELETED:
            self._is_deleted = self._is_deleted or detail.get("topic") == self.topic
        elif detail.get("reason") == TOPIC_CREATED and topic_of(row.partition) == self.topic:
            self._has_existed = True
            self._elected.setdefault(row.partition or "", row)

    def misfits(self, errors: Sequence[str], brokers: int) -> list[str]:
        """Return the errors of a refusal that do not fit the order.

        `brokers`: number of the brokers that are registered at least.
        """
        return [error for error in errors if not self._fits(error, brokers)]

    def _fits(self, error: str, brokers: int) -> bool:
        match error:
            case ErrorCode.TOPIC_ALREADY_EXISTS.name:
                # The first request of the order may have created the topic: then its answer was
                # lost, and the request was repeated.
                return self._has_existed
            case ErrorCode.INVALID_PARTITIONS.name:
                return not self._partitions
            case ErrorCode.INVALID_REPLICATION_FACTOR.name:
                # Without an unfenced broker, the controller refuses every number.
                return not self.must_succeed or not 1 <= self._replication_factor <= brokers
            case ErrorCode.NONE.name | ErrorCode.UNKNOWN_SERVER_ERROR.name:
                return False  # a refusal names an error; the other one shows a bug
            case _:
                return not self.must_succeed

    def find_missing(self) -> tuple[str, TraceRow | None] | None:
        """Return what an order that was carried out has not done, with a row; None if nothing.

        A topic that was deleted after the order is not judged.
        """
        if self._is_deleted:
            return None
        if list(self._elected) != list(self._partitions):
            return (
                f"its partitions are {_listed(self._elected)} instead of "
                f"{_listed(self._partitions)}",
                None,
            )
        for partition, row in self._elected.items():
            isr = detail_of(row).get("isr", ())
            # While nothing is broken every replica is active, and so in the ISR.
            is_whole = len(isr) == self._replication_factor or (
                not self.must_succeed and 0 < len(isr) < self._replication_factor
            )
            if not is_whole or len(set(isr)) != len(isr):
                return f"{partition} begins with the ISR {isr}", row
            if row.peer not in [broker_name(BrokerId(broker)) for broker in isr]:
                return f"{partition} begins with the leader {row.peer or 'none'}", row
        return None


def _listed(partitions: Sequence[str] | dict[str, TraceRow]) -> str:
    return ", ".join(partitions) or "none"
