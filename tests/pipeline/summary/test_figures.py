"""How figures are printed: lengths of time, and lines with the percentiles of many lengths.

If a length of time begins on one machine and ends on another, it can be wrong by as much as the two
clocks differ: by up to `bound_us`. With a `bound_us` of 500, a length below this error is printed
as `< 500 us`. The measured value of such a length may even be negative.

A line has the number of samples, the number of missing samples, the percentiles p50, p90 and p99,
and the maximum: ("12", "1", "2 ms", "9 ms", "", "11 ms"). A percentile of too few samples is empty.
"""

import pytest

from pipeline.summary.figures import (
    MEASURES,
    Distribution,
    FaultSummary,
    duration_text,
)


@pytest.mark.parametrize(
    ("microseconds", "bound_us", "text"),
    [
        (0, 0, "0 us"),
        (850, 0, "850 us"),
        (1_250, 0, "1.25 ms"),
        (27_040, 0, "27 ms"),
        (99_960, 0, "100 ms"),
        (999_499, 0, "999 ms"),
        (999_700, 0, "1.00 s"),
        (7_710_000, 0, "7.71 s"),
        (400, 500, "< 500 us"),
        # If a length is smaller than the error, even its sign means nothing.
        (-400, 500, "< 500 us"),
        (500, 500, "500 us"),
        # A length that is more negative than the error allows is shown as it was measured.
        (-2_000, 500, "-2 ms"),
    ],
)
def test_duration_text_shows_three_digits_or_the_clocks_error(
    microseconds: int, bound_us: int, text: str
) -> None:
    """A length has three digits; below an error of 500 us it is `< 500 us`."""
    assert duration_text(microseconds, bound_us=bound_us) == text


def _distribution(samples: int, *, missing: int = 0) -> Distribution:
    """Return a distribution whose p50, p90, p99 and maximum are 2, 9, 10 and 11 ms."""
    return Distribution(
        samples=samples,
        missing=missing,
        percentiles={50: 2_000, 90: 9_000, 99: 10_000} if samples else {},
        maximum=11_000 if samples else None,
    )


@pytest.mark.parametrize(
    ("samples", "shown"),
    [
        (0, ("", "", "", "")),
        (1, ("2 ms", "", "", "11 ms")),
        (9, ("2 ms", "", "", "11 ms")),
        (10, ("2 ms", "9 ms", "", "11 ms")),
        (99, ("2 ms", "9 ms", "", "11 ms")),
        (100, ("2 ms", "9 ms", "10 ms", "11 ms")),
    ],
)
def test_distribution_omits_percentiles_of_too_few_samples(
    samples: int, shown: tuple[str, ...]
) -> None:
    """p90 needs 10 samples, and p99 needs 100. With fewer, each would equal the maximum.

    The median, p50, needs one sample.
    """
    # No sample is missing, so the second cell is empty.
    assert _distribution(samples).cells(is_time=True) == (str(samples), "", *shown)


def test_distribution_counts_subjects_that_never_recovered() -> None:
    """A member that never recovered has no length, so the second cell counts it as missing.

    Without that count the worst cases would be absent, and the distribution would look too good.
    """
    samples, missing, *_ = _distribution(1, missing=2).cells(is_time=True)
    assert (samples, missing) == ("1", "2")


def test_distribution_of_counts_prints_no_unit() -> None:
    """A measure such as the number of records read is no time."""
    assert _distribution(1).cells(is_time=False) == ("1", "", "2,000", "", "", "11,000")


def test_fault_rows_without_any_join_omit_the_line() -> None:
    """In many runs no member has to join after a fault. Then the line of `join` is left out.

    `accept` has no samples here either. But every member needs this phase, so its line stays, and
    shows that no member completed the phase.
    """
    by_name = {measure.name: measure for measure in MEASURES}
    fault = FaultSummary(
        fault="f1",
        kind="crash",
        target=None,
        node=None,
        injected_us=0,
        healed_us=None,
        partitions_moved=1,
        members=2,
        members_kept=2,
        members_kept_id=2,
        measures=(
            (by_name["notice"], _distribution(2)),
            (by_name["join"], _distribution(0, missing=2)),
            (by_name["accept"], _distribution(0, missing=2)),
        ),
    )
    assert [row[0] for row in fault.rows("client")] == ["notice", "accept"]
    # No measure of the broker chain was given.
    assert fault.rows("broker") == ()
