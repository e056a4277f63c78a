"""Caveats: sentences beside the PASS of a run that passed.

A run passes if it broke no promise of Kafka's. But users may have suffered nevertheless. For
example, two members may have owned a partition at the same time for a minute, which no promise
forbids. A caveat is a sentence about such an effect.
"""

from pipeline.summary.caveats import caveats_of, pass_text
from pipeline.summary.felt import Felt, FeltGroup, Spread
from pipeline.summary.figures import RunSummary
from pipeline.summary.outcomes import Owners
from tests.support.builders.report_rows import S, summary_of


def owners(group: str, longest_us: int, *, partitions: int = 1) -> Owners:
    """Return the entry about partitions with two owners at once, for up to `longest_us`."""
    return Owners(
        group=group,
        partitions=partitions,
        first_coordinator=("broker-2", 0),
        first_consumers=("consumer-0",),
        second_coordinator=("broker-0", 1),
        second_consumers=("consumer-1",),
        from_us=10 * S,
        to_us=10 * S + longest_us,
        longest_us=longest_us,
        records_both=7,
        healed_us=None,
    )


def felt_group(*, unowned_us: int | None = None, repeated: int | None = None) -> FeltGroup:
    """Return what the users of a group with one partition felt.

    The partition had no owner for `unowned_us`, and `repeated` records were processed again. None
    means that this figure was not measured.
    """
    totals = {"without an owner": unowned_us, "records processed again": repeated}
    spreads = {
        name: Spread(samples=1, missing=0, p50=total, p90=None, maximum=total, total=total)
        for name, total in totals.items()
        if total is not None
    }
    return FeltGroup(partitions=1, rebalances=0, moved=0, came_back=0, sent_away=0, spreads=spreads)


def run(*two_owners: Owners, clock_error_us: int = 0, **groups: FeltGroup) -> RunSummary:
    """Return the summary of a run; `g=felt_group(...)` says what the users of group g felt."""
    felt = Felt(in_all=felt_group(), groups=groups)
    return summary_of("x/1", owners=two_owners, felt=felt, clock_error_us=clock_error_us)


def test_two_owners_of_a_partition_are_a_caveat_of_the_pass() -> None:
    """Half a minute of double ownership must not be hidden behind a bare PASS."""
    text = pass_text("PASS", caveats_of(run(owners("g", 29_133_000))))
    assert text == (
        "PASS, and two members owned a partition of g at once for 29.13 s: no promise forbids it "
        "here"
    )


def test_of_many_partitions_and_groups_the_worst_is_named() -> None:
    """The caveat names one group and counts the others, however many there are."""
    entries = (owners("g", 5 * S), owners("h", 9 * S, partitions=12), owners("h", 2 * S))
    assert caveats_of(run(*entries)) == (
        "two members owned 12 partitions of h at once, the longest for 9.00 s (and 1 more group)",
    )


def test_time_without_an_owner_and_records_processed_again_are_caveats() -> None:
    """Each caveat names the group with the largest figure, and counts the other groups."""
    summary = run(g=felt_group(unowned_us=45 * S, repeated=1), h=felt_group(repeated=7))
    assert caveats_of(summary) == (
        "a partition of g had no owner for 45.00 s",
        "h processed 7 records again (and 1 more group)",
    )


def test_unnoticeable_effects_are_no_caveat() -> None:
    """Two owners, or no owner, for less than a second are no caveat.

    A time that is shorter than the error between the clocks of two machines is no caveat either,
    because the time may only be a result of this error.
    """
    short = run(owners("g", 999_999), g=felt_group(unowned_us=999_999, repeated=0))
    assert caveats_of(short) == ()
    assert caveats_of(run(owners("g", 2 * S), clock_error_us=3 * S)) == ()
    # A run that was not analysed has no summary.
    assert caveats_of(None) == ()
    assert pass_text("PASS", ()) == "PASS"
