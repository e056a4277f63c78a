"""Words of the message diagrams: requests and outcomes as Kafka names them, links to moments."""

from collections.abc import Iterator

from markupsafe import Markup

from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput, Row
from results_schema.journal import JournalEntry

SUCCESS = "NONE"
EXPECTED = frozenset(
    {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"}
)
"""Errors by name that the protocol itself consists of: nothing failed."""
EXPELLED = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"})
"""Errors by which a member learns that its group goes on without it."""
_NOT_ANSWERED = {
    "TIMED_OUT": "no answer (request timeout)",
    "DISCONNECTED": "disconnected",
    "no answer": "no answer",
}
"""What became of requests without answer: these are no error codes of Kafka's."""


def unanswered(row: Row) -> bool:
    """Return whether no answer reached who asked."""
    return row["outcome"] in _NOT_ANSWERED


def failed(row: Row) -> bool:
    """Return whether an exchange failed: neither success nor an answer that is to be expected."""
    return row["outcome"] != SUCCESS and row["outcome"] not in EXPECTED


def outcome_words(row: Row) -> str:
    """Return what became of an exchange: `success`, Kafka's error name, or that no answer came."""
    outcome: str = row["outcome"]
    return "success" if outcome == SUCCESS else _NOT_ANSWERED.get(outcome, outcome)


def request_words(row: Row) -> str:
    """Return a request's name; a fetch from a controller is one of the metadata log."""
    api: str = row["api"]
    of_metadata = api == "Fetch" and row["to_node"].startswith("controller-")
    return "Fetch (__cluster_metadata)" if of_metadata else api


def jumps(run: ReportInput, fault: JournalEntry, *, lane: str) -> Markup:
    """Return a sentence of links that zoom to the turns of a fault; nothing if none is known."""
    turns = list(_turns(run, fault))
    return render_line("words", "jumps", turns, lane) if turns else Markup("")


def _turns(run: ReportInput, fault: JournalEntry) -> Iterator[tuple[str, int, int | None]]:
    """Yield what happened, from when, and until when where it took a while."""
    if fault.injected_at_us is not None:
        yield "the fault", fault.injected_at_us, None
    yield from _change_of_coordinator(run, fault)
    yield from _members(run, fault)
    if fault.healed_at_us is not None and not fault.momentary:
        yield "its healing", fault.healed_at_us, None


def _change_of_coordinator(
    run: ReportInput, fault: JournalEntry
) -> Iterator[tuple[str, int, int | None]]:
    moved = [
        row
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault_id and row["groups"] and row["decided_us"] is not None
    ]
    if moved:
        first = min(moved, key=lambda row: row["decided_us"])
        yield "election and load", first["decided_us"], first["active_us"]


def _members(run: ReportInput, fault: JournalEntry) -> Iterator[tuple[str, int, int | None]]:
    """Yield when the first and the last member changed over to the new coordinator."""
    lost: list[Row] = [
        row
        for row in run.tables.rows("client_phases")
        if row["fault"] == fault.fault_id and row["unknown_us"] is not None
    ]
    lost.sort(key=lambda row: (row["unknown_us"], row["consumer"]))
    texts = ("the first member that gave its coordinator up", "the last one")
    for row, text in zip(lost[:1] + lost[1:][-1:], texts, strict=False):
        yield text, row["unknown_us"], row["accepted_us"]
