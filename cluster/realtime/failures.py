"""NodeFailure: a failure of the tool itself in a process of nodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """One failure. `text`: a line for the results and the terminal.

    `disk_trouble`: sentence on the write that a disk refused; None: another kind of failure.
    """

    text: str
    disk_trouble: str | None
