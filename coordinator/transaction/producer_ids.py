"""The producer ids that this broker may give out: blocks of them, from the controller.

Source: Kafka `RPCProducerIdManager`. No two brokers, and no two lives of one, give out the same id.
"""

PREFETCH_PERCENT = 90
"""With so much of a block given out the next one is asked for."""


class ProducerIds:
    """The present block, and the one that comes after it, if it is here already."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._is_asked_for = False

    def take(self) -> int | None:
        """Return an id that nobody else has; None while there is none."""
        if self._next == self._end and self._following is not None:
            self._begin(*self._following)
            self._following = None
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    def wants_block(self) -> bool:
        """Return whether a block is to be asked for now; it then counts as asked for."""
        is_wanted = self._following is None and self._next >= self._prefetch_at
        if not is_wanted or self._is_asked_for:
            return False
        self._is_asked_for = True
        return True

    def allocated(self, start: int, length: int) -> None:
        """Take the block of ids `start` to `start + length`, the last one excluded."""
        self._is_asked_for = False
        if self._next == self._end:
            self._begin(start, length)
        else:
            self._following = (start, length)

    def refused(self) -> None:
        """Take that the controller gave none: the next one who needs an id has it asked again."""
        self._is_asked_for = False

    def _begin(self, start: int, length: int) -> None:
        self._next = start
        self._end = start + length
        self._prefetch_at = start + length * PREFETCH_PERCENT // 100
