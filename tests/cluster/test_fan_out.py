"""ThisProcess, the worker of a job that has no worker processes.

A long job, such as many runs with different seeds, is a list of items. The caller gives the items,
in batches, to worker processes, or to ThisProcess. With ThisProcess the caller's own process is the
only worker. ThisProcess does one item at a time, so a Ctrl-C need not wait for the end of a batch.
"""

from cluster.fan_out import Finished, Items, ThisProcess, name_of_this_process


def text_of(items: Items) -> bytes:
    """Return the items as a text. The worker of this test calls this function for its items."""
    return repr(items).encode()


def test_this_process_works_item_by_item() -> None:
    """A batch of two items has two answers, one for each item. Then the worker is idle again."""
    with ThisProcess(text_of) as workers:
        (worker,) = workers.idle()
        assert worker == name_of_this_process()
        workers.give(worker, (3, 4))
        assert workers.idle() == ()
        # Each wait does at most one item. The third wait finds no more work.
        events = [event for _ in range(3) for event in workers.wait(timeout_s=1.0)]
        assert workers.idle() == (worker,)

    finished = [event for event in events if isinstance(event, Finished)]
    assert finished == events  # there are no other events
    assert [event.items for event in finished] == [(3,), (4,)]
    assert [event.answer for event in finished] == [b"(3,)", b"(4,)"]
