"""The sections about the run itself: its settings, and how to run it again.

The page first lists settings that differ from Kafka's default, then settings of the experiment. It
folds (hides until a click) the settings that equal the default.
"""

from pipeline.report.charts.chart import Paragraph, Section, TextTable
from pipeline.report.facts import SettingFact
from pipeline.report.sections.configuration import configuration_section
from pipeline.report.sections.replay import replay_section
from tests.support.builders.report_inputs import report_input, run_facts

SESSION = "session.timeout.ms"


def _setting(
    name: str, value: str, default: str | None, section: str = "cluster.config"
) -> SettingFact:
    """Return a setting; a `default` of None means that Kafka has no such setting."""
    return SettingFact(section=section, name=name, value=value, default=default)


def _tables(section: Section | None) -> list[TextTable]:
    """Return the tables of a section."""
    assert section is not None
    return [part for part in section.parts if isinstance(part, TextTable)]


def _configuration(*settings: SettingFact) -> list[TextTable]:
    """Return the tables of the section about a run's settings."""
    return _tables(configuration_section(report_input(run_facts(settings=settings))))


def test_configuration_begins_with_the_differences_from_kafka() -> None:
    """Settings that differ from Kafka's defaults decide whether a result applies elsewhere.

    Next come settings of the experiment, which Kafka does not have. The defaults come last.
    """
    differs, experiment, rest = _configuration(
        _setting("default.replication.factor", "1", default="1"),
        _setting("min.insync.replicas", "2", default="1"),
        _setting("members", "12", default=None, section="groups.readers"),
        _setting("commit_interval_ms", "200", default="not set", section="groups.readers"),
    )
    assert differs.rows == (("min.insync.replicas", "2", "1", "cluster"),)
    assert [row[0] for row in experiment.rows] == ["members", "commit_interval_ms"]
    assert rest.folded == "1 more setting: the defaults"


def test_configuration_of_late_members_has_only_differences_from_their_group() -> None:
    """Late members inherit their group's settings, so 6000 at both is listed once."""
    late = "groups.readers.late_members[0].config"
    differs, _rest = _configuration(
        _setting(SESSION, "6000", default="45000", section="groups.readers.config"),
        _setting(SESSION, "6000", default="45000", section=late),
        _setting("bootstrap.servers", "broker-0", default="none", section=late),
    )
    # Column 0 is the setting's name, column 3 its section.
    assert [(row[0], row[3]) for row in differs.rows] == [
        (SESSION, "groups.readers"),
        ("bootstrap.servers", "groups.readers.late_members[0]"),
    ]


def test_configuration_without_a_difference_is_one_sentence() -> None:
    """An empty table of differences would look like a mistake."""
    section = configuration_section(
        report_input(run_facts(settings=(_setting(SESSION, "45000", "45000"),)))
    )
    assert section is not None
    assert section.parts[0] == Paragraph(html="<p>Every Kafka setting has its default.</p>")


def test_replay_has_the_command_the_other_runtime_and_the_origin_of_the_run() -> None:
    """A person who receives the page can run the same experiment, in virtual time and on Ray."""
    facts = run_facts(digest="abc", versions={"python": "3.11.7"}, experiment_yaml="name: <x>\n")
    section = replay_section(report_input(facts))
    html = "".join(part.html for part in section.parts if isinstance(part, Paragraph))
    # The manifest has the command that repeats the run; the page adds that of the other runtime.
    assert facts.manifest.replay in html
    assert facts.manifest.replay.replace("--runtime virtual", "--runtime ray") in html
    assert "name: &lt;x&gt;" in html
    assert "byte for byte" in section.lead
    (table,) = _tables(section)
    assert {("seed", "7"), ("trace digest", "abc"), ("python", "3.11.7")} <= set(table.rows)


def test_replay_on_ray_promises_no_same_trace() -> None:
    """Ray runs real processes, which are not deterministic."""
    facts = run_facts(runtime="ray", replay="python -m coordlab run a_run --runtime ray --seed 7")
    assert "no two runs are alike" in replay_section(report_input(facts)).lead


def test_replay_links_only_to_pages_of_the_web() -> None:
    """An experiment file may hold any text, but the page must have no link that runs a script."""
    facts = run_facts(links={"docs": "https://kafka.apache.org", "bad": "javascript:alert(1)"})
    section = replay_section(report_input(facts))
    html = "".join(part.html for part in section.parts if isinstance(part, Paragraph))
    assert "https://kafka.apache.org" in html
    assert "javascript:" not in html
