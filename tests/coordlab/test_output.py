"""Standard output that is a pipe: nothing that a command prints is lost while its reader lives.

A pipe holds 64 KiB. A write to a full pipe waits for the reader. If the pipe is non-blocking, which
any process that shares it can set, the operating system refuses the write instead. `_WatchedFile`
is the file behind sys.stdout.
"""

import os
from contextlib import suppress
from threading import Event, Thread

from coordlab.output import Output, _WatchedFile


def test_write_into_a_full_non_blocking_pipe_waits_for_the_reader() -> None:
    """If the operating system refuses the write, it must be repeated until the pipe has room.

    1. The test fills the pipe.
    2. A thread writes into the full pipe, and must wait.
    3. The test reads the filling. Then the pipe has room, and the write must end.
    """
    reading, writing = os.pipe()  # the two ends of a pipe
    os.set_blocking(writing, False)
    filled = 0
    with suppress(BlockingIOError):  # raised when the pipe is full
        while True:
            filled += os.write(writing, b"-" * 1024)
    is_about_to_write = Event()

    def write() -> None:
        is_about_to_write.set()
        _WatchedFile(writing, Output()).write(b"last words")

    writer = Thread(target=write)
    writer.start()
    is_about_to_write.wait()
    # Time for the write to reach the full pipe. A write that does not wait ends here.
    writer.join(timeout=0.2)
    _read_exactly(reading, filled)
    writer.join()
    os.close(writing)

    assert os.read(reading, 1024) == b"last words"
    os.close(reading)


def _read_exactly(reading: int, size: int) -> None:
    """Read `size` bytes; one read may return fewer."""
    while size > 0:
        size -= len(os.read(reading, size))
