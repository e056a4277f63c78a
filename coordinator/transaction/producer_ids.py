"""ProducerIds: the producer ids that this broker may give out.

The broker gets them from the controller, in blocks such as 1000 to 1999. The controller never
allocates a block twice, so no two brokers give out the same id. A restarted broker gets a new
block, so it does not give out the same id again either.

Source: Kafka `RPCProducerIdManager`.
"""

PREFETCH_PERCENT = 90
"""When this share of a block is used up, the next block is requested, so that no producer waits."""


class ProducerIds:
    """The current block of producer ids, and the following block once it has arrived."""

    def __init__(self) -> None:
        # The current block: the next id to give out, the end of the block (exclusive), and the id
        # from which on the following block is requested. At first there is no block, and all three
        # are 0.
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
        """Return True if the caller must request a block now, and note that it is requested.

        Further calls return False until the controller has answered.
        """
        # Before the first block, `_next` and `_prefetch_at` are both 0, so a block is wanted.
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
        """Note that the controller refused. After this, `wants_block` may return True again."""
        self._is_asked_for = False

    def _begin(self, start: int, length: int) -> None:
        """Make a block the current one."""
        self._next = start
        self._end = start + length
        self._prefetch_at = start + length * PREFETCH_PERCENT // 100
