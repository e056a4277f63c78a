"""The availability lane: bars that show when groups, members and partitions had no service.

Such a time is called a gap, and the group, member or partition is its subject:

- A group has a gap while it has no active coordinator.
- The gap of a member lasts from one acknowledged commit to the member's next acknowledged commit.
- The gap of a partition lasts from one batch that a member consumed to the next batch that a member
  consumed.

The table `availability` has the longest gap of each subject around each fault. Each of its rows
becomes an object in the data of the chart. The object has the keys of LANE's columns, and these:

- `a`, `b`: start and end of the bar in seconds
- `d`: length of the bar as text, such as `1.25 s`
- `l`, `s`: the label of the bar, long and short
"""

from collections.abc import Mapping, Sequence

from pipeline.report.charts.chart import HATCHES, SERIES, Chart, Pick, TextTable
from pipeline.report.columns import Column, moment, number
from pipeline.report.lanes.interval_lane import (
    IntervalLane,
    count_intervals,
    end_of,
)
from pipeline.report.lanes.labels import Tip, common_prefix, moment_tip, prefix_note
from pipeline.report.lanes.marks import Datum, kind_fill, rows_y
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed

MAX_ROWS = 40
"""Maximum number of subjects that have rows of their own. If there are more subjects, the lane
shows how many of them have a gap at each moment.
"""
MAX_GAPS = 400
"""Maximum number of bars in the lane. If there are more, the longest bars are shown."""
ROW_PX = 18
"""Height of a row in pixels."""
GROUP, MEMBER, PARTITION = "group", "member", "partition"
KINDS = {
    GROUP: "groups: no active coordinator",
    MEMBER: "members: no acknowledged commit",
    PARTITION: "partitions: no member consumed them",
}
"""The kinds of subjects, each with the text of the legend about its gaps."""
# Every second fill has a pattern. So neighbours differ even without colours.
_FILLS = {KINDS[GROUP]: HATCHES[5], KINDS[MEMBER]: SERIES[1], KINDS[PARTITION]: HATCHES[4]}
_PICK = "availability_pick"
"""Name of Vega's parameter for the kind of subjects that the reader picks."""
_LEADER_WAS = {
    "crash": "was killed",
    "node_loss": "was killed",
    "power_loss": "lost its power",
    "controlled_shutdown": "was shut down",
    "pause": "was paused",
    "cut": "was cut off",
    "machine_loss": "went down with its machine",
    "machine_pause": "was paused with its machine",
    "machine_cut": "was cut off with its machine",
}
"""What a fault of each kind does to a broker, in words. They stand in the label of a partition's
gap: `its leader broker-1 was killed`. Kinds of faults that stop no leader are not listed.
"""
_GAP_TIPS = (
    moment_tip("a", "the last before"),
    moment_tip("b", "the first after"),
    Tip("d", "between them"),
)
"""The last lines of the tooltip of a gap. For a member, for example, "the last before" is the time
of the last acknowledged commit, and "the first after" is the time of the next acknowledged commit.
"""


def _length(row: Row) -> str:
    """Return the length of a gap as text. A gap that never ended has no length in the table."""
    return "it never came back" if row["gap_us"] is None else duration_text(row["gap_us"])


LANE = IntervalLane(
    id="lane-availability",
    title="Time without service",
    about="The longest time without service of each group, member and data partition around a "
    "fault.",
    more="A member: from its last acknowledged commit before the fault to the next one. A "
    "partition: from the last batch that a member of the group consumed before the fault to the "
    "next one. So a bar begins before the fault. A group: no active coordinator. A short bar may "
    "be no more than the usual interval.",
    source="availability",
    folded="The times without service as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column(lambda row: KINDS[row["subject_kind"]], key="k", tip="what"),
        Column("name", key="r", tip="who"),
        Column("subject_kind", "what"),
        Column("subject", "who"),
        Column("group", "group", "g", "group"),
        Column("fault", "fault", "f", "around fault"),
        moment("before_us", "from (s)"),
        moment("after_us", "to (s)"),
        number(_length, "for"),
        Column("leader", "its leader", "y", "its leader"),
    ),
)


def availability_lane(run: ReportInput) -> Chart | None:
    """Return the lane: a bar for each gap, or the number of gaps over time if there are many.

    Returns None if no subject had a gap.
    """
    leader_phrases = _leader_phrases(run)
    rows = [
        row | {"leader": _leader_phrase(row, leader_phrases)}
        for row in run.tables.rows("availability")
        # A gap whose beginning is not known has no bar.
        if row["before_us"] is not None
    ]
    if not rows:
        return None
    if len({_subject(row) for row in rows}) > MAX_ROWS:
        return _lane_of_counts(run, rows)

    # A bar without length would not be visible.
    with_length = [row for row in rows if row["gap_us"] != 0]
    if not with_length:
        return None
    names = _row_names(with_length)
    shown = _without_repeats(with_length)
    # The longest gaps come first, because only MAX_GAPS of them are drawn.
    shown.sort(key=lambda row: end_of(run, row["after_us"]) - row["before_us"], reverse=True)

    prefix = common_prefix(row["subject"] for row in with_length if row["subject_kind"] == MEMBER)
    kinds = {KINDS[row["subject_kind"]] for row in with_length}
    fills = {kind: fill for kind, fill in _FILLS.items() if kind in kinds}
    gaps = LANE.marks("gaps", rows_y(list(names.values()), without=prefix), tail=_GAP_TIPS)
    return LANE.draw(
        run,
        [gaps.bars(kind_fill("k", fills)), *gaps.labels()],
        {"gaps": [_gap_datum(run, row, names[_subject(row)]) for row in shown[:MAX_GAPS]]},
        ROW_PX * len(names),
        about=LANE.about + _served_groups(rows),
        more=LANE.more + prefix_note(prefix),
        table=_table(rows),
    )


def _without_repeats(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each gap.

    The table has a row for each pair of a subject and a fault. If two faults follow one another
    quickly, the same gap can be the longest gap around both faults, and stand in the table twice.
    Here it is one row. Its cell `fault` names the first fault and counts the other faults: `kill-1
    and 1 more`.
    """
    rows_by_gap: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        gap_id = _subject(row), row["before_us"], row["after_us"]
        rows_by_gap.setdefault(gap_id, []).append(row)

    gaps = []
    for rows_of_gap in rows_by_gap.values():
        first, *others = rows_of_gap
        fault_text = f"{first['fault']} and {len(others)} more" if others else first["fault"]
        # `dict.fromkeys` removes duplicates, and keeps the order.
        leaders = dict.fromkeys(row["leader"] for row in rows_of_gap if row["leader"])
        gaps.append(first | {"fault": fault_text, "leader": ", ".join(leaders) or None})
    return gaps


def _served_groups(rows: Sequence[Row]) -> str:
    """Return a sentence about the groups that always had a coordinator; "" if there are none.

    Such groups have no bar. The sentence begins with a space, because it is appended to a text.
    """
    group_rows = [row for row in rows if row["subject_kind"] == GROUP]
    with_gap = {row["group"] for row in group_rows if row["gap_us"] != 0}
    always_served = in_number_order({row["group"] for row in group_rows} - with_gap)
    if not always_served:
        return ""
    return f" An active coordinator all the time: {listed(always_served)}."


def _leader_phrases(run: ReportInput) -> dict[tuple[str, str], str]:
    """Return what each fault did to the leader of each partition that it concerned.

    For example, if the fault `kill-1` killed broker-0, which led `orders-0`, the result is
    `{("kill-1", "orders-0"): "broker-0 was killed"}`.
    """
    phrases: dict[tuple[str, str], str] = {}
    for fault in run.facts.faults:
        brokers = [node for node in fault.hit_nodes if node.startswith("broker-")]
        # If the fault hit two brokers, the journal does not say which of them led a partition.
        if len(brokers) == 1 and fault.fault in _LEADER_WAS:
            phrase = f"{brokers[0]} {_LEADER_WAS[fault.fault]}"
            phrases |= {(fault.fault_id, name): phrase for name in fault.blast_radius.partitions}
    return phrases


def _leader_phrase(row: Row, phrases: Mapping[tuple[str, str], str]) -> str | None:
    """Return what the fault of a gap did to the leader of the gap's partition.

    Returns None if the fault did not hit this leader, or if the gap is not about a partition.
    """
    if row["subject_kind"] != PARTITION:
        return None
    return phrases.get((row["fault"], row["subject"]))


def _row_names(rows: Sequence[Row]) -> dict[tuple[str, str, str], str]:
    """Return the name of each subject's row in the lane: groups, then members, then partitions.

    If the run has several groups, the name of a partition's row begins with the group, because each
    group that consumes the partition has its own row.
    """
    names: dict[tuple[str, str, str], str] = {}
    one_group = len({row["group"] for row in rows}) == 1
    for kind in KINDS:
        needs_group = kind == PARTITION and not one_group
        subjects_by_name: dict[str, tuple[str, str, str]] = {}
        for row in rows:
            if row["subject_kind"] == kind:
                name = row["subject"]
                if needs_group:
                    name = f"{row['group']} \u00b7 {name}"
                subjects_by_name[name] = _subject(row)
        names |= {subjects_by_name[name]: name for name in in_number_order(subjects_by_name)}
    return names


def _subject(row: Row) -> tuple[str, str, str]:
    """Return what identifies the subject of a gap: its kind, its group and its name."""
    return row["subject_kind"], row["group"], row["subject"]


def _gap_datum(run: ReportInput, row: Row, name: str) -> Datum:
    """Return the bar of one gap, in the row `name`."""
    end_us = end_of(run, row["after_us"])
    length = duration_text(end_us - row["before_us"])
    label = length
    if row["after_us"] is None:
        label += ", until the run ended"
    if row["leader"]:
        label += f" \u00b7 its leader {row['leader']}"
    return LANE.datum(row | {"name": name}, row["before_us"], end_us, l=label, s=length)


def _lane_of_counts(run: ReportInput, rows: Sequence[Row]) -> Chart:
    """Return the lane as areas: how many subjects of a kind have a gap at each moment.

    A gap counts only after its fault was injected. Before the injection, the member or partition
    only waited for its next commit or batch, as usual.
    """
    areas: list[Datum] = []
    # The page shows the first kind until the reader picks another kind. Members come first, because
    # a run has more members than groups.
    kinds = [
        kind
        for kind in (MEMBER, GROUP, PARTITION)
        if any(row["subject_kind"] == kind for row in rows)
    ]
    injected_us = {fault.fault_id: fault.injected_at_us or 0 for fault in run.facts.faults}
    for kind in kinds:
        gaps = [
            (
                (row["group"], row["subject"]),
                max(row["before_us"], injected_us.get(row["fault"], 0)),
                end_of(run, row["after_us"]),
            )
            for row in rows
            if row["subject_kind"] == kind
        ]
        areas += count_intervals(run, {KINDS[kind]: _merged(gaps)})
    pick = Pick(param=_PICK, label="Count", options=tuple(KINDS[kind] for kind in kinds))
    return LANE.draw_counts(
        run,
        areas,
        _FILLS,
        what="what",
        about="How many had no service, of those that a fault concerned.",
        more="Of each, only its longest time around a fault counts, from the fault on. A spike as "
        "short as the usual interval between two commits or batches says nothing.",
        picks=(pick,),
        table=_table(rows),
    )


def _merged(gaps: Sequence[tuple[tuple[str, str], int, int]]) -> list[tuple[int, int]]:
    """Return gaps as spans of time, in which overlapping gaps of one subject are one span.

    The same gap can be in the table for two faults, and must not count twice. `gaps` are tuples of
    subject, start and end, and a subject is a pair of group and name. For example, with the
    subjects shortened to letters, the gaps `("a", 0, 5), ("a", 3, 9), ("b", 2, 4)` give `(0, 9),
    (2, 4)`.
    """
    spans: list[tuple[int, int]] = []
    last_subject: tuple[str, str] | None = None
    for subject, start, end in sorted(gaps):
        if subject == last_subject and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
        last_subject = subject
    return spans


def _table(rows: Sequence[Row]) -> TextTable:
    """Return the gaps as the text beneath the lane, the longest first."""

    def longest_first(row: Row) -> float:
        """Return a sort key."""
        # A gap that never ended has no length. It comes before all others.
        return float("-inf") if row["gap_us"] is None else -row["gap_us"]

    return LANE.text(sorted(rows, key=longest_first))
