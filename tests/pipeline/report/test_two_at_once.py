"""The report's section about partitions that two members of a group owned at the same time.

The section tells the reader which members owned which partition, when, and how this came about.
Most tests use SPLIT, the tables of a run in which the following happens:

    11 s  `broker-2`, the coordinator, is cut off from all other servers, but not from its members.
    19 s  `broker-0` becomes the coordinator, too. `broker-2` does not know this, and goes on.
    26 s  `c-6` joins the group at `broker-0`, which waits for the old members to join as well.
    64 s  The old members' sessions at `broker-0` end: they have sent it no heartbeat for 45 s. So
          `broker-0` gives `c-6` the partitions that `c-0` and `c-5` still own at `broker-2`.
    91 s  The cut is healed. `broker-2` learns that it is no longer the coordinator.
    93 s  `c-0` and `c-5` learn that they are no members, and give up their partitions.

A time with two owners, or with two coordinators, is called an overlap. A tenure is the time in
which a broker is the coordinator for the groups of an offsets partition.

The tests write times as multiples of S, which is one second in microseconds.
"""

import re
from typing import Any, NamedTuple

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


class Coordinator(NamedTuple):
    """A broker that coordinated the group, and its leader epoch for the offsets partition."""

    broker: str
    leader_epoch: int


OLD = Coordinator("broker-2", leader_epoch=0)
NEW = Coordinator("broker-0", leader_epoch=1)
SESSION_TIMEOUT = SettingFact(
    section=f"groups.{GROUP}.config", name="session.timeout.ms", value="45000", default="45000"
)


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
        "first_coordinator": OLD.broker,
        "first_epoch": OLD.leader_epoch,
        "second_consumer": second,
        "second_member": f"{second}-id",
        "second_generation": 2,
        "second_coordinator": NEW.broker,
        "second_epoch": NEW.leader_epoch,
        "records_both": 242,
        # The fault before the overlap, and when it was healed.
        "fault": "cut-0",
        "healed_us": 91 * S,
    }
    return row | changes


def owned(row: Row, side: str, from_us: int, to_us: int, ended_by: str, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `ownership` for one of the two owners in `row`, a row of an overlap.

    `side` is `first` or `second`. `ended_by` says how the ownership ended.
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
        # The time for which the member's process was paused while it owned the partition.
        "paused_us": 0,
    } | changes


# c-5 gives up orders-10 7 us after c-0 has given up orders-2. So there is a last member.
OVERLAPS = [overlap("orders-10", "c-5", "c-6", to_us=93 * S + 7), overlap("orders-2", "c-0", "c-6")]
# Each overlap has two rows of `ownership`, one for each owner.
SPLIT: dict[str, list[Row]] = {
    "ownership_overlaps": OVERLAPS,
    "ownership": [
        ownership
        for row in OVERLAPS
        for ownership in (
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
            "older_broker": OLD.broker,
            "older_epoch": OLD.leader_epoch,
            "newer_broker": NEW.broker,
            "newer_epoch": NEW.leader_epoch,
            "from_us": 19 * S,
            # The old coordinator unloads the groups because of the healing, 1 us later.
            "to_us": 91 * S + 1,
            "length_us": 72 * S,
            "older_end": "unloaded",
            "older_paused_us": 0,
            # For how long the old coordinator was cut off during the overlap. In a real run this
            # would be 72 s, the length of the overlap. Here it is 70 s, so that a test sees which
            # of the two lengths is in a sentence.
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


def section_or_none(tables: dict[str, list[Row]], **summary: Any) -> Section | None:  # noqa: ANN401
    """Return the section of a run with these tables, or None if the report leaves it out.

    `summary` has fields of the run's summary.
    """
    facts = run_facts(settings=(SESSION_TIMEOUT,))
    return two_at_once_section(report_input(facts, run_summary(**summary), tables))


def section_of(tables: dict[str, list[Row]], **summary: Any) -> Section:  # noqa: ANN401
    """Return the section of a run with these tables. The report must not leave it out."""
    section = section_or_none(tables, **summary)
    assert section is not None
    return section


def table_of(section: Section) -> TextTable:
    """Return the section's only table, which has a row for each partition with two owners."""
    (table,) = [part for part in section.parts if isinstance(part, TextTable)]
    return table


def plain_text(section: Section) -> str:
    """Return all paragraphs without HTML tags; each item of a list is a line of its own."""
    text = "\n".join(part.html for part in section.parts if isinstance(part, Paragraph))
    text = re.sub(r"</(li|p|h3)>|<ol>", "\n", text)
    return re.sub(r"<[^>]+>", "", text).replace("\N{NO-BREAK SPACE}", " ")


def test_run_without_overlaps_has_no_section() -> None:
    """A run without overlaps has nothing to report here."""
    assert section_or_none({}) is None


def test_section_names_both_owners_of_a_partition_and_the_times() -> None:
    """The table has the owners of each partition, with the times and ends of their ownerships."""
    section = section_of(SPLIT)
    table = table_of(section)
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

    The second coordinator loads the group at 19 s, and the sessions of the old members begin there.
    It gets no heartbeat from them. So their sessions end after the session timeout of 45 s, at
    19 + 45 = 64 s.
    """
    section = section_of(SPLIT)
    text = plain_text(section)
    assert (
        "Two coordinators assigned them: broker-2 in leader epoch 0 and broker-0 in leader epoch 1 "
        "served" in text
    )
    # A step is a line that begins with a time.
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
    fault, second_coordinator, rebalance_begins, new_owners, _healing, unload, one_owner = steps
    assert "cut of broker-2 from broker-0, broker-1, controller-100, not from its clients" in fault
    assert (
        "It answers 144 heartbeats with success, so its members keep their partitions"
        in second_coordinator
    )
    assert "cut off for 70.00 s of that time" in second_coordinator
    assert (
        "begins a rebalance (join of c-6). It waits for c-0, c-5 to join, too" in rebalance_begins
    )
    assert "removes c-0, c-5 (session expiry, session.timeout.ms = 45000)" in new_owners
    assert "from its load on: 19.000 s + 45.000 s = 64.000 s" in new_owners
    assert "2 partitions of c-0, c-5 now belong to c-6 as well" in new_owners
    assert "no longer the coordinator (unloaded)" in unload
    assert "loses its partitions: the coordinator no longer knows it" in one_owner


def _unknown_member_answer(consumer: str, ended_us: int) -> Row:
    """Return a row of `messages`: the new coordinator answers a heartbeat UNKNOWN_MEMBER_ID."""
    return {
        "fault": "cut-0",
        "api": "Heartbeat",
        "from_node": consumer,
        "to_node": NEW.broker,
        "outcome": "UNKNOWN_MEMBER_ID",
        "ended_us": ended_us,
    }


def test_answers_that_ended_the_overlap_are_named_with_their_times() -> None:
    """Two answers end the overlap.

    1. The old coordinator answers NOT_COORDINATOR, so the member looks for the new coordinator.
    2. The new coordinator answers UNKNOWN_MEMBER_ID, so the member gives up its partitions.
    """
    clients = [
        client_phase(name, fault="cut-0", noticed_by="NOT_COORDINATOR", unknown_us=92 * S)
        for name in ("c-0", "c-5")
    ]
    messages = [
        _unknown_member_answer("c-0", 93 * S),
        _unknown_member_answer("c-5", 93 * S + 7),
    ]
    section = section_of(SPLIT | {"client_phases": clients, "messages": messages})
    # The steps at 92 s and at 93 s.
    steps = [
        line for line in plain_text(section).splitlines() if re.match(r"9[23]\.\d{3} s ", line)
    ]
    answers_of_old, first_loss, last_loss = steps
    assert answers_of_old.startswith("92.000 s c-0, c-5: NOT_COORDINATOR from the old coordinator")
    assert "c-0 is the first to lose its partitions: Heartbeat is answered" in first_loss
    # c-5 is the last to lose its partitions, 7 us after c-0.
    assert last_loss.endswith(
        "Heartbeat is answered UNKNOWN_MEMBER_ID by broker-0. One owner again."
    )


def test_steps_link_into_the_lanes_at_their_times() -> None:
    """A link sets the time axis of the page to the step's time."""
    section = section_of(SPLIT)
    html = "".join(part.html for part in section.parts if isinstance(part, Paragraph))
    assert '<a href="#lane-faults" data-from="11.0" data-to="11.0">' in html
    assert '<a href="#lane-coordinators" data-from="19.0" data-to="19.0">' in html
    assert '<a href="#lane-groups" data-from="64.0" data-to="64.0">' in html
    assert '<a href="#lane-ownership" data-from="64.0" data-to="93.000007">' in html


def test_cut_that_includes_the_members_is_described_as_such() -> None:
    """If the cut includes c-0 and c-5, the words `not from its clients` would be false."""
    faults = [SPLIT["faults"][0] | {"to_nodes": ["broker-0", "c-0", "c-5"]}]
    section = section_of(SPLIT | {"faults": faults})
    assert "not from its clients" not in plain_text(section)


def test_overlap_of_a_stopped_member_is_no_split_brain() -> None:
    """A paused member does not know that its coordinator has removed it.

    When c-0 resumes, it goes on to process orders-0, which c-1 owns by now. There is only one
    coordinator, so the section must not speak of two coordinators.
    """
    row = overlap(
        "orders-0", "c-0", "c-1", first_coordinator=NEW.broker, first_epoch=NEW.leader_epoch
    )
    tables = {
        "ownership_overlaps": [row],
        "ownership": [
            owned(row, "first", from_us=6 * S, to_us=93 * S, ended_by="lost", paused_us=50 * S),
            owned(row, "second", from_us=64 * S, to_us=99 * S, ended_by="revoked"),
        ],
    }
    section = section_of(tables)
    text = plain_text(section)
    assert "One coordinator assigned them to both: it had removed the first owners" in text
    assert "c-0 had been stopped, for up to 50.00 s" in text
    assert "Two coordinators" not in text


def test_overlap_that_never_ended_has_no_end() -> None:
    """The run ended early, while both members still owned the partition."""
    row = overlap("orders-0", "c-0", "c-6", to_us=None)
    section = section_of({"ownership_overlaps": [row]})
    assert "from 64.000 s to the end of the run" in plain_text(section)
    assert "One owner again" not in plain_text(section)


def test_overlap_below_the_clocks_error_is_omitted() -> None:
    """900 us is less than the error of 1 ms between clocks, so there may have been no overlap."""
    short = overlap("orders-0", "c-0", "c-6", length_us=900)
    assert section_or_none({"ownership_overlaps": [short]}, clock_error_us=1_000) is None


def test_two_coordinators_without_two_owners_have_the_words_of_the_terminal() -> None:
    """Both coordinators keep all members in the group, so no partition has two owners.

    The heading has the same figures as the summary on the terminal.
    """
    coordinators = Coordinators(
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
    section = section_of({}, coordinators=(coordinators,))
    assert section.title == "Two coordinators at once"
    assert (
        "broker-2 in leader epoch 0: 144 heartbeats answered, 0 commits acknowledged"
        in plain_text(section)
    )
    (paragraph,) = [part.html for part in section.parts if isinstance(part, Paragraph)]
    html = paragraph.replace("\N{NO-BREAK SPACE}", " ")
    assert (
        '<a href="#lane-coordinators" data-from="19.0" data-to="91.0">from 19.000 s to 91.000 s</a>'
        ": 72.000 s</h3>" in html
    ), "the heading itself leads to the lane"


def test_time_spans_in_the_table_are_not_wrapped() -> None:
    """A narrow column would break a time span after `to`, and make each row three lines high."""
    section = section_of(SPLIT)
    table = table_of(section)
    time_of_overlap, time_of_first_owner = str(table.rows[0][3]), str(table.rows[0][6])
    no_break = "\N{NO-BREAK SPACE}"
    assert ">64.000 s to 93.000 s<".replace(" ", no_break) in time_of_overlap
    assert time_of_first_owner == "6.000 s to 93.000 s".replace(" ", no_break) + " (lost)"


def test_table_names_members_without_their_common_prefix() -> None:
    """Members of a group often differ in their last letter, which a narrow column would wrap.

    So the table omits the common beginning of all names, and the caption says so.
    """
    row = overlap("orders-0", "consumer-orders-readers-0", "consumer-orders-readers-6")
    section = section_of({"ownership_overlaps": [row]})
    table = table_of(section)
    assert table.rows[0][1:3] == ("readers-0", "readers-6")
    assert "without consumer-orders- in front" in table.caption
