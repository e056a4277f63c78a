"""Names for the columns of the page that compares runs.

For example, two runs of an experiment have the columns `members 3` and `members 10`, because they
differ only in the setting `members`. If the runs are of several experiments, the name begins with
the experiment: `crash, members 3`. Runs with equal names share a column.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.summary.comparison import MAX_COLUMNS

_MAX_SETTINGS = 3
"""Maximum number of settings in one name."""
_NOT_OF_THE_RUN = frozenset({"name", "question", "expect"})
"""Entries of an experiment's file that describe the experiment, and have no effect on the run."""


class DifferingSetting(NamedTuple):
    """A setting in which runs differ."""

    section: str
    """The section of the experiment's file, such as `groups.a`."""
    name: str
    """The name within the section, such as `members`."""
    values: tuple[str | None, ...]
    """The value in each run; None if the run does not have the setting."""


def settings_that_differ(runs: Sequence[RunFacts]) -> tuple[DifferingSetting, ...]:
    """Return the settings in which runs differ, in the order of the first run that has them."""
    # For each run: the section and the name of a setting -> the value of the setting.
    settings_of_runs = [{_key(setting): setting.value for setting in run.settings} for run in runs]
    # `dict.fromkeys` removes duplicates, and keeps the order.
    keys = dict.fromkeys(key for settings in settings_of_runs for key in settings)
    differing = []
    for section, name in keys:
        values = tuple(settings.get((section, name)) for settings in settings_of_runs)
        if len(set(values)) > 1 and name not in _NOT_OF_THE_RUN:
            differing.append(DifferingSetting(section, name, values))
    return tuple(differing)


def _key(setting: SettingFact) -> tuple[str, str]:
    """Return what names a setting within a run: its section and its name."""
    return setting.section, setting.name


def column_names(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """Return a name for each run, made of what differs: experiment, runtime and settings.

    If there are at most MAX_COLUMNS runs, each run has a column of its own, so all names must
    differ. Equal names get more parts until they differ: the seed, then the start time, then the
    run's own name. If there are more runs, runs with equal names share a column.
    """
    several_experiments = len({run.manifest.experiment for run in runs}) > 1
    several_runtimes = len({run.manifest.runtime for run in runs}) > 1
    settings = _settings_by_run(runs)

    names = []
    for index, run in enumerate(runs):
        parts = [run.manifest.experiment] if several_experiments else []
        parts += [run.manifest.runtime] if several_runtimes else []
        parts += settings[index]
        names.append(", ".join(parts) or run.manifest.experiment)
    if len(runs) > MAX_COLUMNS or len(set(names)) == len(names):
        return tuple(names)

    manifests = [run.manifest for run in runs]
    # In each round, a part is added to the names that are still equal.
    for parts_of_runs in (
        [f"seed {manifest.seed}" for manifest in manifests],
        [manifest.started_at for manifest in manifests],
        [manifest.run for manifest in manifests],
    ):
        names = [
            _distinguished(name, names, part)
            for name, part in zip(names, parts_of_runs, strict=True)
        ]
    return tuple(names)


def _distinguished(name: str, names: Sequence[str], part: str) -> str:
    """Return a name, followed by `part` if several of `names` are equal to it."""
    return f"{name}, {part}" if names.count(name) > 1 else name


def _settings_by_run(runs: Sequence[RunFacts]) -> list[list[str]]:
    """Return the settings in each run's name: `[["members 3"], ["members 10"]]` for two runs.

    These are settings that differ between the runs of the same experiment, at most _MAX_SETTINGS.
    """
    texts_by_run: list[list[str]] = [[] for _ in runs]
    for experiment in dict.fromkeys(run.manifest.experiment for run in runs):
        indexes = [index for index, run in enumerate(runs) if run.manifest.experiment == experiment]
        differing = settings_that_differ([runs[index] for index in indexes])
        for short_name, values in list(_shortest_names(differing))[:_MAX_SETTINGS]:
            for index, value in zip(indexes, values, strict=True):
                value_text = "not set" if value is None else value
                texts_by_run[index].append(f"{short_name} {value_text}")
    return texts_by_run


def _shortest_names(
    differing: Sequence[DifferingSetting],
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield the shortest unambiguous name of each setting, and the setting's value in each run.

    If settings in several sections have the same name and the same values, they become one setting:
    `members` instead of `groups.old.members` and `groups.new.members`.
    """
    # Name -> values -> the first section that has a setting of this name with these values, such as
    # `{"members": {("3", "10"): "groups.old"}}`.
    first_sections: dict[str, dict[tuple[str | None, ...], str]] = {}
    for setting in differing:
        first_sections.setdefault(setting.name, {}).setdefault(setting.values, setting.section)
    for name, section_by_values in first_sections.items():
        for values, section in section_by_values.items():
            needs_section = len(section_by_values) > 1
            yield (f"{section}.{name}" if needs_section else name), values
