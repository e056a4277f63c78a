"""The facts about a run that its report needs, read from the run's directory.

The directory has three files with such facts: the manifest with the experiment's settings, the
journal of the faults, and, once the run has ended, the results. A report is also made if some of
these files are missing, damaged, or written by an older version.

The runs here play `experiment()`, with three brokers, a group `readers` and one crash. Four of its
settings have other values than Kafka's defaults.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.experiment.loader import list_experiments, load_experiment
from chaos.experiment.structs import Experiment
from chaos.results.manifest import config_of
from chaos.results.run_directory import RunDirectory, create_run_directory, open_run
from chaos.run.journal import Journal
from chaos.run.plan import plan_of
from coordlab.report_facts import experiment_yaml, facts_of, status_of
from coordlab.settings_facts import KAFKA, LAB, settings_of
from pipeline.report.facts import SettingFact
from pipeline.summary.story import check_figures
from protocol.config import BrokerConfig, ConsumerConfig, ProducerConfig, TopicConfig
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import describe_event
from results_schema.journal import FaultOutcome, LinkEnds
from results_schema.manifest import RunStatus
from results_schema.results import (
    EXIT_VIOLATED,
    CheckOutcome,
    CheckReport,
    Finding,
    Results,
    RunOutcome,
    Verdict,
)
from tests.support.builders.experiments import experiment
from tests.support.builders.rows import Rows
from tests.support.harness.programs import pid_of_ended_process


def create(root: Path, played: Experiment | None = None) -> RunDirectory:
    """Create the directory of a run that has just begun and plays `played`, or `experiment()`."""
    if played is None:
        played = experiment()
    return create_run_directory(
        root, played, plan_of(played), seed=7, runtime="virtual", replay="again"
    )


def evidence() -> TraceRow:
    """Return a recorded event, which is the proof of the finding in `results`."""
    return Rows().add(7.0, "broker-1", TraceKind.COMMIT_STORED, group="readers")


def results(run: RunDirectory) -> Results:
    """Return the results of a run: one check found three violations and kept the first of them."""
    finding = Finding(
        check="fencing", summary="two leaders", time_us=7_000_000, evidence=(evidence(),)
    )
    return Results(
        outcome=RunOutcome.COMPLETED,
        verdict=Verdict.VIOLATED,
        exit_code=EXIT_VIOLATED,
        checks=(
            CheckReport(
                check="fencing",
                outcome=CheckOutcome.VIOLATED,
                findings=(finding,),
                findings_total=3,
                seen={"leader_epochs": 2},
            ),
        ),
        faults=open_run(run.path).journal(),
        steady_at_us=2_000_000,
        ended_at_us=9_000_000,
        commits_acknowledged=5,
    )


def test_facts_of_a_violated_run_have_its_finding_with_the_broken_promise(tmp_path: Path) -> None:
    """`facts_of` takes the finding from results.json, and the promise from the check's code."""
    run = create(tmp_path)
    run.write_results(results(run))
    run.finish(RunStatus.COMPLETED)

    facts = facts_of(open_run(run.path))

    assert (facts.verdict, facts.ended_as, facts.status) == (
        Verdict.VIOLATED,
        "violated",
        "completed",
    )
    found_results = facts.results_or_empty
    assert found_results.exit_code == EXIT_VIOLATED
    assert (found_results.steady_at_us, found_results.ended_at_us) == (2_000_000, 9_000_000)
    (check,) = facts.checks
    assert facts.promises[check.check].startswith(
        "no append acknowledged under an older leader epoch"
    )
    assert (check_figures(check), check.findings_total) == (["2 leader epochs"], 3)
    (found,) = check.findings[0].evidence
    assert (found.time_us, found.node, found.group) == (7_000_000, "broker-1", "readers")
    assert describe_event(found) == "commit stored: group readers"


# A fault of this experiment file: for 5 s, broker 0 and the controller cannot reach each other.
CUT = {"at": "5s", "fault": "cut", "from": "broker(0)", "to": "controller", "duration": "5s"}


def test_facts_of_a_fault_of_links_name_both_ends_and_their_nodes(tmp_path: Path) -> None:
    """The report draws both ends of a link that was cut.

    The second cut is tried at 6 s, but misses. So it has an error (`nobody is there`), and no time
    of injection.
    """
    plan = plan_of(experiment(faults=[CUT, CUT]))
    run = create(tmp_path, experiment(faults=[CUT, CUT]))
    journal = Journal(plan, run.write_journal)
    hit, missed = (journal.entry(fault.fault_id) for fault in plan)
    hit.outcome, missed.outcome = FaultOutcome.HIT, FaultOutcome.MISSED
    # The times at which the two faults were tried.
    hit.fired_at_us, missed.fired_at_us = 5_000_000, 6_000_000
    hit.node, hit.nodes = "broker-0", ("broker-0",)
    hit.links = LinkEnds(from_=("broker-0",), to=("controller-100",))
    missed.error = "nobody is there"
    journal.changed()

    first, second = facts_of(open_run(run.path)).faults

    assert (first.outcome, first.from_nodes, first.to_nodes) == (
        "hit",
        ("broker-0",),
        ("controller-100",),
    )
    assert (first.injected_at_us, first.hit) == (5_000_000, "broker-0 <-> controller-100")
    assert (second.outcome, second.injected_at_us, second.error) == (
        "missed",
        None,
        "nobody is there",
    )


def test_facts_of_a_killed_run_come_from_manifest_and_journal(tmp_path: Path) -> None:
    """A killed run has written no results, so it has no verdict. Its planned faults are known.

    The manifest still has the status `running`. But the process that played the run has ended, so
    the run was killed.
    """
    run = create(tmp_path)
    run.manifest.pid = pid_of_ended_process()
    run.write_manifest()

    facts = facts_of(open_run(run.path))

    assert (facts.status, facts.verdict, facts.ended_as) == ("killed", None, "killed")
    assert [(fault.fault, fault.outcome, fault.hit) for fault in facts.faults] == [
        ("crash", "planned", "nobody")
    ]
    assert facts.settings


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (RunStatus.RUNNING, "running"),
        (RunStatus.FAILED, "failed"),
        (RunStatus.INTERRUPTED, "interrupted"),
    ],
)
def test_status_of_a_run_is_that_of_its_manifest(
    tmp_path: Path, status: RunStatus, name: str
) -> None:
    """A report may be made while the run goes on."""
    run = create(tmp_path)
    run.manifest.status = status
    run.write_manifest()

    assert status_of(open_run(run.path)) == name


def test_damaged_journal_and_results_are_reported_and_leave_the_other_facts(tmp_path: Path) -> None:
    """If a full disk has truncated files, the report shows the facts that remain."""
    run = create(tmp_path)
    (run.path / "journal.json").write_text('{"faults": [')
    (run.path / "results.json").write_text("")

    facts = facts_of(open_run(run.path))

    assert [(fault.fault_id, fault.outcome) for fault in facts.faults] == [("crash-0", "planned")]
    # Each loss is a sentence about a damaged file, and begins with the file's path.
    assert [loss.split("/")[-1].split(" ")[0] for loss in facts.losses] == [
        "results.json",
        "journal.json",
    ]


def test_facts_of_a_manifest_of_an_older_version_are_those_it_has(tmp_path: Path) -> None:
    """The report shows what an older manifest has, and omits what later versions added.

    A guard is a switch of one of Kafka's safety checks. The report even shows a guard that no
    longer exists.
    """
    run = create(tmp_path)
    older = json.loads((run.path / "manifest.json").read_text())
    # The older version did not have these keys and settings yet.
    for key in ("time_scale", "losses", "clock_error_us", "git_commit", "versions"):
        del older[key]
    older["config"]["cluster"]["guards"] = {"gone_guard": True}
    del older["config"]["cluster"]["storage"]
    older["config"]["cluster"]["config"].pop("group.coordinator.new.enable")
    (run.path / "manifest.json").write_text(json.dumps(older))

    facts = facts_of(open_run(run.path))

    guards = [setting for setting in facts.settings if setting.section == "cluster.guards"]
    assert guards == [SettingFact(section="cluster.guards", name="gone_guard", value="true")]
    assert not any(setting.section == "lab.cluster.storage" for setting in facts.settings)
    # Without group.coordinator.new.enable it is not known which coordinator the run imitates.
    assert facts.coordinator is None
    assert "gone_guard" in (facts.experiment_yaml or "")


def test_settings_that_differ_from_kafkas_are_those_of_the_file() -> None:
    """The report first lists the settings that differ from Kafka's defaults.

    These must be exactly the four settings that `experiment()` sets to other values.
    """
    differing = {
        (setting.section, setting.name, setting.value, setting.default)
        for setting in settings_of(config_of(experiment()))
        if setting.differs
    }

    assert differing == {
        ("cluster.config", "offsets.topic.num.partitions", "2", "50"),
        ("cluster.config", "min.insync.replicas", "2", "1"),
        ("groups.readers", "commit_interval_ms", "200", "not set"),
        ("groups.readers.config", "enable.auto.commit", "false", "true"),
    }


def test_settings_have_every_value_of_the_experiment_with_a_path_into_its_file() -> None:
    """The settings include late members and producers, but neither the name nor the faults.

    The name and the faults are in other parts of the report. A default of None means that the file
    must give the setting.
    """
    late = {"at": "3s", "members": 1, "config": {"session.timeout.ms": 9_000}}
    readers = {"members": 2, "topics": ["orders"], "late_members": [late]}
    config = config_of(
        experiment(
            groups={"readers": readers}, producers=[{"topic": "orders", "records_per_second": 20}]
        )
    )

    settings = {(setting.section, setting.name): setting for setting in settings_of(config)}

    assert settings["groups.readers.late_members[0].config", "session.timeout.ms"].value == "9000"
    assert settings["groups.readers.config", "session.timeout.ms"].default == "45000"
    assert settings["producers[0]", "records_per_second"] == SettingFact(
        section="producers[0]", name="records_per_second", value="20", default=None
    )
    assert settings["producers[0].config", "acks"].value == "all"
    assert settings["cluster", "brokers"].default == "3"
    assert ("experiment", "name") not in settings
    assert not any(section.startswith("faults") for section, _ in settings)


def test_settings_of_late_members_are_those_that_differ_from_their_group() -> None:
    """A value that a late member inherits from its group is not listed.

    The report would show the inherited value beside Kafka's default, as if the member had set it.
    """
    changed = {"session.timeout.ms": 9_000}
    readers = {
        "members": 2,
        "topics": ["orders"],
        "config": {"enable.auto.commit": False},
        "commit_interval_ms": 200,
        "late_members": [
            {"at": "20s", "members": 1},
            {"at": "21s", "members": 1, "config": {"enable.auto.commit": False} | changed},
        ],
    }

    late = [
        (setting.section.removeprefix("groups.readers."), setting.name, setting.value)
        for setting in settings_of(config_of(experiment(groups={"readers": readers})))
        if "late_members" in setting.section
    ]

    assert late == [
        ("late_members[0]", "at", "20s after the steady state"),
        ("late_members[0]", "members", "1"),
        ("late_members[1]", "at", "21s after the steady state"),
        ("late_members[1]", "members", "1"),
        ("late_members[1].config", "session.timeout.ms", "9000"),
    ]


# The structs with settings that Kafka has, too. All other settings are coordlab's own.
STRUCTS_OF_KAFKAS_SETTINGS = (BrokerConfig, TopicConfig, ConsumerConfig, ProducerConfig)


def test_settings_of_the_lab_are_separate_from_kafkas() -> None:
    """Settings of the lab, such as latencies of the virtual network, must not look like Kafka's."""
    sections: dict[str, set[str]] = {}
    for setting in settings_of(config_of(experiment())):
        sections.setdefault(setting.section, set()).add(setting.name)

    lab = {section: names for section, names in sections.items() if section.split(".")[0] == LAB}
    assert set(lab) == {
        "lab",
        "lab.cluster.links",
        "lab.cluster.storage",
        "lab.run",
        "lab.groups.readers",
    }
    assert (lab["lab"], lab["lab.groups.readers"]) == ({"checks"}, {"isolate"})
    kafkas_names = {
        field.encode_name
        for struct in STRUCTS_OF_KAFKAS_SETTINGS
        for field in msgspec.structs.fields(struct)
    }
    # If the name of a section ends in ".config" (KAFKA), all its settings are Kafka's. Every other
    # section also has settings of the lab.
    for section, names in sections.items():
        assert (names <= kafkas_names) == section.endswith(KAFKA), section


def test_settings_of_zookeeper_are_listed_only_for_groups_on_it() -> None:
    """The report lists no settings that have no effect.

    ZooKeeper's settings have no effect on groups with a coordinator. The settings of a Kafka
    consumer have no effect on groups on ZooKeeper.
    """
    readers = {"members": 2, "topics": ["orders"]}
    old = readers | {"coordination": "zookeeper", "zookeeper": {"rebalance.max.retries": 9}}

    settings = settings_of(config_of(experiment(groups={"readers": readers, "old": old})))
    sections = {setting.section for setting in settings}
    (retries,) = (setting for setting in settings if setting.name == "rebalance.max.retries")

    assert (retries.section, retries.value, retries.default) == ("groups.old.zookeeper", "9", "4")
    assert {"cluster.zookeeper", "cluster.zookeeper.config"} <= sections
    assert "groups.old.config" not in sections
    assert "groups.readers.zookeeper" not in sections
    without = {setting.section for setting in settings_of(config_of(experiment()))}
    assert not any("zookeeper" in section for section in without)


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        (
            "/srv/coordlab/experiments/coordinator_crash.yaml",
            "experiments/coordinator_crash.yaml",
        ),
        ("/tmp/pytest-7/mine.yaml", "mine.yaml"),
        ("drafts/mine.yaml", "drafts/mine.yaml"),
        (None, None),
    ],
)
def test_experiment_file_is_named_without_the_folders_of_the_runs_machine(
    tmp_path: Path, written: str | None, reported: str | None
) -> None:
    """The folders of the run's machine say nothing to a reader elsewhere."""
    run = create(tmp_path)
    run.manifest.experiment_file = written
    run.write_manifest()

    assert facts_of(open_run(run.path)).experiment_file == reported


def test_coordinator_is_named_with_the_version_of_kafka_that_it_imitates(tmp_path: Path) -> None:
    """Readers need the version, because Kafka 4.0 changed defaults such as that of linger.ms."""
    assert facts_of(open_run(create(tmp_path).path)).coordinator == (
        "the Scala coordinator of Apache Kafka 3.9.1, group.coordinator.new.enable=false"
    )


LATE = {"at": "3s", "members": 1, "config": {"session.timeout.ms": 45_000}}
# The group has a session timeout of 9 s. The late member sets it back to 45 s, which is Kafka's
# default.
LATE_WITH_DEFAULTS_OF_KAFKA: dict[str, Any] = {
    "readers": {
        "members": 2,
        "topics": ["orders"],
        "config": {"session.timeout.ms": 9_000},
        "late_members": [LATE],
    }
}


@pytest.mark.parametrize(
    "played",
    [
        *(load_experiment(listed.name).experiment for listed in list_experiments()),
        experiment(groups=LATE_WITH_DEFAULTS_OF_KAFKA),
    ],
    ids=lambda played: played.name,
)
def test_experiment_copied_from_a_report_runs_the_same(played: Experiment, tmp_path: Path) -> None:
    """A reader can copy the experiment's text from the report into a file, and run it.

    The text includes the overrides that the run was started with, and omits settings with default
    values. The last experiment has an exception: it must keep the late member's session timeout,
    although it is a default. Without it, the late member would inherit the 9 s of its group.
    """
    copied = tmp_path / "copied.yaml"
    copied.write_text(experiment_yaml(config_of(played)))

    assert load_experiment(str(copied)).experiment == played
