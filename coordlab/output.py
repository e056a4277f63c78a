"""Standard output and standard error, for commands whose reader can go away while they print.

In `run ... | head -2` the program `head` closes the pipe after two lines. Closing a window closes
the terminal. Python would then raise BrokenPipeError in the next print, perhaps in another thread.
A command that runs a cluster would fail in the middle of that print, and leave its nodes behind.
This module prevents that in three steps:

1. It drops everything that the command prints from then on.
2. It interrupts the command as a Ctrl-C does. A run then heals its faults and stops its cluster.
3. The process ends with EXIT_OUTPUT_CLOSED.
"""

import errno
import io
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from results_schema.results import EXIT_INTERNAL_ERROR

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_OUTPUT_CLOSED = 141
"""128 + 13. A shell reports this code for a process that wrote into a closed pipe: signal 13,
SIGPIPE, ended it."""
_CLOSED = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO, errno.ECONNRESET})
"""Errors of a write to a pipe, socket or terminal that is closed. A terminal's error is EIO."""
_NAMES = {1: "standard output", 2: "standard error"}
"""The name of each of the two file descriptors."""


class Output:
    """Standard output and standard error of this process, and the first error of writing them."""

    def __init__(self) -> None:
        self._error: OSError | None = None  # None: no write has failed so far
        self._failed_stream = 1  # file descriptor of that write; means nothing without an error
        self._stderr = 2  # leads to the real standard error; `lose` replaces it by a copy

    def take_over(self) -> None:
        """Replace sys.stdout and sys.stderr by streams whose writes never raise OSError.

        A hang-up (SIGHUP, for instance when the terminal's window is closed) then ends a command as
        a closed pipe does. If SIGHUP is ignored, because nohup started this process, it stays
        ignored.
        """
        sys.stdout = self._watched(sys.stdout, 1)
        sys.stderr = self._watched(sys.stderr, 2)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._hang_up)

    def lose(self, stream: int, error: OSError) -> None:
        """Drop what is printed from now on, and interrupt the command.

        Only the first call has an effect, because a second signal would interrupt the healing.

        `stream`: 1 or 2, the file descriptor whose write failed with `error`.
        """
        if self._error is not None:
            return
        self._error, self._failed_stream = error, stream
        self._stderr = os.dup(2)
        sink = os.open(os.devnull, os.O_WRONLY)
        # Both file descriptors lead to /dev/null from now on, although only one of them failed. In
        # `run | head`, standard error is still the terminal, and the command would print there that
        # it was interrupted.
        for number in _NAMES:
            os.dup2(sink, number)
        os.close(sink)
        main = threading.main_thread().ident
        if main is not None:
            # The signal goes to the main thread, whichever thread printed. The command waits there,
            # and only a signal to that thread ends the waiting call.
            signal.pthread_kill(main, signal.SIGINT)

    def conclude(self, code: int) -> int:
        """Print what is still buffered, and return the exit code: `code` unless a write failed.

        If a write failed for another reason than a closed stream, such as a full disk, print a
        message that names the stream.
        """
        for stream in (sys.stdout, sys.stderr):
            try:
                # Python sets a stream to None if its descriptor was closed from the start.
                if stream is not None:
                    stream.flush()
            except KeyboardInterrupt:
                # This flush was the first failed write, so `lose` has sent SIGINT to this thread.
                continue
        if self._error is None:
            return code
        if self._error.errno in _CLOSED:
            return EXIT_OUTPUT_CLOSED
        # The message goes to standard error, so it is not printed if standard error itself failed.
        if self._failed_stream == 1:
            message = f"{_NAMES[1]} cannot be written: {self._error.strerror}\n"
            with suppress(OSError):
                os.write(self._stderr, message.encode())
        return EXIT_INTERNAL_ERROR

    def _watched(self, stream: TextIO, number: int) -> TextIO:
        """Return a stream like `stream`, which writes to file descriptor `number` and is watched.

        Return `stream` itself if it was closed from the start, or if it is no real stream, because
        a test replaced it to read the output.
        """
        if not isinstance(stream, io.TextIOWrapper) or not _is_open(number):
            return stream
        stream.flush()
        return io.TextIOWrapper(
            io.BufferedWriter(_WatchedFile(number, self)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def _hang_up(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle SIGHUP as if standard output (1) was the closed terminal, and a write failed."""
        self.lose(1, OSError(errno.EIO, os.strerror(errno.EIO)))


class _WatchedFile(io.FileIO):
    """A file descriptor as a file. It reports a failed write to Output, and raises nothing."""

    def __init__(self, number: int, output: Output) -> None:
        super().__init__(number, "wb", closefd=False)
        self._output = output

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write, and return the number of bytes that count as written.

        After an error these are all bytes, so that the caller does not try again.
        """
        size = memoryview(content).nbytes
        try:
            # None: the pipe is full and non-blocking. Another process that shares the pipe has made
            # it non-blocking.
            while (written := super().write(content)) is None:
                select.select([], [self.fileno()], [])  # wait for the reader
        except OSError as error:
            self._output.lose(self.fileno(), error)
            return size
        return written


def _is_open(number: int) -> bool:
    """Return whether the file descriptor is open."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
