"""ThisProcess does the work of a fan-out in the caller's own process.

A fan-out gives batches of items to workers. With ThisProcess there is one worker. It works one item
at a time, so a Ctrl-C need not wait for the end of a batch.
"""

from cluster.fan_out import Finished, Items, ThisProcess, name_of_this_process


def text_of(items: Items) -> bytes:
    """Return the items as a text."""
    return repr(items).encode()


def test_this_process_works_item_by_item() -> None:
    """A batch of two items has two answers, one for each item, and the worker is idle again."""
    with ThisProcess(text_of) as workers:
        (me,) = workers.idle()
        assert me == name_of_this_process()
        workers.give(me, (3, 4))
        assert workers.idle() == ()
        # Each wait does at most one item. The third wait finds no more work.
        answers = [event for _ in range(3) for event in workers.wait(1.0)]
        assert workers.idle() == (me,)
    assert [(type(event), event.items) for event in answers] == [(Finished, (3,)), (Finished, (4,))]
    assert [event.answer for event in answers if isinstance(event, Finished)] == [b"(3,)", b"(4,)"]
