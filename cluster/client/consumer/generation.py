"""A member's state and generation, and the only code that writes them.

A member names its generation in its requests, and the coordinator refuses requests with an older
generation. A mistake here would let a member act for a generation that is over. Therefore all
changes of state go through ConsumerMember. ConsumerMember checks each change, and writes a row
about it into the trace (the run's record of events).

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
    """States of a member in the rebalance protocol, by Kafka's names.

    UNJOINED: not in the group. PREPARING_REBALANCE: JoinGroup is in flight. COMPLETING_REBALANCE:
    SyncGroup is in flight. STABLE: the member has its assignment.
    """

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
"""The states from which each state may be entered. `tuple(MemberState)` means from any state."""


class Generation(NamedTuple):
    """The number of a rebalance, the member's id, and the assignor that the group chose.

    The defaults are for a member that has taken part in no rebalance.
    """

    generation_id: GenerationId = NO_GENERATION
    member_id: MemberId = UNKNOWN_MEMBER
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReason:
    """Reason of a change of state, as a MEMBER_STATE row shows it.

    - `text`: the reason for people; it may be empty. After a reset the member joins the group
      again, and its JoinGroup carries this text in the field `reason`.
    - `api`, `error`: if an error in an answer made the generation invalid, the request and the
      error. If the member left because an error ended its application, `error` is this error, and
      `api` is None.
    """

    cause: MemberStateCause
    text: str = ""
    api: str | None = None
    error: str | None = None


def reset_reason(api: str, error: ErrorCode) -> StateReason:
    """Return the reason of a reset that an answer with `error` to a request `api` caused."""
    return StateReason(
        cause=MemberStateCause.ERROR, text=f"{api}: {error.name}", api=api, error=error.name
    )


# Reasons of the two changes of state that a successful join makes.
_JOINED = StateReason(cause=MemberStateCause.JOINED)
_ASSIGNED = StateReason(cause=MemberStateCause.ASSIGNED)


class ConsumerMember:
    """State and generation of one member of one group.

    In the states COMPLETING_REBALANCE and STABLE, `generation` comes from the last answer to
    JoinGroup. In PREPARING_REBALANCE a member that had a generation before still has this old
    generation, but may not commit with it.
    """

    def __init__(self, host: Host, group_id: GroupId) -> None:
        self.group_id = group_id
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self._host = host

    @property
    def member_id(self) -> MemberId:
        """The id that the coordinator has given to the member; "" before that."""
        return self.generation.member_id

    @property
    def has_generation(self) -> bool:
        """True if the member has a generation and an id.

        A member without them is no longer in the group, so it gives up its partitions as lost: the
        group may have given them to other members.
        """
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
        """Store the id that the coordinator has assigned; the next JoinGroup has this id.

        The other values of the generation are set to their defaults: a member that gets a new id
        has no generation yet.
        """
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
        """Change the state and trace the change.

        `traced_as` is the generation for the trace row; None means the present generation. A reset
        passes the generation that it has ended.
        """
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
        # `or None`: in a trace row, None stands for an empty member id or text.
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
