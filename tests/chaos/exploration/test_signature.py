"""Signatures of findings: runs that have found the same bug have equal signatures.

Two runs that find the same bug differ in names, numbers and times. So the signature of a finding
has only:

- the name of the check that reports the finding;
- the claim: the summary of the finding without names and numbers, such as `GROUP, PARTITION: lost`;
- the story: the kinds of the trace rows that prove the finding, in order.
"""

import pytest

from chaos.exploration.signature import MAX_STEPS, Signature, signature_of
from protocol.trace import TraceKind
from results_schema.results import Finding
from tests.support.builders.rows import Rows

ID = "0a1b2c3d-0a1b-0a1b-0a1b-0123456789ab"
OTHER_ID = "ffffffff-0a1b-0a1b-0a1b-0123456789ab"


def finding(
    summary: str,
    rows: Rows | None = None,
    *,
    group: str | None = None,
    partition: str | None = None,
) -> Finding:
    """Return a finding with this summary and evidence."""
    return Finding(
        check="fencing",
        summary=summary,
        time_us=1,
        evidence=tuple(rows.rows) if rows is not None else (),
        group=group,
        partition=partition,
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            finding("offset 8 was acknowledged by broker-0 to consumer-readers-0"),
            finding("offset 1,234 was acknowledged by broker-12 to consumer-write-heavy-10"),
        ),
        (
            finding("readers, orders-1: lost", group="readers", partition="orders-1"),
            finding("g2, clicks.eu-17: lost", group="g2", partition="clicks.eu-17"),
        ),
        (
            finding(f"accepted a commit of consumer-readers-0-{ID} of generation 3"),
            finding(f"accepted a commit of instance.7-{OTHER_ID} of generation 11"),
        ),
        (
            finding("__consumer_offsets-0: 1 append acknowledged in epoch 2 is missing from it"),
            finding("__consumer_offsets-7: 12 appends acknowledged in epoch 9 are missing from it"),
        ),
        (
            finding("g is not live 60 s after healing: consumer-g-0 is joining; nobody leads"),
            finding(
                "g is not live 9 s after healing: nobody leads; consumer-g-1 is joining; "
                "consumer-g-3 is joining"
            ),
        ),
    ],
    ids=["nodes", "group and topic", "member ids", "one and many", "a list"],
)
def test_names_numbers_and_lengths_of_lists_make_no_difference(
    one: Finding, other: Finding
) -> None:
    """One bug must have one signature under all seeds."""
    assert signature_of(one) == signature_of(other)
    # Names of nodes, members and partitions have hyphens. So if the claim has no hyphen, it has no
    # name. Only the placeholders of partitions, such as `__consumer_offsets-N`, may have hyphens.
    claim = signature_of(one).claim
    assert "-" not in claim.replace("__consumer_offsets-N", "").replace("-N", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("broker-0 has two leaders", "broker-0 has three leaders"),
        ("records 1 to 4 were never processed", "records 1 to 4 were processed twice"),
        ("acknowledged by broker-0", "acknowledged by controller-100"),
        ("__consumer_offsets-0: lost", "__cluster_metadata-0: lost"),
    ],
)
def test_kinds_of_events_make_a_difference(one: str, other: str) -> None:
    """Words, roles of nodes and internal topics stay in the claim.

    So two findings that differ in one of these have two signatures.
    """
    assert signature_of(finding(one)) != signature_of(finding(other))


def test_signature_has_each_kind_of_the_evidence_once_without_names() -> None:
    """A kind that occurs twice in a row is in the story once.

    How often something is repeated depends on times, and not on the bug. Names do not matter
    either: the two findings here have different brokers and members, but the same signature.
    """

    def rows(broker: str, member: str) -> Rows:
        evidence = Rows()
        evidence.add(1.0, broker, TraceKind.BECAME_LEADER, partition="__consumer_offsets-1")
        evidence.add(2.0, broker, TraceKind.MEMBER_REMOVED, member=member, cause=f"{member} left")
        evidence.add(3.0, broker, TraceKind.APPEND_COMPLETED, error="NOT_LEADER")
        evidence.add(4.0, broker, TraceKind.APPEND_COMPLETED, error="NOT_LEADER")
        return evidence

    one = signature_of(finding("x", rows("broker-1", f"readers-{ID}")))
    other = signature_of(finding("x", rows("broker-2", f"writers-{OTHER_ID}")))
    assert one == other
    assert one.story == (
        "became_leader",
        "member_removed (MEMBER left)",
        "append_completed (NOT_LEADER)",
    )


def test_order_of_the_evidence_makes_a_difference_and_its_length_is_bounded() -> None:
    """An append after an election may fail for another reason than an append before it.

    So the order is a part of the signature. `claims_as` compares signatures without their stories.
    A story has at most MAX_STEPS kinds of rows.
    """

    def signature_with(*kinds: TraceKind) -> Signature:
        evidence = Rows()
        for index, kind in enumerate(kinds):
            evidence.add(float(index), "broker-0", kind)
        return signature_of(finding("x", evidence))

    first, second, *others = TraceKind
    forward, backward = signature_with(first, second), signature_with(second, first)
    assert forward != backward
    assert forward.claims_as(backward)
    more_kinds_than_fit = others[:20]
    assert len(signature_with(*more_kinds_than_fit).story) == MAX_STEPS
