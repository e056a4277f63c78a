"""The section `configuration`: what differs from the defaults first, everything else folded."""

from collections.abc import Iterator, Sequence

from pipeline.report.charts.chart import Paragraph, Part, Section
from pipeline.report.columns import Column, number, text_table
from pipeline.report.facts import SettingFact
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.summary.story import counted

_KAFKAS = ".config"
"""How the names of sections end that hold Kafka's own settings."""
_LATE = ".late_members["
_COLUMNS = (
    Column(lambda setting: setting.name, "setting"),
    number(lambda setting: setting.value, "here"),
    number(lambda setting: setting.default, "default"),
    Column(lambda setting: setting.section.removesuffix(_KAFKAS), "of"),
)
"""The section for people: `groups.readers.config` as `groups.readers`."""


def configuration_section(run: ReportInput) -> Section | None:
    """Return the run's settings; None: nothing is known of them."""
    settings = run.facts.settings
    if not settings:
        return None
    kafkas = [each for each in settings if _is_kafkas(each) and _stands_out(each, settings)]
    labs = [
        each for each in settings if not _is_kafkas(each) and (each.differs or not each.default)
    ]
    first = {id(each) for each in (*kafkas, *labs)}
    rest = [each for each in settings if id(each) not in first]
    return Section(
        id="configuration",
        title="Configuration",
        lead="What this run had otherwise than Kafka has by default, then the experiment itself.",
        parts=tuple(_parts(kafkas, labs, rest)),
    )


def _parts(
    kafkas: Sequence[SettingFact], labs: Sequence[SettingFact], rest: Sequence[SettingFact]
) -> Iterator[Part]:
    if kafkas:
        yield text_table(_COLUMNS, kafkas, caption="Other than Kafka's defaults")
    else:
        yield Paragraph(html=render_line("words", "plain", "Every Kafka setting has its default"))
    if labs:
        experiment = "The experiment: its size, its load, and what of the lab was set"
        yield text_table(_COLUMNS, labs, caption=experiment)
    if rest:
        folded = f"{counted(len(rest), 'more setting')}: the defaults"
        yield text_table(_COLUMNS, rest, folded=folded)


def _is_kafkas(setting: SettingFact) -> bool:
    return setting.section.endswith(_KAFKAS)


def _stands_out(setting: SettingFact, settings: Sequence[SettingFact]) -> bool:
    """Whether a Kafka setting is to be shown first; of late members what the group does not say."""
    if not setting.differs:
        return False
    if _LATE not in setting.section:
        return True
    group = setting.section.split(_LATE)[0] + _KAFKAS
    return not any(
        each.section == group and each.name == setting.name and each.value == setting.value
        for each in settings
    )
