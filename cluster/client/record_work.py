"""The time that an application needs to process its records.

If all records take the same time, no random numbers are drawn. So this time does not change the
random numbers of the rest of a run.
"""

from cluster.host.host import Host


class RecordWork:
    """The processing time of one member's records.

    Each record takes `process_us`, plus a random time of up to `spread_us`.

    Units: microseconds.
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
        """Return the time that `records` records take; the random part is drawn for each record."""
        work_us = self._process_us * records
        if self._rng is not None:
            work_us += sum(self._rng.randint(0, self._spread_us) for _ in range(records))
        return work_us
