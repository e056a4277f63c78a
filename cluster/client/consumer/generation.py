"""A member's state and generation, and the only code that writes them.

A generation is the number of a group's rebalance. A rebalance is one round of the protocol by which
members join and get their partitions (the assignment). The coordinator refuses a member's requests
if they name an older generation.

Source: Kafka AbstractCoordinator.MemberState, AbstractCoordinator.Generation; docs/kafka,
BEHAVIOUR 7.1.
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
    """States of a member in the rebalance protocol, by Kafka's names."""

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
    """Identity by which a member proves in which rebalance it took part.

    The default values mean that the member is in no generation and has no id.
    """

    generation_id: GenerationId = NO_GENERATION
    member_id: MemberId = UNKNOWN_MEMBER
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReason:
    """Reason of a change of state, as a MEMBER_STATE row shows it.

    text: for people; may be empty. After a reset the next JoinGroup sends it as its reason.
    api: the request whose answer invalidated the generation, None if none did.
    error: the error in that answer, or the error that ended the application.
    """

    cause: MemberStateCause
    text: str = ""
    api: str | None = None
    error: str | None = None


def reset_reason(api: str, error: ErrorCode) -> StateReason:
    """Return the reason of a reset caused by an answer with `error`."""
    return StateReason(
        cause=MemberStateCause.ERROR, text=f"{api}: {error.name}", api=api, error=error.name
    )


# Reasons of the two changes of state that a successful join makes.
_JOINED = StateReason(cause=MemberStateCause.JOINED)
_ASSIGNED = StateReason(cause=MemberStateCause.ASSIGNED)


class ConsumerMember:
    """State and generation of one member of one group.

    Invariant: in COMPLETING_REBALANCE and STABLE, `generation` comes from the last answer to a
    JoinGroup. In the other states `generation` may be absent or old: a member that prepares a
    rebalance keeps its old generation, but may not commit with it.
    """

    def __init__(self, host: Host, group_id: GroupId) -> None:
        self.group_id = group_id
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self._host = host

    @property
    def member_id(self) -> MemberId:
        """The id given by the coordinator; "" before the first answer to a JoinGroup."""
        return self.generation.member_id

    @property
    def has_generation(self) -> bool:
        """True if the member has a generation and an id; otherwise it has lost its partitions."""
        return self.generation.generation_id != NO_GENERATION and bool(self.generation.member_id)

    @property
    def is_rebalancing(self) -> bool:
        """True from the first JoinGroup of a rebalance until the assignment."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    def begin_rebalance(self, reason: str) -> None:
        """Note that JoinGroup is being sent; `reason` is for people."""
        self._transition_to(
            MemberState.PREPARING_REBALANCE,
            StateReason(cause=MemberStateCause.REBALANCE, text=reason),
        )

    def joined(self, generation: Generation) -> None:
        """Note a good answer to JoinGroup.

        Raises: IllegalTransition if the state is not PREPARING_REBALANCE.
        """
        self.generation = generation
        self._transition_to(MemberState.COMPLETING_REBALANCE, _JOINED)

    def synced(self) -> None:
        """Note a good answer to SyncGroup.

        Raises: IllegalTransition if the state is not COMPLETING_REBALANCE.
        """
        self._transition_to(MemberState.STABLE, _ASSIGNED)

    def take_member_id(self, member_id: MemberId) -> None:
        """Store the id that the coordinator has assigned; the next JoinGroup carries it."""
        self.generation = Generation(member_id=member_id)

    def reset(self, reason: StateReason, *, reset_member_id: bool) -> None:
        """Drop the generation, and with `reset_member_id` also the id.

        Source: Kafka AbstractCoordinator.resetStateAndGeneration.
        """
        member_id = UNKNOWN_MEMBER if reset_member_id else self.generation.member_id
        before = self.generation
        self.generation = Generation(member_id=member_id)
        self._transition_to(MemberState.UNJOINED, reason, traced_as=before)

    def _transition_to(
        self, target: MemberState, reason: StateReason, *, traced_as: Generation | None = None
    ) -> None:
        """Write the state; `traced_as` is the generation that a reset has just ended."""
        before = self.state
        if before not in VALID_PREVIOUS_STATES[target]:
            raise IllegalTransition(
                f"member {self.member_id!r} of {self.group_id}: {before} to {target} "
                f"({reason.text or reason.cause}), "
                f"allowed from {', '.join(VALID_PREVIOUS_STATES[target])}"
            )
        # Normally only a change of state is traced. An error that ends the application is traced
        # even if the member was UNJOINED already.
        ended_the_application = reason.cause == MemberStateCause.LEFT and reason.error is not None
        if before is target and not ended_the_application:
            return
        self.state = target
        generation = self.generation if traced_as is None else traced_as
        # In a trace row, a member without an id and a reason without a text are None.
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
