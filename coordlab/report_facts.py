"""`facts_of`: the facts of a run that its report needs, and that are not in Spark's tables.

The facts come from the JSON files of the run, and from the package `chaos`, which knows the
promises, the defaults, and the form of an experiment file. A run that failed or was killed needs a
report more than others, and often lacks a file. So if a JSON file is missing or damaged, the report
is written without its facts.

The manifest is the file of a run that says what the run is. `manifest.config` in it is the whole
experiment as plain data.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec
import yaml

from chaos.checkers.registry import CHECKERS
from chaos.experiment.dump import experiment_text
from chaos.experiment.loader import EXPERIMENTS
from chaos.experiment.structs import Experiment
from chaos.faults.registry import FAULT_KINDS
from chaos.results.run_directory import NotARun, PastRun
from coordlab.settings_facts import settings_of
from pipeline.report.facts import RunFacts, Status
from protocol.config import KAFKA_VERSION
from results_schema.journal import JournalEntry
from results_schema.manifest import Manifest, PlannedFault, RunStatus
from results_schema.results import Results

_COORDINATOR_SWITCH = "group.coordinator.new.enable"
_COORDINATORS = {
    False: f"the Scala coordinator of Apache Kafka {KAFKA_VERSION}, {_COORDINATOR_SWITCH}=false",
    True: f"Kafka's Java coordinator, {_COORDINATOR_SWITCH}=true",
}
"""By value of the switch, which is a setting of the brokers: the implementation of the group
coordinator that brokers with this value use."""


def facts_of(past: PastRun) -> RunFacts:
    """Return the facts about a run.

    - `losses` are sentences about damaged files, and about missing parts of the trace (the events
      that the run recorded).
    - `promises` has, for each check, the sentence about Kafka that the check verifies.
    """
    manifest = past.manifest
    results, results_problems = _results(past)
    entries, journal_problems = _entries(past, results)
    return RunFacts(
        manifest=manifest,
        results=results,
        status=status_of(past),
        faults=entries,
        losses=(*manifest.losses, *results_problems, *journal_problems),
        promises={name: checker.promise for name, checker in CHECKERS.items()},
        settings=settings_of(manifest.config),
        experiment_file=_file_of(manifest),
        experiment_yaml=experiment_yaml(manifest.config),
        coordinator=_coordinator(manifest.config),
    )


def status_of(past: PastRun) -> Status:
    """Return how a run ended, or that it is running.

    "killed": its process is gone, and has recorded no end.
    """
    match past.manifest.status:
        case RunStatus.RUNNING:
            return "killed" if past.incomplete else "running"
        case RunStatus.COMPLETED:
            return "completed"
        case RunStatus.FAILED:
            return "failed"
        case RunStatus.INTERRUPTED:
            return "interrupted"


def experiment_yaml(config: Mapping[str, Any]) -> str:
    """Return the text of an experiment file that has only settings that differ from the defaults.

    If this version of coordlab does not know some key or value, the text has all of `config`.
    """
    try:
        return experiment_text(msgspec.convert(config, Experiment))
    except msgspec.ValidationError:
        text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)
        return text


def _results(past: PastRun) -> tuple[Results | None, tuple[str, ...]]:
    """Return the results, or None and a sentence that says why they cannot be read.

    A run without results has None and no sentence, which is no problem.
    """
    try:
        return past.results(), ()
    except NotARun as error:
        return None, (str(error),)


def _entries(
    past: PastRun, results: Results | None
) -> tuple[tuple[JournalEntry, ...], tuple[str, ...]]:
    """Return an entry for each fault of the plan, and a sentence if the journal is damaged.

    The journal is the file in which a run records the times and nodes of each fault. If it has no
    entries, they come from the results, or else from the plan. An entry from the plan says that its
    fault was not injected.
    """
    damage: tuple[str, ...] = ()
    entries: tuple[JournalEntry, ...] = ()
    try:
        entries = past.journal()
    except NotARun as error:
        damage = (str(error),)
    if not entries and results is not None:
        entries = results.faults
    return entries or tuple(_planned(fault) for fault in past.manifest.plan), damage


def _planned(fault: PlannedFault) -> JournalEntry:
    """Return the entry of a fault that was not injected."""
    # The plan of another version can have a kind of fault that this version does not know. Such a
    # kind counts as not momentary.
    kind = FAULT_KINDS.get(fault.fault)
    return JournalEntry.of(fault, momentary=kind is not None and kind.momentary)


def _file_of(manifest: Manifest) -> str | None:
    """Return the path of the experiment's file without the folders of this machine.

    A file in a folder `experiments` has the path `experiments/<name>.yaml`. Any other file has its
    path of the command line, or only its name if that path was absolute.
    """
    if manifest.experiment_file is None:
        return None
    path = PurePath(manifest.experiment_file)
    if not path.is_absolute():
        return path.as_posix()
    # The name of an experiment can lead to the folder of this installation, whose path is absolute.
    is_in_experiments = path.parent.name == EXPERIMENTS
    return f"{EXPERIMENTS}/{path.name}" if is_in_experiments else path.name


def _coordinator(config: Mapping[str, Any]) -> str | None:
    """Return which of Kafka's coordinators a run modelled; None if the run did not record it."""
    # `config` can be of another version, so each of the keys can be missing.
    value: object = config
    for key in ("cluster", "config", _COORDINATOR_SWITCH):
        value = value.get(key) if isinstance(value, Mapping) else None
    return _COORDINATORS[value] if isinstance(value, bool) else None
