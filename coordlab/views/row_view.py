"""A row of a trace as one line: when, who, what, and the columns that it fills."""

from collections.abc import Iterator

from protocol.trace import TraceRow

_BESIDE = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset", "api")
_NAMES = {"generation": "generation ", "leader_epoch": "epoch ", "offset": "offset "}
NODE_WIDTH = 20
KIND_WIDTH = 22


def clock(time_us: int) -> str:
    """Return a time of the run's clock to the microsecond, as `--until` takes it."""
    return f"{time_us / 1e6:.6f}s"


def row_words(row: TraceRow) -> str:
    """Return a row as words, one space between them: for places that wrap."""
    return " ".join((clock(row.time_us), _life(row), row.kind, *_said(row)))


def row_line(row: TraceRow) -> str:
    """Return a row as a line."""
    when, life = clock(row.time_us), _life(row)
    line = f"{when:>13}  {life:<{NODE_WIDTH}} {row.kind:<{KIND_WIDTH}} {' '.join(_said(row))}"
    return line.rstrip()


def _life(row: TraceRow) -> str:
    """Return the node, and which of its lives it is unless the first."""
    return row.node if row.incarnation == 0 else f"{row.node}/{row.incarnation}"


def _said(row: TraceRow) -> Iterator[str]:
    for name in _BESIDE:
        value = getattr(row, name)
        if value is not None:
            yield f"{_NAMES.get(name, '')}{value}"
    if row.correlation_id is not None:
        yield f"#{row.correlation_id}"
    if row.error is not None:
        yield f"error {row.error}"
    if row.explanation is not None:
        yield f"({row.explanation})"
    if row.detail is not None:
        yield row.detail
