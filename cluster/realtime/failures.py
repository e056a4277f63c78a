"""NodeFailure: a failure of this project's own program, in a process of nodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """One failure.

    `text` is a line for the results and the terminal. `disk_trouble` is a sentence on the write
    that a disk refused; None for any other kind of failure.
    """

    text: str
    disk_trouble: str | None
