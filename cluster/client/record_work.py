"""The time that an application takes to process its records."""

from cluster.host.host import Host


class RecordWork:
    """The processing time of one member's records.

    Each record takes `process_us` and a random time of up to `spread_us`. If `spread_us` is 0, no
    random stream is created.
    """

    def __init__(self, host: Host, process_us: int, spread_us: int) -> None:
        self._process_us = process_us
        self._spread_us = spread_us
        self._rng = host.stream("process") if spread_us else None

    @property
    def costs_time(self) -> bool:
        """True if a record takes any time."""
        return self._process_us + self._spread_us > 0

    def draw_us(self, records: int) -> int:
        """Return the time for `records` records, with a new random part for each of them."""
        work_us = self._process_us * records
        if self._rng is not None:
            work_us += sum(self._rng.randint(0, self._spread_us) for _ in range(records))
        return work_us
