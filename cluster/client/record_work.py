"""What an application takes for the records that it processes.

A constant draws nothing: the streams of the node are the same with any constant.
"""

from cluster.host.host import Host


class RecordWork:
    """The processing time of one member's records: `process_us` and up to `spread_us` more each.

    Units: microseconds.
    """

    def __init__(self, host: Host, process_us: int, spread_us: int) -> None:
        self._process_us = process_us
        self._spread_us = spread_us
        self._rng = host.stream("process") if spread_us else None

    @property
    def costs_time(self) -> bool:
        """Whether a record takes any time."""
        return self._process_us + self._spread_us > 0

    def draw_us(self, records: int) -> int:
        """Return what the next `records` take in all, one draw for each."""
        work_us = self._process_us * records
        if self._rng is not None:
            work_us += sum(self._rng.randint(0, self._spread_us) for _ in range(records))
        return work_us
