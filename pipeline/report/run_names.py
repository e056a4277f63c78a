"""Names for the columns of the page that compares runs, such as `members 3`.

A name has what distinguishes a run from the others: its experiment, its runtime, and the settings
that differ. Runs with equal names share a column. A setting is identified by its section and its
name in the experiment's file, such as `groups.a` and `members`.
"""

from collections.abc import Iterator, Sequence

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.summary.comparison import MAX_COLUMNS

_MAX_SETTINGS = 3
"""Maximum number of settings in one name."""
_NOT_OF_THE_RUN = frozenset({"name", "question", "expect"})
"""Entries of an experiment's file that describe the experiment, and have no effect on the run."""


def settings_that_differ(
    runs: Sequence[RunFacts],
) -> tuple[tuple[str, str, tuple[str | None, ...]], ...]:
    """Return the settings in which runs differ, in the order of the first run that has them.

    An entry is a tuple of the setting's section, its name, and its value in each run. The value is
    None if the run does not have the setting.
    """
    values = [{_key(setting): setting.value for setting in run.settings} for run in runs]
    # `fromkeys` keeps each setting once, in the order of its first occurrence.
    keys = dict.fromkeys(key for of_run in values for key in of_run)
    differing = []
    for section, name in keys:
        value_in_runs = tuple(of_run.get((section, name)) for of_run in values)
        if len(set(value_in_runs)) > 1 and name not in _NOT_OF_THE_RUN:
            differing.append((section, name, value_in_runs))
    return tuple(differing)


def _key(setting: SettingFact) -> tuple[str, str]:
    return setting.section, setting.name


def column_names(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """Return a name for each run: its experiment, runtime and settings, as far as they differ.

    Up to MAX_COLUMNS runs get different names. If names are still equal, the seed follows, then the
    start time, then the run's own name. If there are more runs, those with the same settings share
    a name, and so a column.
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
    # Each of these three parts is added only to names that are still equal after the part before.
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
    """Return the settings in each run's name: those that differ between runs of its experiment.

    For two runs of an experiment, this can be [["members 3"], ["members 10"]].
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
    differing: Sequence[tuple[str, str, tuple[str | None, ...]]],
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield settings with the shortest names that distinguish them, and their values in each run.

    If settings of several sections have the same name, and in each run the same value, they become
    one: `members 3` instead of `groups.old.members 3, groups.new.members 3`.
    """
    # By the setting's name, then by its values in the runs: the first section that has them.
    by_name: dict[str, dict[tuple[str | None, ...], str]] = {}
    for section, name, values in differing:
        by_name.setdefault(name, {}).setdefault(values, section)
    for name, sections in by_name.items():
        for values, section in sections.items():
            yield (f"{section}.{name}" if len(sections) > 1 else name), values
