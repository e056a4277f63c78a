"""The report's message diagrams, which show the requests and answers around a fault.

In a diagram each node has a horizontal line, and a slanted line between two nodes is a message. An
exchange is a request together with its answer. The data of a diagram consist of several tables:

- `legs`: slanted lines between two nodes, one for a request and one for an answer
- `waits`: bars on a node's line, for a time in which an exchange waits
- `stubs`: short lines, of messages that did not arrive
- `repeats`: one bar for an exchange that was repeated many times
- `failures`: marks, such as crosses
- `words`: texts

The tests read columns of these tables with `cells(chart, table, *columns)`. The columns have short
names, because the data are part of the page. The constants below give names to the columns.

The fault of all tests is crash-0: it kills broker-2, the group's coordinator, at 11.25 s, and is
healed at 36.25 s. `message(api, client, server, sent_s)` makes an exchange. Unless a test passes
other times, the server receives the request 1 ms later and answers immediately, and the answer
arrives another 1 ms later. `us` turns seconds into microseconds.
"""

import pytest

from pipeline.report.build import message_diagrams, timeline
from pipeline.report.charts.chart import Chart
from pipeline.report.lanes import messages
from pipeline.report.lanes.message_rows import MAX_NODES, Word, diagram, place_words
from tests.support.builders.lane_rows import Row, load, message, us
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts
from tests.support.vega import cells, compiled_without_warnings

# Columns of the tables of a chart.
NODE = "r"  # the node on whose line something is drawn
OTHER_NODE = "q"  # the node at the other end of a leg
SERVER = "to"
MEANING = "leg"  # what a line or bar stands for, such as "request"
OUTCOME = "out"
BEGIN_S, END_S = "a", "b"
DIRECTION = "v"  # the direction of a stub: up or down the page, towards the other node's line
TEXT, LABEL = "t", "l"
ZOOM = "z"  # the zoom, in pixels per second, from which a text is shown
LEFT_ZOOM = "y"  # the zoom from which a text can be left of its time
IS_FAILURE = "k"  # 1 for a failure, otherwise 0
# LEFT_ZOOM is a column of the table `words`. In the table `repeats`, "y" has another meaning:
BAR_ROW = "y"  # the row of a bar below its node's line, counted from 0

_CLIENT, _BROKER = "consumer-1", "broker-2"


def _chart(*rows: Row, **tables: list[Row]) -> Chart:
    """Return the diagram of crash-0 with these exchanges; `tables` adds rows of other tables."""
    facts = run_facts(faults=(journal_entry(),))
    (chart,) = messages.lanes(report_input(facts, tables={"messages": list(rows), **tables}))
    compiled_without_warnings(chart)
    return chart


def test_run_without_messages_has_no_diagrams() -> None:
    """Without message tracing a run has no exchanges to draw."""
    run = report_input(run_facts(faults=(journal_entry(),)))
    assert messages.lanes(run) == ()
    assert message_diagrams(run) is None


def test_answered_request_has_two_lines() -> None:
    """The line of the request leads from client to server, and the line of the answer back."""
    chart = _chart(message("OffsetCommit", _CLIENT, _BROKER, sent_s=11))
    assert chart.id == "lane-messages-crash-0"
    assert cells(chart, "legs", MEANING, NODE, OTHER_NODE, BEGIN_S, END_S) == [
        ("request", _CLIENT, _BROKER, 11.0, 11.001),
        ("answer", _BROKER, _CLIENT, 11.001, 11.002),
    ]
    assert cells(chart, "waits", BEGIN_S) == []
    assert cells(chart, "failures", BEGIN_S) == []


def test_parked_request_is_a_bar_on_the_server() -> None:
    """The coordinator answers a JoinGroup when all members have joined. Until then it has a bar."""
    # The server receives the request at 26.001 s (1 ms after it was sent) and answers at 64 s.
    parked = message(
        "JoinGroup", _CLIENT, _BROKER, sent_s=26, answered_us=us(64), ended_us=us(64.001)
    )
    chart = _chart(parked)
    assert cells(chart, "waits", NODE, SERVER, BEGIN_S, END_S) == [(_BROKER, _BROKER, 26.001, 64.0)]


def test_unanswered_request_waits_at_the_client_and_fails() -> None:
    """No line leads to the broker, because the request may not have arrived.

    A stub shows that the request was sent. A bar shows how long the client waited.
    """
    lost = message(
        "Heartbeat",
        _CLIENT,
        _BROKER,
        sent_s=12,
        received_us=None,
        answered_us=None,
        ended_us=us(42),
        outcome="TIMED_OUT",
    )
    chart = _chart(lost)
    assert cells(chart, "legs", BEGIN_S) == []
    assert cells(chart, "waits", NODE, BEGIN_S, END_S) == [(_CLIENT, 12.0, 42.0)]
    assert cells(chart, "stubs", NODE, BEGIN_S, DIRECTION) == [(_CLIENT, 12.0, "up")]
    assert cells(chart, "failures", NODE, BEGIN_S, OUTCOME) == [
        (_CLIENT, 42.0, "no answer (request timeout)")
    ]
    assert ("Heartbeat no answer (request timeout)", 1) in cells(chart, "words", TEXT, IS_FAILURE)


def test_lost_answer_is_a_short_line_at_the_server() -> None:
    """The broker answered, but the answer never arrived: a stub on the broker's line.

    A whole line would end at 42 s, when the client gave up. This would look as if the answer had
    arrived.
    """
    # By default the broker receives and answers the request at 12.001 s.
    lost = message("Heartbeat", _CLIENT, _BROKER, sent_s=12, ended_us=us(42), outcome="TIMED_OUT")
    chart = _chart(lost)
    assert cells(chart, "legs", MEANING) == [("request",)]
    assert cells(chart, "stubs", NODE, BEGIN_S, DIRECTION) == [(_BROKER, 12.001, "down")]
    # The client waits for the answer until it gives up.
    assert cells(chart, "waits", MEANING, NODE, BEGIN_S, END_S) == [
        ("no answer came", _CLIENT, 12.0, 42.0)
    ]


def test_held_answer_stays_on_its_senders_line_until_it_arrives() -> None:
    """An answer that takes a minute was held, for example at a cut link, and did not travel slowly.

    A slanted line over a minute would look like a slow network. So the answer is drawn as a bar.
    """
    chart = _chart(message("Heartbeat", _CLIENT, _BROKER, sent_s=12, ended_us=us(72)))
    assert cells(chart, "waits", MEANING, NODE, BEGIN_S, END_S) == [
        ("held on its way", _BROKER, 12.001, 72.0)
    ]
    # The line of the answer is vertical: it begins and ends at the arrival.
    assert cells(chart, "legs", MEANING, BEGIN_S, END_S)[-1] == ("answer", 72.0, 72.0)
    assert cells(chart, "stubs", BEGIN_S) == []


def test_error_of_the_normal_protocol_is_no_failure() -> None:
    """Some errors belong to the normal protocol, and must not look like failures.

    Every new member first gets the answer MEMBER_ID_REQUIRED. REBALANCE_IN_PROGRESS asks a member
    to join again. But NOT_COORDINATOR, which means that another broker coordinates the group, is a
    failure.
    """
    chart = _chart(
        message("JoinGroup", _CLIENT, _BROKER, sent_s=12, outcome="MEMBER_ID_REQUIRED"),
        message("Heartbeat", _CLIENT, _BROKER, sent_s=20, outcome="REBALANCE_IN_PROGRESS"),
        message("OffsetCommit", _CLIENT, _BROKER, sent_s=30, outcome="NOT_COORDINATOR"),
    )
    # Only NOT_COORDINATOR gets a red cross (1).
    assert cells(chart, "failures", OUTCOME, IS_FAILURE) == [
        ("MEMBER_ID_REQUIRED", 0),
        ("REBALANCE_IN_PROGRESS", 0),
        ("NOT_COORDINATOR", 1),
    ]
    assert [is_failure for (is_failure,) in cells(chart, "words", IS_FAILURE)] == [0, 0, 1]


def test_removed_member_is_labelled_before_later_answers() -> None:
    """UNKNOWN_MEMBER_ID tells a removed member that it has lost its partitions.

    The label of the next answer, 10 ms later, must not hide this.
    """
    chart = _chart(
        message("Heartbeat", _CLIENT, _BROKER, sent_s=12, outcome="UNKNOWN_MEMBER_ID"),
        message("JoinGroup", _CLIENT, _BROKER, sent_s=12.01, outcome="MEMBER_ID_REQUIRED"),
    )
    # Only one of the two texts has room at the first zoom (0).
    assert [text for text, zoom in cells(chart, "words", TEXT, ZOOM) if zoom == 0] == [
        "Heartbeat UNKNOWN_MEMBER_ID"
    ]


def test_fetch_from_a_controller_is_named_by_its_log() -> None:
    """Fetch reads records of a topic, but brokers also read the controller's log with it.

    To tell the two uses apart, the diagram adds the name of the controller's log in brackets.
    """
    chart = _chart(message("Fetch", "broker-0", "controller-100", sent_s=11))
    assert ("Fetch (__cluster_metadata)",) in cells(chart, "words", TEXT)
    assert chart.table is not None
    assert chart.table.rows[0][0] == "Fetch (__cluster_metadata)"


def test_repeated_exchanges_are_one_bar_below_the_line() -> None:
    """48 FindCoordinators whose answers name the dead broker are one bar.

    `named` is the broker that the answers name as the coordinator. Bars that overlap in time are
    stacked below the client's line.
    """
    stale = message(
        "FindCoordinator",
        _CLIENT,
        "broker-0",
        sent_s=11.3,
        named=_BROKER,
        repeats=48,
        last_ended_us=us(18.9),
    )
    failed = message(
        "OffsetCommit",
        _CLIENT,
        _BROKER,
        sent_s=12,
        outcome="DISCONNECTED",
        repeats=9,
        last_ended_us=us(18),
    )
    chart = _chart(stale, failed)
    assert cells(chart, "repeats", NODE, BEGIN_S, END_S, LABEL, BAR_ROW) == [
        (_CLIENT, 11.3, 18.9, "FindCoordinator ×48 names broker-2", 0),
        (_CLIENT, 12.0, 18.0, "OffsetCommit ×9 disconnected", 1),
    ]


def test_diagram_shows_the_election_and_the_load_of_the_coordinator() -> None:
    """The diagram has texts about an election and a load: brokers answer differently after them.

    The controller elects a new leader of the partition `__consumer_offsets-2`, which stores the
    group; each election increases the leader epoch. The new leader loads the partition (reads the
    group into memory), and is then the group's coordinator.
    """
    heartbeat = message("BrokerHeartbeat", "broker-0", "controller-100", sent_s=11)
    # The election is part of the row of a load.
    chart = _chart(heartbeat, broker_phases=[load("broker-0", epoch=1, from_s=19.075, to_s=19.08)])
    # The first text is about the heartbeat.
    assert cells(chart, "words", NODE, TEXT)[1:] == [
        ("controller-100", "elects broker-0 for __consumer_offsets-2, leader epoch 1"),
        ("broker-0", "active for __consumer_offsets-2, loaded in 5 ms"),
    ]


def _lost_coordinator(consumer: str, at_s: float) -> Row:
    """Return a row of `client_phases`: the consumer lost its coordinator, and found it again.

    At `unknown_us` it gave the coordinator up, because of the error `noticed_by`. At `accepted_us`
    a coordinator accepted its request again.
    """
    return {
        "fault": "crash-0",
        "consumer": consumer,
        "unknown_us": us(at_s),
        "accepted_us": us(at_s + 1),
        "noticed_by": "NOT_COORDINATOR",
    }


def test_diagram_links_to_the_important_times_of_its_fault() -> None:
    """The text above the diagram links to the important times of the fault."""
    heartbeat = message("Heartbeat", _CLIENT, _BROKER, sent_s=11)
    chart = _chart(
        heartbeat,
        broker_phases=[load("broker-0", epoch=1, from_s=19.075, to_s=19.08)],
        client_phases=[
            _lost_coordinator("consumer-2", 21),
            _lost_coordinator("consumer-1", 20),
            _lost_coordinator("consumer-3", 22),
        ],
    )
    link = 'href="#lane-messages-crash-0"'
    for span, text in (
        ('data-from="11.25" data-to="11.25"', "the fault"),
        # The builder `load` sets the time of the election to 100 ms before the load's beginning.
        ('data-from="18.975" data-to="19.08"', "election and load"),
        ('data-from="20.0" data-to="21.0"', "the first member that gave its coordinator up"),
        ('data-from="22.0" data-to="23.0"', "the last one"),
        ('data-from="36.25" data-to="36.25"', "its healing"),
    ):
        assert f"<a {link} {span}>{text}</a>" in chart.about


@pytest.mark.slow
def test_diagram_of_few_members_labels_each_loss_of_the_coordinator_at_once() -> None:
    """Two members have their labels at the first zoom, which is 0.

    The labels of twenty members would cover the whole run. So they need a nearer zoom.
    """
    for members, is_shown_at_once in ((2, True), (20, False)):
        names = [f"consumer-{index}" for index in range(members)]
        chart = _chart(
            *(message("Heartbeat", name, _BROKER, sent_s=11) for name in names),
            client_phases=[_lost_coordinator(name, 20) for name in names],
        )
        zooms = [
            zoom
            for text, zoom in cells(chart, "words", TEXT, ZOOM)
            if text == "NOT_COORDINATOR: coordinator unknown"
        ]
        assert len(zooms) == members
        assert all((zoom == 0) == is_shown_at_once for zoom in zooms)


@pytest.mark.slow
def test_diagrams_of_many_faults_are_bounded_with_a_note() -> None:
    """Each diagram costs time and space. So only the first of many faults have a diagram."""
    faults = tuple(
        journal_entry(fault_id=f"crash-{index}", fired_at_us=us(10 + index)) for index in range(12)
    )
    rows = [
        message("Heartbeat", _CLIENT, _BROKER, sent_s=11, fault=fault.fault_id) for fault in faults
    ]
    section = message_diagrams(report_input(run_facts(faults=faults), tables={"messages": rows}))
    assert section is not None
    assert [part.id for part in section.parts if isinstance(part, Chart)] == [
        f"lane-messages-crash-{index}" for index in range(messages.MAX_DIAGRAMS)
    ]
    # There are 12 faults, and MAX_DIAGRAMS is 8: 12 - 8 = 4.
    assert "4 later faults have no diagram" in section.lead


def test_nodes_are_servers_first_and_bounded() -> None:
    """Servers and the members with the most messages have lines. The other messages are counted."""
    rows = [message("Heartbeat", f"consumer-{index}", _BROKER, sent_s=11) for index in range(1_000)]
    rows.append(message("Fetch", "broker-10", "controller-100", sent_s=11))
    # consumer-777 has three messages more than the other members.
    rows += [
        message("JoinGroup", "consumer-777", _BROKER, sent_s=sent_s) for sent_s in (12, 13, 14)
    ]
    drawn = diagram(rows)
    # Servers in the order: controllers, then brokers by number.
    assert drawn.nodes[:3] == ["controller-100", "broker-2", "broker-10"]
    assert "consumer-777" in drawn.nodes
    assert len(drawn.nodes) == MAX_NODES
    assert [leg["api"] for leg in drawn.legs].count("JoinGroup") == 3 * 2  # request and answer
    # Each exchange that is drawn has two legs, one for the request and one for the answer.
    exchanges_drawn = len(drawn.legs) // 2
    assert drawn.left_out == len(rows) - exchanges_drawn


def test_texts_that_would_overlap_appear_at_different_zooms() -> None:
    """The more important of two close texts is shown first. The other needs a nearer zoom."""
    # A word has a node, a time, a text, and its rank of importance (1 is the most important).
    words = place_words(
        [
            Word("a", us(10), "a word", 2),
            Word("a", us(10.1), "an error", 1, is_failure=True),
            Word("b", us(10), "another line", 2),
            Word("a", us(10.1), "the same moment", 3),
        ]
    )
    zooms = {word[TEXT]: word[ZOOM] for word in words}
    assert zooms["an error"] == 0
    assert zooms["another line"] == 0, "a text on another line overlaps nothing"
    # The two texts are 0.1 s apart, which is 10 pixels at a zoom of 100: less than a word's width.
    assert float(zooms["a word"] or 0) > 100, "pixels a second"
    # A text usually begins at its time and extends to the right. From a nearer zoom on, there is
    # room for it on the left side, too.
    zooms_for_left_side = {word[TEXT]: float(word[LEFT_ZOOM] or 0) for word in words}
    assert zooms_for_left_side["a word"] > float(zooms["a word"] or 0)
    assert "the same moment" not in zooms, "no zoom separates two texts of one moment"


def test_timeline_of_an_empty_run_is_none() -> None:
    """A run that ended before its first event has no time line."""
    assert timeline(report_input()) is None


def test_timeline_has_its_lanes_in_order() -> None:
    """Faults are causes, so their lane is above the lanes of their effects."""
    section = timeline(report_input(run_facts(faults=(journal_entry(),))))
    assert section is not None
    assert [part.id for part in section.parts if isinstance(part, Chart)] == ["lane-faults"]
