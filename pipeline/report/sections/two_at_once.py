"""The section `two-at-once`: two coordinators of one group, two owners of a partition, and why."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from pipeline.report.charts.chart import Cell, Paragraph, Part, Section, TextTable
from pipeline.report.lanes.labels import common_prefix, prefix_note
from pipeline.report.report_input import ReportInput, Row, Settings
from pipeline.report.sentences.markup import items, linked, moment_link, span_together, unbroken
from pipeline.report.sentences.member_steps import MemberStep
from pipeline.report.sentences.owner_story import (
    Episode,
    Office,
    OverlapTables,
    cause,
    episodes,
    owned_by,
    steps,
)
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed
from pipeline.summary.story import coordinators_statement, counted, moment_text, office_name

MAX_TOLD = 6
"""So many pairs of coordinators, and of sets of owners, are told; the tables have them all."""
MAX_PARTITIONS = 200
"""So many partitions of one pair of sets are listed."""
_LEAD = (
    "Kafka does not promise one coordinator or one owner at every moment: it fences what is "
    "written, by leader epoch and generation. Here is where there were two for a while, and what "
    "made it so."
)


def two_at_once_section(run: ReportInput) -> Section | None:
    """Return the stories of all that was there twice; None: nothing was."""
    found = episodes(run.tables.rows("ownership_overlaps"))
    told = [each for each in found if each.longest_us >= run.summary.clock_error_us]
    if not told and not run.summary.coordinators:
        return None
    parts = [*_owner_parts(run, told), *_coordinator_parts(run)]
    return Section(id="two-at-once", title=_title(run, told), lead=_LEAD, parts=tuple(parts))


def _title(run: ReportInput, told: Sequence[Episode]) -> str:
    both = [
        name
        for name, there in (
            ("two owners", bool(told)),
            ("two coordinators", bool(run.summary.coordinators)),
        )
        if there
    ]
    return f"{' and '.join(both)} at once".capitalize()


def _owner_parts(run: ReportInput, told: Sequence[Episode]) -> Iterator[Part]:
    if not told:
        return
    tables = _tables(run)
    for episode in told[:MAX_TOLD]:
        yield Paragraph(html=_headline(episode))
        yield Paragraph(html=_why(cause(episode, tables), steps(episode, tables)))
        yield _partitions(episode, tables)
    if len(told) > MAX_TOLD:
        more = counted(len(told) - MAX_TOLD, "more pair")
        yield Paragraph(html=Markup("<p>{} of owners: table ownership_overlaps.</p>").format(more))


def _tables(run: ReportInput) -> OverlapTables:
    owned: dict[tuple[str, str], list[Row]] = {}
    for row in run.tables.rows("ownership"):
        owned.setdefault((row["group"], row["partition"]), []).append(row)
    return OverlapTables(
        ownership=owned,
        rebalances=run.tables.rows("rebalances"),
        tenures=run.tables.rows("tenure_overlaps"),
        faults=run.tables.rows("faults"),
        clients=run.tables.rows("client_phases"),
        messages=run.tables.rows("messages"),
        settings=Settings(run.facts.settings),
    )


def _headline(episode: Episode) -> Markup:
    """Say which members owned how many partitions, from when to when."""
    end_us = episode.to_us
    number = counted(len({row["partition"] for row in episode.rows}), "partition")
    until: str | Markup = "the end of the run"
    length = ""
    if end_us is not None:
        length = f": {moment_text(end_us - episode.from_us)}"
    span = moment_link(
        episode.from_us,
        end_us,
        lane="lane-ownership",
        text=f"from {moment_text(episode.from_us)} to "
        f"{until if end_us is None else moment_text(end_us)}",
    )
    records = sum(row["records_both"] for row in episode.rows)
    return Markup(
        "<h3>{} of {} had two owners {}{}</h3><p>First {}, then also {}. In that time both owners "
        "processed {}: not only new ones, also what one of them had still to read.</p>"
    ).format(
        number,
        episode.group,
        span,
        length,
        _side(episode, "first", episode.first),
        _side(episode, "second", episode.second),
        counted(records, "record"),
    )


def _side(episode: Episode, side: str, office: Office) -> Markup:
    generations = episode.generations(side)
    which = "generation" if len(generations) == 1 else "generations"
    broker, epoch = office
    by = "" if broker is None else f" from {office_name(broker, epoch)}"
    return Markup("<b>{}</b> ({} {}{})").format(
        listed(episode.members(side)), which, listed(str(number) for number in generations), by
    )


def _why(because: str, told: Sequence[MemberStep]) -> Markup:
    lines = Markup("").join(
        Markup("<li>{} {}</li>").format(
            moment_link(step.time_us, lane=step.lane), unbroken(step.text)
        )
        for step in told
    )
    return Markup("<p><b>Why.</b> {}</p><ol>{}</ol>").format(because, lines)


def _partitions(episode: Episode, tables: OverlapTables) -> TextTable:
    order = {name: at for at, name in enumerate(in_number_order(_names(episode)))}
    rows = sorted(episode.rows, key=lambda row: (order[row["partition"]], row["from_us"]))
    prefix = common_prefix((*episode.members("first"), *episode.members("second")))
    listed_rows = tuple(_partition_row(row, tables, prefix) for row in rows[:MAX_PARTITIONS])
    more = len(rows) - len(listed_rows)
    return TextTable(
        headings=(
            "partition",
            "first owner",
            "second owner",
            "both owned it",
            "for",
            "records by both",
            "the first owned it",
            "the second owned it",
        ),
        rows=listed_rows,
        caption="Who owned which partition twice, and when. Records by both: distinct records that "
        "both owners processed within that time; what the first processed before it is not "
        f"counted.{prefix_note(prefix)}"
        + (f" {counted(more, 'more row')}: table ownership_overlaps." if more else ""),
        numeric=("for", "records by both"),
    )


def _names(episode: Episode) -> set[str]:
    return {row["partition"] for row in episode.rows}


def _partition_row(row: Row, tables: OverlapTables, prefix: str) -> tuple[Cell, ...]:
    return (
        row["partition"],
        row["first_consumer"].removeprefix(prefix),
        row["second_consumer"].removeprefix(prefix),
        moment_link(row["from_us"], row["to_us"], lane="lane-ownership"),
        duration_text(row["length_us"]),
        row["records_both"],
        _owned_text(row, tables, "first"),
        _owned_text(row, tables, "second"),
    )


def _owned_text(row: Row, tables: OverlapTables, side: str) -> str | None:
    owned = owned_by(row, tables, side)
    if not owned:
        return None
    end_us = owned[0]["to_us"]
    until = "run end" if end_us is None else moment_text(end_us)
    owned_span = span_together(f"{moment_text(owned[0]['from_us'])} to {until}")
    return f"{owned_span} ({owned[0]['ended_by']})"


def _coordinator_parts(run: ReportInput) -> Iterator[Part]:
    for both in run.summary.coordinators[:MAX_TOLD]:
        told = coordinators_statement(both)
        yield Paragraph(
            html=Markup("<h3>{}</h3>{}").format(
                linked(
                    f"{told.headline[0].upper()}{told.headline[1:]}",
                    both.from_us,
                    both.to_us,
                    lane="lane-coordinators",
                ),
                items(told.particulars),
            )
        )
    if (more := len(run.summary.coordinators) - MAX_TOLD) > 0:
        text = f"{counted(more, 'more pair')} of coordinators: table tenure_overlaps."
        yield Paragraph(html=Markup("<p>{}</p>").format(text))
