"""What a transcript does to the cluster or to a client, besides requests."""

from collections.abc import Sequence

from chaos.conformance.client_machine import Address, ClientMachine
from chaos.conformance.transcript import ActionStep
from cluster.runtime import ElectionFailed, UnknownNode
from cluster.virtual.runtime import VirtualRuntime
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, broker_name, offsets_partition
from protocol.offset_messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from protocol.partitioner import partition_for

LOOK_EVERY_US = 2_000
WAIT_MAX_US = 60_000_000
"""How long a new coordinator, or a broker that starts again, is waited for."""
PROBE = "probe"
PROBE_VERSION = 9
NOT_SERVING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class NotCarriedOut(Exception):
    """An action could not be carried out: says why."""


class Actions:
    """Carries out the actions of one transcript on its cluster.

    `group_ids` are the groups that the transcript asks about: a coordinator serves when it serves
    all of them.
    """

    def __init__(
        self,
        runtime: VirtualRuntime,
        clients: ClientMachine,
        group_ids: Sequence[str],
        offsets_partitions: int,
    ) -> None:
        self._runtime = runtime
        self._clients = clients
        self._group_ids = tuple(group_ids)
        self._offsets_partitions = offsets_partitions

    async def carry_out(self, step: ActionStep) -> None:
        """Do what a step says; returns when it has taken effect. Raises: NotCarriedOut."""
        try:
            match step.action:
                case "kill_broker":
                    await self._runtime.crash(broker_name(_broker(step, "broker")))
                case "restart_broker":
                    await self._restart(_broker(step, "broker"))
                case "wait_new_coordinator":
                    await self.until_serving(_broker(step, "new"))
                case "move_leader":
                    await self._move_leader(step)
                case "client_disconnect":
                    self._clients.disconnect(_text(step, "client"))
                case _:
                    raise NotCarriedOut("not implemented")
        except (UnknownNode, ElectionFailed, TimeoutError) as error:
            raise NotCarriedOut(f"{step.action}: {error}") from error

    async def until_serving(self, broker_id: int) -> None:
        """Wait until a broker coordinates the groups. Raises: TimeoutError."""
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        while not await self._serves(broker_id):
            if self._runtime.now_us() > deadline_us:
                raise TimeoutError(f"broker {broker_id} coordinates none of {self._group_ids}")
            await self._runtime.sleep(LOOK_EVERY_US)

    async def _serves(self, broker_id: int) -> bool:
        if not self._group_ids:
            return True
        groups = tuple(
            OffsetFetchRequestGroup(group_id=each, topics=()) for each in self._group_ids
        )
        answer = await self._clients.ask(
            Address(client=PROBE, client_id=PROBE, number=0, broker_id=broker_id),
            OffsetFetchRequest(groups=groups),
            PROBE_VERSION,
        )
        return isinstance(answer, OffsetFetchResponse) and all(
            group.error_code not in NOT_SERVING for group in answer.groups
        )

    async def _restart(self, broker_id: int) -> None:
        await self._runtime.restart(broker_name(broker_id))
        deadline_us = self._runtime.now_us() + WAIT_MAX_US
        while True:
            status = await self._runtime.status()
            if status.brokers_fenced.get(BrokerId(broker_id)) is False:
                return
            if self._runtime.now_us() > deadline_us:
                raise TimeoutError(f"broker {broker_id} is still fenced")
            await self._runtime.sleep(LOOK_EVERY_US)

    async def _move_leader(self, step: ActionStep) -> None:
        broker_id = _broker(step, "to")
        partition = partition_for(_text(step, "group"), self._offsets_partitions)
        await self._runtime.move_leader(offsets_partition(partition), BrokerId(broker_id))
        await self.until_serving(broker_id)


def _broker(step: ActionStep, name: str) -> int:
    value = step.args.get(name)
    if not isinstance(value, int):
        raise NotCarriedOut(f"{step.action}: expected a broker id as `{name}`, came {value!r}")
    return value


def _text(step: ActionStep, name: str) -> str:
    value = step.args.get(name)
    if not isinstance(value, str):
        raise NotCarriedOut(f"{step.action}: expected a name as `{name}`, came {value!r}")
    return value
