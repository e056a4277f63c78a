"""Actions of a transcript: steps that are no request, such as a broker's death.

When a transcript is replayed, an action must have the same effect on our cluster as it had on
Kafka's. After a broker has died, for example, the next request must find a new coordinator that has
loaded its groups. So an action is over only when its effect is there. To find this out, additional
requests (probes) are sent, which no client of the recording had sent.
"""

from collections.abc import Mapping, Sequence

from chaos.conformance.client_machine import Address, ClientMachine
from chaos.conformance.transcript import ActionStep
from cluster.client.admin.orders import (
    ElectionFailed,
    TopicDeletionFailed,
    delete_topics,
    move_leader,
)
from cluster.runtime import UnknownNode
from cluster.virtual.runtime import VirtualRuntime
from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BrokerId,
    broker_name,
    offsets_partition,
)
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from protocol.messages.transaction import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.partitioner import partition_for

POLL_INTERVAL_US = 2_000
"""Interval at which a broker is asked whether it serves already."""
WAIT_MAX_US = 60_000_000
"""Limit of the wait for a new coordinator, or for a broker that starts again."""
PROBE = "probe"
"""Client id of requests that only find out whether a broker serves as coordinator."""
PROBE_VERSION = 9
"""Version of OffsetFetch in a probe. In this version one request can name several groups."""
# Errors of a broker that does not serve as coordinator. Every other answer shows that it serves,
# even an answer with another error.
NOT_SERVING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class NotCarriedOut(Exception):
    """An action could not be carried out; the message has the reason."""


class Actions:
    """Carries out the actions of one transcript on its cluster.

    `group_ids` are the groups that the transcript's requests name. Broker `first` coordinates all
    of them at the start. A broker counts as serving once it serves all groups that it coordinates.
    """

    def __init__(
        self,
        runtime: VirtualRuntime,
        clients: ClientMachine,
        group_ids: Sequence[str],
        offsets_partitions: int,
        first: int,
    ) -> None:
        self._runtime = runtime
        self._clients = clients
        self._group_ids = tuple(group_ids)
        self._offsets_partitions = offsets_partitions
        self._coordinators = dict.fromkeys(map(self._partition_of, group_ids), first)
        """Offsets partition -> its coordinator, even if that broker is dead now."""
        self._killed: int | None = None

    async def carry_out(self, step: ActionStep) -> None:
        """Carry out a step; return when it has taken effect. Raises: NotCarriedOut."""
        try:
            match step.action:
                case "kill_broker":
                    # A later `wait_new_coordinator` is about the groups of this broker.
                    self._killed = _broker(step, "broker")
                    await self._runtime.crash(broker_name(self._killed))
                case "restart_broker":
                    await self._restart(_broker(step, "broker"))
                case "wait_new_coordinator":
                    await self._take_over(_broker(step, "new"))
                case "move_leader":
                    await self._move_leader(step)
                case "delete_topic":
                    await self._runtime.ask_as_admin(delete_topics, (_text(step, "topic"),))
                case "client_disconnect":
                    self._clients.disconnect(_text(step, "client"))
                case _:
                    raise NotCarriedOut("not implemented")
        except (UnknownNode, ElectionFailed, TopicDeletionFailed, TimeoutError) as error:
            raise NotCarriedOut(f"{step.action}: {error}") from error

    async def until_serving(self, broker_id: int) -> None:
        """Wait until a broker serves the groups that it coordinates. Raises: TimeoutError."""
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        while not await self._serves(broker_id):
            if self._runtime.now_us() > deadline_us:
                raise TimeoutError(f"broker {broker_id} does not coordinate {self._group_ids}")
            await self._runtime.sleep(POLL_INTERVAL_US)

    async def until_coordinating(self, coordinators: Mapping[str, int]) -> None:
        """Wait until the coordinator of each transactional id serves it and has producer ids.

        `coordinators` maps transactional ids to brokers. The recorded brokers had served
        transactions before the recording, so they already had a block of producer ids from the
        controller. Raises: TimeoutError.
        """
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        for transactional_id, broker_id in coordinators.items():
            while not await self._coordinates(transactional_id, broker_id):
                if self._runtime.now_us() > deadline_us:
                    raise TimeoutError(f"broker {broker_id} does not serve {transactional_id}")
                await self._runtime.sleep(POLL_INTERVAL_US)

    async def _coordinates(self, transactional_id: str, broker_id: int) -> bool:
        """Return True if the broker serves the transactional id, and can give producer ids.

        The probes change nothing that a transcript can see: EndTxn with an unknown producer id
        fails, and InitProducerId without a transactional id only takes the next number.
        """
        probe = Address(client=PROBE, client_id=PROBE, number=0, broker_id=broker_id)
        end_txn = await self._clients.ask(
            probe,
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
                committed=False,
            ),
            Api.END_TXN.latest_version,
        )
        if not isinstance(end_txn, EndTxnResponse) or end_txn.error_code in NOT_SERVING:
            return False

        producer_id = await self._clients.ask(
            probe,
            # Without a transactional id the timeout has no effect.
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
            Api.INIT_PRODUCER_ID.latest_version,
        )
        return (
            isinstance(producer_id, InitProducerIdResponse)
            and producer_id.error_code is ErrorCode.NONE
        )

    async def _serves(self, broker_id: int) -> bool:
        """Return True if a broker serves every recorded group that `_coordinators` gives to it."""
        groups = tuple(
            OffsetFetchRequestGroup(group_id=group_id, topics=())
            for group_id in self._group_ids
            if self._coordinators[self._partition_of(group_id)] == broker_id
        )
        if not groups:
            return True
        answer = await self._clients.ask(
            Address(client=PROBE, client_id=PROBE, number=0, broker_id=broker_id),
            OffsetFetchRequest(groups=groups),
            PROBE_VERSION,
        )
        return isinstance(answer, OffsetFetchResponse) and all(
            group.error_code not in NOT_SERVING for group in answer.groups
        )

    async def _restart(self, broker_id: int) -> None:
        """Start a broker again, and wait until the controller counts it as alive (unfenced)."""
        await self._runtime.restart(broker_name(broker_id))
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        while True:
            status = await self._runtime.status()
            # The result is None if no controller reports the broker.
            if status.brokers_fenced.get(BrokerId(broker_id)) is False:
                return
            if self._runtime.now_us() > deadline_us:
                raise TimeoutError(f"broker {broker_id} is still fenced")
            await self._runtime.sleep(POLL_INTERVAL_US)

    async def _take_over(self, broker_id: int) -> None:
        """Make a broker the coordinator of the killed broker's groups, and wait until it serves.

        The controller elects the broker by itself. This method only updates `_coordinators`, and
        waits.
        """
        for partition, coordinator in self._coordinators.items():
            if coordinator == self._killed:
                self._coordinators[partition] = broker_id
        await self.until_serving(broker_id)

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._offsets_partitions)

    async def _move_leader(self, step: ActionStep) -> None:
        """Move the leadership of a group's offsets partition, and wait for its new coordinator."""
        broker_id = _broker(step, "to")
        partition = self._partition_of(_text(step, "group"))
        self._coordinators[partition] = broker_id
        await self._runtime.ask_as_admin(
            move_leader, offsets_partition(partition), BrokerId(broker_id)
        )
        await self.until_serving(broker_id)


def _broker(step: ActionStep, name: str) -> int:
    value = step.args.get(name)
    if not isinstance(value, int):
        raise NotCarriedOut(f"{step.action}: expected a broker id in `{name}`, got {value!r}")
    return value


def _text(step: ActionStep, name: str) -> str:
    value = step.args.get(name)
    if not isinstance(value, str):
        raise NotCarriedOut(f"{step.action}: expected a name in `{name}`, got {value!r}")
    return value
