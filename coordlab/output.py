"""Lets a command end in order when its output is no longer read.

In `coordlab run fencing | head -2`, the program `head` closes the pipe after two lines. The next
`print` of the command, perhaps in another thread, would raise BrokenPipeError. The run would fail
at this `print`, and leave the processes of its cluster behind. A closed terminal window has the
same effect. With this module, the following happens instead:

1. Whatever the command prints from now on is dropped.
2. The command is interrupted as by a Ctrl-C. A run then heals its faults and stops its cluster.
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
"""128 + 13: the exit code that a shell reports if signal 13 (SIGPIPE) has ended a program."""
_ERRORS_OF_A_CLOSED_STREAM = frozenset(
    {errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO, errno.ECONNRESET}
)
"""The errors of a write if the pipe, the socket or the terminal (EIO) is closed."""
# The file descriptors of the two streams.
_STDOUT = 1
_STDERR = 2


class Output:
    """Standard output and standard error of this process."""

    def __init__(self) -> None:
        self._error: OSError | None = None
        """The error of the first write that has failed; None if no write has failed."""
        self._failed_descriptor = _STDOUT
        """The file descriptor of the first write that has failed."""
        self._real_stderr = _STDERR
        """A file descriptor that leads to the real standard error. Before _STDERR is redirected to
        /dev/null, this becomes a copy of _STDERR."""

    def take_over(self) -> None:
        """Replace sys.stdout and sys.stderr by streams whose writes never raise OSError.

        When a terminal window is closed, its processes also get the signal SIGHUP. This signal is
        handled like a closed pipe. If the process was started with nohup, SIGHUP stays ignored.
        """
        sys.stdout = self._watched_stream(sys.stdout, _STDOUT)
        sys.stderr = self._watched_stream(sys.stderr, _STDERR)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_hang_up)

    def stop_printing(self, failed_descriptor: int, error: OSError) -> None:
        """Drop what is printed from now on, and interrupt the command.

        This method is called for each write that fails. Only the first call has an effect, because
        a second signal would interrupt the healing of the run.

        `failed_descriptor`: _STDOUT or _STDERR, the descriptor whose write failed with `error`.
        """
        if self._error is not None:
            return
        self._error = error
        self._failed_descriptor = failed_descriptor
        self._real_stderr = os.dup(_STDERR)
        # Both descriptors lead to /dev/null from now on, although only one has failed. In `run |
        # head`, standard error is still the terminal. The command would print there that it was
        # interrupted.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, _STDOUT)
        os.dup2(null, _STDERR)
        os.close(null)
        main = threading.main_thread().ident
        if main is not None:
            # The failed `print` may have been in another thread. But the command waits in the main
            # thread, and only a signal to the main thread ends this wait.
            signal.pthread_kill(main, signal.SIGINT)

    def conclude(self, code: int) -> int:
        """Write what is still buffered, and return the exit code: `code` unless a write has failed.

        If a write has failed for another reason than a closed stream, print the error. The disk may
        be full, for instance.
        """
        for stream in (sys.stdout, sys.stderr):
            try:
                # Python sets a stream to None if its descriptor was closed when the process began.
                if stream is not None:
                    stream.flush()
            except KeyboardInterrupt:
                # This flush was the first write that failed, and `stop_printing` has sent a SIGINT.
                continue
        if self._error is None:
            return code
        if self._error.errno in _ERRORS_OF_A_CLOSED_STREAM:
            return EXIT_OUTPUT_CLOSED
        # If standard error itself failed, it cannot show a message.
        if self._failed_descriptor == _STDOUT:
            message = f"standard output cannot be written: {self._error.strerror}\n"
            with suppress(OSError):
                os.write(self._real_stderr, message.encode())
        return EXIT_INTERNAL_ERROR

    def _watched_stream(self, stream: TextIO, descriptor: int) -> TextIO:
        """Return a stream like `stream`, which reports a failed write instead of raising an error.

        The returned stream writes to the file descriptor `descriptor`. But if `stream` was closed
        from the beginning, or if a test has replaced it to read the output, it is returned as it
        is.
        """
        if not isinstance(stream, io.TextIOWrapper) or not _is_open(descriptor):
            return stream
        stream.flush()
        return io.TextIOWrapper(
            io.BufferedWriter(_WatchedFile(descriptor, self)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def _on_hang_up(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle a SIGHUP like a failed write to a standard output that is closed."""
        self.stop_printing(_STDOUT, OSError(errno.EIO, os.strerror(errno.EIO)))


class _WatchedFile(io.FileIO):
    """A file for a descriptor, which reports a failed write to Output, and raises nothing."""

    def __init__(self, descriptor: int, output: Output) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._output = output

    def write(self, content: "ReadableBuffer", /) -> int:
        """Write, and return the number of bytes that were written.

        After an error all bytes count as written, so that the caller does not try again.
        """
        size = memoryview(content).nbytes
        try:
            # A write returns None if the pipe is full and non-blocking. (Another process that uses
            # the pipe may have made it non-blocking.) Then wait for the reader, and try again.
            while (written := super().write(content)) is None:
                select.select([], [self.fileno()], [])
        except OSError as error:
            self._output.stop_printing(self.fileno(), error)
            return size
        return written


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
