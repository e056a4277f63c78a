"""Trace rows as lines of text, for the evidence of findings.

The trace has one row for each event of a run. A finding is a violation that a checker reports; its
evidence is the rows that prove it.
"""

import msgspec

from protocol.trace import TraceRow

_SKIPPED = frozenset({"pid", "seq"})
"""Keys that are left out of the text. They are keys of `detail`, the column of a row that has
further facts as JSON."""
_ITEMS_SHOWN = 6
"""Maximum number of items of a list in the text. Further items are only counted."""


def describe_row(row: TraceRow) -> str:
    """Return a line with the row's time in seconds, its node, and the text of `describe_event`.

    A node whose process was restarted has the number of the process, the first being life 1.
    """
    life = f" (life {row.incarnation + 1})" if row.incarnation else ""
    return f"{row.time_us / 1e6:10.6f} s  {row.node}{life}: {describe_event(row)}"


def describe_event(row: TraceRow) -> str:
    """Return the row's kind, its filled columns with labels, and its detail; no time, no node."""
    facts = [
        f"{label} {value}"
        for label, value in (
            ("", row.partition),
            ("group", row.group),
            ("member", row.member),
            ("generation", row.generation),
            ("epoch", row.leader_epoch),
            ("offset", row.offset),
            ("peer", row.peer),
            ("api", row.api),
            ("error", row.error),
            ("because", row.cause),
        )
        if value is not None and value != ""  # some kinds of rows have "" for "none"
    ]
    if row.detail is not None:
        detail = msgspec.json.decode(row.detail)
        facts += [
            f"{name} {_short(value)}" for name, value in detail.items() if name not in _SKIPPED
        ]
    kind = row.kind.replace("_", " ")
    # The partition has the empty label, so its fact begins with a blank, which `strip` removes.
    listed_facts = ", ".join(fact.strip() for fact in facts)
    return f"{kind}: {listed_facts}" if listed_facts else kind


def _short(value: object) -> str:
    """Return a value as text; a list shows at most _ITEMS_SHOWN items."""
    if isinstance(value, list):
        head = ", ".join(str(item) for item in value[:_ITEMS_SHOWN])
        more = len(value) - _ITEMS_SHOWN
        return f"[{head}, and {more} more]" if more > 0 else f"[{head}]"
    return str(value)


def seconds(length_us: int) -> str:
    """Return a length of time in seconds, rounded to the millisecond."""
    return f"{length_us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
