"""The section of a report about two coordinators, or two owners of a partition, at the same time.

Usually several partitions have two owners at the same time, for a common reason. An old coordinator
had assigned the partitions to some members. Now a new coordinator has assigned the same partitions
to other members, and the first members have not heard of this yet. All such overlaps with a common
reason are called an episode. The section describes each episode by a sentence, by the steps that
led to the episode, and by a table of the partitions.
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
    Side,
    episodes,
    intervals_of_side,
    served_at_once,
    steps,
)
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order
from pipeline.summary.story import coordinators_statement, counted, moment_text

MAX_EPISODES = 6
"""Maximum number of episodes in the section, and also of paragraphs about two coordinators. If
there are more, the section refers to the run's tables.
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
    # If the clocks of two machines differ, it can seem that two owners overlapped. So if even the
    # longest overlap of an episode is shorter than the error of the clocks, the episode is not
    # certain, and is left out.
    clock_error_us = run.summary.clock_error_us
    certain_episodes = [
        episode
        for episode in episodes(run.tables.rows("ownership_overlaps"))
        if episode.longest_us >= clock_error_us
    ]
    seen = []
    if certain_episodes:
        seen.append("two owners")
    if run.summary.coordinators:  # the pairs of coordinators that served a group at the same time
        seen.append("two coordinators")
    if not seen:
        return None
    title = f"{' and '.join(seen)} at once".capitalize()
    parts = (*_owner_parts(run, certain_episodes), *_coordinator_parts(run))
    return Section(id="two-at-once", title=title, lead=_LEAD, parts=parts)


def _owner_parts(run: ReportInput, shown_episodes: Sequence[Episode]) -> Iterator[Part]:
    """Yield a sentence, the steps and a table for each episode with two owners."""
    tables = _tables(run)
    for episode in shown_episodes[:MAX_EPISODES]:
        yield Paragraph(html=render_line("two_at_once", "owners", episode))
        # The text tells whether the two coordinators served at the same time or one after the
        # other.
        served_together = bool(served_at_once(episode, tables))
        why = render_line("two_at_once", "why", episode, steps(episode, tables), served_together)
        yield Paragraph(html=why)
        yield _table_of_partitions(episode, tables)
    left_out = len(shown_episodes) - MAX_EPISODES
    if left_out > 0:
        yield Paragraph(
            html=render_line("two_at_once", "more", left_out, "owners", "ownership_overlaps")
        )


def _tables(run: ReportInput) -> OverlapTables:
    """Return the tables from which the steps towards two owners are derived."""
    ownership: dict[tuple[str, str], list[Row]] = {}
    for row in run.tables.rows("ownership"):
        ownership.setdefault((row["group"], row["partition"]), []).append(row)
    return OverlapTables(
        ownership=ownership,
        rebalances=run.tables.rows("rebalances"),
        tenure_overlaps=run.tables.rows("tenure_overlaps"),
        faults=run.tables.rows("faults"),
        client_phases=run.tables.rows("client_phases"),
        messages=run.tables.rows("messages"),
        settings=Settings(run.facts.settings),
    )


def _table_of_partitions(episode: Episode, tables: OverlapTables) -> TextTable:
    """Return the table of an episode's overlaps, by partition and time."""
    # Partitions are sorted by their numbers: topic-2 comes before topic-10.
    names = in_number_order({row["partition"] for row in episode.rows})
    rank = {name: index for index, name in enumerate(names)}
    rows = sorted(episode.rows, key=lambda row: (rank[row["partition"]], row["from_us"]))
    # All names of members begin with the same text. The table leaves this prefix out, and the
    # caption tells it.
    prefix = common_prefix((*episode.members("first"), *episode.members("second")))
    left_out = len(rows) - MAX_PARTITIONS
    note = f" {counted(left_out, 'more row')}: table ownership_overlaps." if left_out > 0 else ""
    columns = (
        Column("partition", "partition"),
        Column(lambda row: row["first_consumer"].removeprefix(prefix), "first owner"),
        Column(lambda row: row["second_consumer"].removeprefix(prefix), "second owner"),
        Column(_overlap_link, "both owned it"),
        number(lambda row: duration_text(row["length_us"]), "for"),
        number("records_both", "records by both"),
        Column(lambda row: _owned_text(row, tables, "first"), "the first owned it"),
        Column(lambda row: _owned_text(row, tables, "second"), "the second owned it"),
    )
    caption = f"{_CAPTION}{prefix_note(prefix)}{note}"
    return text_table(columns, rows[:MAX_PARTITIONS], caption=caption)


def _overlap_link(row: Row) -> str:
    """Return the time in which both owned the partition, as a link to the ownership lane."""
    return moment_link(row["from_us"], row["to_us"], lane=OWNERSHIP)


def _owned_text(overlap: Row, tables: OverlapTables, side: Side) -> str | None:
    """Return the whole time in which one of the two owners owned the partition, and how it ended.

    For example, `1.000 s to 9.500 s (revoked)`.
    """
    intervals = intervals_of_side(overlap, tables, side)
    if not intervals:
        return None
    # Usually there is one interval. There are two only if one interval ends and the next interval
    # begins at the very moment at which the overlap begins. Then the earlier interval is shown.
    interval = intervals[0]
    end_text = "run end" if interval["to_us"] is None else moment_text(interval["to_us"])
    span = span_together(f"{moment_text(interval['from_us'])} to {end_text}")
    return f"{span} ({interval['ended_by']})"


def _coordinator_parts(run: ReportInput) -> Iterator[Part]:
    """Yield a paragraph for each pair of coordinators that served a group at the same time."""
    for pair in run.summary.coordinators[:MAX_EPISODES]:
        statement = coordinators_statement(pair)
        yield Paragraph(html=render_line("two_at_once", "coordinators", statement, pair))
    left_out = len(run.summary.coordinators) - MAX_EPISODES
    if left_out > 0:
        yield Paragraph(
            html=render_line("two_at_once", "more", left_out, "coordinators", "tenure_overlaps")
        )
