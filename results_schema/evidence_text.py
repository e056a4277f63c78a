"""Trace rows as sentences, for the evidence of findings."""

import msgspec

from protocol.trace import TraceRow

_SKIPPED = frozenset({"pid", "seq"})


def describe_row(row: TraceRow) -> str:
    """Return a line with the row's time in seconds, its node, and `describe_event`."""
    life = f" (life {row.incarnation + 1})" if row.incarnation else ""
    return f"{row.time_us / 1e6:10.6f} s  {row.node}{life}: {describe_event(row)}"


def describe_event(row: TraceRow) -> str:
    """Return the row's kind, and each filled column with its label; no time and no node."""
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
    listed_facts = ", ".join(fact.strip() for fact in facts)
    return f"{what}: {listed_facts}" if listed_facts else what


def _short(value: object) -> str:
    if isinstance(value, list):
        head = ", ".join(str(each) for each in value[:6])
        return f"[{head}, and {len(value) - 6} more]" if len(value) > 6 else f"[{head}]"
    return str(value)


def seconds(length_us: int) -> str:
    """Return a length of time in seconds, rounded to the millisecond."""
    return f"{length_us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
