"""The page that compares runs of two deploys: its first screen says which deploy costs less.

In a deploy, or rollout, the members of a group are replaced one after the other. The two deploys
here differ in the kind of members:

- Dynamic members leave and join, so the group rebalances.
- A static member has a configured id, and its successor returns under the same id. So the group
  does not rebalance, but the records of the member wait until the successor is there.

Times are microseconds, and S is one second.
"""

import re
from dataclasses import replace
from pathlib import Path

from pipeline.report.comparison_page import comparison_html
from pipeline.report.facts import RunFacts, SettingFact
from pipeline.summary.felt import Felt, FeltGroup, Spread
from pipeline.summary.figures import RunSummary
from results_schema.journal import BlastRadius, FaultOutcome, JournalEntry
from tests.support.builders.report_inputs import run_facts
from tests.support.builders.report_rows import S, summary_of

QUESTION = "Which deploy costs less?"


def deploy(name: str, waited_us: int, rebalances: int) -> tuple[RunFacts, RunSummary]:
    """Return a run whose rollout replaced four members; records waited for `waited_us` in all."""
    # A place is the name of a member, which the member's successor takes over.
    replaced = [
        {"place": f"m{index}", "stopped_at_us": S, "ready_at_us": 9 * S} for index in range(4)
    ]
    entry = JournalEntry(
        fault_id="rollout-0",
        fault="rollout",
        target="members(readers)",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=S,
        blast_radius=BlastRadius(groups=("readers",)),
        resolved={"outcome": "completed", "replaced": replaced},
    )
    # The group has 8 partitions. The worst of them waited for a quarter of the total time.
    waits = Spread(samples=8, missing=0, p50=0, p90=0, maximum=waited_us // 4, total=waited_us)
    felt_by_readers = FeltGroup(
        partitions=8,
        rebalances=rebalances,
        moved=8,
        came_back=0,
        sent_away=0,
        spreads={"no processing despite records": waits},
    )
    facts = run_facts(run=name, experiment=name, faults=(entry,))
    felt = Felt(in_all=felt_by_readers, groups={"readers": felt_by_readers})
    return facts, replace(summary_of(name, directory=Path(name)), felt=felt)


def text_of(html: str) -> str:
    """Return the visible text: scripts, styles and tags are removed."""
    without_tags = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", html, flags=re.S)
    return " ".join(without_tags.replace("\N{NO-BREAK SPACE}", " ").split())


def test_first_screen_names_the_cheaper_deploy_and_the_difference(tmp_path: Path) -> None:
    """Each cost is shown as a sum, and divided by the four members that were replaced."""
    runs = [
        deploy("dynamic", waited_us=40 * S, rebalances=8),
        deploy("static", waited_us=400 * S, rebalances=0),
    ]
    text = text_of(comparison_html(runs, tmp_path / "page.html"))
    answer = text[text.index(QUESTION) :]
    assert "dynamic is better, 40.00 s against 400.00 s (10 times less)" in answer
    assert "for each replaced member 10.00 s against 100.00 s." in answer
    assert (
        "Rebalances: static is better, 0 against 8; for each replaced member 0.00 against 2.00."
        in answer
    )
    assert "In dynamic 8 rebalances gave 8 of 8 partitions to other members" in answer
    assert "In static there was no rebalance, and no partition got another owner" in answer
    assert answer.index("times less") < answer.index("What the deploy cost")
    assert "records waited, all partitions, for each replaced member 10.00 s 100.00 s" in text


def test_first_screen_names_the_settings_in_which_the_deploys_differ(tmp_path: Path) -> None:
    """A reader who got the page by mail does not have the experiment's file."""
    runs = []
    for name, value in (("dynamic", "not set"), ("static", "member-{index}")):
        facts, summary = deploy(name, waited_us=40 * S, rebalances=0)
        setting = SettingFact(section="groups.readers", name="id", value=value)
        runs.append((replace(facts, settings=(setting,)), summary))
    text = text_of(comparison_html(runs, tmp_path / "page.html"))
    assert "dynamic and static 2 RUNS" in text
    assert "The setting groups.readers.id: not set in dynamic, member-{index} in static." in text


def test_page_without_two_deploys_asks_nothing_about_them(tmp_path: Path) -> None:
    """Only one of the two runs has a rollout, so there is nothing to compare."""
    facts, summary = deploy("dynamic", waited_us=40 * S, rebalances=8)
    without_rollout = (replace(facts, faults=()), summary)
    html = comparison_html([(facts, summary), without_rollout], tmp_path / "page.html")
    assert QUESTION not in html
    assert "What the deploy cost" not in html
