"""Two sections of a report about the run itself: its settings, and how to run it again."""

from pipeline.report.charts.chart import Paragraph, Section, TextTable
from pipeline.report.facts import SettingFact
from pipeline.report.sections.configuration import configuration_section
from pipeline.report.sections.replay import replay_section
from tests.support.builders.report_inputs import report_input, run_facts

SESSION_TIMEOUT = "session.timeout.ms"


def _setting(
    name: str, value: str, default: str | None, section: str = "cluster.config"
) -> SettingFact:
    """Return a setting, by default a setting of the brokers.

    If `default` is None, the setting has no default, like the number of members.
    """
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

    So their table comes first. The second table has settings of the experiment, which Kafka does
    not have. The third has the settings that equal Kafka's defaults, and is hidden until a click.
    """
    differences, of_experiment, defaults = _configuration(
        _setting("default.replication.factor", "1", default="1"),
        _setting("min.insync.replicas", "2", default="1"),
        _setting("members", "12", default=None, section="groups.readers"),
        _setting("commit_interval_ms", "200", default="not set", section="groups.readers"),
    )
    # The cells: name, value, default, and the part of the experiment that has the setting.
    assert differences.rows == (("min.insync.replicas", "2", "1", "cluster"),)
    assert [name for name, *_ in of_experiment.rows] == ["members", "commit_interval_ms"]
    assert defaults.folded == "1 more setting: the defaults"


def test_configuration_of_late_members_has_only_differences_from_their_group() -> None:
    """Members that join late inherit their group's settings.

    The session timeout is 6000 for the group and for its late members, so it is listed only for the
    group.
    """
    late = "groups.readers.late_members[0].config"
    differences, _defaults = _configuration(
        _setting(SESSION_TIMEOUT, "6000", default="45000", section="groups.readers.config"),
        _setting(SESSION_TIMEOUT, "6000", default="45000", section=late),
        _setting("bootstrap.servers", "broker-0", default="none", section=late),
    )
    names_and_sections = [(name, section) for name, _, _, section in differences.rows]
    assert names_and_sections == [
        (SESSION_TIMEOUT, "groups.readers"),
        ("bootstrap.servers", "groups.readers.late_members[0]"),
    ]


def test_configuration_without_a_difference_is_one_sentence() -> None:
    """An empty table of differences would look like a mistake."""
    section = configuration_section(
        report_input(run_facts(settings=(_setting(SESSION_TIMEOUT, "45000", default="45000"),)))
    )
    assert section is not None
    assert section.parts[0] == Paragraph(html="<p>Every Kafka setting has its default.</p>")


def test_replay_has_the_command_the_other_runtime_and_the_origin_of_the_run() -> None:
    """A person who receives the page can run the experiment again, in virtual time or on Ray.

    This run was played in virtual time (`--runtime virtual`). The page also has the command for
    real processes (`--runtime ray`).
    """
    facts = run_facts(digest="abc", versions={"python": "3.11.7"}, experiment_yaml="name: <x>\n")
    section = replay_section(report_input(facts))
    html = "".join(part.html for part in section.parts if isinstance(part, Paragraph))
    assert facts.manifest.replay in html
    assert facts.manifest.replay.replace("--runtime virtual", "--runtime ray") in html
    assert "name: &lt;x&gt;" in html
    # In virtual time, a repeated run has the same trace, byte for byte.
    assert "byte for byte" in section.lead
    (table,) = _tables(section)
    # The trace digest is a hash of all rows of the trace.
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
