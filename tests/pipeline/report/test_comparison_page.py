"""The page that compares several runs: the names of its columns, its figures, and its links.

Each column of the page is a configuration, and is named by the settings in which the runs differ,
such as "broker.session.timeout.ms 18000". Runs with the same settings share a column. The page
links to the report of each run.
"""

import re
from pathlib import Path

import pytest

from pipeline.report.comparison_page import build_comparison, comparison_html
from pipeline.report.facts import RunFacts, SettingFact
from pipeline.report.run_names import column_names, settings_that_differ
from pipeline.summary.figures import RunSummary
from tests.support.builders.report_inputs import run_facts
from tests.support.builders.report_rows import S, fault_summary, summary_of

TIMEOUT = "broker.session.timeout.ms"


def facts(name: str, timeout: str = "9000", seed: int = 7, **changes: object) -> RunFacts:
    """Return the facts of a run of the experiment `a_run`.

    `timeout` is the brokers' session timeout in milliseconds. The name of the run, such as `x/1`,
    also stands for the time of its start.
    """
    settings = (
        SettingFact(section="cluster", name="brokers", value="3"),
        SettingFact(section="cluster.config", name=TIMEOUT, value=timeout, default="9000"),
    )
    return run_facts(run=name, seed=seed, settings=settings, started_at=name, **changes)


def summary(name: str, directory: Path, detect_us: int) -> RunSummary:
    """Return the summary of a run with a crash that the controller detected after `detect_us`.

    The longest time without a commit was one second longer than `detect_us`.
    """
    fault = fault_summary(
        values={"detect": [detect_us], "commit gap": [detect_us + S]}, partitions_moved=1
    )
    return summary_of(name, fault, directory=directory)


def test_runs_are_named_by_the_settings_in_which_they_differ() -> None:
    """A timestamp as the name, for example, would not show which run had the longer timeout."""
    assert column_names([facts("x/1"), facts("x/2", "18000")]) == (
        f"{TIMEOUT} 9000",
        f"{TIMEOUT} 18000",
    )


def test_runs_of_one_configuration_are_named_by_seed_and_then_by_start() -> None:
    """The start distinguishes runs only if their seeds are equal."""
    assert column_names([facts("x/1"), facts("x/2", seed=8)]) == ("a_run, seed 7", "a_run, seed 8")
    assert column_names([facts("x/1"), facts("x/2")]) == (
        "a_run, seed 7, x/1",
        "a_run, seed 7, x/2",
    )


def test_settings_of_one_name_have_their_sections_if_they_differ() -> None:
    """Without sections, `members 3, members 5` would not say which group has 3 members.

    If both groups have the same number of members in each run, the sections are not needed.
    """

    def of_two_groups(name: str, old: str, new: str) -> RunFacts:
        """Return a run of the groups `old` and `new`, with these numbers of members."""
        settings = (
            SettingFact(section="groups.old", name="members", value=old),
            SettingFact(section="groups.new", name="members", value=new),
        )
        return run_facts(run=name, settings=settings)

    assert column_names([of_two_groups("x/1", "3", "5"), of_two_groups("x/2", "7", "9")]) == (
        "groups.old.members 3, groups.new.members 5",
        "groups.old.members 7, groups.new.members 9",
    )
    assert column_names([of_two_groups("x/1", "3", "3"), of_two_groups("x/2", "7", "7")]) == (
        "members 3",
        "members 7",
    )


def test_unlike_runs_are_named_by_their_experiments() -> None:
    """All settings of two different experiments differ, so settings would not help to name runs."""
    other_experiment = facts("y/1", "18000", experiment="another")
    assert column_names([facts("x/1"), other_experiment]) == ("a_run", "another")


def test_many_runs_of_a_configuration_share_its_name() -> None:
    """Runs that differ only in their seeds are samples of one configuration."""
    runs = [
        facts(f"x/{index}", timeout="9000" if index % 2 else "18000", seed=index)
        for index in range(20)
    ]
    assert set(column_names(runs)) == {f"{TIMEOUT} 9000", f"{TIMEOUT} 18000"}


def test_setting_that_only_one_run_has_is_a_difference() -> None:
    """A run of another version of the tool can have other settings."""
    without_timeout = run_facts(
        settings=(SettingFact(section="cluster", name="brokers", value="3"),)
    )
    assert settings_that_differ([facts("x/1"), without_timeout]) == (
        ("cluster.config", TIMEOUT, ("9000", None)),
    )


def test_page_compares_figures_and_settings_and_links_the_runs_reports(tmp_path: Path) -> None:
    """The page is one offline file; links work as long as the files are moved together."""
    directory_1, directory_2 = tmp_path / "runs" / "x/1", tmp_path / "runs" / "x/2"
    directory_1.mkdir(parents=True)
    directory_2.mkdir(parents=True)
    runs = [
        (facts("x/1", timeout="9000"), summary("x/1", directory_1, detect_us=8 * S)),
        (facts("x/2", timeout="18000"), summary("x/2", directory_2, detect_us=17 * S)),
    ]
    # Only the first run has a report.
    (directory_1 / "report.html").write_text("its report")

    written = build_comparison(runs, tmp_path / "compared" / "page.html")

    html = written.read_text()
    assert written == tmp_path / "compared" / "page.html"
    links = re.findall(r'href="([^"#:]+)"', html)
    assert links == ["../runs/x/1/report.html"], "a run without a report has no link"
    assert (written.parent / links[0]).read_text() == "its report"
    for text in ("8.00 s", "17.00 s", "detect p50", TIMEOUT, "comparison-figures", "x/2"):
        assert text in html
    # The diamond marks a difference: the rows of the median and of the maximum of `detect` have it.
    assert html.count("\N{BLACK DIAMOND} detect") == 2
    assert "2 runs in 2 columns." in html
    # Two notes: a single run may be an exception; and the unit of some figures.
    assert "A column of one run is one throw" in html
    assert "a sum over partitions is in partition-seconds" in html
    no_scripts = re.sub(r"<script.*?</script>", "", html, flags=re.S)  # Vega's text contains URLs
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", no_scripts)


def test_page_of_one_column_mentions_no_difference(tmp_path: Path) -> None:
    """The runs differ only in their seeds, so they share one column, and nothing is compared."""
    names = [f"x/{index}" for index in range(10)]
    runs = [
        (facts(name, seed=index), summary(name, tmp_path / name, detect_us=8 * S))
        for index, name in enumerate(names)
    ]

    html = comparison_html(runs, tmp_path / "page.html")

    assert "10 runs, " in html
    assert "figures differ" not in html
    assert "one throw" not in html


def test_comparison_of_nothing_is_refused(tmp_path: Path) -> None:
    """An empty page would look like a result."""
    with pytest.raises(ValueError, match="no run"):
        build_comparison([], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
