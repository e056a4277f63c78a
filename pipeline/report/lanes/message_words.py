"""Texts of the message diagrams: names of requests, outcomes, and links to moments.

A diagram shows the exchanges (requests with their answers) around one fault. Above the diagram is a
sentence with links: "Jump to the fault, election and load, the first member that gave its
coordinator up." Each link zooms to a turn: a moment, or a short time, in which something changed.
"""

from collections.abc import Iterator

from markupsafe import Markup

from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Row
from results_schema.journal import JournalEntry

SUCCESS = "NONE"
"""The outcome of an exchange that succeeded."""
EXPECTED = frozenset(
    {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"}
)
"""Errors that are steps of the protocol in normal operation. They do not count as failures."""
EXPELLED = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"})
"""Errors by which a member learns that it is no longer a member of its group."""
_NOT_ANSWERED = {
    "TIMED_OUT": "no answer (request timeout)",
    "DISCONNECTED": "disconnected",
    "no answer": "no answer",
}
"""Texts for the outcomes of requests that got no answer. No such outcome is an error that a broker
sends."""


def unanswered(row: Row) -> bool:
    """Return whether no answer reached the client."""
    return row["outcome"] in _NOT_ANSWERED


def failed(row: Row) -> bool:
    """Return whether an exchange failed: it was no success, and its error is not in EXPECTED."""
    return row["outcome"] != SUCCESS and row["outcome"] not in EXPECTED


def outcome_words(row: Row) -> str:
    """Return the text for the outcome of an exchange.

    This is `success`, the name of an error, or a text of _NOT_ANSWERED.
    """
    outcome: str = row["outcome"]
    return "success" if outcome == SUCCESS else _NOT_ANSWERED.get(outcome, outcome)


def request_words(row: Row) -> str:
    """Return the name of a request. For a Fetch from a controller, the name tells what is read."""
    api: str = row["api"]
    reads_metadata = api == "Fetch" and row["to_node"].startswith("controller-")
    return "Fetch (__cluster_metadata)" if reads_metadata else api


def jumps(run: ReportInput, fault: JournalEntry, *, lane: str) -> Markup:
    """Return the sentence with links to the turns of a fault; "" if no turn is known."""
    turns = list(_turns(run, fault))
    return render_line("words", "jumps", turns, lane) if turns else Markup("")


def _turns(run: ReportInput, fault: JournalEntry) -> Iterator[tuple[str, int, int | None]]:
    """Yield each turn: its text, its beginning, and its end (None if it has no length)."""
    if fault.injected_at_us is not None:
        yield "the fault", fault.injected_at_us, None
    yield from _change_of_coordinator(run, fault)
    yield from _members_without_coordinator(run, fault)
    if fault.healed_at_us is not None and not fault.momentary:
        yield "its healing", fault.healed_at_us, None


def _change_of_coordinator(
    run: ReportInput, fault: JournalEntry
) -> Iterator[tuple[str, int, int | None]]:
    """Yield the turn of the first election of a new leader for an offsets partition with groups.

    The turn ends when the new leader has loaded the partition.
    """
    moved = [
        row
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault_id and row["groups"] and row["decided_us"] is not None
    ]
    if moved:
        first = min(moved, key=lambda row: row["decided_us"])
        yield "election and load", first["decided_us"], first["active_us"]


def _members_without_coordinator(
    run: ReportInput, fault: JournalEntry
) -> Iterator[tuple[str, int, int | None]]:
    """Yield turns for the first and the last member that gave its coordinator up.

    The turn of a member begins when the member gave its coordinator up, and ends when the new
    coordinator accepted the member.
    """
    lost: list[Row] = [
        row
        for row in run.tables.rows("client_phases")
        if row["fault"] == fault.fault_id and row["unknown_us"] is not None
    ]
    lost.sort(key=lambda row: (row["unknown_us"], row["consumer"]))
    if lost:
        first = lost[0]
        text = "the first member that gave its coordinator up"
        yield text, first["unknown_us"], first["accepted_us"]
    if len(lost) > 1:
        last = lost[-1]
        yield "the last one", last["unknown_us"], last["accepted_us"]
