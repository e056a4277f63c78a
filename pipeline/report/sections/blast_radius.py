"""The section `blast-radius`: what each fault hit, who lived there, and how they noticed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.charts.fault_strips import FaultRows, rows_of_faults
from pipeline.report.report_input import ReportInput, Row
from pipeline.report.sentences.markup import fault_heading, items, paragraphs
from pipeline.summary.figures import FaultSummary, duration_text
from pipeline.summary.outcomes import CommitErrors, in_number_order, listed
from pipeline.summary.story import counted, errors_text
from results_schema.journal import JournalEntry

MAX_IN_FULL = 6
"""Up to so many faults have tables of their own, more of them a line each."""
MAX_LINES = 300
MAX_ROWS = 100
"""So many groups, or partitions, of one fault are listed; the tables have them all."""
ACKNOWLEDGED = "NONE"
_LEAD = (
    "Of a broker, the groups that it coordinated and the partitions that it led; "
    "of a member, its group and what it owned; of a leadership, its partition and the groups in it."
)


def blast_radius_section(run: ReportInput) -> Section | None:
    """Return whom each fault concerned; None: no fault hit anybody."""
    faults = list(rows_of_faults(run))
    if not faults:
        return None
    facts = {fact.fault_id: fact for fact in run.facts.faults}
    journal = {row["fault"]: row for row in run.tables.rows("faults")}
    commits = run.tables.rows("commits")
    errors = _errors_after(commits)
    parts: list[Part] = []
    if len(faults) > MAX_IN_FULL:
        parts.append(_lines(faults, journal, errors))
    else:
        for rows in faults:
            name = rows.fault.fault
            parts += _fault(
                rows,
                facts.get(name),
                journal.get(name, {}),
                errors.get(name, ()),
                committed=bool(commits),
            )
    return Section(
        id="blast-radius", title="Blast radius: whom it concerned", lead=_LEAD, parts=tuple(parts)
    )


def _fault(
    rows: FaultRows,
    fact: JournalEntry | None,
    journal: Row,
    errors: Sequence[CommitErrors],
    *,
    committed: bool,
) -> Iterator[Part]:
    fault = rows.fault
    groups, partitions = journal.get("groups") or (), journal.get("partitions") or ()
    yield Paragraph(html=fault_heading(fault))
    yield Paragraph(
        html=paragraphs(
            [
                _hit_text(fault, fact, journal),
                f"It concerned {_groups_text(groups)} and {counted(len(partitions), 'partition')}."
                if groups or partitions
                else None,
            ]
        )
    )
    if rows.client:
        yield _groups_table(rows)
    moved = {row["partition"]: row for row in rows.broker}
    if partitions or moved:
        yield _partitions_table(rows, partitions)
    said = items(
        [
            errors_text(errors) if errors else _no_errors(rows, committed),
        ]
    )
    if said:
        yield Paragraph(html=said)
    if errors:
        yield _errors_table(errors)


def _groups_text(groups: Sequence[str]) -> str:
    if not groups:
        return "no group"
    number = "the group" if len(groups) == 1 else f"{len(groups):,} groups,"
    return f"{number} {listed(in_number_order(groups))}"


def _hit_text(fault: FaultSummary, fact: JournalEntry | None, journal: Row) -> str:
    hit = fact.hit if fact is not None else listed(journal.get("nodes") or ())
    target = f" The plan said {fault.target}." if fault.target and fault.target != hit else ""
    return f"Hit: {hit or fault.node or 'nobody'}.{target}"


def _no_errors(rows: FaultRows, committed: bool) -> str | None:
    if not rows.client:
        return None
    return "no commit met an error" if committed else "nobody committed anything in this run"


def _groups_table(rows: FaultRows) -> TextTable:
    members: dict[str, list[Row]] = {}
    for row in rows.client:
        members.setdefault(row["group"], []).append(row)
    moved = {group: row for row in rows.broker for group in row["groups"] or ()}
    gaps: dict[str, list[int | None]] = {}
    for row in rows.gap:
        if row["subject_kind"] == "member":
            gaps.setdefault(row["group"], []).append(row["gap_us"])
    shown = in_number_order(members)
    return TextTable(
        headings=(
            "group",
            "coordinator",
            "members",
            "gave it up",
            "noticed by",
            "kept id and generation",
            "joined again",
            "longest commit gap",
        ),
        rows=tuple(
            _group_cells(group, members[group], moved.get(group), gaps.get(group, []))
            for group in shown[:MAX_ROWS]
        ),
        caption=_more("Groups that it concerned, and how they noticed.", len(shown)),
        numeric=("members", "gave it up", "longest commit gap"),
    )


def _group_cells(
    group: str, members: Sequence[Row], moved: Row | None, gaps: Sequence[int | None]
) -> tuple[Cell, ...]:
    kept = [
        row
        for row in members
        if row["member_id"] == row["member_id_after"]
        and row["generation"] == row["generation_after"]
    ]
    causes = Counter(row["noticed_by"] for row in members if row["noticed_by"] is not None)
    coordinator = "stayed"
    if moved is not None:
        coordinator = f"{moved['old_leader'] or 'nobody'} to {moved['new_leader']}"
    return (
        group,
        coordinator,
        len(members),
        sum(row["unknown_us"] is not None for row in members),
        ", ".join(f"{cause} {count:,}" for cause, count in causes.most_common()),
        f"{len(kept):,} of {len(members):,}",
        f"{sum(row['join_us'] is not None for row in members):,} of {len(members):,}",
        _longest(gaps),
    )


def _longest(gaps: Sequence[int | None]) -> str | None:
    known = [gap for gap in gaps if gap is not None]
    if len(known) < len(gaps):
        return "never again"
    return duration_text(max(known)) if known else None


def _partitions_table(rows: FaultRows, partitions: Sequence[str]) -> TextTable:
    moved = {row["partition"]: row for row in rows.broker}
    gaps: dict[str, list[int | None]] = {}
    for row in rows.gap:
        if row["subject_kind"] == "partition":
            gaps.setdefault(row["subject"], []).append(row["gap_us"])
    shown = in_number_order({*partitions, *moved})
    return TextTable(
        headings=(
            "partition",
            "groups in it",
            "leader",
            "leader epoch",
            "records loaded",
            "nobody read it for",
        ),
        rows=tuple(
            _partition_cells(name, moved.get(name), gaps.get(name, [])) for name in shown[:MAX_ROWS]
        ),
        caption=_more(
            "Of offsets partitions that moved: who leads them now, and what the new coordinator "
            "loaded.",
            len(shown),
        ),
        numeric=("leader epoch", "records loaded", "nobody read it for"),
        folded=f"{counted(len(shown), 'partition')}, one by one",
    )


def _partition_cells(name: str, moved: Row | None, gaps: Sequence[int | None]) -> tuple[Cell, ...]:
    if moved is None:
        return (name, None, None, None, None, _longest(gaps))
    return (
        name,
        listed(moved["groups"]) if moved["groups"] else "none",
        f"{moved['old_leader'] or 'nobody'} to {moved['new_leader']}",
        moved["leader_epoch"],
        moved["records"],
        _longest(gaps),
    )


def _errors_after(commits: Sequence[Row]) -> dict[str, list[CommitErrors]]:
    """Return what commits met after each fault, the most frequent first."""
    numbers: dict[str, Counter[str]] = {}
    members: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in commits:
        if row["fault"] is None or row["error"] == ACKNOWLEDGED:
            continue
        numbers.setdefault(row["fault"], Counter())[row["error"]] += row["commits"]
        members.setdefault((row["fault"], row["error"]), set()).add((row["group"], row["consumer"]))
    return {
        fault: [
            CommitErrors(error=error, commits=count, members=len(members[fault, error]))
            for error, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        ]
        for fault, counts in numbers.items()
    }


def _errors_table(errors: Sequence[CommitErrors]) -> TextTable:
    return TextTable(
        headings=("commits met", "commits", "members"),
        rows=tuple((each.error, each.commits, each.members) for each in errors),
        caption="By the name that the member was given. DISCONNECTED, TIMED_OUT: no answer came.",
        numeric=("commits", "members"),
        folded="Errors that commits met, by name",
    )


def _lines(
    faults: Sequence[FaultRows],
    journal: Mapping[str, Row],
    errors: Mapping[str, Sequence[CommitErrors]],
) -> TextTable:
    """Return a table of many faults, a line each."""
    more = len(faults) - MAX_LINES
    return TextTable(
        headings=("fault", "hit", "groups", "partitions", "members", "gave it up", "commits met"),
        rows=tuple(
            (
                rows.fault.fault,
                rows.fault.node,
                listed(journal.get(rows.fault.fault, {}).get("groups") or ()) or None,
                len(journal.get(rows.fault.fault, {}).get("partitions") or ()),
                rows.fault.members,
                sum(row["unknown_us"] is not None for row in rows.client),
                ", ".join(
                    f"{each.error} {each.commits:,}" for each in errors.get(rows.fault.fault, ())
                ),
            )
            for rows in faults[:MAX_LINES]
        ),
        caption="Groups and partitions that each concerned."
        + (f" {more:,} more faults stand in the tables." if more > 0 else ""),
        numeric=("partitions", "members", "gave it up"),
    )


def _more(caption: str, number: int) -> str:
    more = number - MAX_ROWS
    return f"{caption} {more:,} more stand in the tables." if more > 0 else caption
