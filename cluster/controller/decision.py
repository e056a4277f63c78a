"""Decisions of the controller: the records to write for one input, and the response to send."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from protocol.records.metadata import MetadataRecord
from protocol.trace import TraceEvent

T = TypeVar("T")


@dataclass(slots=True)
class Decision(Generic[T]):
    """Records for the metadata log, written as one batch, and the response to send after that.

    The trace rows of leaders and ISRs that change because of the records have the `reason`. `trace`
    has other events for the trace, for example that a broker was fenced.

    Source: Kafka `ControllerResult`.
    """

    response: T
    records: list[MetadataRecord] = field(default_factory=list)
    reason: str = ""
    trace: list[TraceEvent] = field(default_factory=list)
