"""The fault lane, and the bands behind all lanes: accidents do not look like faults of the plan.

The plan of a run lists its intended faults. An accident is not one of them: a machine was lost or
disturbed during the run. In the data of a bar, `x` is 1 for an accident, `l` is the long label and
`s` the short one.
"""

from pipeline.report.lanes.faults import faults_lane
from pipeline.report.lanes.marks import fault_bands
from pipeline.report.report_input import ReportInput
from results_schema.journal import JournalEntry
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts

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
    return report_input(run_facts(faults=faults))


def test_bar_of_an_accident_has_its_own_label_and_style() -> None:
    """Without its own label, the bar of an accident would look like a fault of the plan."""
    lane = faults_lane(run_with(journal_entry(), ACCIDENT))
    assert lane is not None
    planned, accident = lane.data["parts"]
    assert planned["l"] == "crash broker-2"
    assert "x" not in planned
    assert accident["x"] == 1
    assert accident["l"] == f"by accident: {NOTE}"
    assert accident["s"] == "accident"
    assert lane.table is not None
    # Column 1 of the table is the kind of the fault.
    assert [row[1] for row in lane.table.rows] == ["crash", "machine_disturbed"]


def _is_band(layer: dict[str, dict[str, str]]) -> bool:
    return layer["mark"]["type"] == "rect"


def test_band_of_an_accident_is_grey() -> None:
    """One layer draws the bands of accidents in grey, another draws those of the plan in orange.

    A run without accidents has only the orange layer. The page's names of the colours are `muted`
    (grey) and `warn` (orange).
    """
    lanes = [faults_lane(run_with(*faults)) for faults in ((journal_entry(),), (ACCIDENT,))]
    fills = [
        [layer["mark"]["fill"] for layer in lane.spec.to_dict()["layer"] if _is_band(layer)]
        for lane in lanes
        if lane is not None
    ]
    assert fills == [["var(--warn)"], ["var(--muted)", "var(--warn)"]]
    (band,) = fault_bands(run_with(ACCIDENT))
    assert (band["a"], band["b"]) == (24.1, 36.3)
