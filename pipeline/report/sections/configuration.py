"""The section `configuration`: the settings of a run.

It has three tables:

1. Kafka's own settings that differ from Kafka's defaults.
2. The settings that make up the experiment, such as its size and its load.
3. All other settings. This table is folded: the reader must open it.
"""

from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import Paragraph, Part, Section
from pipeline.report.columns import Column, number, text_table
from pipeline.report.facts import SettingFact
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.summary.story import counted

_KAFKA_SUFFIX = ".config"
"""The end of the names of sections with Kafka's own settings, such as `groups.readers.config`."""
_LATE = ".late_members["
"""Text in the names of sections about late members, such as
`groups.readers.late_members[0].config`. Late members join the group later than its first members.
"""
_COLUMNS = (
    Column(lambda setting: setting.name, "setting"),
    number(lambda setting: setting.value, "here"),
    number(lambda setting: setting.default, "default"),
    Column(lambda setting: setting.section.removesuffix(_KAFKA_SUFFIX), "of"),
)
"""The columns of each table. The column `of` has the section, such as `groups.readers`."""


def configuration_section(run: ReportInput) -> Section | None:
    """Return the section; None if the run recorded no settings."""
    settings = run.facts.settings
    if not settings:
        return None
    of_kafka = [
        setting for setting in settings if _is_of_kafka(setting) and _stands_out(setting, settings)
    ]
    of_experiment = [
        setting
        for setting in settings
        # A setting without a default, such as the name of a group, must be set in each experiment.
        # So it says what the experiment is.
        if not _is_of_kafka(setting) and (setting.differs or not setting.default)
    ]
    # Two settings can be equal, so `id` is used to tell which of them are in a table already.
    ids_in_tables = {id(setting) for setting in (*of_kafka, *of_experiment)}
    rest = [setting for setting in settings if id(setting) not in ids_in_tables]
    return Section(
        id="configuration",
        title="Configuration",
        lead="What this run had otherwise than Kafka has by default, then the experiment itself.",
        parts=tuple(_parts(of_kafka, of_experiment, rest)),
    )


def _parts(
    of_kafka: Sequence[SettingFact],
    of_experiment: Sequence[SettingFact],
    rest: Sequence[SettingFact],
) -> Iterator[Part]:
    """Yield the tables. If no setting of Kafka's differs, a sentence replaces the first table."""
    if of_kafka:
        yield text_table(_COLUMNS, of_kafka, caption="Other than Kafka's defaults")
    else:
        yield Paragraph(html=render_line("words", "plain", "Every Kafka setting has its default"))
    if of_experiment:
        caption = "The experiment: its size, its load, and what of the lab was set"
        yield text_table(_COLUMNS, of_experiment, caption=caption)
    if rest:
        folded = f"{counted(len(rest), 'more setting')}: the defaults"
        yield text_table(_COLUMNS, rest, folded=folded)


def _is_of_kafka(setting: SettingFact) -> bool:
    """Return whether a setting is one of Kafka's own, and not of coordlab."""
    return setting.section.endswith(_KAFKA_SUFFIX)


def _stands_out(setting: SettingFact, settings: Sequence[SettingFact]) -> bool:
    """Return whether a Kafka setting is in the first table, because it differs from its default.

    Late members have sections of their own, which repeat the settings of their group. A setting of
    late members is in the table only if its value differs from the group's value.
    """
    if not setting.differs:
        return False
    if _LATE not in setting.section:
        return True
    # `groups.readers.late_members[0].config` becomes `groups.readers.config`.
    section_of_group = setting.section.split(_LATE)[0] + _KAFKA_SUFFIX
    repeats_group = any(
        other.section == section_of_group
        and other.name == setting.name
        and other.value == setting.value
        for other in settings
    )
    return not repeats_group
