"""Blocks of producer ids, requested before the last one is used up. After ProducerIdManagerTest.

A block is a range of ids that the controller gives to a broker, here with `allocated(start,
length)`. `take` returns the next id, or None. `wants_block` returns True if the broker should now
request a block. `wants_block` returns True only once for each block: from then on the block counts
as requested.
"""

from coordinator.transaction.producer_ids import ProducerIds


def with_block(start: int = 0, length: int = 10) -> ProducerIds:
    """Return producer ids with one block, requested and allocated."""
    ids = ProducerIds()
    assert ids.take() is None
    assert ids.wants_block()
    ids.allocated(start, length)
    return ids


def test_block_is_assigned_whole_and_then_no_id_is_left() -> None:
    """Ids are assigned in ascending order, and `take` returns None after the last."""
    ids = with_block(100, 3)
    assert [ids.take() for _ in range(5)] == [100, 101, 102, None, None]


def test_next_block_is_requested_once_when_nine_tenths_are_assigned() -> None:
    """The old block has ten ids. All of them are assigned before the first of the new block."""
    ids = with_block()
    for _ in range(8):
        ids.take()
        assert not ids.wants_block()
    ids.take()
    # The ninth id is assigned, which is nine tenths of the block. The second call returns False.
    assert [ids.wants_block(), ids.wants_block()] == [True, False]
    ids.allocated(50, 10)
    assert not ids.wants_block()
    assert [ids.take() for _ in range(3)] == [9, 50, 51]


def test_refused_block_is_requested_again() -> None:
    """If a refused request counted as open, the broker would never get ids again."""
    ids = ProducerIds()
    assert [ids.wants_block(), ids.wants_block()] == [True, False]
    ids.refused()
    assert [ids.wants_block(), ids.wants_block()] == [True, False]


def test_each_block_has_its_own_threshold_for_the_next_request() -> None:
    """The second block has 100 ids, so the next block is requested after its 90th."""
    ids = with_block()
    for _ in range(9):
        ids.take()
    assert ids.wants_block()
    # Take the tenth id of the first block, and then 90 of the second.
    ids.allocated(1_000, 100)
    ids.take()
    for _ in range(89):
        ids.take()
        assert not ids.wants_block()
    ids.take()
    assert ids.wants_block()
