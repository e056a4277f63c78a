"""The requests that commands send to a standing cluster, and the answers of the cluster.

For example, `coordlab inject crash "broker(1)"` sends an InjectRequest, and gets an InjectAnswer or
an OrderRefusal. Requests and answers are sent as JSON (`control`).

This module imports only the schema of the results. A command that only sends a request needs
nothing else of coordlab, so it starts quickly.
"""

from enum import StrEnum
from typing import Any

import msgspec

from results_schema.journal import JournalEntry
from results_schema.results import (
    EXIT_BAD_ARGUMENTS,
    EXIT_INTERNAL_ERROR,
    EXIT_UNKNOWN,
)

CONTROL_VERSION = 1
"""Version of these messages. A cluster refuses requests of another version.

If a message is changed in an incompatible way, this number must be increased.
"""


class PresenceRequest(msgspec.Struct, frozen=True, kw_only=True, tag="presence"):
    """Asks whether the cluster is alive, and nothing else."""


class InjectRequest(
    msgspec.Struct, frozen=True, kw_only=True, tag="inject", rename={"from_": "from"}
):
    """Orders a fault.

    The fields have the same meaning as the keys of a fault in an experiment file. The only other
    field is `waits`. If it is True, the answer comes only when the fault is over.
    """

    fault: str
    target: str | None = None
    from_: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    duration: str | None = None
    args: dict[str, Any] = {}  # the cluster checks them with the struct of the fault
    waits: bool = False


class HealRequest(msgspec.Struct, frozen=True, kw_only=True, tag="heal"):
    """Orders the healing of faults.

    - `fault_id`: the id of the fault to heal, such as `crash-0`.
    - `everything`: if it is True, and `fault_id` is None, all faults in force are healed.

    A request with neither `fault_id` nor `everything` means the only fault in force. If several
    faults are in force, such a request is refused.
    """

    fault_id: str | None = None
    everything: bool = False


class StatusRequest(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """Asks for the state of the cluster.

    If `partitions` is True, the answer also has the state of each partition.
    """

    partitions: bool = False


class DownRequest(msgspec.Struct, frozen=True, kw_only=True, tag="down"):
    """Orders the end of the run. The answer comes when the report is written."""


Request = PresenceRequest | InjectRequest | HealRequest | StatusRequest | DownRequest


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request, with the token that the cluster demands."""

    version: int = CONTROL_VERSION
    token: str
    request: Request


class RefusalKind(StrEnum):
    """Why a request was not carried out."""

    UNKNOWN = "unknown"  # the request can never be carried out, for example an unknown fault
    NOTHING_NOW = "nothing_now"  # at this moment the request can hit or heal nothing
    ENDING = "ending"  # the cluster is starting or ending, and accepts no orders
    FAILED = "failed"  # coordlab itself failed while it carried out the request


class OrderRefusal(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The answer to a request that was not carried out. Each of `problems` is a sentence."""

    kind: RefusalKind
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the command that sent the request."""
        return _EXIT_CODES[self.kind]


# Kind of refusal -> exit code of the command that sent the request.
_EXIT_CODES = {
    RefusalKind.UNKNOWN: EXIT_BAD_ARGUMENTS,
    RefusalKind.NOTHING_NOW: EXIT_UNKNOWN,
    RefusalKind.ENDING: EXIT_BAD_ARGUMENTS,
    RefusalKind.FAILED: EXIT_INTERNAL_ERROR,
}


class PresenceAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="presence_answer"):
    """Says that the cluster is alive."""


class InjectAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="inject_answer"):
    """Says that a fault was injected.

    `warnings` has the warnings that an experiment file with this fault would get.
    """

    fault: JournalEntry
    warnings: tuple[str, ...] = ()


class HealAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="heal_answer"):
    """Says which faults were healed. There are none if no fault was in force."""

    faults: tuple[JournalEntry, ...]


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One broker.

    `state` is the state of its process. If the process runs, but the controller counts the broker
    as dead, `state` is "fenced".
    """

    broker_id: int
    state: str


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, as the controller knows it.

    `leader` is the id of a broker, or -1 if the partition has no leader.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group, as its coordinator knows it.

    `node` is coordlab's own consumer that has this member id; None for a client from outside.
    """

    member_id: str
    node: str | None = None
    is_leader: bool = False


class GroupAtBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A group, as one broker has it in memory.

    After a failover two brokers may have the same group in memory for a while.

    - `coordinator`: the id of the broker that has the group in memory.
    - `offsets_partition`: the partition of `__consumer_offsets` that stores the group.
    - `is_of_the_file`: True if the experiment of the cluster defines the group. At the end of the
      run only these groups must be stable and commit. All other groups belong to clients from
      outside.
    """

    group: str
    coordinator: int
    offsets_partition: int
    state: str
    generation: int
    members: tuple[MemberFacts, ...]
    is_of_the_file: bool


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="status_answer"):
    """The state of a cluster.

    - `pid`: the id of the process that runs the cluster.
    - `stage`: the stage of the run, such as `serving`.
    - `time_us`: the time on the run's clock.
    - `bootstrap`: the addresses of the brokers for Kafka clients, as "host:port".
    - `topics`: the number of partitions of each topic.
    - `partitions`: empty unless the request asks for partitions.
    - `not_up`: the controllers and clients that do not run, with their states.
    - `faults`: all faults of the run so far.
    - `findings`: the violations that were found so far, as sentences.
    - `waiting_for`: what is missing for the steady state, as sentences.
    """

    name: str
    run_directory: str
    runtime: str
    pid: int
    stage: str
    time_us: int
    bootstrap: tuple[str, ...] = ()
    controller: str | None = None
    brokers: tuple[BrokerFacts, ...] = ()
    topics: dict[str, int] = {}
    partitions: tuple[PartitionFacts, ...] = ()
    groups: tuple[GroupAtBroker, ...] = ()
    not_up: dict[str, str] = {}
    faults: tuple[JournalEntry, ...] = ()
    records_produced: int = 0
    findings: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()


class DownAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="down_answer"):
    """Says how the run ended.

    - `report`: the path of the report; None if no report was written.
    - `notes`: further remarks, as sentences.
    """

    exit_code: int
    outcome: str
    verdict: str
    reasons: tuple[str, ...]
    run_directory: str
    report: str | None = None
    notes: tuple[str, ...] = ()


Answer = PresenceAnswer | InjectAnswer | HealAnswer | StatusAnswer | DownAnswer | OrderRefusal
