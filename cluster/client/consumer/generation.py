"""A member's state and generation, and the only code that writes them.

Source: Kafka AbstractCoordinator.MemberState, AbstractCoordinator.Generation; BEHAVIOUR 7.1.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cluster.host.host import Host
from protocol.causes import MemberStateCause
from protocol.errors import ErrorCode, IllegalTransition
from protocol.ids import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    GenerationId,
    GroupId,
    MemberId,
)
from protocol.trace import TraceEvent, TraceKind


class MemberState(StrEnum):
    """Where a member is in the rebalance protocol; Kafka's names."""

    UNJOINED = "UNJOINED"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"


VALID_PREVIOUS_STATES: dict[MemberState, tuple[MemberState, ...]] = {
    MemberState.UNJOINED: tuple(MemberState),
    MemberState.PREPARING_REBALANCE: tuple(MemberState),
    MemberState.COMPLETING_REBALANCE: (MemberState.PREPARING_REBALANCE,),
    MemberState.STABLE: (MemberState.COMPLETING_REBALANCE,),
}
"""A transition to X is legal if the current state is among the entries of X."""


class Generation(NamedTuple):
    """What a member sends to prove which rebalance it took part in.

    `generation_id` is -1, `member_id` "" and `protocol_name` None where it has none.
    """

    generation_id: GenerationId = NO_GENERATION
    member_id: MemberId = UNKNOWN_MEMBER
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReason:
    """Why a member is in another state, as MEMBER_STATE tells it.

    `text` is for people and may be empty; after a reset the next JoinGroup gives it as its reason.
    `api` is the request whose answer took the generation away, `error` its error, or the one that
    ended the application.
    """

    cause: MemberStateCause
    text: str = ""
    api: str | None = None
    error: str | None = None


def refused(api: str, error: ErrorCode) -> StateReason:
    """Return the reason of a reset after an answer with `error`."""
    return StateReason(
        cause=MemberStateCause.ERROR, text=f"{api}: {error.name}", api=api, error=error.name
    )


_JOINED = StateReason(cause=MemberStateCause.JOINED)
_ASSIGNED = StateReason(cause=MemberStateCause.ASSIGNED)


class ConsumerMember:
    """The state and generation of one member of one group.

    Invariant: outside COMPLETING_REBALANCE and STABLE the state says nothing about `generation`: a
    member that prepares a rebalance still commits with nothing, but keeps what it had.
    """

    def __init__(self, host: Host, group_id: GroupId) -> None:
        self.group_id = group_id
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self._host = host

    @property
    def member_id(self) -> MemberId:
        """The id given by the coordinator, "" before the first JoinGroup was answered."""
        return self.generation.member_id

    @property
    def has_generation(self) -> bool:
        """Whether it has both a generation and an id: else its partitions are lost to it."""
        return self.generation.generation_id != NO_GENERATION and bool(self.generation.member_id)

    @property
    def is_rebalancing(self) -> bool:
        """Whether it has begun to join and has no assignment yet."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    def begin_rebalance(self, reason: str) -> None:
        """JoinGroup is sent; `reason` is for people."""
        self._transition_to(
            MemberState.PREPARING_REBALANCE,
            StateReason(cause=MemberStateCause.REBALANCE, text=reason),
        )

    def joined(self, generation: Generation) -> None:
        """JoinGroup was answered. Raises: IllegalTransition unless it was being prepared."""
        self.generation = generation
        self._transition_to(MemberState.COMPLETING_REBALANCE, _JOINED)

    def synced(self) -> None:
        """SyncGroup was answered. Raises: IllegalTransition unless it had joined."""
        self._transition_to(MemberState.STABLE, _ASSIGNED)

    def take_member_id(self, member_id: MemberId) -> None:
        """Keep the id that the coordinator demands for the next JoinGroup."""
        self.generation = Generation(member_id=member_id)

    def reset(self, reason: StateReason, *, reset_member_id: bool) -> None:
        """Drop the generation, and the id too if asked.

        Source: Kafka AbstractCoordinator.resetStateAndGeneration.
        """
        member_id = UNKNOWN_MEMBER if reset_member_id else self.generation.member_id
        before = self.generation
        self.generation = Generation(member_id=member_id)
        self._transition_to(MemberState.UNJOINED, reason, traced_as=before)

    def _transition_to(
        self, target: MemberState, reason: StateReason, *, traced_as: Generation | None = None
    ) -> None:
        """Write the state; a reset is traced under the generation and id that end with it."""
        before = self.state
        if before not in VALID_PREVIOUS_STATES[target]:
            raise IllegalTransition(
                f"member {self.member_id!r} of {self.group_id}: {before} to {target} "
                f"({reason.text or reason.cause}), "
                f"allowed from {', '.join(VALID_PREVIOUS_STATES[target])}"
            )
        ended_the_application = reason.cause == MemberStateCause.LEFT and reason.error is not None
        if before is target and not ended_the_application:
            return
        self.state = target
        generation = self.generation if traced_as is None else traced_as
        self._host.trace(
            TraceEvent(
                kind=TraceKind.MEMBER_STATE,
                group=self.group_id,
                member=generation.member_id or None,
                generation=generation.generation_id,
                api=reason.api,
                error=reason.error,
                cause=reason.cause,
                detail={"from": before.value, "to": target.value},
                cause_text=reason.text or None,
            )
        )
