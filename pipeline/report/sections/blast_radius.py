"""The section "Blast radius": which nodes, groups and partitions each fault concerned.

If a run has only a few faults, each fault has these parts:

- a sentence on what the fault hit;
- a table of the groups, and of what their members went through;
- a table of the partitions;
- the errors that commits met after the fault.

If a run has many faults, all faults share one table, with a row for each fault.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.report.charts.chart import Paragraph, Part, Section, TextTable
from pipeline.report.charts.fault_strips import FaultRows, rows_of_faults
from pipeline.report.columns import Column, number, text_table
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Row
from pipeline.summary.figures import FaultSummary, duration_text
from pipeline.summary.outcomes import CommitErrors, in_number_order, listed
from pipeline.summary.story import counted, errors_text

MAX_IN_FULL = 6
"""Maximum number of faults that have tables of their own. If a run has more faults, they all share
one table."""
MAX_FAULTS = 300
"""Maximum number of rows in the table of all faults."""
MAX_ROWS = 100
"""Maximum number of groups that are listed for one fault, and also of partitions. The tables of the
run have all groups and partitions.
"""
ACKNOWLEDGED = "NONE"
"""The `error` of a successful commit in the table `commits`."""
KEPT = "kept id and generation"
"""Heading of the column with the number of members that kept their member id and generation."""
GROUPS = "groups in it"
"""Heading of the column with the groups that a partition of `__consumer_offsets` stores."""
MARKED_UNKNOWN = "coordinator unknown"
"""Heading of the column with the number of members that marked their coordinator unknown."""
_LEAD = (
    "Of a broker, the groups that it coordinated and the partitions that it led; "
    "of a member, its group and what it owned; of a leadership, its partition and the groups in it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius:
    """One fault: the node that it hit, and the groups and partitions that it concerned."""

    fault: FaultSummary
    hit: str
    """Names of the nodes or links that the fault hit, such as `broker-0`."""
    groups: tuple[str, ...]
    partitions: tuple[str, ...]
    errors: str | None
    """A sentence on the errors that commits met after the fault, or on their absence. None if there
    is nothing to say: no commit met an error, and the fault concerned no member."""


def blast_radius_section(run: ReportInput) -> Section | None:
    """Return the section; None if no fault hit anything."""
    faults = list(rows_of_faults(run))
    if not faults:
        return None
    errors_by_fault = _errors_by_fault(run.tables.rows("commits"))
    parts: list[Part] = []
    if len(faults) > MAX_IN_FULL:
        fault_rows = {row["fault"]: row for row in run.tables.rows("faults")}
        parts.append(_table_of_all_faults(faults, fault_rows, errors_by_fault))
    else:
        for rows in faults:
            errors = errors_by_fault.get(rows.fault.fault, ())
            parts += _parts_about_one_fault(rows, _radius(run, rows, errors), errors)
    return Section(
        id="blast-radius", title="Blast radius: whom it concerned", lead=_LEAD, parts=tuple(parts)
    )


def _radius(run: ReportInput, rows: FaultRows, errors: Sequence[CommitErrors]) -> Radius:
    """Return what a fault hit, and whom it concerned.

    `errors` are the errors that commits met after this fault.
    """
    fault_id = rows.fault.fault
    journal_entry = next((entry for entry in run.facts.faults if entry.fault_id == fault_id), None)
    fault_row = next((row for row in run.tables.rows("faults") if row["fault"] == fault_id), {})
    hit = listed(fault_row.get("nodes") or ())
    if journal_entry is not None:  # the journal describes the fault better
        hit = journal_entry.hit

    errors_sentence = None
    if errors:
        errors_sentence = errors_text(errors)
    elif rows.client and run.tables.rows("commits"):
        errors_sentence = "no commit met an error"
    elif rows.client:
        errors_sentence = "no member committed in this run"
    return Radius(
        fault=rows.fault,
        hit=hit,
        groups=in_number_order(fault_row.get("groups") or ()),
        partitions=tuple(fault_row.get("partitions") or ()),
        errors=errors_sentence,
    )


def _parts_about_one_fault(
    rows: FaultRows, radius: Radius, errors: Sequence[CommitErrors]
) -> Iterator[Part]:
    """Yield the parts of one fault: groups, partitions and errors of commits."""
    yield Paragraph(html=render_line("words", "fault_heading", rows.fault))
    yield Paragraph(html=render_line("blast_radius", "concerned", radius))
    if rows.client:
        yield _groups_table(rows)
    # `rows.broker` has a row for each offsets partition that the fault moved.
    moved = {row["partition"]: row for row in rows.broker}
    if radius.partitions or moved:
        yield _partitions_table(rows, moved, radius.partitions)
    if radius.errors:
        yield Paragraph(html=render_line("words", "items", [radius.errors]))
    if errors:
        yield text_table(
            (
                Column(lambda outcome: outcome.error, "commits met"),
                number(lambda outcome: outcome.commits, "commits"),
                number(lambda outcome: outcome.members, "members"),
            ),
            errors,
            caption="By the error's name in the answer. DISCONNECTED, TIMED_OUT: no answer came.",
            folded="Errors that commits met, by name",
        )


def _groups_table(rows: FaultRows) -> TextTable:
    """Return the table of what each group's members went through after the fault."""
    # group -> the rows of `client_phases` about its members
    members: dict[str, list[Row]] = {}
    for row in rows.client:
        members.setdefault(row["group"], []).append(row)
    # The coordinator of a group is the leader of the group's offsets partition. So if a group's
    # coordinator moved, `move_by_group` has the row about the move of this partition.
    move_by_group = {group: row for row in rows.broker for group in row["groups"] or ()}
    gaps = _gaps(rows, "member", "group")

    def coordinator(group: str) -> str:
        """Return how the coordinator moved, such as `broker-0 to broker-2`, or `stayed`."""
        return _old_and_new_leader(move_by_group[group]) if group in move_by_group else "stayed"

    def marked_unknown(group: str) -> int:
        """Return how many members marked their coordinator unknown."""
        return sum(row["unknown_us"] is not None for row in members[group])

    def noticed_by(group: str) -> str:
        """Return how the members noticed the fault: `NOT_COORDINATOR 3, disconnected 1`."""
        counts = Counter(row["noticed_by"] for row in members[group] if row["noticed_by"])
        return ", ".join(f"{cause} {count:,}" for cause, count in counts.most_common())

    def kept(group: str) -> str:
        """Return how many members kept their id and generation: `3 of 5`."""
        count = sum(_has_kept_both(row) for row in members[group])
        return f"{count:,} of {len(members[group]):,}"

    def joined_again(group: str) -> str:
        """Return how many members joined again: `2 of 5`."""
        count = sum(row["join_us"] is not None for row in members[group])
        return f"{count:,} of {len(members[group]):,}"

    # A row of this table is the name of a group, from which each column computes its cell.
    columns = (
        Column(str, "group"),
        Column(coordinator, "coordinator"),
        number(lambda group: len(members[group]), "members"),
        number(marked_unknown, MARKED_UNKNOWN),
        Column(noticed_by, "noticed by"),
        Column(kept, KEPT),
        Column(joined_again, "joined again"),
        number(lambda group: _longest_text(gaps.get(group, [])), "longest commit gap"),
    )
    shown = in_number_order(members)
    caption = _with_number_left_out("Groups that it concerned, and how they noticed.", len(shown))
    return text_table(columns, shown[:MAX_ROWS], caption=caption)


def _has_kept_both(row: Row) -> bool:
    """Return whether a member had the same id and generation before and after the fault."""
    same_id: bool = row["member_id"] == row["member_id_after"]
    return same_id and row["generation"] == row["generation_after"]


def _old_and_new_leader(moved: Row) -> str:
    """Return how the leadership of a partition moved: `broker-0 to broker-2`."""
    return f"{moved['old_leader'] or 'no leader'} to {moved['new_leader']}"


def _gaps(rows: FaultRows, kind: str, column: str) -> dict[str, list[int | None]]:
    """Return the gaps of the subjects of one kind, grouped by the values of `column`.

    For example, `_gaps(rows, "member", "group")` returns the gaps of the members of each group:
    `{"billing": [1_200_000, None]}`. A gap is None if it lasted until the run ended.
    """
    gaps: dict[str, list[int | None]] = {}
    for row in rows.gap:
        if row["subject_kind"] == kind:
            gaps.setdefault(row[column], []).append(row["gap_us"])
    return gaps


def _longest_text(gaps: Sequence[int | None]) -> str | None:
    """Return the longest gap as text; `never again` if one of the gaps did not end."""
    ended = [gap for gap in gaps if gap is not None]
    if len(ended) < len(gaps):
        return "never again"
    return duration_text(max(ended)) if ended else None


def _partitions_table(
    rows: FaultRows, moved: Mapping[str, Row], partitions: Sequence[str]
) -> TextTable:
    """Return a table of the partitions that a fault concerned.

    `moved` has the row of `broker_phases` for each offsets partition that moved. About partitions
    that did not move, the table tells only the name and the gap.
    """
    gaps = _gaps(rows, "partition", "subject")

    def groups(row: Row) -> str | None:
        """Return the groups that an offsets partition stores; None for other partitions."""
        if row["partition"] not in moved:
            return None
        return listed(row["groups"] or ()) or "none"

    def leader(row: Row) -> str | None:
        """Return how the leadership moved; None for a partition that is not in `moved`."""
        return _old_and_new_leader(row) if row["partition"] in moved else None

    columns = (
        Column("partition", "partition"),
        Column(groups, GROUPS),
        Column(leader, "leader"),
        number(lambda row: row.get("leader_epoch"), "leader epoch"),
        number(lambda row: row.get("records"), "records loaded"),
        number(lambda row: _longest_text(gaps.get(row["partition"], [])), "processing gap"),
    )
    shown = in_number_order({*partitions, *moved})
    return text_table(
        columns,
        # A partition that did not move is not in `moved`. It gets a row with nothing but its name.
        [moved.get(name, {"partition": name}) for name in shown[:MAX_ROWS]],
        caption=_with_number_left_out(
            "Of offsets partitions that moved: who leads them now, and what the new coordinator "
            "loaded.",
            len(shown),
        ),
        folded=f"{counted(len(shown), 'partition')}, one by one",
    )


def _errors_by_fault(commits: Sequence[Row]) -> dict[str, list[CommitErrors]]:
    """Return the errors that commits met after each fault, the most frequent first."""
    # For each fault, the number of commits with each error: `{"kill-1": {"NOT_COORDINATOR": 7}}`.
    failed_commits: dict[str, Counter[str]] = {}
    # The members that met an error, by fault and error. A member is a pair of group and consumer.
    members: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in commits:
        fault, error = row["fault"], row["error"]
        if fault is None or error == ACKNOWLEDGED:
            continue
        failed_commits.setdefault(fault, Counter())[error] += row["commits"]
        members.setdefault((fault, error), set()).add((row["group"], row["consumer"]))
    return {
        fault: [
            CommitErrors(error=error, commits=count, members=len(members[fault, error]))
            # Errors with equal counts are sorted by name.
            for error, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        for fault, counts in failed_commits.items()
    }


def _table_of_all_faults(
    faults: Sequence[FaultRows],
    fault_rows: Mapping[str, Row],
    errors_by_fault: Mapping[str, Sequence[CommitErrors]],
) -> TextTable:
    """Return the table with one row for each fault, for a run with many faults."""

    def concerned(rows: FaultRows, column: str) -> Sequence[str]:
        """Return the names in a column of the table `faults`; () if the table lacks the fault."""
        names: Sequence[str] = fault_rows.get(rows.fault.fault, {}).get(column) or ()
        return names

    def errors_met(rows: FaultRows) -> str:
        """Return the errors of commits after a fault: `NOT_COORDINATOR 12, TIMED_OUT 1`."""
        errors = errors_by_fault.get(rows.fault.fault, ())
        return ", ".join(f"{error.error} {error.commits:,}" for error in errors)

    columns = (
        Column(lambda rows: rows.fault.fault, "fault"),
        Column(lambda rows: rows.fault.node, "hit"),
        Column(lambda rows: listed(concerned(rows, "groups")) or None, "groups"),
        number(lambda rows: len(concerned(rows, "partitions")), "partitions"),
        number(lambda rows: rows.fault.members, "members"),
        number(
            lambda rows: sum(row["unknown_us"] is not None for row in rows.client), MARKED_UNKNOWN
        ),
        Column(errors_met, "commits met"),
    )
    caption = "Groups and partitions that each concerned."
    left_out = len(faults) - MAX_FAULTS
    if left_out > 0:
        caption += f" {left_out:,} more faults stand in the tables."
    return text_table(columns, faults[:MAX_FAULTS], caption=caption)


def _with_number_left_out(caption: str, rows: int) -> str:
    """Return a caption that also says how many rows beyond MAX_ROWS the table leaves out."""
    left_out = rows - MAX_ROWS
    return f"{caption} {left_out:,} more stand in the tables." if left_out > 0 else caption
