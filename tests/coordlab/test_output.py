"""Standard output that is a pipe: a command must not lose what it prints if the reader is slow.

A pipe holds 64 KiB. Usually a write into a full pipe waits until the reader has read something. But
any process that shares the pipe can make the pipe non-blocking. Then the operating system refuses a
write into the full pipe with an error. coordlab replaces the file behind sys.stdout by a
`_WatchedFile`, which repeats a refused write.
"""

import os
from contextlib import suppress
from threading import Event, Thread

from coordlab.output import Output, _WatchedFile


def test_write_into_a_full_non_blocking_pipe_waits_for_the_reader() -> None:
    """If the operating system refuses a write, the write is repeated until the pipe has room.

    1. The test fills the pipe.
    2. A thread writes "last words" into the full pipe, and must wait.
    3. The test reads the bytes of step 1. Then the pipe has room, and the write must succeed.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    bytes_in_pipe = 0
    with suppress(BlockingIOError):  # raised when the pipe is full
        while True:
            bytes_in_pipe += os.write(write_end, b"-" * 1024)
    is_about_to_write = Event()

    def write() -> None:
        is_about_to_write.set()
        _WatchedFile(write_end, Output()).write(b"last words")

    writer = Thread(target=write)
    writer.start()
    is_about_to_write.wait()
    # Give the thread time to reach its write before the pipe has room.
    writer.join(timeout=0.2)
    _read_exactly(read_end, bytes_in_pipe)
    writer.join()
    os.close(write_end)

    assert os.read(read_end, 1024) == b"last words"
    os.close(read_end)


def _read_exactly(read_end: int, size: int) -> None:
    """Read `size` bytes; one read may return fewer."""
    while size > 0:
        size -= len(os.read(read_end, size))
