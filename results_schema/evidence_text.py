"""Evidence for people: one trace row as one line of a story."""

import msgspec

from protocol.trace import TraceRow

_SKIPPED = frozenset({"pid", "seq"})


def tell(row: TraceRow) -> str:
    """Return the row as a line: time in seconds, node, what happened, and the columns filled."""
    life = f" (life {row.incarnation + 1})" if row.incarnation else ""
    return f"{row.time_us / 1e6:10.6f} s  {row.node}{life}: {what_happened(row)}"


def what_happened(row: TraceRow) -> str:
    """Return the row's kind in words, and the columns filled; neither when nor where."""
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
        if value is not None and value != ""
    ]
    if row.detail is not None:
        detail = msgspec.json.decode(row.detail)
        facts += [
            f"{name} {_short(value)}" for name, value in detail.items() if name not in _SKIPPED
        ]
    what = row.kind.replace("_", " ")
    told = ", ".join(fact.strip() for fact in facts)
    return f"{what}: {told}" if told else what


def _short(value: object) -> str:
    if isinstance(value, list):
        head = ", ".join(str(each) for each in value[:6])
        return f"[{head}, and {len(value) - 6} more]" if len(value) > 6 else f"[{head}]"
    return str(value)


def seconds(length_us: int) -> str:
    """Return a length of time for people, to the millisecond."""
    return f"{length_us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
