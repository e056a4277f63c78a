"""A coordinator that writes down all that it does, as the lines of a transcript."""

from protocol.effects import Append, Result
from protocol.ids import AppendId
from tests.support.harness.coordinator_harness import EPOCH_US, CoordinatorHarness
from tests.support.harness.kafka_bench import KafkaBench
from tests.support.transcripts.printing import INDENT, append_lines, message_lines, trace_text


class PrintingCoordinator(CoordinatorHarness):
    """A coordinator that collects lines about its work.

    There are lines for each reply, append, trace event and verification, and a line whenever time
    has passed. (In a verification, the coordinator asks whether a transaction is still open.)
    """

    def __init__(self, **settings: object) -> None:
        # These fields come first, because `_carry_out` is already called by `super().__init__`.
        self.lines: list[str] = []
        # The time in the latest line about time. A story begins at EPOCH_US.
        self._printed_us = EPOCH_US
        # The offset of each append that is in the log.
        self._offsets_of: dict[AppendId, int] = {}
        super().__init__(**settings)  # type: ignore[arg-type]  # settings of the harness

    def _carry_out(self, result: Result) -> None:
        """Do what a Result says, and add lines about it."""
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
            # A held append is not committed. It may be in the log all the same.
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
    """A PrintingCoordinator with the settings and the groups of Kafka's own tests."""
