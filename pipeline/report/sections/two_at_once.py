"""The section of a report about two coordinators, or two owners of a partition, at the same time.

If one partition has two owners, others mostly have so too, for the same reason: an old coordinator
had assigned them to some members, and a new coordinator assigned them to others, while the first
members had not heard of it yet. All the overlaps with one reason are called an episode. The section
describes each episode with a sentence, the steps that led to it, and a table of the partitions.
"""

from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import Paragraph, Part, Section, TextTable
from pipeline.report.columns import Column, number, text_table
from pipeline.report.lanes.labels import common_prefix, prefix_note
from pipeline.report.rendering import OWNERSHIP, moment_link, render_line, span_together
from pipeline.report.report_input import ReportInput, Row, Settings
from pipeline.report.sentences.owner_story import (
    Episode,
    OverlapTables,
    episodes,
    owned_by,
    served_at_once,
    steps,
)
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order
from pipeline.summary.story import coordinators_statement, counted, moment_text

MAX_EPISODES = 6
"""Maximum number of episodes with two owners in the section. It is also the maximum number of pairs
of coordinators that served a group at once. The run's tables have all of them.
"""
MAX_PARTITIONS = 200
"""Maximum number of rows in the table of one episode."""
_LEAD = (
    "Kafka does not promise one coordinator or one owner at every moment: it fences what is "
    "written, by leader epoch and generation. This section says when there were two, and "
    "why."
)
_CAPTION = (
    "Who owned which partition twice, and when. Records by both: distinct records that both owners "
    "processed within that time; what the first processed before it is not counted."
)


def two_at_once_section(run: ReportInput) -> Section | None:
    """Return the section; None if there were never two owners or two coordinators at once."""
    # If all overlaps of an episode are shorter than the clocks' error, the clocks alone can have
    # caused them, and the episode does not count.
    clock_error_us = run.summary.clock_error_us
    certain = [
        episode
        for episode in episodes(run.tables.rows("ownership_overlaps"))
        if episode.longest_us >= clock_error_us
    ]
    seen = []
    if certain:
        seen.append("two owners")
    if run.summary.coordinators:
        seen.append("two coordinators")
    if not seen:
        return None
    title = " and ".join(seen)
    parts = [*_owner_parts(run, certain), *_coordinator_parts(run)]
    return Section(
        id="two-at-once", title=f"{title} at once".capitalize(), lead=_LEAD, parts=tuple(parts)
    )


def _owner_parts(run: ReportInput, certain: Sequence[Episode]) -> Iterator[Part]:
    """Yield a sentence, the reasons and a table for each episode with two owners."""
    tables = _tables(run)
    for episode in certain[:MAX_EPISODES]:
        served_together = bool(served_at_once(episode, tables))
        yield Paragraph(html=render_line("two_at_once", "owners", episode))
        yield Paragraph(
            html=render_line("two_at_once", "why", episode, steps(episode, tables), served_together)
        )
        yield _partitions(episode, tables)
    if (more := len(certain) - MAX_EPISODES) > 0:
        yield Paragraph(
            html=render_line("two_at_once", "more", more, "owners", "ownership_overlaps")
        )


def _tables(run: ReportInput) -> OverlapTables:
    """Return the tables from which the steps towards two owners are derived."""
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


def _partitions(episode: Episode, tables: OverlapTables) -> TextTable:
    """Return the table of an episode's overlaps, by partition and time."""
    # Partitions are sorted by their numbers: topic-2 comes before topic-10.
    names = in_number_order({row["partition"] for row in episode.rows})
    order = {name: index for index, name in enumerate(names)}
    rows = sorted(episode.rows, key=lambda row: (order[row["partition"]], row["from_us"]))
    # The names in the table lack the beginning that all of them share. A note in the caption has
    # it.
    prefix = common_prefix((*episode.members("first"), *episode.members("second")))
    more = len(rows) - MAX_PARTITIONS
    more_text = f" {counted(more, 'more row')}: table ownership_overlaps." if more > 0 else ""
    columns = (
        Column("partition", "partition"),
        Column(lambda row: row["first_consumer"].removeprefix(prefix), "first owner"),
        Column(lambda row: row["second_consumer"].removeprefix(prefix), "second owner"),
        Column(_both, "both owned it"),
        number(lambda row: duration_text(row["length_us"]), "for"),
        number("records_both", "records by both"),
        Column(lambda row: _owned_text(row, tables, "first"), "the first owned it"),
        Column(lambda row: _owned_text(row, tables, "second"), "the second owned it"),
    )
    caption = f"{_CAPTION}{prefix_note(prefix)}{more_text}"
    return text_table(columns, rows[:MAX_PARTITIONS], caption=caption)


def _both(row: Row) -> str:
    """Return the time in which both owned the partition, as a link to the ownership lane."""
    return moment_link(row["from_us"], row["to_us"], lane=OWNERSHIP)


def _owned_text(row: Row, tables: OverlapTables, side: str) -> str | None:
    """Return the whole time in which an owner of an overlap owned the partition, and how it ended.

    For example, `1.000 s to 9.500 s (revoked)`. `side` is `first` or `second`.
    """
    owned = owned_by(row, tables, side)
    if not owned:
        return None
    end_us = owned[0]["to_us"]
    until = "run end" if end_us is None else moment_text(end_us)
    owned_span = span_together(f"{moment_text(owned[0]['from_us'])} to {until}")
    return f"{owned_span} ({owned[0]['ended_by']})"


def _coordinator_parts(run: ReportInput) -> Iterator[Part]:
    """Yield a paragraph for each pair of coordinators that served a group at the same time."""
    for pair in run.summary.coordinators[:MAX_EPISODES]:
        statement = coordinators_statement(pair)
        yield Paragraph(html=render_line("two_at_once", "coordinators", statement, pair))
    if (more := len(run.summary.coordinators) - MAX_EPISODES) > 0:
        yield Paragraph(
            html=render_line("two_at_once", "more", more, "coordinators", "tenure_overlaps")
        )
