"""Run a command on a pseudo-terminal.

The test acts as a person in front of the terminal would: it reads the screen, types, and closes the
window.
"""

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
"""Escape sequences for colours and for the cursor, and carriage returns."""
_PATIENCE_S = 100.0
"""The longest time that a command may take to write all its output.

After its last output the command must end within the same time.
"""


class TerminalCommand:
    """Runs `python -m coordlab` on a terminal of `width` columns.

    `screen` has all that the command has written and the test has read so far.
    """

    def __init__(
        self, folder: Path, *arguments: str, width: int, environment: dict[str, str]
    ) -> None:
        # A pseudo-terminal has two ends. The command uses `theirs` as its terminal. The test reads
        # from `ours` what the command writes, and types there.
        ours, theirs = pty.openpty()
        # TIOCSWINSZ sets the size of a terminal's window: here 50 rows and `width` columns. The
        # last two numbers are the size in pixels, and 0 means that it is not known.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        # With these variables Rich would not ask the terminal for its size and its colours.
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            variables.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coordlab", *arguments],
            cwd=folder,
            env=variables | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # In a session of its own the command cannot use the terminal of the tests.
            start_new_session=True,
        )
        # Now only the command has `theirs` open. So `_read` sees the end of the output as soon as
        # the command ends.
        os.close(theirs)
        self._ours = ours
        self._deadline = time.monotonic() + _PATIENCE_S
        self.screen = ""

    def read_until(self, word: str) -> None:
        """Read until the command has written `word`.

        Raises: EOFError if the command ends without `word`; TimeoutError after `_PATIENCE_S`.
        """
        while word not in self.screen:
            if not self._read():
                raise EOFError(f"ended without {word!r}: {self.screen}")

    def type(self, text: str) -> None:
        """Type `text` on the terminal."""
        os.write(self._ours, text.encode())

    def send_signal(self, signal: int) -> None:
        """Send a signal to the command."""
        self._process.send_signal(signal)

    def close_window(self) -> int:
        """Close the terminal, as a user closes its window, and return the command's exit code.

        From then on, whatever the command reads from the terminal or writes to it fails.
        """
        os.close(self._ours)
        try:
            return self._process.wait(_PATIENCE_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def finish(self) -> int:
        """Read until the command ends, and return its exit code. Raises: TimeoutError."""
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
        """Read some output of the command. Return False if the output has ended.

        Raises: TimeoutError if the command writes nothing until the deadline.
        """
        remaining_s = self._deadline - time.monotonic()
        ready, _, _ = select.select([self._ours], [], [], max(remaining_s, 0))
        if not ready:
            self._process.kill()
            raise TimeoutError(f"not ended after {_PATIENCE_S} s: {self.screen}")
        try:
            chunk = os.read(self._ours, 65_536)
        except OSError:
            # On Linux this error means that the command has closed its end of the terminal.
            return False
        self.screen += chunk.decode(errors="replace")
        # On other systems an empty chunk means that the command has closed its end.
        return bool(chunk)


def without_control(screen: str) -> str:
    """Return the text of a screen, without colours and movements of the cursor."""
    return _CONTROL.sub("", screen)
