"""What an administrator's order to create a topic has changed, as the controller's rows show it.

The controller elects the first leader of each new partition. So for each new partition there is a
row LEADER_ELECTED with the reason TOPIC_CREATED. The ISR in this row has the replicas that are
alive. No row shows the other replicas.
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
    """One order, and what the controller has done with its topic since then.

    - `row`: the row of the order.
    - `must_succeed`: True if nothing was broken when the order was given.
    - `exists`: True if the topic already existed when the order was given.
    """

    def __init__(self, row: TraceRow, *, must_succeed: bool, exists: bool) -> None:
        detail = detail_of(row)
        self.row = row
        self.must_succeed = must_succeed
        self.topic = str(detail.get("topic"))
        # The ordered partitions; empty if the order asks for 0 partitions or fewer
        self._partitions: tuple[str, ...] = tuple(detail.get("partitions", ()))
        self._replication_factor = int(detail.get("replication_factor", 0))
        self._has_existed = exists
        self._is_deleted = False  # True once the topic was deleted after the order
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

        `brokers` is the number of brokers that can certainly get a replica.
        """
        return [error for error in errors if not self._fits(error, brokers)]

    def _fits(self, error: str, brokers: int) -> bool:
        """Return True if the controller may refuse the order with `error`."""
        match error:
            case ErrorCode.TOPIC_ALREADY_EXISTS.name:
                # This also fits if the order created the topic itself: the answer to its request
                # was lost, and the repeated request was refused.
                return self._has_existed
            case ErrorCode.INVALID_PARTITIONS.name:
                return not self._partitions
            case ErrorCode.INVALID_REPLICATION_FACTOR.name:
                # If something is broken, all brokers may be fenced. Then every number is refused.
                return not self.must_succeed or not 1 <= self._replication_factor <= brokers
            case ErrorCode.NONE.name | ErrorCode.UNKNOWN_SERVER_ERROR.name:
                return False  # NONE is no refusal, and the other error shows a bug
            case _:
                return not self.must_succeed

    def find_missing(self) -> tuple[str, TraceRow | None] | None:
        """Return what is wrong with the new topic, as a sentence and a row; None if nothing is.

        The caller makes sure that the order was carried out. A topic that was deleted afterwards is
        not judged.
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
            # While nothing is broken every replica is alive, and so in the first ISR. Otherwise
            # some may be missing.
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
