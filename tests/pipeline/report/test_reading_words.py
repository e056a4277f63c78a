"""Sentences of a report's first screen about members that do not commit or do not read.

Most tests are about one sentence: why no member read records of a partition for some time after a
fault. `_why_not_read` makes up a run and returns this sentence. Times are microseconds, and S is a
second.
"""

import re
from typing import Any

from pipeline.report.facts import SettingFact
from pipeline.report.sections.headline import headline
from pipeline.report.sentences.answers import for_whom, no_member_commits
from pipeline.report.sentences.chain_words import definitions
from pipeline.report.sentences.reading_words import why_not_consumed
from pipeline.summary.figures import MEASURES
from pipeline.summary.outcomes import Owners
from results_schema.journal import LinkEnds
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts, run_summary
from tests.support.builders.report_rows import GROUP, Row, S, broker_phase, fault_summary, gap


def _settings(commit_interval_ms: str, auto_commit: str) -> tuple[SettingFact, ...]:
    """Return a group's settings.

    The members commit if one of the two arguments says so: `commit_interval_ms` is coordlab's own
    setting, and `auto_commit` is Kafka's `enable.auto.commit`.
    """
    return (
        SettingFact(section=f"groups.{GROUP}", name="commit_interval_ms", value=commit_interval_ms),
        SettingFact(section=f"groups.{GROUP}.config", name="enable.auto.commit", value=auto_commit),
        SettingFact(section=f"groups.{GROUP}.config", name="auto.offset.reset", value="earliest"),
    )


def test_run_without_committing_members_names_the_settings() -> None:
    """`0 commits acknowledged` would suggest refused commits, but these members never commit."""
    facts = run_facts(settings=_settings("not set", "false"), faults=(journal_entry(),))
    sentence = for_whom(report_input(facts))
    assert "enable.auto.commit = false, commit_interval_ms not set" in sentence
    assert "auto.offset.reset = earliest" in sentence


def test_controller_that_creates_a_topic_is_not_named_as_its_leader() -> None:
    """A fault `create_topic` hits the controller, so no partition loses its leader.

    The sentence names the partitions that lost their leader. Here this is only orders-1, which was
    led by broker-0, the broker that crashed.
    """
    crash = journal_entry(nodes=("broker-0",), groups=(), partitions=("orders-1",))
    topic_creation = journal_entry(
        fault_id="create_topic-1",
        fault="create_topic",
        nodes=("controller-100",),
        groups=(),
        partitions=("archive-0",),
    )
    sentence = for_whom(report_input(run_facts(faults=(crash, topic_creation))))
    assert "broker-0 led 1 partition of data (orders-1)" in sentence
    assert "archive" not in sentence
    assert "controller" not in sentence


def test_run_whose_members_may_commit_does_not_name_the_settings() -> None:
    """Members commit if a commit interval is set, or if auto commit is on.

    If none of their commits was acknowledged, the reason is a failure and not a setting. The same
    holds if the settings are unknown.
    """
    by_interval, by_auto_commit = _settings("5000", "false"), _settings("not set", "true")
    unknown_settings = ()
    for settings in (by_interval, by_auto_commit, unknown_settings):
        assert not no_member_commits(run_facts(settings=settings))
    never_commit = _settings("not set", "false")
    assert not no_member_commits(run_facts(settings=never_commit, commits_acknowledged=1))


def _why_not_read(ownership: list[Row], **fault: Any) -> str | None:  # noqa: ANN401 - any field
    """Return the report's reason why no member read from orders-2 and orders-3 from 10 s on.

    The run: broker-2 is cut off from the other brokers at 10 s. broker-2 led orders-2, which no
    member reads for 54 s. Another broker led orders-3, which no member reads for 8 s. The
    controller fences broker-2 (excludes it from the cluster) 7.79 s after the fault, at 17.79 s.

    `ownership` has rows of the table `ownership`; `fault` replaces fields of the fault. The reason
    is returned without its HTML tags. It is None if the report gives no reason.
    """
    values: dict[str, Any] = {
        "fault": "cut",
        "links": LinkEnds(from_=("broker-2",), to=("broker-0", "controller-100")),
        "partitions": ("__consumer_offsets-2", "orders-2"),
        "fired_at_us": 10 * S,
    }
    tables: dict[str, list[Row]] = {
        "availability": [
            # The new owner gets the partition at 64 s, and reads from it 2 ms later.
            gap("partition", "orders-2", gap_us=54 * S + 2_000),
            gap("partition", "orders-3", gap_us=8 * S),
        ],
        # The lengths of the phases detect (until the fencing), publish, load wait and load.
        "broker_phases": [broker_phase(7_790_000, 30_000, 5_000, 5_000)],
        "ownership": ownership,
    }
    # The rows of `gap` and `broker_phase` name the fault crash-0, so the cut has this id, too.
    facts = run_facts(faults=(journal_entry(fault_id="crash-0", **values | fault),))
    summary = run_summary(faults=(fault_summary(tables),))
    reason = why_not_consumed(report_input(facts, summary, tables))
    return None if reason is None else _plain(reason)


def _plain(html: str) -> str:
    """Return a text of the page without its tags; a plain space separates number and unit."""
    return re.sub(r"<[^>]+>", "", html).replace("\N{NO-BREAK SPACE}", " ")


OWNED_BY_C_6 = {"group": GROUP, "partition": "orders-2", "consumer": "c-6", "from_us": 64 * S}
"""A row of the table `ownership`: c-6 becomes the owner of orders-2 at 64 s, when its gap ends."""


def test_partition_of_a_cut_off_leader_waits_for_a_reader_at_the_new_leader() -> None:
    """The owners of orders-2 still reach the old leader, which answers them without errors.

    So the owners do not turn to the new leader, and get no new records. This ends when another
    member is assigned the partition.
    """
    reason = _why_not_read([OWNED_BY_C_6])
    assert reason is not None
    assert "orders-2 (up to 54.00 s) was led by broker-2: their owners still reached it" in reason
    assert "until c-6, which got them at 64.000 s, fetched from the new leader." in reason


def test_partition_of_another_leader_waits_until_the_broker_leaves_the_isr() -> None:
    """The leader of orders-3 works, but broker-2 is a replica in the partition's ISR.

    The controller removes broker-2 from the ISR when it fences broker-2. Until then the high
    watermark does not advance. The fencing takes 7.79 s, and the gap of orders-3 lasts 8 s.
    """
    reason = _why_not_read([OWNED_BY_C_6])
    assert reason is not None
    assert "1 more partition (up to 8.00 s) had broker-2 in the ISR" in reason
    assert "until the controller fenced it at 17.790 s" in reason


def test_cut_off_leader_without_new_owners_is_shown_without_an_end() -> None:
    """The sentence names an owner only if its ownership began at the end of the gap."""
    # The new owner got the partition at 30 s, long before the gap ended at 64 s.
    reason = _why_not_read([OWNED_BY_C_6 | {"from_us": 30 * S}])
    assert reason is not None
    assert "the high watermark did not advance." in reason
    assert "which got them" not in reason


PAUSED = {"fault": "pause", "links": None, "in_force_until_us": 30 * S}
"""Fields of a fault that stops the process of broker-2, instead of cutting broker-2 off."""


def test_clients_of_a_paused_leader_wait_for_its_resume() -> None:
    """A pause closes no connection, so clients keep waiting although another leader is elected."""
    reason = _why_not_read([OWNED_BY_C_6], **PAUSED, healed_at_us=64 * S)
    assert reason is not None
    assert (
        "orders-2 (up to 54.00 s) was led by broker-2: producers and members had sent it requests, "
        "and waited for its answers until it resumed at 64.000 s; they could not know that the "
        "controller had fenced it at 17.790 s."
    ) in reason


def test_clients_that_leave_a_paused_leader_ask_another() -> None:
    """The pause lasts until 80 s, but the gap ends at 64 s, so the resume did not end the gap."""
    reason = _why_not_read([OWNED_BY_C_6], **PAUSED, healed_at_us=80 * S)
    assert reason is not None
    assert "requests to it were not answered, until clients turned to another leader." in reason


def test_gap_of_a_fault_without_effect_on_leaders_is_not_explained() -> None:
    """A planned move of leadership stops no client, so the gap must have another cause."""
    assert _why_not_read([OWNED_BY_C_6], fault="leadership_move") is None


def test_expectation_is_shown_beside_the_measurement() -> None:
    """The report shows the text `expect` of the experiment file, and what was measured.

    Here the author expected two owners at once for about 31 s, and 29 s were measured.
    """
    owners = Owners(
        group=GROUP,
        partitions=12,
        first_coordinator=("broker-2", 0),
        first_consumers=("c-0",),
        second_coordinator=("broker-0", 1),
        second_consumers=("c-6",),
        from_us=64 * S,
        to_us=93 * S,
        longest_us=29 * S,
        records_both=100,
        healed_us=91 * S,
    )
    first = headline(report_input(run_facts(expect="About 31 s."), run_summary(owners=(owners,))))
    text = _plain(dict(first.answers)["What was expected?"])
    assert text.startswith("About 31 s. Measured: 29.00 s two owners at once")


def test_every_measure_of_the_chains_is_defined() -> None:
    """The report's table of definitions says when each measured time begins and ends."""
    defined_names = {name for _, name, *_ in definitions().rows}
    names_of_times = {measure.name for measure in MEASURES if measure.is_time}
    assert names_of_times <= defined_names
