"""The report's section "Phases", which shows for each fault where the time without service went.

The time without service is divided into phases, once for the brokers and once for the members. Each
of the two sequences of phases is called a chain:

- broker chain: detect, publish, load wait, load
- client chain: notice, rediscover, accept, join, sync

For example, after a crash most of the time may go by in `detect`, until the controller notices
that the broker is gone. A chart shows a chain: it has a strip (a line with dots) for each phase.
Below the chart, a table has the same figures as the summary on the terminal.

The tests give the lengths of the phases in the order of the chain. For example, `broker_phase(7 *
S, 30 * MS)` has a `detect` of 7 s and a `publish` of 30 ms, and the other phases did not come. S is
one second in microseconds.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from pipeline.report.charts.chain_order import order_rows
from pipeline.report.charts.chart import Beside, Chart, Paragraph, Part, Section
from pipeline.report.charts.fault_strips import FaultRows
from pipeline.report.facts import SettingFact
from pipeline.report.report_input import Settings
from pipeline.report.sections.phases import MAX_IN_FULL, figures_table, phases_section
from pipeline.report.sentences.chain_words import broker_sentence, client_sentence, gap_sentence
from pipeline.summary.figures import HEADER, FaultSummary
from tests.support.builders.report_inputs import report_input, run_facts, run_summary
from tests.support.builders.report_rows import (
    Row,
    S,
    broker_phase,
    client_phase,
    fault_summary,
    gap,
)

MS = 1_000
"""Microseconds in a millisecond."""
BROKER_LENGTHS = (7_790 * MS, 30 * MS, 0, 5 * MS)
"""The lengths of detect, publish, load wait and load."""
CLIENT_LENGTHS = (200, 7_820 * MS, 98 * MS)
"""The lengths of notice, rediscover and accept. This member did not have to join again."""
SETTINGS = Settings(
    [
        SettingFact(section="cluster.config", name="broker.session.timeout.ms", value="9000"),
        SettingFact(section="groups.readers.config", name="session.timeout.ms", value="45000"),
    ]
)


def tables_of_crash(fault: str = "crash-0") -> dict[str, list[Row]]:
    """Return the tables of a crash that moved one offsets partition, in a group of twelve members.

    c-0 finds the new coordinator first, c-1 finds it 1 ms later, c-2 another 1 ms later, and so on.
    """
    members = [f"c-{number}" for number in range(12)]
    return {
        "broker_phases": [broker_phase(*BROKER_LENGTHS, fault=fault)],
        "client_phases": [
            client_phase(member, 200, (7_800 + number) * MS, 98 * MS, fault=fault)
            for number, member in enumerate(members)
        ],
        "availability": [
            gap("member", member, gap_us=8_050 * MS, fault=fault) for member in members
        ],
    }


def tables_of_crashes(names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the tables of a run with these crashes. Each has all rows of `tables_of_crash`."""
    rows: dict[str, list[Row]] = {}
    for name in names:
        for table, rows_of_crash in tables_of_crash(name).items():
            rows.setdefault(table, []).extend(rows_of_crash)
    return rows


def section_of(*faults: FaultSummary, rows: dict[str, list[Row]]) -> Section:
    """Return the section of a run with these faults; `rows` are its tables, by name."""
    section = phases_section(report_input(run_facts(), run_summary(faults=faults), rows))
    assert section is not None
    return section


def charts(parts: Sequence[Part]) -> dict[str, Chart]:
    """Return all charts by their ids, including those that stand side by side."""
    by_id: dict[str, Chart] = {}
    for part in parts:
        inner = part.parts if isinstance(part, Beside) else (part,)
        by_id |= {chart.id: chart for chart in inner if isinstance(chart, Chart)}
    return by_id


def with_plain_spaces(text: str) -> str:
    """Return the text with a plain space between a number and its unit."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def plain_text(parts: Sequence[Part]) -> str:
    """Return the section's paragraphs as plain text."""
    text = " ".join(part.html for part in parts if isinstance(part, Paragraph))
    return with_plain_spaces(re.sub(r"<[^>]+>", "", text))


def test_run_without_faults_has_no_section() -> None:
    """Phases belong to faults. So a run without faults has no phases to show."""
    assert phases_section(report_input()) is None


def test_chains_are_side_by_side_and_never_added_up() -> None:
    """The two chains overlap in time. So they are two charts on one scale, without a common sum."""
    rows = tables_of_crash()
    section = section_of(fault_summary(rows), rows=rows)
    (pair,) = [part for part in section.parts if isinstance(part, Beside)]
    assert [part.id for part in pair.parts if isinstance(part, Chart)] == [
        "phases-crash-0-broker",
        "phases-crash-0-client",
    ]
    assert "never added up" in section.lead


def test_sentences_name_the_longest_phase_and_its_setting() -> None:
    """The sentence names the Kafka setting that decides the phase's length.

    Operators know settings better than phases. The whole chain takes 7.79 s + 30 ms + 0 + 5 ms =
    7.83 s.
    """
    text = with_plain_spaces(
        broker_sentence(fault_summary(), [broker_phase(*BROKER_LENGTHS)], SETTINGS)
    )
    assert text == (
        "Of the 7.83 s until broker-0 in leader epoch 1 was the active coordinator of "
        "__consumer_offsets-2 (readers), 7.79 s went by until the controller noticed that broker-2 "
        "was gone (detect; broker.session.timeout.ms = 9000; counted from the last BrokerHeartbeat "
        "before the fault)."
    )


def test_orderly_shutdown_names_no_session_timeout() -> None:
    """In an orderly shutdown, the broker asks the controller. So no session has to expire."""
    fault = fault_summary(kind="controlled_shutdown")
    text = with_plain_spaces(
        broker_sentence(fault, [broker_phase(60 * MS, 30 * MS, 0, 6 * MS)], SETTINGS)
    )
    assert "as broker-2 itself asked (detect), and 30 ms until broker-0 had learned" in text
    assert "session.timeout" not in text


def test_long_load_names_the_number_of_records_read() -> None:
    """A load is long if the log has many old records. An operator can remove this cause."""
    row = broker_phase(200 * MS, 30 * MS, 0, 9 * S, records=2_000_000)
    text = with_plain_spaces(
        broker_sentence(fault_summary(kind="controlled_shutdown"), [row], SETTINGS)
    )
    assert "9.00 s went by while broker-0 read 2,000,000 records from its log (load)." in text


def test_sentence_of_a_broker_is_about_a_partition_that_has_groups() -> None:
    """Offsets partitions without groups move, too. But no group waits for such a partition."""
    without_groups = [
        broker_phase(1 * S, 1, 1, 1, partition=f"__consumer_offsets-{index}", groups=[])
        for index in range(3)
    ]
    rows = [*without_groups, broker_phase(*BROKER_LENGTHS)]
    text = with_plain_spaces(broker_sentence(fault_summary(), rows, SETTINGS))
    assert "__consumer_offsets-2 (readers)" in text


def test_partition_without_a_new_coordinator_is_named() -> None:
    """If the run ended before a partition had a new coordinator, the time until then is not known.

    So the sentence says that the partition had none.
    """
    waiting = broker_phase(7 * S, 30 * MS)
    assert "before the run ended" in with_plain_spaces(
        broker_sentence(fault_summary(), [waiting], SETTINGS)
    )
    both = [waiting, broker_phase(*BROKER_LENGTHS, partition="__consumer_offsets-5")]
    assert "1 partition had none" in with_plain_spaces(
        broker_sentence(fault_summary(), both, SETTINGS)
    )
    # Without any row, no partition moved.
    assert "stayed where they were" in with_plain_spaces(
        broker_sentence(fault_summary(), [], SETTINGS)
    )


def test_sentence_of_the_clients_is_about_the_median_member() -> None:
    """The phases of one member add up to the member's total. Medians of each phase would not.

    c-2 is the median of the three members: 200 us + 2 s + 98 ms = 2.10 s.
    """
    rows = [client_phase(f"c-{n}", 200, n * S, 98 * MS) for n in range(1, 4)]
    assert with_plain_spaces(client_sentence(rows)) == (
        "Of the 2.10 s until c-2, the median member of 3, was served by the new "
        "coordinator, 2.00 s went by while it looked for the new one (rediscover; 49 "
        "FindCoordinator answers, 48 of them naming another broker)."
    )


def test_members_that_stayed_or_never_arrived_are_counted() -> None:
    """A member without a whole chain has no length. So the sentence counts such members."""
    rows = [
        client_phase("c-0", *CLIENT_LENGTHS),
        client_phase("c-1", 200, 7 * S, None),
        client_phase("c-2", None, None, None),
    ]
    text = with_plain_spaces(client_sentence(rows))
    assert "1 member was not served again before the run ended." in text
    assert "1 member never marked the coordinator unknown." in text
    # These two members did not notice the fault, so neither of them has a length.
    none_needed = with_plain_spaces(client_sentence([client_phase("c-0"), client_phase("c-1")]))
    assert none_needed == "None of 2 members had to look for a coordinator."


def test_sentence_of_the_gap_names_members_that_never_recovered() -> None:
    """A member that never recovered has no length. So a distribution cannot contain it."""
    never_recovered = gap("member", "c-1", gap_us=None)
    gaps = [gap("member", "c-0", gap_us=8 * S), never_recovered]
    sentence = gap_sentence(fault_summary({"availability": gaps}, members=2), gaps)
    assert sentence is not None
    text = with_plain_spaces(sentence)
    assert "the worst for 8.00 s" in text
    assert "c-1 had no service again before the run ended" in text
    # Now c-1 is the only member with a time without service. So the sentence begins with its name,
    # which stays in lower case.
    sentence = gap_sentence(fault_summary({}, members=2), [never_recovered])
    assert sentence is not None
    assert with_plain_spaces(sentence) == "c-1 had no service again before the run ended."


def test_table_below_a_chart_has_the_terminals_figures() -> None:
    """The report must not compute numbers of its own.

    Its table shows some of the terminal's columns, whose names are in HEADER.
    """
    fault = fault_summary(tables_of_crash())
    table = figures_table(fault, "client")
    terminal_columns = [HEADER.index(heading) for heading in table.headings[1:]]
    assert table.rows == tuple(
        (phase, *(cells[column] for column in terminal_columns))
        for phase, *cells in fault.rows("client")
    )


def test_members_without_a_phase_are_counted_by_reason() -> None:
    """`Did not have to` is a good result, `did not get there` is a bad one.

    c-0 went through all phases but sync, c-1 never got to accept, and c-2 did not have to do
    anything.
    """
    rows = [
        client_phase("c-0", *CLIENT_LENGTHS, join_us=300 * MS),
        client_phase("c-1", 200, 7 * S, None),
        client_phase("c-2", None, None, None),
    ]
    fault = fault_summary({"client_phases": rows}, partitions_moved=1)
    fault_rows = FaultRows(fault=fault, broker=[], client=rows, gap=[])
    notes = {strip.name: strip.note for strip in fault_rows.strips("client")}
    assert notes["notice"] == "1 did not have to"
    assert notes["accept"] == "1 did not have to, 1 did not get there"
    assert notes["join"] == "2 did not have to"
    assert notes["sync"] == "no member had to"


def test_median_and_slowest_of_each_chain_are_drawn_from_the_fault_on() -> None:
    """The axis shows seconds after the fault. The phases of a member follow one another.

    The twelve members are ordered from c-0, the fastest, to c-11, the slowest. So c-5, the sixth,
    is the median.
    """
    rows = tables_of_crash()
    fault = FaultRows(
        fault=fault_summary(rows),
        broker=rows["broker_phases"],
        client=rows["client_phases"],
        gap=[],
    )

    data = order_rows(fault)
    titles = [row["title"] for row in data if "title" in row]
    assert titles == [
        "broker chain: __consumer_offsets-2: 7.83 s",
        "client chain: c-5, the median of 12: 7.90 s",
        "client chain: c-11, the slowest: 7.91 s",
    ]

    lowest_y = max(row["y"] for row in data)  # the last chain is drawn at the bottom
    slowest = [row for row in data if row["y"] == lowest_y]
    assert [row["phase"] for row in slowest] == ["notice", "rediscover", "accept"]
    assert slowest[0]["from"] == 0
    for before, after in pairwise(slowest):
        assert before["to"] == after["from"]
    assert [row["longest"] for row in slowest] == [0, 1, 0], "only the longest phase is named"
    # The row of each phase also has the end of the whole chain.
    assert {row["end"] for row in slowest} == {slowest[-1]["to"]}


def test_a_few_faults_are_small_multiples_on_one_scale() -> None:
    """Each fault has its own charts. So a reader can compare the faults of a rolling restart."""
    names = [f"crash-{n}" for n in range(MAX_IN_FULL)]
    rows = tables_of_crashes(names)
    shown = charts(
        section_of(*(fault_summary(rows, fault=name) for name in names), rows=rows).parts
    )
    assert [id_ for id_ in shown if id_.endswith("-client")] == [
        f"phases-{name}-client" for name in names
    ]
    # `picks` are the choices above a chart. All faults are shown, so there is nothing to choose.
    assert not any(chart.picks for chart in shown.values())


def test_many_faults_share_charts_with_one_selection_and_an_overview() -> None:
    """Each chain has a chart of the fault that a reader selects, and an overview of all faults."""
    names = [f"crash-{n}" for n in range(200)]
    rows = tables_of_crashes(names)

    shown = charts(
        section_of(*(fault_summary(rows, fault=name) for name in names), rows=rows).parts
    )
    assert set(shown) == {"phases-overview", "phases-broker", "phases-client", "phases-gap"}
    picks = {chart.picks for name, chart in shown.items() if name != "phases-overview"}
    assert len(picks) == 1, "one selection applies to all three charts"

    overview = shown["phases-overview"]
    assert overview.table is not None
    assert len(overview.table.rows) == 200
    # The reader can pick 60 of the 200 faults (MAX_PICKED of the section), which bounds the data.
    assert sum(len(data) for chart in shown.values() for data in chart.data.values()) < 10_000


def test_section_of_a_thousand_members_is_small() -> None:
    """The charts hold aggregates: the page grows with the number of phases, not of members."""
    rows = tables_of_crash()
    rows["client_phases"] = [
        client_phase(f"c-{n}", 200 + n, 7 * S + n * MS, 90 * MS + n) for n in range(1_000)
    ]
    rows["availability"] = [gap("member", f"c-{n}", gap_us=8 * S + n * MS) for n in range(1_000)]
    shown = charts(section_of(fault_summary(rows), rows=rows).parts)
    # If each of the 1,000 members had data of its own, there would be more.
    assert sum(len(data) for chart in shown.values() for data in chart.data.values()) < 600


def test_names_of_a_run_are_escaped() -> None:
    """A group may have any name, and even HTML may be a name."""
    rows = tables_of_crash()
    rows["broker_phases"] = [broker_phase(*BROKER_LENGTHS, groups=["<img>"])]
    section = section_of(fault_summary(rows), rows=rows)
    assert not [
        part for part in section.parts if isinstance(part, Paragraph) and "<img>" in part.html
    ]
    assert "&lt;img&gt;" in plain_text(section.parts)
