"""`list`: what stands beside a run's verdict."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coordlab.cli import run_cli
from pipeline.summary.outcomes import Owners
from pipeline.summary.summary_file import read_summary, write_summary
from results_schema.results import EXIT_PASS, Verdict
from tests.support.builders.past_runs import analysed_run
from tests.support.builders.report_rows import S

BOTH = Owners(
    group="g",
    partitions=1,
    first_coordinator=("broker-2", 0),
    first_consumers=("consumer-0",),
    second_coordinator=("broker-0", 1),
    second_consumers=("consumer-1",),
    from_us=10 * S,
    to_us=39 * S,
    longest_us=29 * S,
    records_both=7,
    healed_us=None,
)


@pytest.mark.parametrize(("verdict", "marked"), [(Verdict.PASS, True), (Verdict.VIOLATED, False)])
def test_pass_above_two_owners_is_marked(
    verdict: Verdict, marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of green words would hide it; a broken promise says enough."""
    run = analysed_run(tmp_path, verdict=verdict)
    summary = read_summary(run.path)
    assert summary is not None
    write_summary(replace(summary, owners=(BOTH,)))

    assert run_cli(["list", "--runs", str(tmp_path)]) == EXIT_PASS
    shown = capsys.readouterr().out
    assert run_cli(["list", "--runs", str(tmp_path), "--json"]) == EXIT_PASS
    (listed,) = json.loads(capsys.readouterr().out)["runs"]

    assert (f"{verdict.value} *" in shown) is marked
    assert ("* passed, and felt two owners at once" in " ".join(shown.split())) is marked
    clause = "two members owned a partition of g at once for 29.00 s"
    assert listed["caveats"] == ([clause] if marked else [])
