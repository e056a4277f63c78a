"""ProducerIds: blocks of producer ids that the controller has allocated to this broker.

The controller allocates each block once. So two brokers never use the same id. A broker that has
restarted does not use its earlier ids either.
Source: Kafka `RPCProducerIdManager`.
"""

PREFETCH_PERCENT = 90
"""Share of a block after which the next block is requested, so that no producer has to wait."""


class ProducerIds:
    """The current block of producer ids, and the following block once it has arrived."""

    def __init__(self) -> None:
        # The current block: its next id, its end (exclusive), and the id at which the following
        # block is requested. If `_next` equals `_end`, no id is left. The start is such a case.
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None  # start and length of the following block
        self._is_asked_for = False  # a block was requested and has not arrived

    def take(self) -> int | None:
        """Return an unused producer id, None if no block is available."""
        if self._next == self._end and self._following is not None:
            self._begin(*self._following)
            self._following = None
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    def wants_block(self) -> bool:
        """Return True if the caller must request a block now.

        The block then counts as requested.
        """
        # At the start `_next` and `_prefetch_at` are both 0, so that a block is wanted.
        is_wanted = self._following is None and self._next >= self._prefetch_at
        if not is_wanted or self._is_asked_for:
            return False
        self._is_asked_for = True
        return True

    def allocated(self, start: int, length: int) -> None:
        """Add the block of ids from `start` to `start + length` (exclusive)."""
        self._is_asked_for = False
        if self._next == self._end:
            self._begin(start, length)
        else:
            self._following = (start, length)

    def refused(self) -> None:
        """Note that the controller refused; the next request for an id requests a block again."""
        self._is_asked_for = False

    def _begin(self, start: int, length: int) -> None:
        self._next = start
        self._end = start + length
        self._prefetch_at = start + length * PREFETCH_PERCENT // 100
