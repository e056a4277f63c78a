"""Causes in the trace: closed enums whose values stand in a row's column `cause`.

Programs compare these values. The sentence for people stands beside them in `cause_text`, and is
read by nobody else. A cause that is a name instead (a fault's id, a connection's purpose, a
broker, a checker, an error) has no enum: the table of trace kinds says which kind has which.
"""

from enum import StrEnum


class RebalanceCause(StrEnum):
    """Why a rebalance began: REBALANCE_STARTED, and the GROUP_STATE that comes with it."""

    SESSION_EXPIRY = "session expiry"
    """A member's session timer fired."""
    STATIC_MEMBER_BACK = "static member back"
    """A new process took a static member's place, and the group could not go on as it was."""
    JOIN = "join"
    """A new member came."""
    LEAVE = "leave"
    """A member left, or an administrator took it out."""
    CHANGED_METADATA = "changed metadata"
    """A member rejoined with other protocols or subscriptions."""
    REJOIN = "rejoin"
    """The leader rejoined, to have the assignment computed again."""
    NO_SYNC_GROUP = "no SyncGroup"
    """Members of the new generation sent no SyncGroup in time."""
    ASSIGNMENT_NOT_STORED = "assignment not stored"
    """The log did not take the new generation's assignment."""
    GROUP_TOO_LARGE = "group too large"
    """A coordinator loaded a group with more members than `group.max.size`."""


class RemovalCause(StrEnum):
    """Why a member id was taken out of its group: MEMBER_REMOVED."""

    SESSION_EXPIRY = "session expiry"
    LEAVE = "leave"
    """It left, or an administrator took it out."""
    DID_NOT_REJOIN = "did not rejoin"
    """The join phase ended without its JoinGroup."""
    SYNC_DEADLINE = "sync deadline"
    """It sent no SyncGroup in time."""
    GROUP_MAX_SIZE = "group.max.size"
    """It rejoined a group that was full already."""
    STATIC_MEMBER_REPLACED = "static member replaced"
    """A static member got another id: also the cause of the new id's MEMBER_ADDED."""


class GroupStateCause(StrEnum):
    """Why a group is in another state: GROUP_STATE, beside RebalanceCause and DeletionCause."""

    ALL_JOINED = "all members joined"
    NO_MEMBER_LEFT = "no member is left"
    LAST_MISSING_WENT = "the last member that had not joined went"
    """A member, or an id that was given out, expired or left: the join phase waited for it only."""
    INITIAL_DELAY_OVER = "initial rebalance delay over"
    REBALANCE_TIMEOUT = "rebalance timeout passed"
    ASSIGNMENT_STORED = "assignment stored"
    UNLOADED = "unloaded"


class DeletionCause(StrEnum):
    """Why a committed offset or a whole group went: OFFSET_REMOVED, GROUP_STATE to Dead."""

    EXPIRED = "expired"
    DELETED = "deleted by an administrator"
    TOPIC_DELETED = "its topic was deleted"


ORDERED_DELETIONS = frozenset({DeletionCause.DELETED, DeletionCause.TOPIC_DELETED})
"""Deletions that excuse a missing offset. Expiry does not: the offset's group must be gone."""


class IgnoredCause(StrEnum):
    """Why a load or an unload was not carried out: LOAD_IGNORED, UNLOAD_IGNORED."""

    STALE_LEADER_EPOCH = "stale leader epoch"
    ALREADY_LOADED = "already loaded or loading"
    LOAD_FAILED = "the load failed in this leader epoch"


class TransactionCause(StrEnum):
    """Why a transactional id is in another state: TRANSACTION_STATE."""

    PRODUCER_BEGAN = "a producer began"
    PARTITIONS_ADDED = "partitions added"
    NEW_PRODUCER = "a new producer began"
    """Another producer with the same id began while a transaction was open, and ended it."""
    TIMED_OUT = "transaction.timeout.ms passed"
    ENDED = "the producer ended it"
    MARKERS_WRITTEN = "every marker is written"
    EXPIRED = "not used for transactional.id.expiration.ms"


class CoordinatorUnknownCause(StrEnum):
    """Why a client gave its coordinator up without an error's name: COORDINATOR_UNKNOWN."""

    UNAVAILABLE = "coordinator unavailable"
    """Its connection failed, and is held back."""
    SESSION_TIMEOUT = "session timed out without receiving a heartbeat response"


class MemberStateCause(StrEnum):
    """Why a member is in another state: MEMBER_STATE."""

    REBALANCE = "rebalance"
    """It joins, because it must or asked to."""
    JOINED = "joined"
    ASSIGNED = "assigned"
    ERROR = "error"
    """An answer took its generation away: `api` and `error` say which."""
    MISSED_POLL = "missed poll"
    """Its application was slower than `max.poll.interval.ms`."""
    LEFT = "left"
    """Its application closed it, or unsubscribed."""
    RESET_WHILE_JOINING = "generation reset while joining"


class PositionCause(StrEnum):
    """Where a consumer's position comes from: POSITION_RESET."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


class OffsetFetchCause(StrEnum):
    """What an OffsetFetch was for, if no member needed it: OFFSETS_FETCHED."""

    VERIFICATION = "verification"
    """The run asks for what is committed in the end."""


class KillCause(StrEnum):
    """What killed a node, beside its process: NODE_KILLED."""

    POWER_LOSS = "power loss"


class RecoveryCause(StrEnum):
    """Why a log that is opened holds less than was written to it: LOG_RECOVERED."""

    TORN_TAIL = "torn tail"
    """What stood behind the last whole batch was no batch: a write that was cut short."""
    POWER_LOSS = "power loss"
    """What was not flushed is gone."""


class FencingCause(StrEnum):
    """Why the controller fences a broker: the `reason` of BROKER_FENCED."""

    SESSION_ENDED = "session ended"
    """No heartbeat came for `broker.session.timeout.ms`."""
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    """The broker has shut down in order, and leads nothing any more."""
    REGISTERED_ANEW = "registered anew"
    """A new process of the broker registered; its former one was not fenced yet."""
    WANTS_TO_BE_FENCED = "wants to be fenced"
    """The broker's heartbeat asks for it."""
