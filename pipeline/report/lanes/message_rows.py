"""The exchanges around one fault as lines of a space-time diagram: where they begin, turn and end.

Pure data: rows of the table `messages` in, rows of a chart out. Times of the table are
microseconds, of the chart seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.report.charts.chart import Cell, axis_seconds
from pipeline.report.lanes.marks import Datum
from pipeline.report.lanes.message_words import (
    EXPECTED,
    EXPELLED,
    SUCCESS,
    failed,
    outcome_words,
    request_words,
    unanswered,
)
from pipeline.report.lanes.spans import slots
from pipeline.report.report_input import Row
from pipeline.summary.outcomes import in_number_order

MAX_NODES = 24
"""Lines of a diagram; of more clients than fit those with most to tell have one."""
MAX_MESSAGES = 400
REPEAT_ROWS = 3
"""What a client repeats at the same time: finding its coordinator, heartbeats, commits."""
CHARACTER_PX = 6.0

FINDING, MEMBERSHIP, HEARTBEAT, OFFSETS, CLUSTER = (
    "FindCoordinator",
    "JoinGroup, SyncGroup, LeaveGroup",
    "Heartbeat",
    "OffsetCommit, OffsetFetch, transactions",
    "brokers and controller",
)
_FAMILIES = {
    "FindCoordinator": FINDING,
    "JoinGroup": MEMBERSHIP,
    "SyncGroup": MEMBERSHIP,
    "LeaveGroup": MEMBERSHIP,
    "Heartbeat": HEARTBEAT,
    "OffsetCommit": OFFSETS,
    "OffsetFetch": OFFSETS,
    "InitProducerId": OFFSETS,
    "AddOffsetsToTxn": OFFSETS,
    "TxnOffsetCommit": OFFSETS,
    "EndTxn": OFFSETS,
}
_SERVERS = ("controller", "broker")
_NEVER = 1e12  # pixels a second: at no zoom
HELD_US = 500_000
"""A message that takes as long lies somewhere: no line is drawn as if it travelled all the time."""
SERVED, HELD, UNANSWERED = "served", "held on its way", "no answer came"


@dataclass
class Diagram:
    """What is drawn of one fault.

    Shape: `nodes` from top to bottom; `legs` are lines from (`a`, `r`) to (`b`, `q`); `waits` lie
    on the line of one node from `a` to `b`; `stubs`, `failures` and `words` stand at `a` on the
    line `r`: a stub is a message that did not arrive, `v` whether its way led `up` or `down`.
    Of the failures, `k` is 0 for answers that are to be expected.
    `left_out` counts rows that are not drawn: of clients without a line.
    """

    nodes: list[str] = field(default_factory=list)
    legs: list[Datum] = field(default_factory=list)
    waits: list[Datum] = field(default_factory=list)
    stubs: list[Datum] = field(default_factory=list)
    repeats: list[Datum] = field(default_factory=list)
    failures: list[Datum] = field(default_factory=list)
    words: list[Datum] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """A text beside a line: the lowest `rank` is the most important.

    Units: `zoom` is the pixels a second from which on it may be shown.
    """

    node: str
    at_us: int
    text: str
    rank: int
    bad: bool = False
    zoom: float = 0.0


def diagram(rows: Sequence[Row], landmarks: Sequence[Word] = ()) -> Diagram:
    """Return the lines of the exchanges `rows` of one fault, and `landmarks` beside them."""
    drawn = Diagram(nodes=_nodes(rows))
    lines = set(drawn.nodes)
    words = [word for word in landmarks if word.node in lines]
    known = [row for row in rows if row["from_node"] in lines and row["to_node"] in lines]
    shown = sorted(known, key=_begin)[:MAX_MESSAGES]
    drawn.left_out = len(rows) - len(shown)
    for row in shown:
        _add(drawn, row)
        if row["repeats"] == 1:
            words.append(_word(row))
    _in_rows(drawn.repeats)
    drawn.words = place_words(words)
    return drawn


def _nodes(rows: Sequence[Row]) -> list[str]:
    """Return the nodes that have a line: controllers, brokers, and clients while there is room."""
    told: dict[str, tuple[int, int]] = {}
    for row in rows:
        for node in (row["from_node"], row["to_node"]):
            kinds, number = told.get(node, (0, 0))
            turning = row["outcome"] != SUCCESS or _family(row) == MEMBERSHIP
            told[node] = kinds + turning, number + 1
    servers = [
        node
        for role in _SERVERS
        for node in in_number_order(each for each in told if each.startswith(f"{role}-"))
    ]
    known = set(servers)
    clients = in_number_order(node for node in told if node not in known)
    most = sorted(clients, key=lambda node: (-told[node][0], -told[node][1]))
    kept = set(most[: max(2, MAX_NODES - len(servers))])
    return [*servers[:MAX_NODES], *(node for node in clients if node in kept)]


def _add(drawn: Diagram, row: Row) -> None:
    """Add one exchange: the request's way, its time at the server, the answer's way, the end."""
    said = _message_cells(row)
    sent, received = row["sent_us"], row["received_us"]
    answered, ended = row["answered_us"], row["ended_us"]
    asks, serves = row["from_node"], row["to_node"]
    if sent is not None and received is not None:
        _way(drawn, sent, received, asks, serves, said, "request")
    elif sent is not None and unanswered(row):
        _stub(drawn, sent, asks, serves, said)
    if received is not None and answered is not None and answered > received:
        drawn.waits.append(_line(received, answered, serves, serves, said, SERVED))
    if answered is not None and unanswered(row):
        _stub(drawn, answered, serves, asks, said)
    elif answered is not None and ended is not None:
        _way(drawn, answered, ended, serves, asks, said, "answer")
    if sent is not None and ended is not None and (answered is None or unanswered(row)):
        drawn.waits.append(_line(sent, ended, asks, asks, said, UNANSWERED))
    if row["outcome"] != SUCCESS:
        at = ended if ended is not None else _begin(row)
        drawn.failures.append({**said, "r": asks, "a": axis_seconds(at), "k": int(failed(row))})
    if row["repeats"] > 1:
        last = row["last_ended_us"] if row["last_ended_us"] is not None else ended
        begin = _begin(row)
        text = {"s": f"\u00d7{row['repeats']:,}", "l": _text(row)}
        drawn.repeats.append({**_line(begin, last or begin, asks, asks, said, "repeated"), **text})


def _way(
    drawn: Diagram,
    start_us: int,
    end_us: int,
    start: str,
    end: str,
    said: Mapping[str, Cell],
    leg: str,
) -> None:
    """Add a message on its way; one that was held lies on its sender's line until it arrives."""
    if end_us - start_us >= HELD_US:
        drawn.waits.append(_line(start_us, end_us, start, start, said, HELD))
        start_us = end_us
    drawn.legs.append(_line(start_us, end_us, start, end, said, leg))


def _stub(drawn: Diagram, at_us: int, start: str, end: str, said: Mapping[str, Cell]) -> None:
    """Add a message that never arrived: it leaves its sender's line, and ends at once."""
    down = drawn.nodes.index(end) > drawn.nodes.index(start)
    drawn.stubs.append(
        {**said, "r": start, "a": axis_seconds(at_us), "v": "down" if down else "up"}
    )


def _line(
    start_us: int, end_us: int, start: str, end: str, said: Mapping[str, Cell], leg: str
) -> Datum:
    return {
        **said,
        "r": start,
        "q": end,
        "a": axis_seconds(start_us),
        "b": axis_seconds(end_us),
        "leg": leg,
    }


def _message_cells(row: Row) -> Datum:
    """Return the cells of an exchange that its tooltips show."""
    return {
        "api": request_words(row),
        "f": _family(row),
        "out": outcome_words(row),
        "fr": row["from_node"],
        "to": row["to_node"],
        "g": row["group"],
        "nm": row.get("named"),
        "u": axis_seconds(row["sent_us"]),
        "v": axis_seconds(row["received_us"]),
        "w": axis_seconds(row["answered_us"]),
        "e": axis_seconds(row["ended_us"]),
        "x": row["repeats"],
        "z": axis_seconds(row["last_ended_us"]) if row["repeats"] > 1 else None,
        "c": row["correlation_id"],
    }


def _family(row: Row) -> str:
    return _FAMILIES.get(row["api"], CLUSTER)


def _begin(row: Row) -> int:
    """Return the first moment of an exchange that was seen."""
    moments = (row["sent_us"], row["received_us"], row["answered_us"], row["ended_us"])
    return min((each for each in moments if each is not None), default=0)


def _word(row: Row) -> Word:
    family = _family(row)
    if row["outcome"] in EXPELLED:
        rank = -1
    elif row["outcome"] in EXPECTED:
        rank = 4
    elif failed(row):
        rank = 2 if family == HEARTBEAT else 1
    else:
        rank = {MEMBERSHIP: 2, FINDING: 3}.get(family, 4)
    return Word(row["from_node"], _begin(row), _text(row), rank, failed(row))


def _text(row: Row) -> str:
    """Return an exchange in a few words: request, how many, error or the coordinator named."""
    parts = [request_words(row)]
    if row["repeats"] > 1:
        parts.append(f"\u00d7{row['repeats']:,}")
    if row["outcome"] != SUCCESS:
        parts.append(outcome_words(row))
    elif row.get("named") is not None:
        parts.append(f"names {row['named']}")
    return " ".join(parts)


def _in_rows(repeats: Sequence[Datum]) -> None:
    """Say of each bar of repeats in which row below its line it lies, from 0."""
    lines: dict[Cell, list[int]] = {}
    for index, datum in enumerate(repeats):
        lines.setdefault(datum["r"], []).append(index)
    for indexes in lines.values():
        taken = slots([_micros(repeats[index]) for index in indexes])
        for index, slot in zip(indexes, taken, strict=True):
            repeats[index]["y"] = min(slot, REPEAT_ROWS - 1)
            repeats[index]["h"] = slot >= REPEAT_ROWS or None  # its text would lie on another


def _micros(datum: Datum) -> tuple[int, int]:
    return round(float(datum["a"] or 0) * 1_000_000), round(float(datum["b"] or 0) * 1_000_000)


def place_words(words: Iterable[Word]) -> list[Datum]:
    """Return texts with the zoom from which on each stands free of more important ones.

    In pixels a second: `z` where all texts reach to the right from their moment, `y` where some
    reach to the left, for they would leave the picture. The less important of two on one line
    waits until they do not touch.
    """
    before: dict[str, list[Word]] = {}
    shown: list[Datum] = []
    for word in sorted(words, key=lambda each: (each.rank, each.at_us)):
        others = before.setdefault(word.node, [])
        rightward = max((_apart(word, other) for other in others), default=0.0)
        either = max((_apart(word, other, either=True) for other in others), default=0.0)
        others.append(word)
        shown.append(
            {
                "r": word.node,
                "a": axis_seconds(word.at_us),
                "t": word.text,
                "z": round(max(rightward, word.zoom), 3),
                "y": round(max(either, word.zoom), 3),
                "k": int(word.bad),
            }
        )
    return [datum for datum in shown if datum["z"] != _NEVER]


def _apart(one: Word, other: Word, *, either: bool = False) -> float:
    """Return the pixels a second at which two texts of a line do not touch.

    They reach to the right, or with `either` perhaps towards each other.
    """
    left = one if one.at_us <= other.at_us else other
    distance_us = abs(one.at_us - other.at_us)
    if distance_us == 0:
        return _NEVER
    characters = len(one.text) + len(other.text) if either else len(left.text)
    return (characters + 2) * CHARACTER_PX * 1_000_000 / distance_us
