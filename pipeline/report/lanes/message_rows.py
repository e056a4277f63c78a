"""The exchanges around one fault as lines of a space-time diagram.

In such a diagram each node has a horizontal line, and time runs to the right. A message is a
slanted line from the line of its sender to the line of its receiver. An exchange is a request with
its answer, so an exchange has two slanted lines.

Each row of the table `messages` is an exchange, with times in microseconds. The function `diagram`
turns such rows into the data of the chart. Each datum is a line, a bar, a mark or a text, with
times in seconds. The keys of the data are short, because a page has thousands of them. `Diagram`
and `_message_cells` explain the keys.
"""

from collections import Counter
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
"""Maximum number of nodes in a diagram. If there are more, some clients are left out."""
MAX_MESSAGES = 400
"""Maximum number of exchanges in a diagram. If there are more, it has only the earliest."""
REPEAT_ROWS = 3
"""Number of rows below a client's line for the bars of repeated requests. There are three, because
a client can repeat FindCoordinator, Heartbeat and OffsetCommit at the same time.
"""
CHARACTER_PX = 6.0
"""Average width of a character in a label, in pixels."""

# The families of requests. Each family has a colour. These texts stand in the legend.
FINDING = "FindCoordinator"
MEMBERSHIP = "JoinGroup, SyncGroup, LeaveGroup"
HEARTBEAT = "Heartbeat"
OFFSETS = "OffsetCommit, OffsetFetch, transactions"
CLUSTER = "brokers and controller"
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
"""The family of each API. An API that is not listed, such as Fetch, is of the family CLUSTER."""
_SERVERS = ("controller", "broker")
"""The roles of servers, in the order of their lines."""
_UNREACHABLE_ZOOM = 1e12
"""A zoom, in pixels per second, that no reader reaches. It is for texts that are never shown. For
example, two texts at the same moment touch each other at any zoom, so one of them is never shown.
"""
HELD_US = 500_000
"""A message that took at least this time counts as held on its way, for instance at a cut link.
Such a message is drawn as a bar on the sender's line, because a slanted line would look like a slow
network.
"""

# The kinds of waits.
SERVED = "served"
"""A request waits at its server."""
HELD = "held on its way"
"""A message waits on its way (HELD_US)."""
UNANSWERED = "no answer came"
"""A client waits for an answer that does not come."""


@dataclass
class Diagram:
    """The data of the diagram of one fault.

    A datum is a dictionary. It has these keys, and also the keys that `_message_cells` explains:

    - `r`: name of the node on whose line the datum begins
    - `q`: name of the node on whose line a message ends
    - `a`, `b`: beginning and end in seconds

    For example, a request that `consumer-a-1` sent to `broker-0` at 2 s and that arrived 5 ms later
    is a leg: {"r": "consumer-a-1", "q": "broker-0", "a": 2.0, "b": 2.005, ...}

    The fields:

    - `nodes`: the nodes that have a line, from top to bottom.
    - `legs`: messages that arrived, as lines from time `a` on the line of `r` to time `b` on the
      line of `q`.
    - `waits`: times of waiting, as bars on the line of `r` from `a` to `b`.
    - `stubs`: messages that never arrived, sent at `a` by `r`. In a stub, `v` is the direction from
      `r` to the receiver's line: `up` or `down`.
    - `repeats`: bars of requests that a client repeated, in rows below the client's line
      (`_set_rows`).
    - `failures`: marks at `a` on the line of `r`. `k` is 0 for errors that the protocol expects,
      else 1.
    - `words`: texts at `a` on the line of `r` (`place_words`).
    - `left_out`: the number of exchanges that are not drawn, because one of their nodes has no
      line, or because there are more than MAX_MESSAGES.
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
    """A text at the line of `node`, such as `JoinGroup UNKNOWN_MEMBER_ID`."""

    node: str
    at_us: int
    text: str
    rank: int
    """The importance of the text: 0 matters more than 1. If two texts would touch each other, only
    the text with the lower rank is shown."""
    is_failure: bool = False
    """True if the text reports a failure."""
    min_zoom: float = 0.0
    """The smallest zoom at which the text is shown, in pixels a second."""


def diagram(rows: Sequence[Row], landmarks: Sequence[Word] = ()) -> Diagram:
    """Return the diagram of one fault.

    `rows` are the exchanges around the fault. `landmarks` are texts that the diagram has in
    addition to the texts of the exchanges, such as a text on the election of a leader.
    """
    drawn = Diagram(nodes=_nodes(rows))
    nodes = set(drawn.nodes)
    words = [word for word in landmarks if word.node in nodes]
    between_nodes = [row for row in rows if row["from_node"] in nodes and row["to_node"] in nodes]
    shown = sorted(between_nodes, key=_begin_us)[:MAX_MESSAGES]
    drawn.left_out = len(rows) - len(shown)

    for row in shown:
        _add_exchange(drawn, row)
        # A repeated request needs no word, because its bar has a text.
        if row["repeats"] == 1:
            words.append(_word(row))

    _set_rows(drawn.repeats)
    drawn.words = place_words(words)
    return drawn


def _nodes(rows: Sequence[Row]) -> list[str]:
    """Return the nodes that have a line, from top to bottom: controllers, brokers, clients.

    If there are too many clients, the clients with the most remarkable exchanges get a line. An
    exchange is remarkable if it failed, or if it is about membership, such as a JoinGroup. If two
    clients have equally many remarkable exchanges, the client with more exchanges in all comes
    first.
    """
    exchanges: Counter[str] = Counter()
    remarkable: Counter[str] = Counter()
    for row in rows:
        is_remarkable = row["outcome"] != SUCCESS or _family(row) == MEMBERSHIP
        for node in (row["from_node"], row["to_node"]):
            exchanges[node] += 1
            remarkable[node] += is_remarkable

    servers = [
        node
        for role in _SERVERS
        for node in in_number_order(name for name in exchanges if name.startswith(f"{role}-"))
    ]
    clients = in_number_order(exchanges.keys() - set(servers))

    by_interest = sorted(clients, key=lambda node: (-remarkable[node], -exchanges[node]))
    # At least two clients have a line, even if there are MAX_NODES servers.
    number_of_clients = max(2, MAX_NODES - len(servers))
    shown_clients = set(by_interest[:number_of_clients])
    return [*servers[:MAX_NODES], *(node for node in clients if node in shown_clients)]


def _add_exchange(drawn: Diagram, row: Row) -> None:
    """Add the lines of one exchange: its messages, its waits, its failure, its repeats."""
    cells = _message_cells(row)
    sent, received = row["sent_us"], row["received_us"]
    answered, ended = row["answered_us"], row["ended_us"]
    client, server = row["from_node"], row["to_node"]

    # 1. The request travels from the client to the server.
    if sent is not None and received is not None:
        _add_leg(drawn, sent, received, client, server, cells, "request")
    elif sent is not None and unanswered(row):
        _add_stub(drawn, sent, client, server, cells)

    # 2. The request waits at the server.
    if received is not None and answered is not None and answered > received:
        drawn.waits.append(_line(received, answered, server, server, cells, SERVED))

    # 3. The answer travels back, or is lost on its way.
    if answered is not None and unanswered(row):
        _add_stub(drawn, answered, server, client, cells)
    elif answered is not None and ended is not None:
        _add_leg(drawn, answered, ended, server, client, cells, "answer")

    # 4. If no answer reached the client, it waited from its request to its timeout.
    if sent is not None and ended is not None and (answered is None or unanswered(row)):
        drawn.waits.append(_line(sent, ended, client, client, cells, UNANSWERED))

    if row["outcome"] != SUCCESS:
        failed_us = ended if ended is not None else _begin_us(row)
        mark = {"r": client, "a": axis_seconds(failed_us), "k": int(failed(row))}
        drawn.failures.append({**cells, **mark})

    if row["repeats"] > 1:
        begin = _begin_us(row)
        # The bar reaches to the end of the last repeat. If that end is not known, the bar reaches
        # to the end of the first exchange. If that end is not known either, the bar has no length.
        known_ends = [end for end in (row["last_ended_us"], ended) if end is not None]
        end = known_ends[0] if known_ends else begin
        bar = _line(begin, end, client, client, cells, "repeated")
        drawn.repeats.append({**bar, "s": f"\u00d7{row['repeats']:,}", "l": _text(row)})


def _add_leg(
    drawn: Diagram,
    start_us: int,
    end_us: int,
    sender: str,
    receiver: str,
    cells: Mapping[str, Cell],
    leg: str,
) -> None:
    """Add a message that arrived.

    A message that was held on its way (HELD_US) is drawn as a bar until its arrival, and then as a
    vertical line.
    """
    if end_us - start_us >= HELD_US:
        drawn.waits.append(_line(start_us, end_us, sender, sender, cells, HELD))
        start_us = end_us
    drawn.legs.append(_line(start_us, end_us, sender, receiver, cells, leg))


def _add_stub(
    drawn: Diagram, at_us: int, sender: str, receiver: str, cells: Mapping[str, Cell]
) -> None:
    """Add a message that never arrived: a short line that ends beside the line of its sender."""
    is_below = drawn.nodes.index(receiver) > drawn.nodes.index(sender)
    direction = "down" if is_below else "up"
    # In a stub, `v` is the direction. It replaces the `v` of the exchange, which never arrived.
    drawn.stubs.append({**cells, "r": sender, "a": axis_seconds(at_us), "v": direction})


def _line(
    start_us: int, end_us: int, from_node: str, to_node: str, cells: Mapping[str, Cell], leg: str
) -> Datum:
    """Return a line between two nodes, or a bar at one node if `from_node` is also `to_node`.

    `leg` says what the line or bar stands for: `request`, `answer`, `repeated`, or a kind of wait,
    such as SERVED.
    """
    return {
        **cells,
        "r": from_node,
        "q": to_node,
        "a": axis_seconds(start_us),
        "b": axis_seconds(end_us),
        "leg": leg,
    }


def _message_cells(row: Row) -> Datum:
    """Return the cells of an exchange that its tooltips and filters use.

    - `api`: the request's name
    - `f`: family of the API (the kind of request, a value of _FAMILIES)
    - `out`: outcome
    - `fr`, `to`: client and server
    - `g`: group
    - `nm`: coordinator that the answer of a FindCoordinator named
    - `u`, `v`, `w`: times at which the request was sent, was received, was answered
    - `e`: time at which the answer came, or at which the client gave up
    - `x`: number of exchanges that the row stands for; a client often repeats the same request
    - `z`: end of the last of these exchanges; None if there is only one
    - `c`: correlation id
    """
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
    """Return the family of an exchange's API."""
    return _FAMILIES.get(row["api"], CLUSTER)


def _begin_us(row: Row) -> int:
    """Return the earliest known time of an exchange. Any of the four times can be unknown."""
    moments = (row["sent_us"], row["received_us"], row["answered_us"], row["ended_us"])
    return min((moment for moment in moments if moment is not None), default=0)


def _word(row: Row) -> Word:
    """Return the text of an exchange, with its rank.

    The ranks, from the most important text to the least important one:

    - -1: a member was expelled from its group
    - 0: only the landmarks of `diagram`
    - 1: another request failed
    - 2: a Heartbeat failed, or a member joined, synced or left
    - 3: a client found its coordinator
    - 4: anything else
    """
    family = _family(row)
    if row["outcome"] in EXPELLED:
        rank = -1
    elif row["outcome"] in EXPECTED:
        rank = 4
    elif failed(row):
        rank = 2 if family == HEARTBEAT else 1
    else:
        # The exchange was a success.
        rank = {MEMBERSHIP: 2, FINDING: 3}.get(family, 4)
    return Word(
        node=row["from_node"],
        at_us=_begin_us(row),
        text=_text(row),
        rank=rank,
        is_failure=failed(row),
    )


def _text(row: Row) -> str:
    """Return an exchange in a few words: its request, its repeats, and its result.

    Three examples: `SyncGroup`, `Heartbeat NOT_COORDINATOR`, `FindCoordinator names broker-1`.
    """
    parts = [request_words(row)]
    if row["repeats"] > 1:
        parts.append(f"\u00d7{row['repeats']:,}")
    if row["outcome"] != SUCCESS:
        parts.append(outcome_words(row))
    elif row.get("named") is not None:
        parts.append(f"names {row['named']}")
    return " ".join(parts)


def _set_rows(repeats: Sequence[Datum]) -> None:
    """Choose the row of each bar of repeats, and set the keys `y` and `h` of the bar.

    - `y`: the number of the row below the node's line, from 0. It is the first row in which the bar
      overlaps no other bar. If there is none, it is the last row, and the bar covers another bar.
    - `h`: True if the bar covers another bar. Then its text is hidden, because two texts would
      overlap.
    """
    bars_by_node: dict[Cell, list[Datum]] = {}
    for bar in repeats:
        bars_by_node.setdefault(bar["r"], []).append(bar)
    for bars in bars_by_node.values():
        # `slots` returns the first free row of each bar. It can be beyond the last row.
        for bar, slot in zip(bars, slots([_span_us(bar) for bar in bars]), strict=True):
            bar["y"] = min(slot, REPEAT_ROWS - 1)
            # With None, the text of the bar is shown.
            bar["h"] = True if slot >= REPEAT_ROWS else None


def _span_us(datum: Datum) -> tuple[int, int]:
    """Return beginning and end of a bar in microseconds."""
    return round(float(datum["a"] or 0) * 1_000_000), round(float(datum["b"] or 0) * 1_000_000)


def place_words(words: Iterable[Word]) -> list[Datum]:
    """Return texts, each with the smallest zoom at which it can be shown, in pixels a second.

    When the reader zooms in, the texts move apart, but do not become larger. So the most important
    texts of a line are always there, and other texts appear as soon as they have room. A text is
    left out if a more important text of the line has the same moment.

    A datum has the keys `r` and `a` (see Diagram), and these:

    - `t`: the text
    - `z`: the zoom that the text needs if all texts of the line extend to the right
    - `y`: the zoom that the text needs if some texts extend to the left, as at the right edge
    - `k`: 1 if the text reports a failure, else 0
    """
    placed: dict[str, list[Word]] = {}
    shown: list[Datum] = []
    for word in sorted(words, key=lambda word: (word.rank, word.at_us)):
        placed_before = placed.setdefault(word.node, [])
        zooms = [word.min_zoom, *(_zoom_apart(word, other) for other in placed_before)]
        zooms_if_left = [
            word.min_zoom,
            *(_zoom_apart(word, other, either=True) for other in placed_before),
        ]
        placed_before.append(word)
        shown.append(
            {
                "r": word.node,
                "a": axis_seconds(word.at_us),
                "t": word.text,
                "z": round(max(zooms), 3),
                "y": round(max(zooms_if_left), 3),
                "k": int(word.is_failure),
            }
        )
    return [datum for datum in shown if datum["z"] != _UNREACHABLE_ZOOM]


def _zoom_apart(word: Word, other: Word, *, either: bool = False) -> float:
    """Return the zoom, in pixels a second, from which on two texts of a line do not touch.

    If `either` is False, both texts extend to the right of their moments, and the left text must
    end before the right text begins. If `either` is True, the right text can extend to the left,
    towards the left text. Then there must be room for both texts between their moments.

    For example, two texts of 10 characters are one second apart. The left text needs
    (10 + 2) * 6 px = 72 px before the right text begins, so the zoom is 72 pixels a second. With
    `either`, the two texts together need (20 + 2) * 6 px = 132 px.
    """
    left = word if word.at_us <= other.at_us else other
    distance_us = abs(word.at_us - other.at_us)
    if distance_us == 0:
        return _UNREACHABLE_ZOOM
    characters_between = len(left.text)
    if either:
        characters_between = len(word.text) + len(other.text)
    # Two more characters leave a space between the texts.
    return (characters_between + 2) * CHARACTER_PX * 1_000_000 / distance_us
