"""Links to the moments of a fault at which its message diagram is worth a look."""

from collections.abc import Iterator

from markupsafe import Markup

from pipeline.report.report_input import ReportInput
from pipeline.report.run_tables import Row
from pipeline.report.sentences.words import moment_link
from results_schema.journal import JournalEntry


def jumps(run: ReportInput, fault: JournalEntry, *, lane: str) -> Markup:
    """Return a sentence of links that zoom to the turns of a fault; nothing if none is known."""
    links = [
        moment_link(from_us, to_us, lane=lane, text=text)
        for text, from_us, to_us in _turns(run, fault)
    ]
    return Markup(" Jump to {}.").format(Markup(", ").join(links)) if links else Markup("")


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
