"""Collects the facts of a run that its report needs, and that are not in Spark's tables.

The facts come from the JSON files in the run directory: the manifest (what was run, with the whole
experiment as `manifest.config`), the results, and the journal of faults. Users need the report of a
failed run most. But a failed run often lacks one of these files, or has a damaged one. So a missing
file is no error: the report is written without the facts of this file.
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
_COORDINATOR_BY_SWITCH = {
    False: f"the Scala coordinator of Apache Kafka {KAFKA_VERSION}, {_COORDINATOR_SWITCH}=false",
    True: f"Kafka's Java coordinator, {_COORDINATOR_SWITCH}=true",
}
"""Value of the brokers' setting _COORDINATOR_SWITCH -> the kind of group coordinator they have."""


def facts_of(past: PastRun) -> RunFacts:
    """Return the facts about a run.

    The field `losses` has sentences about gaps in the report: a file is damaged, or a part of the
    trace was lost. The field `promises` has the promise that each check watches over.
    """
    manifest = past.manifest
    results, results_problems = _results_or_problem(past)
    entries, journal_problems = _journal_entries(past, results)
    return RunFacts(
        manifest=manifest,
        results=results,
        status=status_of(past),
        faults=entries,
        losses=(*manifest.losses, *results_problems, *journal_problems),
        promises={name: checker.promise for name, checker in CHECKERS.items()},
        settings=settings_of(manifest.config),
        experiment_file=_portable_path(manifest),
        experiment_yaml=experiment_yaml(manifest.config),
        coordinator=_coordinator(manifest.config),
    )


def status_of(past: PastRun) -> Status:
    """Return how a run has ended, or "running".

    A run is "killed" if its process is gone without having recorded an end of the run.
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
    """Return an experiment file with the settings of a run that are not the defaults.

    `config` may be of another version of coordlab, and have a setting that this version does not
    know. Then the defaults are not known either, and the file has all settings.
    """
    try:
        return experiment_text(msgspec.convert(config, Experiment))
    except msgspec.ValidationError:
        text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)
        return text


def _results_or_problem(past: PastRun) -> tuple[Results | None, tuple[str, ...]]:
    """Return the results, or None and a sentence that says why they cannot be read.

    If the run simply has no results, return None without a sentence.
    """
    try:
        return past.results(), ()
    except NotARun as error:
        return None, (str(error),)


def _journal_entries(
    past: PastRun, results: Results | None
) -> tuple[tuple[JournalEntry, ...], tuple[str, ...]]:
    """Return an entry about the fate of each fault, and a sentence if the journal is damaged.

    A run records these entries in its journal, and again in its results. If both are missing, no
    fault was injected. Then the entries are made from the plan.
    """
    problems: tuple[str, ...] = ()
    entries: tuple[JournalEntry, ...] = ()
    try:
        entries = past.journal()
    except NotARun as error:
        problems = (str(error),)
    if not entries and results is not None:
        entries = results.faults
    if not entries:
        entries = tuple(_entry_of_planned_fault(fault) for fault in past.manifest.plan)
    return entries, problems


def _entry_of_planned_fault(fault: PlannedFault) -> JournalEntry:
    """Return the journal entry of a fault that was not injected."""
    # The kind is None if the plan is of another version of coordlab, and this version does not know
    # its fault.
    kind = FAULT_KINDS.get(fault.fault)
    return JournalEntry.of(fault, momentary=kind is not None and kind.momentary)


def _portable_path(manifest: Manifest) -> str | None:
    """Return the path of the experiment's file, without the folders of one machine.

    `<checkout>/experiments/coordinator_crash.yaml` becomes `experiments/coordinator_crash.yaml`.
    `/tmp/mine.yaml` becomes `mine.yaml`. A relative path stays as it is.
    """
    if manifest.experiment_file is None:
        return None
    path = PurePath(manifest.experiment_file)
    if not path.is_absolute():
        return path.as_posix()
    # The path is absolute in two cases: the user has given an absolute path, or only the name of an
    # experiment that comes with coordlab.
    is_in_experiments = path.parent.name == EXPERIMENTS
    return f"{EXPERIMENTS}/{path.name}" if is_in_experiments else path.name


def _coordinator(config: Mapping[str, Any]) -> str | None:
    """Return which of Kafka's coordinators a run has simulated; None if this is not known."""
    # Each of these keys may be missing if the run is of another version of coordlab.
    value: object = config
    for key in ("cluster", "config", _COORDINATOR_SWITCH):
        value = value.get(key) if isinstance(value, Mapping) else None
    return _COORDINATOR_BY_SWITCH[value] if isinstance(value, bool) else None
