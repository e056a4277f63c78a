"""MetricsSampler: writes the values of a node's metrics into the trace at regular intervals.

Each trace row has all values of one set of metrics at one moment.
"""

from collections.abc import Callable, Mapping

from cluster.host.host import Host
from protocol.trace import TraceEvent, TraceKind


class MetricsSampler:
    """Calls `values` and traces the result every `interval_us`; 0 means never."""

    def __init__(
        self, host: Host, values: Callable[[], Mapping[str, float | None]], *, interval_us: int
    ) -> None:
        self._host = host
        self._values = values
        self._interval_us = interval_us

    def start(self) -> None:
        """Take the first sample after one interval."""
        if self._interval_us:
            self._host.after(self._interval_us, self._sample)

    def _sample(self) -> None:
        self._host.trace(TraceEvent(kind=TraceKind.METRICS, detail=dict(self._values())))
        self.start()
