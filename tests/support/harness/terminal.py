"""A command on a terminal of its own (a pseudo-terminal), for tests that act like a person."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""Escape sequences for colours and the cursor, and carriage returns."""
_PATIENCE_S = 100.0
"""Longest time to read a command's output, and again from the output's end to the command's."""


class TerminalCommand:
    """Runs `python -m coordlab` on a terminal of `width` columns; `screen` has its output."""

    def __init__(
        self, folder: Path, *arguments: str, width: int, environment: dict[str, str]
    ) -> None:
        # A pseudo-terminal has two ends. The test reads and types at `ours`; the command has
        # `theirs` as its terminal.
        ours, theirs = pty.openpty()
        # TIOCSWINSZ sets the size of a terminal's window: 50 rows of `width` columns. The last two
        # numbers are the size in pixels; 0: unknown.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        # Rich and other libraries would prefer these variables to the terminal's size and colours.
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            variables.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coordlab", *arguments],
            cwd=folder,
            env=variables | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # In a session of its own the command is cut off from the terminal of the tests.
            start_new_session=True,
        )
        # Only the command keeps this end open, so that reading ends when the command does.
        os.close(theirs)
        self._ours = ours
        self._deadline = time.monotonic() + _PATIENCE_S
        self.screen = ""

    def read_until(self, word: str) -> None:
        """Read until the command has written `word`. Raises: TimeoutError, EOFError."""
        while word not in self.screen:
            if not self._read():
                raise EOFError(f"ended without {word!r}: {self.screen}")

    def type(self, text: str) -> None:
        """Type `text` at the command's terminal."""
        os.write(self._ours, text.encode())

    def send_signal(self, signal: int) -> None:
        """Send a signal to the command."""
        self._process.send_signal(signal)

    def close_window(self) -> int:
        """Close the terminal, as a user closes its window, and return the command's exit code.

        From then on the command's reads and writes at its terminal fail.
        """
        os.close(self._ours)
        try:
            return self._process.wait(_PATIENCE_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def finish(self) -> int:
        """Read to the end and return the exit code. Raises: TimeoutError."""
        try:
            while self._read():
                pass
            return self._process.wait(_PATIENCE_S)
        finally:
            os.close(self._ours)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _read(self) -> bool:
        """Read what the command has written; return False at its end. Raises: TimeoutError."""
        remaining_s = self._deadline - time.monotonic()
        ready, _, _ = select.select([self._ours], [], [], max(remaining_s, 0))
        # The command wrote nothing before the deadline.
        if not ready:
            self._process.kill()
            raise TimeoutError(f"not ended after {_PATIENCE_S} s: {self.screen}")
        try:
            chunk = os.read(self._ours, 65_536)
        except OSError:  # Linux: the other end was closed
            return False
        self.screen += chunk.decode(errors="replace")
        return bool(chunk)  # an empty chunk is the end on systems other than Linux


def without_control(screen: str) -> str:
    """Return the text of a screen, without colours and movements of the cursor."""
    return _CONTROL.sub("", screen)
