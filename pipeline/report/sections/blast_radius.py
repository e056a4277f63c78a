"""The section "Blast radius": which nodes, groups and partitions each fault concerned.

For each fault of a short run, the section has a sentence on what the fault hit, a table of the
groups with what their members went through, a table of the partitions, and the errors that commits
met after the fault. A run with many faults has one table, with a row for each fault.
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
"""Up to this number of faults, each has tables of its own. If there are more, one table has a row
for each fault."""
MAX_FAULTS = 300
"""Maximum number of faults in this table."""
MAX_ROWS = 100
"""Maximum number of groups, and of partitions, that are listed for one fault. The run's tables have
all of them.
"""
ACKNOWLEDGED = "NONE"
"""The `error` of a successful commit in the table `commits`."""
KEPT = "kept id and generation"
"""Heading of the column that says how many members of a group kept their member id and their
generation.
"""
GROUPS = "groups in it"
"""Heading of the column with the groups whose offsets are in an offsets partition."""
MARKED_UNKNOWN = "coordinator unknown"
"""Heading of the column with the number of members that marked their coordinator unknown after the
fault.
"""
_LEAD = (
    "Of a broker, the groups that it coordinated and the partitions that it led; "
    "of a member, its group and what it owned; of a leadership, its partition and the groups in it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius:
    """What one fault hit, and the groups and partitions that it concerned.

    `errors` is a sentence on the errors of commits after the fault. It is None if the fault
    concerned no member and no commit met an error.
    """

    fault: FaultSummary
    hit: str
    groups: tuple[str, ...]
    partitions: tuple[str, ...]
    errors: str | None


def blast_radius_section(run: ReportInput) -> Section | None:
    """Return the section; None if no fault hit anything."""
    faults = list(rows_of_faults(run))
    if not faults:
        return None
    commits = run.tables.rows("commits")
    errors = _errors_after(commits)
    parts: list[Part] = []
    if len(faults) > MAX_IN_FULL:
        # For each fault, its row in the table `faults`.
        fault_rows = {row["fault"]: row for row in run.tables.rows("faults")}
        parts.append(_table_of_all_faults(faults, fault_rows, errors))
    else:
        for rows in faults:
            met_errors = errors.get(rows.fault.fault, ())
            radius = _radius(run, rows, met_errors, committed=bool(commits))
            parts += _fault_parts(rows, radius, met_errors)
    return Section(
        id="blast-radius", title="Blast radius: whom it concerned", lead=_LEAD, parts=tuple(parts)
    )


def _radius(
    run: ReportInput, rows: FaultRows, errors: Sequence[CommitErrors], *, committed: bool
) -> Radius:
    """Return what a fault hit, whom it concerned, and the errors that commits met after it.

    `errors` are the errors of commits after this fault. `committed` is True if the run has any
    commit, successful or not.
    """
    fault_id = rows.fault.fault
    # The journal of the run has an entry for each fault, and the table `faults` has a row.
    journal_entry = next((entry for entry in run.facts.faults if entry.fault_id == fault_id), None)
    fault_row = next((row for row in run.tables.rows("faults") if row["fault"] == fault_id), {})
    if errors:
        errors_sentence: str | None = errors_text(errors)
    elif rows.client:
        errors_sentence = (
            "no commit met an error" if committed else "no member committed in this run"
        )
    else:
        errors_sentence = None
    return Radius(
        fault=rows.fault,
        # Without a journal, the table tells which nodes were hit.
        hit=(
            journal_entry.hit if journal_entry is not None else listed(fault_row.get("nodes") or ())
        ),
        groups=in_number_order(fault_row.get("groups") or ()),
        partitions=tuple(fault_row.get("partitions") or ()),
        errors=errors_sentence,
    )


def _fault_parts(rows: FaultRows, radius: Radius, errors: Sequence[CommitErrors]) -> Iterator[Part]:
    """Yield the parts of one fault: groups, offsets partitions and errors of commits."""
    yield Paragraph(html=render_line("words", "fault_heading", rows.fault))
    yield Paragraph(html=render_line("blast_radius", "concerned", radius))
    if rows.client:
        yield _groups_table(rows)
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
    members: dict[str, list[Row]] = {}
    for row in rows.client:
        members.setdefault(row["group"], []).append(row)
    # For each group whose coordinator moved, the row about its offsets partition: the leader of
    # this partition is the group's coordinator.
    moved = {group: row for row in rows.broker for group in row["groups"] or ()}
    gaps = _gaps(rows, "member", "group")

    def of_members(group: str, count: int) -> str:
        """Return a number of the group's members as text, such as `3 of 5`."""
        return f"{count:,} of {len(members[group]):,}"

    def causes(group: str) -> str:
        """Return how the members noticed, the most frequent way first: `NOT_COORDINATOR 3`."""
        counts = Counter(row["noticed_by"] for row in members[group] if row["noticed_by"])
        return ", ".join(f"{cause} {count:,}" for cause, count in counts.most_common())

    # The rows of this table are the names of groups, from which each column computes its cell.
    columns = (
        Column(str, "group"),
        Column(lambda group: _leaders(moved[group]) if group in moved else "stayed", "coordinator"),
        number(lambda group: len(members[group]), "members"),
        number(
            lambda group: sum(row["unknown_us"] is not None for row in members[group]),
            MARKED_UNKNOWN,
        ),
        Column(causes, "noticed by"),
        Column(lambda group: of_members(group, sum(map(_kept, members[group]))), KEPT),
        Column(
            lambda group: of_members(
                group, sum(row["join_us"] is not None for row in members[group])
            ),
            "joined again",
        ),
        number(lambda group: _longest(gaps.get(group, [])), "longest commit gap"),
    )
    shown = in_number_order(members)
    caption = _with_number_left_out("Groups that it concerned, and how they noticed.", len(shown))
    return text_table(columns, shown[:MAX_ROWS], caption=caption)


def _kept(row: Row) -> bool:
    """Return whether a member had the same id and generation before and after the fault."""
    same_id: bool = row["member_id"] == row["member_id_after"]
    return same_id and row["generation"] == row["generation_after"]


def _leaders(moved: Row) -> str:
    """Return how the leadership of a partition moved, such as `broker-0 to broker-2`."""
    return f"{moved['old_leader'] or 'no leader'} to {moved['new_leader']}"


def _gaps(rows: FaultRows, kind: str, column: str) -> dict[str, list[int | None]]:
    """Return the gaps of the subjects of one kind, grouped by the values of `column`.

    With the kind `member` and the column `group`, for example, these are the gaps of all members
    of each group: {"billing": [1_200_000, None]}. A gap is None if it lasted until the run ended.
    """
    gaps: dict[str, list[int | None]] = {}
    for row in rows.gap:
        if row["subject_kind"] == kind:
            gaps.setdefault(row[column], []).append(row["gap_us"])
    return gaps


def _longest(gaps: Sequence[int | None]) -> str | None:
    """Return the longest gap as text; `never again` if one of the gaps did not end."""
    ended = [gap for gap in gaps if gap is not None]
    if len(ended) < len(gaps):
        return "never again"
    return duration_text(max(ended)) if ended else None


def _partitions_table(
    rows: FaultRows, moved: Mapping[str, Row], partitions: Sequence[str]
) -> TextTable:
    """Return a table of the partitions that a fault concerned.

    `moved` has the row of `broker_phases` for each offsets partition that moved. The rows of other
    partitions have only two filled cells: name and gap.
    """
    gaps = _gaps(rows, "partition", "subject")

    def groups_of(row: Row) -> str | None:
        return (listed(row["groups"] or ()) or "none") if row["partition"] in moved else None

    def leaders_of(row: Row) -> str | None:
        return _leaders(row) if row["partition"] in moved else None

    columns = (
        Column("partition", "partition"),
        Column(groups_of, GROUPS),
        Column(leaders_of, "leader"),
        number(lambda row: row.get("leader_epoch"), "leader epoch"),
        number(lambda row: row.get("records"), "records loaded"),
        number(lambda row: _longest(gaps.get(row["partition"], [])), "processing gap"),
    )
    shown = in_number_order({*partitions, *moved})
    return text_table(
        columns,
        # A partition that did not move has a row with its name only.
        [moved.get(name, {"partition": name}) for name in shown[:MAX_ROWS]],
        caption=_with_number_left_out(
            "Of offsets partitions that moved: who leads them now, and what the new coordinator "
            "loaded.",
            len(shown),
        ),
        folded=f"{counted(len(shown), 'partition')}, one by one",
    )


def _errors_after(commits: Sequence[Row]) -> dict[str, list[CommitErrors]]:
    """Return the errors that commits met after each fault, the most frequent first."""
    numbers: dict[str, Counter[str]] = {}  # by fault: the number of commits with each error
    # By fault and error: the group and node of each member that met the error.
    members: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in commits:
        if row["fault"] is None or row["error"] == ACKNOWLEDGED:
            continue
        numbers.setdefault(row["fault"], Counter())[row["error"]] += row["commits"]
        members.setdefault((row["fault"], row["error"]), set()).add((row["group"], row["consumer"]))
    return {
        fault: [
            CommitErrors(error=error, commits=count, members=len(members[fault, error]))
            for error, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        for fault, counts in numbers.items()
    }


def _table_of_all_faults(
    faults: Sequence[FaultRows],
    fault_rows: Mapping[str, Row],
    errors: Mapping[str, Sequence[CommitErrors]],
) -> TextTable:
    """Return the table with one row for each fault, for a run with many faults."""

    def names(rows: FaultRows, column: str) -> Sequence[str]:
        cell: Sequence[str] = fault_rows.get(rows.fault.fault, {}).get(column) or ()
        return cell

    def errors_met(rows: FaultRows) -> str:
        outcomes = errors.get(rows.fault.fault, ())
        return ", ".join(f"{outcome.error} {outcome.commits:,}" for outcome in outcomes)

    columns = (
        Column(lambda rows: rows.fault.fault, "fault"),
        Column(lambda rows: rows.fault.node, "hit"),
        Column(lambda rows: listed(names(rows, "groups")) or None, "groups"),
        number(lambda rows: len(names(rows, "partitions")), "partitions"),
        number(lambda rows: rows.fault.members, "members"),
        number(
            lambda rows: sum(row["unknown_us"] is not None for row in rows.client), MARKED_UNKNOWN
        ),
        Column(errors_met, "commits met"),
    )
    more = len(faults) - MAX_FAULTS
    more_text = f" {more:,} more faults stand in the tables." if more > 0 else ""
    caption = f"Groups and partitions that each concerned.{more_text}"
    return text_table(columns, faults[:MAX_FAULTS], caption=caption)


def _with_number_left_out(caption: str, rows: int) -> str:
    """Return `caption`, and the number of rows beyond MAX_ROWS if there are any."""
    more = rows - MAX_ROWS
    return f"{caption} {more:,} more stand in the tables." if more > 0 else caption
