"""Rows of the trace as lines of text.

If a check finds that Kafka broke a promise, the report of the check shows the rows that prove this.
Example of a line:

      1.500000 s  broker-0 (life 2): member removed: group g, member m-1, because session expiry
"""

import msgspec

from protocol.trace import TraceRow

_SKIPPED = frozenset({"pid", "seq"})
"""Keys in the column `detail` that are left out of the text, because they explain nothing."""
_ITEMS_SHOWN = 6
"""A line shows at most this many items of a list, and the number of the other items."""


def describe_row(row: TraceRow) -> str:
    """Return a line with the time of a row, its node, and the text of `describe_event`.

    If the node was restarted before, the line has the number of the node's life. The first life has
    the number 1.
    """
    life = f" (life {row.incarnation + 1})" if row.incarnation else ""
    return f"{row.time_us / 1e6:10.6f} s  {row.node}{life}: {describe_event(row)}"


def describe_event(row: TraceRow) -> str:
    """Return what a row says, except its time and its node.

    Example: "member removed: group g, member m-1, because session expiry".
    """
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
    # The partition has no label, so its text begins with a blank, which `strip` removes.
    listed_facts = ", ".join(fact.strip() for fact in facts)
    return f"{kind}: {listed_facts}" if listed_facts else kind


def _short(value: object) -> str:
    """Return a value as text. A list shows at most _ITEMS_SHOWN items."""
    if isinstance(value, list):
        head = ", ".join(str(item) for item in value[:_ITEMS_SHOWN])
        more = len(value) - _ITEMS_SHOWN
        return f"[{head}, and {more} more]" if more > 0 else f"[{head}]"
    return str(value)


def seconds(length_us: int) -> str:
    """Return a length of time in seconds, rounded to the millisecond."""
    return f"{length_us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
