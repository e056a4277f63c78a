"""Prints the closing summary of a search: its verdict, its findings, and what it has covered.

A finding stands for all runs that violate a promise in the same way. It is printed with one of
these runs as the example, and with the commands that play this run again, and that shrink it:

    one_owner-1  7 runs, seeds 312, 340, 12-400-4711
      <partition> has two owners
      seed 312, 2 faults, at 41.200 s
      coordlab replay runs/explorations/standard/findings/one_owner-1.yaml
      coordlab shrink runs/explorations/standard/findings/one_owner-1.yaml

The seed 12-400-4711 is one that has changed the faults of an earlier seed (400, which has changed
those of 12), instead of drawing new ones.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from chaos.exploration.guided.report import GuidedSearch
from chaos.exploration.results import ExplorationResults, FoundGroup, Rechecks
from chaos.exploration.store import ExplorationManifest
from coordlab.console import clock_seconds, print_lines, print_path
from coordlab.program import called_as, to_paste
from pipeline.summary.story import counted
from results_schema.results import RunOutcome, Verdict

_VERDICT_STYLES = {
    Verdict.PASS: "bold green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "bold yellow",
}
_MAX_FINDINGS = 20
"""At most so many findings are printed. The file results.json has all of them."""
_MAX_SEEDS = 12
"""At most so many seeds are printed in one line."""
_MAX_REASONS = 8
"""At most so many reasons are printed for runs that proved nothing, and as many for broken runs."""
_MAX_RARE = 8
"""At most so many rare marks, and as many rare pairs of marks, are printed."""
_US_PER_HOUR = 3_600_000_000
_US_PER_MINUTE = 60_000_000


def print_exploration(
    console: Console, path: Path, manifest: ExplorationManifest, results: ExplorationResults
) -> None:
    """Print the whole summary. `path`: the directory of the exploration."""
    console.print()
    _print_verdict(console, manifest, results)
    _print_unknown(console, results)
    print_lines(console, _totals(results))
    by_runs = sorted(results.findings, key=lambda finding: (-finding.runs, finding.name))
    for finding in by_runs[:_MAX_FINDINGS]:
        _print_finding(console, finding, results)
    if len(results.findings) > _MAX_FINDINGS:
        more = len(results.findings) - _MAX_FINDINGS
        console.print(f"and {counted(more, 'finding')} more: results.json has them all")
    _print_failures(console, results)
    # What looks like a violation, but is permitted by the promise as an exception.
    print_lines(
        console,
        (
            f"excused in {counted(runs, 'run')}: {excuse}"
            for excuse, runs in results.excused.items()
        ),
    )
    _print_work_of_a_run(console, results)
    _print_marks(console, results)
    _print_rare_marks(console, results)
    print_path(console, "exploration", path)
    if results.outcome is RunOutcome.INTERRUPTED or _is_unfinished(manifest, results):
        # Not wrapped, so that the command can be copied.
        command = f"to go on: {called_as()} explore --resume {path}"
        console.print(Text(command), soft_wrap=True)


def _print_verdict(
    console: Console, manifest: ExplorationManifest, results: ExplorationResults
) -> None:
    """Print the verdict, the number of runs, and why the search ended."""
    # A search that broke off has a verdict, too: that of the runs it has completed.
    verdict = results.verdict.value.upper()
    if results.outcome is RunOutcome.INTERRUPTED:
        verdict = f"INTERRUPTED, {verdict} so far"
    elif results.outcome is RunOutcome.INTERNAL_ERROR:
        verdict = f"THE LAB FAILED, {verdict} beside that"
    runs = f"{counted(results.seeds, 'run')} of {manifest.space} from seed {manifest.first_seed}"
    line = f"{verdict}  {runs}: {results.stopped_because}"
    console.print(Text(line, style=_VERDICT_STYLES[results.verdict]), soft_wrap=True)


def _print_unknown(console: Console, results: ExplorationResults) -> None:
    """Print how many runs proved nothing, and why. Their result is called unknown.

    These lines come directly after the verdict, because a reader who sees PASS may not read on.
    """
    for unknown in results.unknown[:_MAX_REASONS]:
        line = f"unknown in {counted(unknown.runs, 'run')} ({_seed_list(unknown.seeds, results)})"
        if unknown.allowed:
            line += ", as the space allows"
        print_lines(console, [f"{line}: {unknown.reason}"], style="yellow")
    more = len(results.unknown) - _MAX_REASONS
    if more > 0:
        print_lines(console, [f"and {counted(more, 'reason')} more: results.json"], style="yellow")


def _totals(results: ExplorationResults) -> Iterator[str]:
    """Yield lines with the numbers of runs, faults and commits, and of seeds played twice."""
    runs = ", ".join(f"{number:,} {name}" for name, number in results.runs.items() if number)
    workers = counted(results.workers, "worker")
    speed = f"{results.runs_per_minute:,.0f} runs/min with {workers}"
    yield f"{runs or 'nothing was played'}; {speed}"
    yield (
        f"{counted(results.faults_hit, 'fault')} hit, {results.faults_missed:,} hit nothing; "
        f"{counted(results.commits, 'commit')} acknowledged; "
        f"{_virtual_time(results.virtual_us)} of the runs' own time"
    )
    yield _rechecks_line(results.rechecks)


def _virtual_time(time_us: int) -> str:
    """Return a length of time in hours, or in minutes if it is shorter than an hour."""
    hours = time_us / _US_PER_HOUR
    return f"{hours:,.1f} hours" if hours >= 1 else f"{time_us / _US_PER_MINUTE:,.1f} minutes"


def _rechecks_line(rechecks: Rechecks) -> str:
    """Return how many seeds were played twice, to see whether they give the same trace again."""
    line = (
        f"{counted(rechecks.runs, 'seed')} played twice ({rechecks.in_another_process:,} in "
        f"another process): {rechecks.equal:,} gave the same"
    )
    if rechecks.still_to_do:
        line += f"; {rechecks.still_to_do:,} still to be compared"
    return line


def _print_finding(console: Console, finding: FoundGroup, results: ExplorationResults) -> None:
    """Print a finding with its example, as shown at the top of this module."""
    console.print()
    noun = "seed" if len(finding.seeds) == 1 else "seeds"
    seeds = _seed_list(finding.seeds, results)
    heading = f"{finding.name}  {counted(finding.runs, 'run')}, {noun} {seeds}"
    console.print(Text(heading, style="bold red"), soft_wrap=True)
    lines = [
        f"  {finding.summary}",
        f"  seed {_seed_for_replay(finding.example_seed, results)}, "
        f"{counted(finding.example_faults, 'fault')}, at {clock_seconds(finding.time_us)}",
    ]
    if finding.story:
        lines.append(f"  story: {', then '.join(finding.story)}")
    print_lines(console, lines)
    for command in (finding.replay, finding.shrink):
        console.print(Text(f"  {to_paste(command)}"), soft_wrap=True)


def _print_work_of_a_run(console: Console, results: ExplorationResults) -> None:
    """Print how much happened in a run: how many rebalances, loads, failed commits and so on.

    These numbers are only of use beside those of another version of coordlab. If that needs twice
    as many rebalances for the same seeds, something has changed.
    """
    texts = []
    for name, numbers in results.effort.items():
        if numbers.sum:
            words = name.replace("_", " ").replace("isr", "ISR")  # `isr_changes` -> "ISR changes"
            texts.append(f"{words} {numbers.p50}, {numbers.p90}, {numbers.max}")
    if texts:
        print_lines(console, [f"a run needed (median, p90, max): {'; '.join(texts)}"])


def _print_failures(console: Console, results: ExplorationResults) -> None:
    """Print where coordlab itself failed.

    A run broke, a seed ended its worker process twice, or a seed gave two results.
    """
    lines = [
        f"in {counted(broken.runs, 'run')} ({_seed_list(broken.seeds, results)}): {broken.reason}"
        for broken in results.broken[:_MAX_REASONS]
    ]
    # Here the seeds are texts, because they are keys of a JSON object.
    lines += [
        f"seed {results.lineages.get(seed, seed)} ended its worker twice: {why}"
        for seed, why in results.lost.items()
    ]
    lines += [
        f"seed {_seed_for_replay(recheck.seed, results)} is not deterministic: "
        f"digest {recheck.digest} by {recheck.worker}, "
        f"{recheck.digest_again} by {recheck.worker_again}; what differs: "
        f"{', '.join(recheck.fields)}"
        for recheck in results.rechecks.different
    ]
    if lines:
        console.print()
        console.print(
            Text("coordlab itself failed; this says nothing about Kafka", style="bold magenta")
        )
        print_lines(console, (f"  {line}" for line in lines))


def _print_marks(console: Console, results: ExplorationResults) -> None:
    """Print how many coverage marks, the situations to reach, the search has not reached."""
    console.print()
    reached = len(results.marks) - len(results.marks_unreached)
    print_lines(console, [f"coverage marks reached: {reached} of {len(results.marks)}"])
    meanings = {mark.mark: mark.meaning for mark in results.marks}
    print_lines(
        console,
        (f"  never reached: {mark} ({meanings[mark]})" for mark in results.marks_unreached),
        style="yellow",
    )


def _print_rare_marks(console: Console, results: ExplorationResults) -> None:
    """Print which marks were reached by few runs, and which two marks by few runs together.

    A search tries to get there more often: it takes a plan that has reached something rare, and
    plays changed copies of it, the mutated plans. The lines say how many of the runs were such.
    """
    guided = results.guided
    if guided is None:
        return
    rare_marks = (
        f"  rare: {rare_mark.mark}, {counted(rare_mark.runs, 'run')}"
        f"{_mutated_in_brackets(rare_mark.mutated_runs)}"
        for rare_mark in guided.rare_marks[:_MAX_RARE]
    )
    print_lines(console, rare_marks)
    print_lines(
        console,
        [
            f"pairs of marks reached: {guided.pairs_reached:,}; {guided.rare_pairs_in_all:,} are "
            "rare though neither mark is"
        ],
    )
    rare_pairs = (
        f"  rare: {' with '.join(pair.marks)}, {counted(pair.runs, 'run')}"
        f"{_mutated_in_brackets(pair.mutated_runs)}"
        for pair in guided.rare_pairs[:_MAX_RARE]
    )
    print_lines(console, rare_pairs)
    if not guided.mutated_runs:
        return
    print_lines(console, _worth_of_mutation(guided))
    print_lines(
        console,
        (f"  reached by mutated plans alone: {mark}" for mark in guided.marks_by_mutation_alone),
    )


def _worth_of_mutation(guided: GuidedSearch) -> Iterator[str]:
    """Yield lines on whether it is worth while to mutate plans.

    They compare how many rare and new marks a run has reached, with a mutated plan and with a newly
    drawn one. Only plans that were drawn since the first mutation are compared.
    """
    mutated = guided.mutated_runs
    drawn = max(1, guided.drawn_runs_since)  # it is a divisor below, so it must not be 0
    yield (
        f"{counted(mutated, 'run')} of plans mutated from {counted(guided.parents, 'plan')}; "
        f"{counted(guided.plans, 'plan')} kept now"
    )
    yield (
        f"  rare marks and pairs in each: {guided.rare_in_mutated_runs / mutated:.2f} mutated, "
        f"{guided.rare_in_drawn_runs / drawn:.2f} drawn meanwhile; new ones: "
        f"{guided.first_by_mutated_runs / mutated:.2f} mutated, "
        f"{guided.first_by_drawn_runs / drawn:.2f} drawn"
    )


def _mutated_in_brackets(runs: int) -> str:
    """Return ` (3 mutated)` if 3 of the runs had mutated plans; "" if none had."""
    return f" ({runs:,} mutated)" if runs else ""


def _is_unfinished(manifest: ExplorationManifest, results: ExplorationResults) -> bool:
    """Return True if `--resume` would play more seeds."""
    return manifest.count is None or results.seeds < manifest.count


def _seed_list(seeds: tuple[int, ...], results: ExplorationResults) -> str:
    """Return seeds as `312, 340, 12-400-4711 and 8 more`."""
    shown = ", ".join(_seed_for_replay(seed, results) for seed in seeds[:_MAX_SEEDS])
    more = len(seeds) - _MAX_SEEDS
    return f"{shown} and {more:,} more" if more > 0 else shown


def _seed_for_replay(seed: int, results: ExplorationResults) -> str:
    """Return a seed as `replay` takes it; one with a mutated plan as `12-400-4711`."""
    return results.lineages.get(str(seed), str(seed))
