"""ThisProcess does work in the caller's own process that could be spread over several workers.

A long job, such as many runs with different seeds, is a list of items. The caller can give the
items to worker processes, in batches. If there are no worker processes, the caller uses ThisProcess
in the same way. Then this process is the only worker. It does one item at a time, so a Ctrl-C need
not wait for the end of a batch.
"""

from cluster.fan_out import Finished, Items, ThisProcess, name_of_this_process


def text_of(items: Items) -> bytes:
    """Do the work of this test: write the items as a text."""
    return repr(items).encode()


def test_this_process_works_item_by_item() -> None:
    """A batch of two items has two answers, one for each item. Then the worker is idle again."""
    with ThisProcess(text_of) as workers:
        (worker,) = workers.idle()
        assert worker == name_of_this_process()
        workers.give(worker, (3, 4))
        assert workers.idle() == ()
        # Each wait does at most one item. The third wait finds no more work.
        events = [event for _ in range(3) for event in workers.wait(1.0)]
        assert workers.idle() == (worker,)

    finished = [event for event in events if isinstance(event, Finished)]
    assert finished == events
    assert [event.items for event in finished] == [(3,), (4,)]
    assert [event.answer for event in finished] == [b"(3,)", b"(4,)"]
