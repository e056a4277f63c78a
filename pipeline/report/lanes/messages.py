"""The message diagrams: requests and answers around each fault, as lines between nodes.

Each node has a horizontal line, and time runs to the right. `message_rows` computes the data, and
this module draws with the library Altair:

- An exchange is a request with its answer. A leg is one message of an exchange: a slanted line from
  the sender to the receiver.
- A stub is a short line for a message that never arrived. It ends beside the line of the sender.
- A wait is a bar on a node's line. It shows how long a request or an answer was waited for.
- Repeats are a bar that stands for many exchanges: a client repeated the same request.
- A failure is a mark at the end of an exchange that ended with an error.
- A word is a text above a node's line, such as the name of a request. A word about something that
  is not a message, such as an election, is a landmark.

Similar requests, such as JoinGroup and SyncGroup, are a family. Each family has its own colour.

The data of the chart are dictionaries with short keys, such as `r` for a node, and `a` and `b` for
times in seconds. `message_rows.Diagram` explains the keys.
"""

from collections.abc import Iterator, Mapping, Sequence

import altair as alt
from markupsafe import escape

from pipeline.report.charts.chart import (
    BAD,
    FAULT_HATCH,
    FROM_S,
    INK,
    LINE,
    PAPER,
    SERIES,
    TO_S,
    Chart,
    TextTable,
)
from pipeline.report.columns import Column, moment, number, text_table
from pipeline.report.lanes.labels import (
    ROLE,
    Tip,
    common_prefix,
    moment_tip,
    prefix_note,
    tooltip_of,
)
from pipeline.report.lanes.marks import (
    NARROW,
    Datum,
    MarkProperties,
    Marks,
    legend_columns,
    rows_of,
    rows_y,
    span,
    time_lane,
    time_of,
)
from pipeline.report.lanes.message_rows import (
    CHARACTER_PX,
    CLUSTER,
    FINDING,
    HEARTBEAT,
    HELD,
    MEMBERSHIP,
    OFFSETS,
    REPEAT_ROWS,
    SERVED,
    UNANSWERED,
    Diagram,
    Word,
    diagram,
)
from pipeline.report.lanes.message_words import jumps, outcome_words, request_words
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from protocol.causes import CoordinatorUnknownCause
from results_schema.journal import JournalEntry

MAX_DIAGRAMS = 8
"""Maximum number of diagrams. If a run has more faults, only the first faults have a diagram."""
MAX_LANDMARKS = 6
"""Maximum number of partitions whose election and load a diagram names."""
MAX_TABLE_ROWS = 100
"""Maximum number of rows in the table beneath a diagram."""
ROW_PX = 54
"""Height in pixels of the part of the diagram that belongs to one node."""
_SYMBOL_PX = 28
"""Length of a line in the legend: long enough to show its dashes."""
_LINE_AT = 0.3
"""Position of a node's line in the part of the diagram that belongs to the node: 0 is the top, and
1 is the bottom. Texts are above the line, and repeats are below the line.
"""
_LINE_PX = round((_LINE_AT - 0.5) * ROW_PX)
"""The same position in pixels, counted downwards from the middle of the node's part: -11. It is
negative, because the line is above the middle.
"""
_REPEATS_PX = tuple(_LINE_PX + 9 + 10 * row for row in range(REPEAT_ROWS))
"""Positions of the bars of repeats, counted in the same way. Each row is 10 pixels below the row
above it."""

_COLOURS = {
    MEMBERSHIP: SERIES[5],
    FINDING: SERIES[0],
    OFFSETS: SERIES[2],
    HEARTBEAT: SERIES[7],
    CLUSTER: SERIES[3],
}
"""The colour of each family of requests."""
_WAITS: Mapping[str, MarkProperties] = {
    SERVED: {"strokeWidth": 5, "opacity": 0.55},
    HELD: {"strokeWidth": 3, "strokeDash": [1, 3]},
    UNANSWERED: {"strokeWidth": 2, "strokeDash": [4, 3], "color": BAD},
}
"""Kind of wait -> the properties of Vega's marks with which it is drawn."""
_DASHES = {MEMBERSHIP: [1, 0], FINDING: [6, 2], OFFSETS: [1, 0], HEARTBEAT: [2, 3], CLUSTER: [8, 4]}
"""Dashes of legs by family: lengths of dash and gap in pixels."""
_ABOUT = (
    "A request leads from its sender to its receiver, its answer back: zoom in until they slant."
)
_MORE = (
    "Each node has a line; time runs to the right, as in all lanes. Thick on a server's line: the "
    "request was held there. A stub: a message that never arrived. Dotted on the sender's line: a "
    "message held on its way. Dashed red on a client's line: it waited, and no answer came. A "
    "cross: the exchange failed, its error above it. A ring: an error name that is part of the "
    "protocol, such as MEMBER_ID_REQUIRED. Two ticks below a line, with \u00d7n: the first and the "
    "last of n like exchanges, which followed each other. Hatched: the node was hit. More texts "
    "appear as you zoom in."
)
_STUB_SIZE = 700
"""Size of a stub. For Vega, the size of a symbol is the area of a square around it, in pixels. A
side of this square is 26 pixels long. A stub leads from the middle of the square to its edge, so it
is 13 pixels long."""
# A stub as an SVG path: a short vertical line with a bar across its end.
_STUB_DOWN = "M0,0L0,1M-0.35,1L0.35,1"
_STUB_UP = "M0,0L0,-1M-0.35,-1L0.35,-1"
_MANY_LEGS = 100
"""Maximum number of legs that are drawn in full colour. More legs than this would make the texts
illegible, so they are drawn faint until the reader zooms in.
"""
_MANY_LOSSES = 8
"""Maximum number of members whose loss of the coordinator is always told by a text. The texts of
more members would cover everything else, so they appear only when the reader zooms in.
"""
_ZOOM_OF_MANY_LOSSES = 200.0
"""The zoom, in pixels per second, at which the texts appear if more than _MANY_LOSSES members lost
their coordinator."""
_TIPS = (
    Tip("api", "request"),
    Tip("fr", "from"),
    Tip("to", "to"),
    Tip("g", "group"),
    Tip("out", "outcome"),
    Tip("nm", "names as coordinator"),
    moment_tip("u", "sent", 6),
    moment_tip("v", "received", 6),
    moment_tip("w", "answered", 6),
    moment_tip("e", "ended", 6),
    Tip("x", "like exchanges"),
    moment_tip("z", "the last ended", 6),
    Tip("c", "correlation id"),
)
"""Tooltip of an exchange; `message_rows._message_cells` explains the fields."""
_COLUMNS = (
    Column(request_words, "request"),
    Column("from_node", "from"),
    Column("to_node", "to"),
    Column("group", "group"),
    moment("sent_us", "sent (s)"),
    moment("answered_us", "answered (s)"),
    moment("ended_us", "ended (s)"),
    Column(outcome_words, "outcome"),
    number("repeats", "exchanges"),
)
"""Columns of the table beneath a diagram."""


def lanes(run: ReportInput) -> tuple[Chart, ...]:
    """Return a diagram for each of the first MAX_DIAGRAMS faults that have messages."""
    rows = _rows_by_fault(run)
    shown_faults = _faults_with_messages(run)[:MAX_DIAGRAMS]
    return tuple(_chart(run, fault, rows[fault.fault_id]) for fault in shown_faults)


def left_out(run: ReportInput) -> int:
    """Return the number of faults that have messages but no diagram."""
    return max(0, len(_faults_with_messages(run)) - MAX_DIAGRAMS)


def _rows_by_fault(run: ReportInput) -> dict[str, list[Row]]:
    """Return the rows of the table `messages` about each fault."""
    by_fault: dict[str, list[Row]] = {}
    for row in run.tables.rows("messages"):
        by_fault.setdefault(row["fault"], []).append(row)
    return by_fault


def _faults_with_messages(run: ReportInput) -> list[JournalEntry]:
    """Return the faults that have messages, in the order of time."""
    with_messages = {row["fault"] for row in run.tables.rows("messages")}
    faults = [fault for fault in run.facts.faults if fault.fault_id in with_messages]
    return sorted(faults, key=lambda fault: (fault.injected_at_us or 0, fault.fault_id))


def _chart(run: ReportInput, fault: JournalEntry, rows: Sequence[Row]) -> Chart:
    """Return one fault's message diagram."""
    drawn = diagram(rows, _landmarks(run, fault, rows))
    lane_id = f"lane-messages-{fault.fault_id}"
    prefix = common_prefix(node for node in drawn.nodes if node.startswith(ROLE))
    return time_lane(
        run,
        lane_id=lane_id,
        title=f"Messages around {fault.fault_id}: {fault.fault} {fault.hit}".rstrip(),
        about=escape(_ABOUT) + " " + jumps(run, fault, lane=lane_id),
        more=_MORE + prefix_note(prefix) + _note_on_left_out(drawn.left_out),
        layers=_layers(drawn, prefix),
        data=_data(run, drawn),
        height=ROW_PX * len(drawn.nodes),
        table=_table(rows),
    )


def _data(run: ReportInput, drawn: Diagram) -> Mapping[str, Sequence[Datum]]:
    """Return the data of the diagram: the fields of Diagram, and two more.

    - `nodes` has a datum for each node.
    - `hit` has a bar for each time in which a fault hit a node.
    """
    return {
        "nodes": [{"r": node} for node in drawn.nodes],
        "hit": list(_times_hit(run, drawn.nodes)),
        "legs": drawn.legs,
        "waits": drawn.waits,
        "stubs": _coloured(drawn.stubs),
        "repeats": _coloured(drawn.repeats),
        "failures": drawn.failures,
        "words": drawn.words,
    }


def _times_hit(run: ReportInput, nodes: Sequence[str]) -> Iterator[Datum]:
    """Yield a bar for each fault on each of the nodes that it hit."""
    for fault in run.facts.faults:
        # A momentary fault has no length, and so no bar.
        if fault.injected_at_us is None or fault.momentary:
            continue
        end_us = run.end_us if fault.healed_at_us is None else fault.healed_at_us
        label = f"{fault.fault} {fault.hit}"
        for node in fault.hit_nodes:
            if node in nodes:
                yield span(fault.injected_at_us, end_us, r=node, l=label)


def _coloured(data: Sequence[Datum]) -> list[Datum]:
    """Return the data with a new key `cl`: the colour of the family `f`.

    This is for stubs and repeats. Legs and waits need no `cl`, because they get their colours from
    the scale of the legend.
    """
    return [{**datum, "cl": _COLOURS[str(datum["f"])]} for datum in data]


def _layers(drawn: Diagram, prefix: str) -> list[alt.Chart]:
    """Return the marks of the diagram in the order of drawing; later marks cover earlier ones."""
    # `row` and `line` are both vertical positions of a node: `row` is the middle of the node's part
    # of the diagram, and `line` is the node's line.
    row = rows_y(drawn.nodes, label_offset=_LINE_PX, without=prefix)
    line: alt.Y = rows_y(drawn.nodes, label_offset=_LINE_PX, without=prefix).bandPosition(_LINE_AT)
    drawn_families = {datum["f"] for datum in (*drawn.legs, *drawn.waits, *drawn.repeats)}
    families = [family for family in _COLOURS if family in drawn_families]
    if not families:
        families = list(_COLOURS)  # because a legend needs at least one entry
    colour = alt.Color(
        "f:N",
        scale=alt.Scale(domain=families, range=[_COLOURS[family] for family in families]),
        legend=alt.Legend(
            title=None,
            symbolType="stroke",
            symbolStrokeWidth=3,
            # Vega's sizes are areas, so the length of the symbol is the square root of its size.
            # `width >= 0` is always true. It is there because Vega evaluates an expression again
            # when a variable in it changes, here when the page gets another width.
            symbolSize=alt.ExprRef(f"width >= 0 && {NARROW} ? 200 : {_SYMBOL_PX**2}"),
            symbolOpacity=1,
            columns=legend_columns(families),
        ),
    )
    x = time_of("a:Q")
    stubs = rows_of("stubs", None).mark_point(
        clip=True,
        shape=alt.ExprRef(f"datum.v == 'up' ? '{_STUB_UP}' : '{_STUB_DOWN}'"),
        filled=False,
        strokeWidth=1.8,
        opacity=1,
        size=_STUB_SIZE,
        tooltip=tooltip_of(_TIPS),
    )
    # In the data, `k` is 1 for a failure, and 0 for an error that is part of the protocol.
    expected_errors = Marks("failures", line, _TIPS, "!datum.k")
    failures = Marks("failures", line, _TIPS, "datum.k")
    return [
        rows_of("nodes", None).mark_rule(color=LINE, strokeWidth=1.5).encode(y=line),
        Marks("hit", row, (Tip("l", "fault"), Tip("d", "for"))).bars(
            FAULT_HATCH, height=9, yOffset=_LINE_PX, stroke=None, opacity=0.75
        ),
        *_repeats(row),
        *_lines(drawn, families, {"x": x, "y": line, "color": colour}),
        stubs.encode(x=x, y=line, stroke=alt.Stroke("cl:N", scale=None)),
        expected_errors.moments(shape="circle", fill=PAPER, stroke=INK, strokeWidth=1.2, size=34),
        failures.moments(shape="cross", angle=45, fill=BAD, size=70),
        *_words(line, x),
    ]


def _lines(
    drawn: Diagram, families: Sequence[str], encoding: MarkProperties
) -> Iterator[alt.Chart]:
    """Yield the waits and the legs.

    `encoding` has the `x`, `y` and `color` that waits and legs share. The colour depends on the
    family of the request.
    """
    position = {name: encoding[name] for name in ("x", "y")}
    in_sight = f"datum.b >= {FROM_S} && datum.a <= {TO_S}"
    tooltip = tooltip_of(_TIPS)
    for wait, properties in _WAITS.items():
        source = rows_of("waits", in_sight).transform_filter(f"datum.leg == '{wait}'")
        drawn_wait = source.mark_rule(clip=True, tooltip=tooltip, **properties)
        # The bar of UNANSWERED is red. The other bars have the colour of the family.
        has_own_colour = "color" in properties
        yield drawn_wait.encode(x2="b:Q", **(position if has_own_colour else encoding))
    dashes = [_DASHES[family] for family in families]
    yield (
        rows_of("legs", in_sight)
        .mark_rule(clip=True, strokeWidth=1.6, tooltip=tooltip, strokeOpacity=_opacity(drawn.legs))
        .encode(
            x2="b:Q",
            y2=alt.Y2("q:N", bandPosition=_LINE_AT),
            strokeDash=alt.StrokeDash("f:N", scale=alt.Scale(domain=families, range=dashes)),
            **encoding,
        )
    )


def _opacity(legs: Sequence[Datum]) -> float | alt.ExprRef:
    """Return the opacity of the legs.

    If there are more than _MANY_LEGS legs, they are half transparent until the reader has zoomed to
    a quarter of the time from the first leg to the last, or less.
    """
    if len(legs) <= _MANY_LEGS:
        return 1.0
    moments = [float(leg["a"] or 0) for leg in legs]
    quarter_s = (max(moments) - min(moments)) / 4
    return alt.ExprRef(f"{TO_S} - {FROM_S} > {quarter_s:.3f} ? 0.5 : 1")


def _repeats(y: alt.Y) -> list[alt.Chart]:
    """Return the bars of repeated exchanges, below the sender's line.

    A bar has a tick at its first and at its last exchange. Without the ticks, it would look like
    one long request.
    """
    fill, stroke = alt.Fill("cl:N", scale=None), alt.Stroke("cl:N", scale=None)
    layers = []
    for row, offset in enumerate(_REPEATS_PX):
        # In the data, `y` is the number of a bar's row below the line of the node.
        where = f"datum.y == {row}"
        properties: MarkProperties = {
            "height": 9,
            "yOffset": offset,
            "fillOpacity": 0.08,
            "stroke": None,
        }
        source = rows_of("repeats", where)
        repeats = Marks("repeats", y, _TIPS, where)
        # The key `h` is set if there was no free row for the bar. Then the bar gets no label,
        # because it would lie on the label of another bar.
        with_label = Marks("repeats", y, _TIPS, f"{where} && !datum.h")
        tick: MarkProperties = {
            "clip": True,
            "thickness": 2.5,
            "size": 9,
            "yOffset": offset,
            "opacity": 1,
        }
        layers += [
            repeats.bars(fill, **properties),
            source.mark_rule(clip=True, strokeWidth=1.5, strokeDash=[1, 4], yOffset=offset).encode(
                x=time_of("a:Q"), x2="b:Q", y=y, stroke=stroke
            ),
            *(
                source.mark_tick(**tick).encode(x=time_of(f"{end}:Q"), y=y, fill=fill)
                for end in ("a", "b")
            ),
            *with_label.labels(fontSize=9, dy=offset),
        ]
    return layers


def _words(y: alt.Y, x: alt.X) -> list[alt.Chart]:
    """Return the texts that have room at the present zoom, above their nodes' lines.

    A text usually extends from its moment to the right. Near the right edge of the chart, it would
    be cut off, so it extends to the left there. The data says which zoom a text needs, in pixels
    per second: `datum.z` if all texts of the line extend to the right, and `datum.y` if some texts
    of the line extend to the left.
    """
    x_px = f"(datum.a - {FROM_S}) / ({TO_S} - {FROM_S}) * width"
    extends_left = f"{x_px} + length(datum.t) * {CHARACTER_PX} > width && {x_px} > width / 2"
    # Texts extend to the left only in the right half of the chart. But such a text can come near
    # texts that begin further left. So `datum.y` counts from a third of the width on.
    needed_zoom = f"({x_px} > width / 3 ? datum.y : datum.z)"
    shown = alt.Chart(alt.NamedData("words")).transform_filter(
        f"datum.a >= {FROM_S} && datum.a <= {TO_S} && {needed_zoom} * ({TO_S} - {FROM_S}) <= width"
    )
    properties: MarkProperties = {
        "align": alt.ExprRef(f"{extends_left} ? 'right' : 'left'"),
        "dx": alt.ExprRef(f"{extends_left} ? -3 : 3"),
        "dy": -5,
        "limit": alt.ExprRef(f"max(1, ({extends_left} ? {x_px} : width - {x_px}) - 3)"),
        "baseline": "bottom",
        "fontSize": 10,
        "clip": True,
    }
    encoded = {"x": x, "y": y, "text": alt.Text("t:N")}
    # The first layer is a rim in the background's colour around all texts. The texts themselves
    # follow. Texts about failures (`k`) are red.
    return [
        shown.mark_text(**properties, stroke=PAPER, fill=PAPER, strokeWidth=3).encode(**encoded),
        shown.transform_filter("!datum.k").mark_text(**properties, fill=INK).encode(**encoded),
        shown.transform_filter("datum.k").mark_text(**properties, fill=BAD).encode(**encoded),
    ]


def _landmarks(run: ReportInput, fault: JournalEntry, rows: Sequence[Row]) -> list[Word]:
    """Return the texts about events that are no messages.

    For example:

    - at the controller's line: `elects broker-2 for __consumer_offsets-7, leader epoch 4`
    - at the new leader's line: `active for __consumer_offsets-7, loaded in 12 ms`
    - at the line of a member that lost its coordinator: `coordinator unknown`
    """
    # A controller has a line only if a message was sent to the controller. If several controllers
    # have a line, the line of the first controller has the texts about all elections.
    controllers = [row["to_node"] for row in rows if row["to_node"].startswith("controller-")]
    moves = [row for row in run.tables.rows("broker_phases") if row["fault"] == fault.fault_id]
    # Partitions that store groups come first: for them the key is False, which sorts before True.
    moves.sort(key=lambda row: (not row["groups"], row["partition"]))

    words = []
    for move in moves[:MAX_LANDMARKS]:
        if controllers and move["decided_us"] is not None:
            text = (
                f"elects {move['new_leader']} for {move['partition']}, "
                f"leader epoch {move['leader_epoch']}"
            )
            words.append(Word(controllers[0], move["decided_us"], text, rank=0))
        if move["active_us"] is not None:
            text = f"active for {move['partition']}"
            if move["load_us"] is not None:
                text += f", loaded in {duration_text(move['load_us'])}"
            words.append(Word(move["new_leader"], move["active_us"], text, rank=0))

    lost = [
        row
        for row in run.tables.rows("client_phases")
        if row["fault"] == fault.fault_id and row["unknown_us"] is not None
    ]
    min_zoom = _ZOOM_OF_MANY_LOSSES if len(lost) > _MANY_LOSSES else 0.0
    words += [
        Word(
            row["consumer"],
            row["unknown_us"],
            _coordinator_lost_text(row["noticed_by"]),
            rank=0,
            min_zoom=min_zoom,
        )
        for row in lost
    ]
    return words


def _coordinator_lost_text(cause: str | None) -> str:
    """Return the text on a member that lost its coordinator, with the cause."""
    if cause is None:
        return "coordinator unknown"
    if cause == CoordinatorUnknownCause.UNAVAILABLE:
        return cause  # this text already says that the coordinator is unknown
    return f"{cause}: coordinator unknown"


def _note_on_left_out(count: int) -> str:
    """Return the sentence on exchanges that are not drawn; "" if all are drawn.

    The clients of these exchanges have no line. A diagram would also leave out exchanges beyond
    MAX_MESSAGES. But the table `messages` never has more rows than this about one fault, so the
    sentence tells only the first reason.
    """
    if not count:
        return ""
    return f" {count:,} more rows of the table messages are of clients that have no line here."


def _table(rows: Sequence[Row]) -> TextTable:
    """Return the messages as text, in the order in which they were sent."""
    return text_table(
        _COLUMNS,
        sorted(rows, key=lambda row: (row["sent_us"] is None, row["sent_us"] or 0)),
        limit=MAX_TABLE_ROWS,
        source="messages",
        folded="The messages as text",
    )
