"""Causes of events in the trace.

The trace is the recording of a run, a table with one row for each event. The column `cause` of a
row says why the event happened, for example "session expiry" in a row MEMBER_REMOVED. Programs
compare these values, so most kinds of rows have a fixed set of causes. This module has an enum for
each of these sets. The column `cause_text` has a sentence for people, which no program reads. In
some kinds of rows, `cause` is the name of a thing instead, such as the id of a fault.
`trace_schema` says which kinds these are.

Words in capitals, such as MEMBER_REMOVED, are kinds of rows.
"""

from enum import StrEnum


class RebalanceCause(StrEnum):
    """Causes of rebalances, in REBALANCE_STARTED and in the GROUP_STATE that follows it."""

    SESSION_EXPIRY = "session expiry"
    """A member's session timer fired."""
    STATIC_MEMBER_BACK = "static member back"
    """A new process took the place of a static member's old process. In a Stable group this causes
    a rebalance only if the group chooses another protocol because of the new process."""
    JOIN = "join"
    """A new member joined."""
    LEAVE = "leave"
    """A member left, or an administrator removed it."""
    CHANGED_METADATA = "changed metadata"
    """A member rejoined with other protocols or subscriptions."""
    REJOIN = "rejoin"
    """The leader rejoined, to compute the assignment again."""
    NO_SYNC_GROUP = "no SyncGroup"
    """Members of the new generation sent no SyncGroup before the deadline."""
    ASSIGNMENT_NOT_STORED = "assignment not stored"
    """The append of the new generation's assignment failed."""
    GROUP_TOO_LARGE = "group too large"
    """A coordinator loaded a group with more members than `group.max.size`."""


class RemovalCause(StrEnum):
    """Causes for the removal of a member id from its group, in MEMBER_REMOVED."""

    SESSION_EXPIRY = "session expiry"
    LEAVE = "leave"
    """The member left, or an administrator removed it."""
    DID_NOT_REJOIN = "did not rejoin"
    """The join phase ended without a JoinGroup of the member."""
    SYNC_DEADLINE = "sync deadline"
    """The member sent no SyncGroup before the deadline."""
    GROUP_MAX_SIZE = "group.max.size"
    """The member rejoined a group that was full already."""
    STATIC_MEMBER_REPLACED = "static member replaced"
    """A new process of a static member got a new id, and the old id was removed. The row
    MEMBER_ADDED of the new id has this cause, too."""


class GroupStateCause(StrEnum):
    """Causes of a group's new state, in GROUP_STATE.

    The other causes in these rows are RebalanceCause and DeletionCause.
    """

    ALL_JOINED = "all members joined"
    NO_MEMBER_LEFT = "no member is left"
    LAST_MISSING_WENT = "the last member that had not joined went"
    """A member expired or left, and the join phase had waited only for this member. The same may
    happen with a pending id, which is the id of a member that has not joined yet."""
    INITIAL_DELAY_OVER = "initial rebalance delay over"
    REBALANCE_TIMEOUT = "rebalance timeout passed"
    ASSIGNMENT_STORED = "assignment stored"
    UNLOADED = "unloaded"


class DeletionCause(StrEnum):
    """Causes for the deletion of an offset or group.

    They are in the rows OFFSET_REMOVED, PENDING_COMMIT_REMOVED and GROUP_STATE to Dead.
    """

    EXPIRED = "expired"
    DELETED = "deleted by an administrator"
    TOPIC_DELETED = "its topic was deleted"


DELETIONS = frozenset(DeletionCause)
"""All causes of a deletion, for programs that test whether the cause of a row is a deletion."""
ORDERED_DELETIONS = frozenset({DeletionCause.DELETED, DeletionCause.TOPIC_DELETED})
"""Causes of the deletions that an administrator ordered. After such a deletion, the checks of a run
expect the offset to be missing.

EXPIRED is not in this set. An offset may expire only when its group has been empty for the
retention time, and the checks of a run verify this.
"""


# The next three constants are reasons for the election of a leader. They are values of `reason` in
# the detail of LEADER_ELECTED. The first two are for elections of a partition's preferred leader.
PREFERRED_LEADER = "preferred leader"
"""The controller elects the preferred leader by itself, because of the setting
`auto.leader.rebalance.enable`."""
PREFERRED_LEADER_REQUESTED = "preferred leader requested"
"""An administrator asked for the election (ElectLeaders)."""

TOPIC_CREATED = "topic created"
"""The partition is new. Its topic is in the cluster's spec, or was created by CreateTopics."""


class IgnoredCause(StrEnum):
    """Causes for the refusal of a load or unload, in LOAD_IGNORED and UNLOAD_IGNORED."""

    STALE_LEADER_EPOCH = "stale leader epoch"
    ALREADY_LOADED = "already loaded or loading"
    LOAD_FAILED = "the load failed in this leader epoch"


class TransactionCause(StrEnum):
    """Causes of a transactional id's new state, in TRANSACTION_STATE."""

    PRODUCER_BEGAN = "a producer began"
    PARTITIONS_ADDED = "partitions added"
    NEW_PRODUCER = "a new producer began"
    """A producer began under a transactional id that had an open transaction. The transaction was
    aborted."""
    TIMED_OUT = "transaction.timeout.ms passed"
    ENDED = "the producer ended it"
    MARKERS_WRITTEN = "every marker is written"
    EXPIRED = "not used for transactional.id.expiration.ms"


class CoordinatorUnknownCause(StrEnum):
    """Causes in COORDINATOR_UNKNOWN, if a client gives up its coordinator without an error."""

    UNAVAILABLE = "coordinator unavailable"
    """The connection to the coordinator failed, and the client still waits before it reconnects."""
    SESSION_TIMEOUT = "session timed out without receiving a heartbeat response"


class MemberStateCause(StrEnum):
    """Causes of a member's new state, in MEMBER_STATE."""

    REBALANCE = "rebalance"
    """The member joins a rebalance, which it or another member has caused."""
    JOINED = "joined"
    ASSIGNED = "assigned"
    ERROR = "error"
    """An answer with an error ended the member's generation. The row's columns `api` and `error`
    say which answer it was."""
    MISSED_POLL = "missed poll"
    """The application did not poll within `max.poll.interval.ms`."""
    LEFT = "left"
    """The application closed the consumer, or unsubscribed."""
    RESET_WHILE_JOINING = "generation reset while joining"


class PositionCause(StrEnum):
    """Origins of a consumer's position, in POSITION_RESET."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


class OffsetFetchCause(StrEnum):
    """Purposes of an OffsetFetch that no member sent, in OFFSETS_FETCHED."""

    VERIFICATION = "verification"
    """The run reads the committed offsets at its end."""


class KillCause(StrEnum):
    """Causes of a node's death other than a crash of its process, in NODE_KILLED."""

    POWER_LOSS = "power loss"
    MACHINE_LOST = "machine lost"
    """The machine of the node's process no longer answered the program that drives the run. This is
    not a fault that the run injected."""


class RecoveryCause(StrEnum):
    """Causes, in LOG_RECOVERED, of the loss of written records that an opened log no longer has."""

    TORN_TAIL = "torn tail"
    """The bytes after the last whole batch were an incomplete write."""
    POWER_LOSS = "power loss"
    """The node lost power, and with it the batches that had not been flushed to the disk."""


class FencingCause(StrEnum):
    """Reasons for the fencing of a broker: `reason` in the detail of BROKER_FENCED."""

    SESSION_ENDED = "session ended"
    """No heartbeat came for `broker.session.timeout.ms`."""
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    """The broker has completed a controlled shutdown, and leads no partition any more."""
    REGISTERED_ANEW = "registered anew"
    """A new process of the broker registered before the registration of the old process was
    fenced."""
    WANTS_TO_BE_FENCED = "wants to be fenced"
    """The broker asks in its heartbeat to be fenced."""
