"""Accidents do not look like planned faults in the charts of a report.

The plan of a run lists the faults that are injected. An accident is not in the plan: a machine was
lost or disturbed during the run. A lane is a chart over the time of the run. Each fault and each
accident has a bar in the fault lane, and a coloured band behind all other lanes.
"""

from pipeline.report.lanes.faults import faults_lane
from pipeline.report.lanes.marks import fault_bands
from pipeline.report.report_input import ReportInput
from results_schema.journal import JournalEntry
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts

# Keys of a chart's data, which is JSON with short keys to save room.
BEGIN_S, END_S = "a", "b"
LONG_LABEL, SHORT_LABEL = "l", "s"
IS_ACCIDENT = "x"

NOTE = "machine 10.0.0.3 was disturbed from 24.1 to 36.3 s"
ACCIDENT = journal_entry(
    fault_id="machine-0",
    fault="machine_disturbed",
    target="10.0.0.3",
    fired_at_us=24_100_000,
    in_force_from_us=24_100_000,
    in_force_until_us=36_300_000,
    healed_at_us=36_300_000,
    healed_by="itself",
    note=NOTE,
)


def run_with(*faults: JournalEntry) -> ReportInput:
    """Return the input of the report about a run with these faults and accidents."""
    return report_input(run_facts(faults=faults))


def test_bar_of_an_accident_has_its_own_label_and_style() -> None:
    """Without its own label, the bar of an accident would look like a fault of the plan."""
    lane = faults_lane(run_with(journal_entry(), ACCIDENT))
    assert lane is not None
    planned, accident = lane.data["parts"]
    assert planned[LONG_LABEL] == "crash broker-2"
    assert IS_ACCIDENT not in planned
    assert accident[IS_ACCIDENT] == 1
    assert accident[LONG_LABEL] == f"by accident: {NOTE}"
    assert accident[SHORT_LABEL] == "accident"
    assert lane.table is not None
    kinds = [kind for _, kind, *_ in lane.table.rows]
    assert kinds == ["crash", "machine_disturbed"]


def _fills_of_bands(*faults: JournalEntry) -> list[str]:
    """Return the colour of each layer of the fault lane that draws bands."""
    lane = faults_lane(run_with(*faults))
    assert lane is not None
    layers = lane.spec.to_dict()["layer"]
    return [layer["mark"]["fill"] for layer in layers if layer["mark"]["type"] == "rect"]


def test_band_of_an_accident_is_grey() -> None:
    """One layer draws the bands of accidents in grey; another draws planned faults in orange.

    A run without accidents has only the orange layer.
    """
    orange, grey = "var(--warn)", "var(--muted)"
    assert _fills_of_bands(journal_entry()) == [orange]
    assert _fills_of_bands(ACCIDENT) == [grey, orange]
    (band,) = fault_bands(run_with(ACCIDENT))
    assert (band[BEGIN_S], band[END_S]) == (24.1, 36.3)
