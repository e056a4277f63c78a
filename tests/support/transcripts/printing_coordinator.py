"""A coordinator harness that keeps a line of text for each effect of the coordinator.

A story of the transcripts prints these lines.
"""

from protocol.effects import Append, Result
from protocol.ids import AppendId
from tests.support.harness.coordinator_harness import EPOCH_US, CoordinatorHarness
from tests.support.harness.kafka_bench import KafkaBench
from tests.support.transcripts.printing import INDENT, append_lines, message_lines, trace_text


class PrintingCoordinator(CoordinatorHarness):
    """Keeps lines of the time, replies, verifications, appends and trace events.

    A verification is a question to a transaction's coordinator: is the transaction open?
    """

    def __init__(self, **settings: object) -> None:
        # The harness's `__init__` carries out Results already, and `_carry_out` uses these fields.
        self.lines: list[str] = []
        self._printed_us = EPOCH_US  # newest time that has a line
        self._offsets_of: dict[AppendId, int] = {}  # offsets of the appends that are in the log
        super().__init__(**settings)  # type: ignore[arg-type]  # settings of the harness

    def _carry_out(self, result: Result) -> None:
        """Carry out the coordinator's effects, as the harness does, and keep their lines."""
        if self.now_us != self._printed_us:
            self._printed_us = self.now_us
            self.lines.append(f"@{(self.now_us - EPOCH_US) / 1_000:g}")
        super()._carry_out(result)
        for reply in result.replies:
            name = type(reply.response).__name__.removesuffix("Response")
            self.lines += message_lines(f"#{reply.request_id} {name}", reply.response)
        for asked in result.verifications:
            self.lines.append(f"verify {asked.transactional_id} in {asked.partition}: {asked}")
        for append in result.appends:
            self.lines += append_lines(append, self._offsets_of.get(append.append_id))
            # The append is in the log, but the story holds back its commit.
            if append in self.held and append.append_id in self._offsets_of:
                self.lines.append(f"{INDENT}above the high watermark")
        self.lines += [trace_text(event) for event in result.trace]

    def _write(self, append: Append) -> int:
        offset = super()._write(append)
        self._offsets_of[append.append_id] = offset
        return offset

    def take_lines(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self.lines = self.lines, []
        return lines


class PrintingBench(PrintingCoordinator, KafkaBench):
    """A printing coordinator with the helpers that Kafka's own tests have."""
