"""What a run directory's JSON files say, as the report takes it: `facts_of`.

Wiring between chaos, which wrote the files, and `pipeline.report`, which knows nothing of chaos.
A file that is missing or damaged makes the facts poorer, never impossible: runs that failed, were
interrupted or killed need their report most.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec
import yaml

from chaos.checkers.registry import CHECKERS
from chaos.experiment.loader import EXPERIMENTS
from chaos.experiment.structs import Experiment
from chaos.faults.registry import FAULT_KINDS
from chaos.results.run_directory import NotARun, PastRun
from coordlab.settings_facts import default_of, settings_of
from coordlab.views.check_view import figures_of
from pipeline.report.facts import (
    CheckFact,
    EvidenceFact,
    FaultFact,
    FindingFact,
    RunFacts,
    Status,
)
from protocol.config import KAFKA_VERSION
from protocol.trace import TraceRow
from results_schema.evidence_text import what_happened
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.manifest import Manifest, PlannedFault, RunStatus
from results_schema.results import EXIT_UNKNOWN, CheckReport, Finding, Results, RunOutcome, Verdict

_COORDINATOR_SWITCH = "group.coordinator.new.enable"
_COORDINATORS = {
    False: f"the Scala coordinator of Apache Kafka {KAFKA_VERSION}, {_COORDINATOR_SWITCH}=false",
    True: f"Kafka's Java coordinator, {_COORDINATOR_SWITCH}=true",
}
_NOTHING = Results(
    outcome=RunOutcome.INTERNAL_ERROR, verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN
)
"""Stands for results that a run never wrote: nothing was counted, nothing was reached."""


def facts_of(past: PastRun) -> RunFacts:
    """Return what the JSON files of a run say."""
    manifest = past.manifest
    results, without_results = _results(past)
    entries, without_journal = _entries(past, results)
    ended = results or _NOTHING
    return RunFacts(
        run=manifest.run,
        experiment=manifest.experiment,
        question=_text(manifest.config, "question"),
        expect=_text(manifest.config, "expect"),
        runtime=manifest.runtime,
        seed=manifest.seed,
        status=status_of(past),
        replay=manifest.replay,
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        time_scale=manifest.time_scale,
        verdict=None if results is None else results.verdict.value,
        exit_code=None if results is None else results.exit_code,
        reasons=ended.reasons,
        losses=(*manifest.losses, *without_results, *without_journal),
        steady_at_us=ended.steady_at_us,
        healed_at_us=ended.healed_at_us,
        ended_at_us=None if results is None else results.ended_at_us,
        records_produced=ended.records_produced,
        records_consumed=ended.records_consumed,
        commits_acknowledged=ended.commits_acknowledged,
        clock_error_us=manifest.clock_error_us,
        digest=manifest.digest,
        git_commit=manifest.git_commit,
        versions=tuple(manifest.versions.items()),
        faults=tuple(_fault(entry) for entry in entries),
        checks=tuple(_check(check) for check in ended.checks),
        settings=settings_of(manifest.config),
        links=tuple((str(name), str(url)) for name, url in _links(manifest).items()),
        experiment_file=_file_of(manifest),
        experiment_yaml=experiment_yaml(manifest.config),
        coordinator=_coordinator(manifest.config),
    )


def status_of(past: PastRun) -> Status:
    """Return how a run ended; one whose process is gone without having said so was killed."""
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
    """Return an experiment as a file that says what differs from the defaults, and runs the same.

    What this version does not know is kept as it is.
    """
    try:
        data: object = _without_defaults(msgspec.convert(config, Experiment))
    except msgspec.ValidationError:
        data = dict(config)
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return text


def _without_defaults(value: object) -> object:
    """Return plain data of an experiment, without the fields that have their defaults.

    Settings of late members are kept whole: what their part of the file leaves out is the group's.
    """
    if isinstance(value, msgspec.Struct):
        kept = {}
        for info in msgspec.structs.fields(value):
            field = getattr(value, info.name)
            if info.required or field != default_of(info):
                whole = info.encode_name == "late_members"
                kept[info.encode_name] = (
                    msgspec.to_builtins(field) if whole else _without_defaults(field)
                )
        return kept
    if isinstance(value, dict):
        return {key: _without_defaults(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_defaults(each) for each in value]
    return value


def _results(past: PastRun) -> tuple[Results | None, tuple[str, ...]]:
    try:
        return past.results(), ()
    except NotARun as error:
        return None, (str(error),)


def _entries(
    past: PastRun, results: Results | None
) -> tuple[tuple[JournalEntry, ...], tuple[str, ...]]:
    """Return what became of the plan: the journal's word, else the results', else none at all."""
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
    return JournalEntry(
        fault_id=fault.fault_id,
        fault=fault.fault,
        target=fault.aimed_at,
        duration_us=fault.duration_us,
        momentary=fault.fault in FAULT_KINDS and FAULT_KINDS[fault.fault].momentary,
    )


def _fault(entry: JournalEntry) -> FaultFact:
    links = entry.links
    was_hit = entry.outcome is FaultOutcome.HIT
    return FaultFact(
        fault_id=entry.fault_id,
        kind=entry.fault,
        target=entry.target,
        outcome=entry.outcome.value,
        momentary=entry.momentary,
        hit=entry.hit,
        nodes=entry.nodes or (() if entry.node is None else (entry.node,)),
        links_from=() if links is None else links.from_,
        links_to=() if links is None else links.to,
        groups=entry.blast_radius.groups,
        partitions=entry.blast_radius.partitions,
        injected_us=entry.fired_at_us if was_hit else None,
        in_force_us=entry.in_force_from_us,
        in_force_until_us=entry.in_force_until_us,
        healed_us=entry.healed_at_us,
        healed_by=entry.healed_by,
        note=entry.note,
        error=entry.error,
    )


def _check(check: CheckReport) -> CheckFact:
    checker = CHECKERS.get(check.check)
    return CheckFact(
        name=check.check,
        promise="" if checker is None else checker.promise,
        outcome=check.outcome.value,
        seen=tuple(figures_of(check)),
        note=check.note,
        findings=tuple(_finding(finding) for finding in check.findings),
        findings_total=check.findings_total,
    )


def _finding(finding: Finding) -> FindingFact:
    return FindingFact(
        summary=finding.summary,
        time_us=finding.time_us,
        group=finding.group,
        partition=finding.partition,
        evidence=tuple(_evidence(row) for row in finding.evidence),
    )


def _evidence(row: TraceRow) -> EvidenceFact:
    return EvidenceFact(
        time_us=row.time_us,
        node=row.node,
        kind=row.kind,
        text=what_happened(row),
        group=row.group,
        partition=row.partition,
    )


def _file_of(manifest: Manifest) -> str | None:
    """Return the experiment's file as its reader can find it: not by a path of the run's machine.

    Shape: `experiments/<name>.yaml` for one of the experiments that are run by name; of other files
    what the command line said, or their name if that was an absolute path.
    """
    if manifest.experiment_file is None:
        return None
    path = PurePath(manifest.experiment_file)
    if not path.is_absolute():
        return path.as_posix()
    is_by_name = path.parent.name == EXPERIMENTS
    return f"{EXPERIMENTS}/{path.name}" if is_by_name else path.name


def _text(config: Mapping[str, Any], key: str) -> str:
    return str(config.get(key) or "").strip()


def _links(manifest: Manifest) -> Mapping[str, Any]:
    links = manifest.config.get("links")
    return links if isinstance(links, Mapping) else {}


def _coordinator(config: Mapping[str, Any]) -> str | None:
    """Return Kafka's coordinator that a run's was faithful to, None where the run does not say."""
    found: object = config
    for key in ("cluster", "config", _COORDINATOR_SWITCH):
        found = found.get(key) if isinstance(found, Mapping) else None
    return _COORDINATORS[found] if isinstance(found, bool) else None
