"""What the soak says of itself: lines that benchmarks/soak.py collects into docs/SOAK.md."""

from collections.abc import Sequence

from tests.support.acceptance import CoordinatorFailover, percentile


def say(line: str) -> None:
    """Print one line of the record."""
    print(f"\nsoak: {line}", flush=True)  # pytest may have left its own line open


def say_failovers(failovers: Sequence[CoordinatorFailover]) -> None:
    """Print the figures of MEASURED_FAILOVER.md, section "kill", over all members of all runs."""
    say(f"controller decides, ms: {_runs([f.detect_us for f in failovers])}")
    say(
        f"decided -> applied by the new coordinator, ms: {_runs([f.publish_us for f in failovers])}"
    )
    say(f"load, ms: {_runs([f.load_us for f in failovers])}")
    notices = [value for f in failovers for value in f.notices_us()]
    say(f"member first marks coordinator unknown, ms: {_members(notices)}")
    firsts = [f.loaded_us - f.killed_us + f.resumes_us()[0] for f in failovers]
    say(f"first acknowledged commit of any member, ms: {_runs(firsts)}")
    lasts = [f.loaded_us - f.killed_us + f.resumes_us()[-1] for f in failovers]
    say(f"every member commits again, ms: {_runs(lasts)}")
    gaps = [value for f in failovers for value in f.commit_gaps_us()]
    say(f"commit gap per member, ms: {_members(gaps)}")
    resumes = [value for f in failovers for value in f.resumes_us()]
    say(f"loaded -> member's first commit, ms: {_members(resumes)}")
    say(f"rebalances: {sum(f.rebalances for f in failovers)}")


def _runs(values_us: Sequence[int]) -> str:
    ascending = sorted(values_us)
    return f"{_ms(percentile(ascending, 50))} ({_ms(ascending[0])} - {_ms(ascending[-1])})"


def _members(values_us: Sequence[int]) -> str:
    ascending = sorted(values_us)
    p50, p90 = percentile(ascending, 50), percentile(ascending, 90)
    return f"p50 {_ms(p50)} / p90 {_ms(p90)} / max {_ms(ascending[-1])}"


def _ms(value_us: int) -> str:
    return f"{value_us / 1_000:.1f}" if value_us < 10_000 else f"{value_us / 1_000:.0f}"
