"""Standard output and standard error, whose reader may go away while a command prints.

`run ... | head -2` closes the pipe, and closing a window closes the terminal. Python would then
raise BrokenPipeError in the next print, perhaps in another thread. The command would fail in the
middle of a print, and leave a broken cluster. This module prevents that in three steps:

1. It interrupts the command as Ctrl-C does; a run then heals its faults and stops its
   cluster.
2. It drops everything that the command still prints.
3. The process ends with EXIT_OUTPUT_CLOSED.
"""

import errno
import io
import os
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
"""128 + SIGPIPE: a shell reports this code for a process that wrote into a closed pipe."""
_CLOSED = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO, errno.ECONNRESET})
"""Errors of a write to a closed pipe, socket or terminal; EIO is the error of a closed terminal."""
_NAMES = {1: "standard output", 2: "standard error"}


class Output:
    """Standard output and standard error of this process, and the first error of writing them."""

    def __init__(self) -> None:
        self._error: OSError | None = None  # None: every write so far arrived
        self._failed_stream = 1  # 1 or 2, as in _NAMES; only with an error
        self._stderr = 2  # a copy of the real one, once both streams are dropped

    def take_over(self) -> None:
        """Replace sys.stdout and sys.stderr by streams whose writes never raise OSError.

        A hang-up (SIGHUP) ends a command as a closed pipe does, unless nohup made it ignored.
        """
        sys.stdout = self._watched(sys.stdout, 1)
        sys.stderr = self._watched(sys.stderr, 2)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._hang_up)

    def lose(self, stream: int, error: OSError) -> None:
        """Drop what is printed from now on, and interrupt the command; the first time only.

        `stream`: 1 or 2, the file descriptor whose write failed with `error`.
        """
        if self._error is not None:
            return
        self._error, self._failed_stream = error, stream
        self._stderr = os.dup(2)
        sink = os.open(os.devnull, os.O_WRONLY)
        # Drop both streams: after `run | head`, standard error is still the terminal, on which the
        # interrupted command would print that it was interrupted.
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

        After another error than a closed stream, such as a full disk, a message names the stream.
        """
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None:
                    stream.flush()
            except KeyboardInterrupt:  # by `lose`, if this flush is the first write that failed
                continue
        if self._error is None:
            return code
        if self._error.errno in _CLOSED:
            return EXIT_OUTPUT_CLOSED
        if self._failed_stream == 1:  # a failure of standard error itself can be shown nowhere
            message = f"{_NAMES[1]} cannot be written: {self._error.strerror}\n"
            with suppress(OSError):
                os.write(self._stderr, message.encode())
        return EXIT_INTERNAL_ERROR

    def _watched(self, stream: TextIO, number: int) -> TextIO:
        """Return a stream like `stream` onto file descriptor `number`."""
        if not isinstance(stream, io.TextIOWrapper) or not _is_open(number):
            return stream  # closed from the start, or replaced, as a test does to read the output
        stream.flush()
        return io.TextIOWrapper(
            io.BufferedWriter(_WatchedFile(number, self)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def _hang_up(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle SIGHUP as a write to the closed terminal."""
        self.lose(1, OSError(errno.EIO, os.strerror(errno.EIO)))


class _WatchedFile(io.FileIO):
    """A file descriptor; a failed write is reported to Output, and counts as done."""

    def __init__(self, number: int, output: Output) -> None:
        super().__init__(number, "wb", closefd=False)
        self._output = output

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write, and return the number of bytes taken: all of them after an error."""
        size = memoryview(content).nbytes
        try:
            written = super().write(content)
        except OSError as error:
            self._output.lose(self.fileno(), error)
            return size
        return size if written is None else written  # None: a non-blocking pipe is full


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
