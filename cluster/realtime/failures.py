"""What fails of the tool itself in a process of nodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """One failure. `text` is a line for people.

    `disk_trouble` is the write that a disk refused, in words; None: something else failed.
    """

    text: str
    disk_trouble: str | None
