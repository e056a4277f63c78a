"""Actions of a transcript: steps that are no requests, such as the death of a broker.

A transcript is the recording of a scenario with a real Kafka cluster. When it is replayed, an
action must have the same effect on our cluster as it had on Kafka's. For example, after a broker
has died, the next request must find a new coordinator that has loaded its groups. So an action is
over only when its effect is there. To find this out, additional requests are sent. They are called
probes, and no client of the recording had sent them.
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
"""Interval at which a broker is asked whether it serves as coordinator already."""
WAIT_MAX_US = 60_000_000
"""Maximum time to wait for a new coordinator, or for a broker that starts again."""
PROBE = "probe"
"""Client id of the probes."""
PROBE_VERSION = 9
"""Version of the OffsetFetch requests in probes, in which one request can name several groups."""
# Errors with which a broker answers if it does not serve as coordinator. Any other answer, even
# with another error, shows that the broker serves.
NOT_SERVING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class NotCarriedOut(Exception):
    """An action could not be carried out; the message has the reason."""


class Actions:
    """Carries out the actions of one transcript on its cluster.

    - `runtime`, `clients`: the cluster, and the node that stands for the recorded clients.
    - `group_ids`: the groups that the transcript's requests name.
    - `offsets_partitions`: the number of partitions of `__consumer_offsets`.
    - `first`: the id of the broker that coordinates all these groups at the start.

    A broker counts as serving as soon as it serves all groups that it coordinates.
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
        """The coordinator of each offsets partition, even if this broker is dead."""
        self._killed: int | None = None
        """The broker that an action `kill_broker` has killed last."""

    async def carry_out(self, step: ActionStep) -> None:
        """Carry out a step; return when it has taken effect. Raises: NotCarriedOut."""
        try:
            match step.action:
                case "kill_broker":
                    # A later action `wait_new_coordinator` is about the groups of this broker.
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

        `coordinators` has the broker of each transactional id. When the recording began, the
        recorded brokers had served other transactions before. So they already had a block of
        producer ids from the controller, and our brokers must have one, too.

        Raises: TimeoutError.
        """
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        for transactional_id, broker_id in coordinators.items():
            while not await self._coordinates(transactional_id, broker_id):
                if self._runtime.now_us() > deadline_us:
                    raise TimeoutError(f"broker {broker_id} does not serve {transactional_id}")
                await self._runtime.sleep(POLL_INTERVAL_US)

    async def _coordinates(self, transactional_id: str, broker_id: int) -> bool:
        """Return True if the broker serves the transactional id, and can give producer ids.

        The two probes change nothing that a transcript can see. EndTxn has an unknown producer id,
        so it fails. InitProducerId has no transactional id, so it only takes the next producer id.
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
        """Return True if a broker serves all recorded groups of which it is the coordinator."""
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
        """Start a broker again, and wait until the controller counts it as alive (unfences it)."""
        await self._runtime.restart(broker_name(broker_id))
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        while True:
            status = await self._runtime.status()
            # `get` returns None if no controller reports the broker.
            if status.brokers_fenced.get(BrokerId(broker_id)) is False:
                return
            if self._runtime.now_us() > deadline_us:
                raise TimeoutError(f"broker {broker_id} is still fenced")
            await self._runtime.sleep(POLL_INTERVAL_US)

    async def _take_over(self, broker_id: int) -> None:
        """Wait until a broker serves the groups of the broker that was killed.

        The controller has elected this broker by itself. So this method only notes the new
        coordinator in `_coordinators`, and waits.
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
