"""`facts_of`: the facts of a run for its report that are not in the tables.

They come from the JSON files of the run, and from the package `chaos`: promises, defaults, the
experiment as a file. The report is written without the facts of a missing or damaged JSON file,
because runs that failed or were killed need a report most.

- Manifest: the file of a run that says what it is. `manifest.config` is the whole experiment as
  plain data.
- Journal: the file with an entry for each fault of the plan, with its times and nodes.
- Losses: sentences on missing parts of the trace, here also on damaged files.
- Promise: the sentence that a check verifies.
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
"""Kafka has two coordinators; a setting of the brokers, the switch, chooses one."""


def facts_of(past: PastRun) -> RunFacts:
    """Return the facts in the JSON files of a run."""
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
    """Return how a run ended: "killed" if its process is gone and recorded no end."""
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
    """Return the text of an experiment file with the settings that differ from the defaults.

    If this version does not know some key, the text has all of `config` instead.
    """
    try:
        return experiment_text(msgspec.convert(config, Experiment))
    except msgspec.ValidationError:
        text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)
        return text


def _results(past: PastRun) -> tuple[Results | None, tuple[str, ...]]:
    """Return the results, or None and a sentence with the reason."""
    try:
        return past.results(), ()
    except NotARun as error:
        return None, (str(error),)


def _entries(
    past: PastRun, results: Results | None
) -> tuple[tuple[JournalEntry, ...], tuple[str, ...]]:
    """Return the plan's entries and a sentence on damage, if there is any.

    The entries come from the journal; else from the results; else from the plan, as not injected.
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
    kind = FAULT_KINDS.get(fault.fault)
    return JournalEntry.of(fault, momentary=kind is not None and kind.momentary)


def _file_of(manifest: Manifest) -> str | None:
    """Return the experiment's file as a reader on another machine can find it.

    `experiments/<name>.yaml` for an experiment that is run by name; for others the path on the
    command line, or only the file's name if that path was absolute.
    """
    if manifest.experiment_file is None:
        return None
    path = PurePath(manifest.experiment_file)
    if not path.is_absolute():
        return path.as_posix()
    is_by_name = path.parent.name == EXPERIMENTS
    return f"{EXPERIMENTS}/{path.name}" if is_by_name else path.name


def _coordinator(config: Mapping[str, Any]) -> str | None:
    """Return the coordinator of Kafka that a run modelled; None if the run did not record it."""
    value: object = config
    for key in ("cluster", "config", _COORDINATOR_SWITCH):
        value = value.get(key) if isinstance(value, Mapping) else None
    return _COORDINATORS[value] if isinstance(value, bool) else None
