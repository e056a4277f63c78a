"""Prints the closing summary of a search: its verdict, its findings, and what it has covered.

A finding stands for all runs that violate a promise in the same way. One of these runs is printed
as the example, with the commands that play this run again and that shrink it:

    one_owner-1  7 runs, seeds 312, 340, 12-400-4711
      <partition> has two owners
      seed 312, 2 faults, at 41.200 s
      coordlab replay runs/explorations/standard/findings/one_owner-1.yaml
      coordlab shrink runs/explorations/standard/findings/one_owner-1.yaml

A seed such as 12-400-4711 has not drawn its faults. The seed 4711 has changed the faults of an
earlier seed, 400, which has changed the faults of 12.
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
"""The largest number of findings that are printed. The file results.json has all findings."""
_MAX_SEEDS = 12
"""The largest number of seeds that are printed in one line."""
_MAX_REASONS = 8
"""The largest number of printed reasons for runs that proved nothing, and for broken runs."""
_MAX_RARE = 8
"""The largest number of printed rare marks, and of printed rare pairs of marks."""
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
    # A promise may have exceptions, which are called excuses. An excuse permits something that
    # looks like a violation.
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
        # `soft_wrap` does not wrap the line, so that the command can be copied.
        command = f"to go on: {called_as()} explore --resume {path}"
        console.print(Text(command), soft_wrap=True)


def _print_verdict(
    console: Console, manifest: ExplorationManifest, results: ExplorationResults
) -> None:
    """Print the verdict, the number of runs, and why the search ended."""
    # A search that broke off has a verdict, too: the verdict of the completed runs.
    verdict = results.verdict.value.upper()
    if results.outcome is RunOutcome.INTERRUPTED:
        verdict = f"INTERRUPTED, {verdict} so far"
    elif results.outcome is RunOutcome.INTERNAL_ERROR:
        verdict = f"THE LAB FAILED, {verdict} beside that"
    runs = f"{counted(results.seeds, 'run')} of {manifest.space} from seed {manifest.first_seed}"
    line = f"{verdict}  {runs}: {results.stopped_because}"
    console.print(Text(line, style=_VERDICT_STYLES[results.verdict]), soft_wrap=True)


def _print_unknown(console: Console, results: ExplorationResults) -> None:
    """Print the number of unknown runs, which proved nothing, and the reasons.

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
    """Return a line about the seeds that were played twice, to compare their two traces."""
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
    """Print the numbers of events in a run: rebalances, loads, failed commits and so on.

    These numbers are for a comparison with another version of coordlab. If the other version has
    twice as many rebalances for the same seeds, something has changed.
    """
    texts = []
    for name, numbers in results.effort.items():
        if numbers.sum:
            words = name.replace("_", " ").replace("isr", "ISR")  # `isr_changes` -> "ISR changes"
            texts.append(f"{words} {numbers.p50}, {numbers.p90}, {numbers.max}")
    if texts:
        print_lines(console, [f"a run needed (median, p90, max): {'; '.join(texts)}"])


def _print_failures(console: Console, results: ExplorationResults) -> None:
    """Print the failures of coordlab itself.

    There are three kinds: a run broke, a seed ended its worker process twice, or a seed gave two
    different results.
    """
    lines = [
        f"in {counted(broken.runs, 'run')} ({_seed_list(broken.seeds, results)}): {broken.reason}"
        for broken in results.broken[:_MAX_REASONS]
    ]
    # The keys of `results.lost` are seeds, but texts, because they are keys of a JSON object.
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
    """Print the number of coverage marks that were reached, and each mark that was not.

    A coverage mark is a situation that a good search should reach.
    """
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
    """Print the marks that few runs reached, and the pairs of marks that few runs reached together.

    A search tries to reach such rare marks and pairs more often. It takes a plan that has reached a
    rare mark or pair, and plays changed copies of this plan, which are called mutated plans. The
    lines also say how many of the runs had mutated plans.
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
    """Yield lines that show whether it is worth while to mutate plans.

    The lines compare runs of mutated plans with runs of newly drawn plans, by the number of rare
    and new marks that a run has reached. Only plans that were drawn since the first mutation are
    compared.
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
    """Return ` (3 mutated)` if 3 runs had mutated plans; "" if no run had one."""
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
    """Return a seed in the form that `replay` takes. For a mutated plan, this is `12-400-4711`."""
    return results.lineages.get(str(seed), str(seed))
