"""The report's section about two owners at once: the members, the partition, times, the cause.

A tenure is the time in which a broker is the active coordinator of an offsets partition (which
holds the groups' data). An overlap is the time in which there are two owners, or two coordinators.
A generation is the number of a group's rebalance; a leader epoch is the number of an offsets
partition's leadership.

Most tests read SPLIT, the tables of one run. The link between `broker-2`, the coordinator, and the
other servers is cut from 11 to 91 s. `broker-0` is the second coordinator from 19 s on. At
`broker-0` the sessions of the old members end at 64 s. So `c-6` becomes the owner of partitions
that `c-0` and `c-5` own until 93 s.

`built` makes the section from rows of the tables, `words` its text. The names of the offsets
partition, the group and the brokers are those of the builders. S is a second in microseconds.
"""

import re
from typing import Any

from pipeline.report.charts.chart import Paragraph, Section, TextTable
from pipeline.report.facts import SettingFact
from pipeline.report.sections.two_at_once import two_at_once_section
from pipeline.summary.outcomes import Coordinators, OverlappingTenure
from tests.support.builders.report_inputs import report_input, run_facts, run_summary
from tests.support.builders.report_rows import (
    GROUP,
    OFFSETS,
    Row,
    S,
    client_phase,
    fault_row,
    rebalance,
)

OLD, NEW = ("broker-2", 0), ("broker-0", 1)
"""The two coordinators, each with its leader epoch."""
EXPIRY = SettingFact(
    section=f"groups.{GROUP}.config", name="session.timeout.ms", value="45000", default="45000"
)
"""The session timeout of the members: 45 s."""


def overlap(partition: str, first: str, second: str, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `ownership_overlaps`: the partition has two owners from 64 s to 93 s."""
    row: Row = {
        "group": GROUP,
        "partition": partition,
        "from_us": 64 * S,
        "to_us": 93 * S,
        "length_us": 29 * S,
        "first_consumer": first,
        "first_member": f"{first}-id",
        "first_generation": 1,
        "first_coordinator": OLD[0],
        "first_epoch": OLD[1],
        "second_consumer": second,
        "second_member": f"{second}-id",
        "second_generation": 2,
        "second_coordinator": NEW[0],
        "second_epoch": NEW[1],
        "records_both": 242,
        "fault": "cut-0",
        "healed_us": 91 * S,
    }
    return row | changes


def owned(row: Row, side: str, from_us: int, to_us: int, ended_by: str, **changes: Any) -> Row:  # noqa: ANN401
    """Return the ownership of one of the two owners in `row`, as a row of `ownership`.

    `side` is `first` or `second`; `ended_by` says how that owner's ownership ended.
    """
    return {
        "group": row["group"],
        "partition": row["partition"],
        "consumer": row[f"{side}_consumer"],
        "member": row[f"{side}_member"],
        "generation": row[f"{side}_generation"],
        "from_us": from_us,
        "to_us": to_us,
        "ended_by": ended_by,
        "paused_us": 0,
    } | changes


# The overlap of orders-10 ends 7 us later than the overlap of orders-2.
OVERLAPS = [overlap("orders-10", "c-5", "c-6", to_us=93 * S + 7), overlap("orders-2", "c-0", "c-6")]
# Each overlap has two rows of `ownership`, one for each owner.
SPLIT: dict[str, list[Row]] = {
    "ownership_overlaps": OVERLAPS,
    "ownership": [
        interval
        for row in OVERLAPS
        for interval in (
            owned(row, "first", from_us=6 * S, to_us=row["to_us"], ended_by="lost"),
            owned(row, "second", from_us=64 * S, to_us=94 * S, ended_by="revoked"),
        )
    ],
    "rebalances": [
        rebalance(
            reason="join",
            consumer="c-6",
            removed=["c-0", "c-5"],
            removed_because=["session expiry"],
            added=["c-6"],
            fault="cut-0",
            started_us=26 * S,
            joined_us=64 * S,
        )
    ],
    "tenure_overlaps": [
        {
            "partition": OFFSETS,
            "groups": [GROUP],
            "older_broker": OLD[0],
            "older_epoch": OLD[1],
            "newer_broker": NEW[0],
            "newer_epoch": NEW[1],
            "from_us": 19 * S,
            "to_us": 91 * S + 1,
            "length_us": 72 * S,
            "older_end": "unloaded",
            "older_paused_us": 0,
            "older_cut_us": 70 * S,
            "older_heartbeats": 144,
        }
    ],
    "faults": [
        fault_row(
            fault="cut-0",
            kind="cut",
            injected_us=11 * S,
            healed_us=91 * S,
            from_nodes=["broker-2"],
            to_nodes=["controller-100", "broker-0", "broker-1"],
        )
    ],
}


def built(tables: dict[str, list[Row]], **summary: Any) -> Section | None:  # noqa: ANN401
    """Return the section of a run with these rows; `summary` has fields of the run's summary."""
    facts = run_facts(settings=(EXPIRY,))
    return two_at_once_section(report_input(facts, run_summary(**summary), tables))


def words(section: Section) -> str:
    """Return all paragraphs as plain text, with each item of a list on a line."""
    text = "\n".join(part.html for part in section.parts if isinstance(part, Paragraph))
    text = re.sub(r"</(li|p|h3)>|<ol>", "\n", text)
    return re.sub(r"<[^>]+>", "", text).replace("\N{NO-BREAK SPACE}", " ")


def test_run_without_overlaps_has_no_section() -> None:
    """A run without overlaps has nothing to report here."""
    assert built({}) is None


def test_section_names_both_owners_of_a_partition_and_the_times() -> None:
    """The table answers who owned which partition, from when to when, and how each side ended."""
    section = built(SPLIT)
    assert section is not None
    (table,) = [part for part in section.parts if isinstance(part, TextTable)]
    assert [row[0] for row in table.rows] == ["orders-2", "orders-10"], "2 comes before 10"
    cells = [re.sub(r"<[^>]+>", "", str(cell)) for cell in table.rows[0]]
    assert [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells] == [
        "orders-2",
        "c-0",
        "c-6",
        "64.000 s to 93.000 s",
        "29.00 s",
        "242",
        "6.000 s to 93.000 s (lost)",
        "64.000 s to 94.000 s (revoked)",
    ]


def test_section_explains_the_cause_step_by_step_in_time_order() -> None:
    """Seven steps: fault, second coordinator, rebalance, new owners, healing, unload, one owner.

    The session timeout is 45 s. The old members send no heartbeat to the second coordinator, which
    counts from its load at 19 s. So their sessions end there at 19 + 45 = 64 s.
    """
    section = built(SPLIT)
    assert section is not None
    text = words(section)
    assert (
        "Two coordinators assigned them: broker-2 in leader epoch 0 and broker-0 in leader epoch 1 "
        "served" in text
    )
    steps = [line for line in text.splitlines() if re.match(r"\d+\.\d{3} s ", line)]
    assert [line.split(" ")[0] for line in steps] == [
        "11.000",
        "19.000",
        "26.000",
        "64.000",
        # Two steps at 91 s: the healing, and the old coordinator's unload 1 us later.
        "91.000",
        "91.000",
        "93.000",
    ]
    assert (
        "cut of broker-2 from broker-0, broker-1, controller-100, not from its clients" in steps[0]
    )
    assert (
        "It answers 144 heartbeats with success, so its members keep their partitions" in steps[1]
    )
    assert "cut off for 70.00 s of that time" in steps[1]
    assert "begins a rebalance (join of c-6). It waits for c-0, c-5 to join, too" in steps[2]
    assert "removes c-0, c-5 (session expiry, session.timeout.ms = 45000)" in steps[3]
    assert "from its load on: 19.000 s + 45.000 s = 64.000 s" in steps[3]
    assert "2 partitions of c-0, c-5 now belong to c-6 as well" in steps[3]
    assert "no longer the coordinator (unloaded)" in steps[5]
    assert "loses its partitions: the coordinator no longer knows it" in steps[6]


def _answer(consumer: str, ended_us: int) -> Row:
    """Return a heartbeat that the new coordinator answers UNKNOWN_MEMBER_ID."""
    return {
        "fault": "cut-0",
        "api": "Heartbeat",
        "from_node": consumer,
        "to_node": NEW[0],
        "outcome": "UNKNOWN_MEMBER_ID",
        "ended_us": ended_us,
    }


def test_answers_that_ended_the_overlap_are_named_with_their_times() -> None:
    """NOT_COORDINATOR makes a member look for the new coordinator.

    UNKNOWN_MEMBER_ID, the answer of the new coordinator, makes it give up its partitions.
    """
    clients = [
        client_phase(name, fault="cut-0", noticed_by="NOT_COORDINATOR", unknown_us=92 * S)
        for name in ("c-0", "c-5")
    ]
    messages = [_answer("c-0", 93 * S), _answer("c-5", 93 * S + 7)]
    section = built(SPLIT | {"client_phases": clients, "messages": messages})
    assert section is not None
    steps = [line for line in words(section).splitlines() if re.match(r"9[23]\.\d{3} s ", line)]
    assert steps[0].startswith("92.000 s c-0, c-5: NOT_COORDINATOR from the old coordinator")
    assert "c-0 is the first to lose its partitions: Heartbeat is answered" in steps[1]
    # c-5 is the last to lose its partitions, 7 us after c-0.
    assert steps[2].endswith(
        "Heartbeat is answered UNKNOWN_MEMBER_ID by broker-0. One owner again."
    )


def test_steps_link_into_the_lanes_at_their_times() -> None:
    """A link sets the time axis of the page to the step's time."""
    section = built(SPLIT)
    assert section is not None
    html = "".join(part.html for part in section.parts if isinstance(part, Paragraph))
    assert '<a href="#lane-faults" data-from="11.0" data-to="11.0">' in html
    assert '<a href="#lane-coordinators" data-from="19.0" data-to="19.0">' in html
    assert '<a href="#lane-groups" data-from="64.0" data-to="64.0">' in html
    assert '<a href="#lane-ownership" data-from="64.0" data-to="93.000007">' in html


def test_cut_that_includes_the_members_is_described_as_such() -> None:
    """Here the cut also includes c-0 and c-5, so `not from its clients` would be false."""
    faults = [SPLIT["faults"][0] | {"to_nodes": ["broker-0", "c-0", "c-5"]}]
    section = built(SPLIT | {"faults": faults})
    assert section is not None
    assert "not from its clients" not in words(section)


def test_overlap_of_a_stopped_member_is_no_split_brain() -> None:
    """The only coordinator removes c-0, a paused member, which then resumes and processes again.

    In a split brain, each of two coordinators would have assigned the partition.
    """
    row = overlap("orders-0", "c-0", "c-1", first_coordinator=NEW[0], first_epoch=NEW[1])
    tables = {
        "ownership_overlaps": [row],
        "ownership": [
            owned(row, "first", from_us=6 * S, to_us=93 * S, ended_by="lost", paused_us=50 * S),
            owned(row, "second", from_us=64 * S, to_us=99 * S, ended_by="revoked"),
        ],
    }
    section = built(tables)
    assert section is not None
    text = words(section)
    assert "One coordinator assigned them to both: it had removed the first owners" in text
    assert "c-0 had been stopped, for up to 50.00 s" in text
    assert "Two coordinators" not in text


def test_overlap_that_never_ended_has_no_end() -> None:
    """The run ended early, while both members still owned the partition."""
    row = overlap("orders-0", "c-0", "c-6", to_us=None)
    section = built({"ownership_overlaps": [row]})
    assert section is not None
    assert "from 64.000 s to the end of the run" in words(section)
    assert "One owner again" not in words(section)


def test_overlap_below_the_clocks_error_is_omitted() -> None:
    """900 us is less than the error of 1 ms between clocks, so there may have been no overlap."""
    short = overlap("orders-0", "c-0", "c-6", length_us=900)
    assert built({"ownership_overlaps": [short]}, clock_error_us=1_000) is None


def test_two_coordinators_without_two_owners_have_the_words_of_the_terminal() -> None:
    """Both coordinators keep all members in the group, so no partition has two owners.

    The heading has the same figures as the summary on the terminal.
    """
    both = Coordinators(
        groups=(GROUP,),
        partition=OFFSETS,
        older=OverlappingTenure(
            broker="broker-2", leader_epoch=0, heartbeats=144, commits=0, commits_in_all=264
        ),
        newer=OverlappingTenure(
            broker="broker-0", leader_epoch=1, heartbeats=18, commits=1, commits_in_all=604
        ),
        from_us=19 * S,
        to_us=91 * S,
        older_end="unloaded",
        older_paused_us=0,
        older_cut_us=72 * S,
        older_last_commit_us=None,
        newer_first_commit_us=None,
    )
    section = built({}, coordinators=(both,))
    assert section is not None
    assert section.title == "Two coordinators at once"
    assert "broker-2 in leader epoch 0: 144 heartbeats answered, 0 commits acknowledged" in words(
        section
    )
    (paragraph,) = [part.html for part in section.parts if isinstance(part, Paragraph)]
    html = paragraph.replace("\N{NO-BREAK SPACE}", " ")
    assert (
        '<a href="#lane-coordinators" data-from="19.0" data-to="91.0">from 19.000 s to 91.000 s</a>'
        ": 72.000 s</h3>" in html
    ), "the heading itself leads to the lane"


def test_time_spans_in_the_table_are_not_wrapped() -> None:
    """A narrow column would break a time span after `to`, and make each row three lines high."""
    section = built(SPLIT)
    assert section is not None
    (table,) = [part for part in section.parts if isinstance(part, TextTable)]
    time_of_overlap, time_of_first_owner = str(table.rows[0][3]), str(table.rows[0][6])
    no_break = "\N{NO-BREAK SPACE}"
    assert ">64.000 s to 93.000 s<".replace(" ", no_break) in time_of_overlap
    assert time_of_first_owner == "6.000 s to 93.000 s".replace(" ", no_break) + " (lost)"


def test_table_names_members_without_their_common_prefix() -> None:
    """A column breaks long names, which hides the difference in their last letter."""
    row = overlap("orders-0", "consumer-orders-readers-0", "consumer-orders-readers-6")
    section = built({"ownership_overlaps": [row]})
    assert section is not None
    (table,) = [part for part in section.parts if isinstance(part, TextTable)]
    assert table.rows[0][1:3] == ("readers-0", "readers-6")
    assert "without consumer-orders- in front" in table.caption
