"""Blocks of producer ids. The next block is requested before the present block is used up.

A broker gives each new producer an id. The ids must be unique in the whole cluster, so the
controller gives each broker its own ranges of ids, called blocks. Here a block arrives with
`allocated(start, length)`, and `take` returns the next id, or None if there is none.

The broker calls `wants_block` after each id. If the call returns True, the broker requests a block,
and the block counts as requested from then on. So a second call returns False, until the block or
a refusal arrives.

The tests are modelled on Kafka's ProducerIdManagerTest.
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
    """The first block has the ids 0 to 9, so the next block is requested after the ninth id."""
    ids = with_block()
    for _ in range(8):
        ids.take()
        assert not ids.wants_block()
    ids.take()
    # At the second call the block counts as requested.
    assert [ids.wants_block(), ids.wants_block()] == [True, False]
    ids.allocated(50, 10)
    assert not ids.wants_block()
    # The last id of the old block is assigned before the first ids of the new block.
    assert [ids.take() for _ in range(3)] == [9, 50, 51]


def test_refused_block_is_requested_again() -> None:
    """If the block still counted as requested, the broker would never request another block."""
    ids = ProducerIds()
    assert [ids.wants_block(), ids.wants_block()] == [True, False]
    ids.refused()
    assert [ids.wants_block(), ids.wants_block()] == [True, False]


def test_each_block_has_its_own_threshold_for_the_next_request() -> None:
    """The second block has 100 ids, so the third block is requested after the 90th id."""
    ids = with_block()
    for _ in range(9):
        ids.take()
    assert ids.wants_block()
    ids.allocated(1_000, 100)
    ids.take()  # the tenth and last id of the first block
    for _ in range(89):
        ids.take()
        assert not ids.wants_block()
    ids.take()  # the 90th id of the second block
    assert ids.wants_block()
