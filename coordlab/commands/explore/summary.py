"""The closing summary of an exploration: verdict, findings, unknown runs, commands to paste.

An exploration plays many runs. A seed draws the plan of faults of one run, or mutates the plan of
an earlier seed, its parent. A finding stands for all runs whose violations have the same evidence;
one of these runs is its example.
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

_STYLES = {
    Verdict.PASS: "bold green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "bold yellow",
}
_MAX_FINDINGS = 20
"""Limit of the findings that are printed. results.json has all findings, seeds and so on."""
_MAX_SEEDS = 12
"""Limit of the seeds that are printed in one line."""
_MAX_REASONS = 8
"""Limit of the reasons of unknown runs, and of the reasons of broken runs."""
_MAX_RARE = 8
"""Limit of the rare marks, and of the rare pairs of marks."""
_US_PER_HOUR = 3_600_000_000
_US_PER_MINUTE = 60_000_000


def print_exploration(
    console: Console, path: Path, manifest: ExplorationManifest, results: ExplorationResults
) -> None:
    """Print the whole summary of an exploration that ended."""
    console.print()
    _print_verdict(console, manifest, results)
    _print_unknown(console, results)
    print_lines(console, _figures(results))
    by_runs = sorted(results.findings, key=lambda finding: (-finding.runs, finding.name))
    for finding in by_runs[:_MAX_FINDINGS]:
        _print_finding(console, finding, results)
    if len(results.findings) > _MAX_FINDINGS:
        more = len(results.findings) - _MAX_FINDINGS
        console.print(f"and {counted(more, 'finding')} more: results.json has them all")
    _print_failures(console, results)
    # An excuse is an exception that a promise permits. A check counts it, and reports no finding.
    print_lines(
        console,
        (
            f"excused in {counted(runs, 'run')}: {excuse}"
            for excuse, runs in results.excused.items()
        ),
    )
    _print_effort(console, results)
    _print_marks(console, results)
    _print_guided(console, results)
    print_path(console, "exploration", path)
    if results.outcome is RunOutcome.INTERRUPTED or _is_unfinished(manifest, results):
        # The command stays on one line, so that it can be copied.
        command = f"to go on: {called_as()} explore --resume {path}"
        console.print(Text(command), soft_wrap=True)


def _print_verdict(
    console: Console, manifest: ExplorationManifest, results: ExplorationResults
) -> None:
    """Print the verdict, the number of runs, and why the search ended."""
    # The verdict is about the completed runs. There is one even if the search itself broke off.
    word = results.verdict.value.upper()
    if results.outcome is RunOutcome.INTERRUPTED:
        word = f"INTERRUPTED, {word} so far"
    elif results.outcome is RunOutcome.INTERNAL_ERROR:
        word = f"THE LAB FAILED, {word} beside that"
    runs = f"  {counted(results.seeds, 'run')} of {manifest.space} from seed {manifest.first_seed}"
    line = Text(word, style=_STYLES[results.verdict]).append(runs, style="")
    console.print(line.append(f": {results.stopped_because}", style=""), soft_wrap=True)


def _print_unknown(console: Console, results: ExplorationResults) -> None:
    """Print the runs that prove nothing, which are called unknown.

    They come directly after the verdict, because a reader who sees PASS may not read on.
    """
    for unknown in results.unknown[:_MAX_REASONS]:
        line = f"unknown in {counted(unknown.runs, 'run')} ({_seeds(unknown.seeds, results)})"
        if unknown.allowed:
            line += ", as the space allows"
        print_lines(console, [f"{line}: {unknown.reason}"], style="yellow")
    more = len(results.unknown) - _MAX_REASONS
    if more > 0:
        print_lines(console, [f"and {counted(more, 'reason')} more: results.json"], style="yellow")


def _figures(results: ExplorationResults) -> Iterator[str]:
    """Yield lines with the numbers of runs, faults, commits and rechecks."""
    runs = ", ".join(f"{number:,} {name}" for name, number in results.runs.items() if number)
    yield f"{runs or 'nothing was played'}; {results.runs_per_minute:,.0f} runs/min with " + (
        counted(results.workers, "worker")
    )
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
    """Return how many seeds were played twice, and how many of them gave the same trace."""
    line = (
        f"{counted(rechecks.runs, 'seed')} played twice ({rechecks.in_another_process:,} in "
        f"another process): {rechecks.equal:,} gave the same"
    )
    if rechecks.still_to_do:
        line += f"; {rechecks.still_to_do:,} still to be compared"
    return line


def _print_finding(console: Console, finding: FoundGroup, results: ExplorationResults) -> None:
    """Print a finding: its seeds, its example, the events of its evidence, commands to paste."""
    console.print()
    head = Text(finding.name, style="bold red")
    word = "seed" if len(finding.seeds) == 1 else "seeds"
    seeds = _seeds(finding.seeds, results)
    head.append(f"  {counted(finding.runs, 'run')}, {word} {seeds}", style="")
    console.print(head, soft_wrap=True)
    lines = [
        f"  {finding.summary}",
        f"  seed {_seed(finding.example_seed, results)}, "
        f"{counted(finding.example_faults, 'fault')}, at {clock_seconds(finding.time_us)}",
    ]
    if finding.story:
        lines.append(f"  story: {', then '.join(finding.story)}")
    print_lines(console, lines)
    for command in (finding.replay, finding.shrink):
        console.print(Text(f"  {to_paste(command)}"), soft_wrap=True)


def _print_effort(console: Console, results: ExplorationResults) -> None:
    """Print the effort of the runs: numbers of rebalances, loads, failed commits and the like.

    They are for a comparison with other versions of coordlab; no number is a violation.
    """
    # A name such as `isr_changes` is printed as "ISR changes".
    texts = (
        f"{name.replace('_', ' ').replace('isr', 'ISR')} {effort.p50}, {effort.p90}, {effort.max}"
        for name, effort in results.effort.items()
        if effort.sum
    )
    if text := "; ".join(texts):
        print_lines(console, [f"a run needed (median, p90, max): {text}"])


def _print_failures(console: Console, results: ExplorationResults) -> None:
    """Print the failures of coordlab itself: broken runs, lost seeds, seeds with two results."""
    lines = [
        f"in {counted(broken.runs, 'run')} ({_seeds(broken.seeds, results)}): {broken.reason}"
        for broken in results.broken[:_MAX_REASONS]
    ]
    # A lost seed ended its worker process twice. The seeds here are texts, because they are keys of
    # a JSON object.
    lines += [
        f"seed {results.lineages.get(seed, seed)} ended its worker twice: {why}"
        for seed, why in results.lost.items()
    ]
    lines += [
        f"seed {_seed(recheck.seed, results)} is not deterministic: digest {recheck.digest} by "
        f"{recheck.worker}, {recheck.digest_again} by {recheck.worker_again}; what differs: "
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
    """Print how many coverage marks the search reached, and those that it never reached.

    A coverage mark is a named rare situation that runs may reach.
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


def _print_guided(console: Console, results: ExplorationResults) -> None:
    """Print the rare marks and rare pairs of marks, each with the number of its runs.

    A pair is two marks that one run reached. It can be rare although each of its marks is often
    reached. A mutated plan is a changed copy of a plan that reached a rare mark or pair; the number
    of runs with mutated plans follows in brackets.
    """
    guided = results.guided
    if guided is None:
        return
    rare = (
        f"  rare: {rare_mark.mark}, {counted(rare_mark.runs, 'run')}"
        f"{_of_mutated(rare_mark.mutated_runs)}"
        for rare_mark in guided.rare_marks[:_MAX_RARE]
    )
    print_lines(console, rare)
    print_lines(
        console,
        [
            f"pairs of marks reached: {guided.pairs_reached:,}; {guided.rare_pairs_in_all:,} are "
            "rare though neither mark is"
        ],
    )
    pairs = (
        f"  rare: {' with '.join(pair.marks)}, {counted(pair.runs, 'run')}"
        f"{_of_mutated(pair.mutated_runs)}"
        for pair in guided.rare_pairs[:_MAX_RARE]
    )
    print_lines(console, pairs)
    if not guided.mutated_runs:
        return
    print_lines(console, _worth_of_mutation(guided))
    print_lines(
        console,
        (f"  reached by mutated plans alone: {mark}" for mark in guided.marks_by_mutation_alone),
    )


def _worth_of_mutation(guided: GuidedSearch) -> Iterator[str]:
    """Compare runs of mutated plans with runs of drawn plans: the rare and new marks in each run.

    Only plans that were drawn since the first mutated plan count.
    """
    # `max` prevents a division by 0 if no plan was drawn since then.
    mutated, drawn = guided.mutated_runs, max(1, guided.drawn_runs_since)
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


def _of_mutated(runs: int) -> str:
    """Return the number of runs with mutated plans in brackets; "" if there are none."""
    return f" ({runs:,} mutated)" if runs else ""


def _is_unfinished(manifest: ExplorationManifest, results: ExplorationResults) -> bool:
    """Return True if `--resume` would play more seeds; a search without a count has no end."""
    return manifest.count is None or results.seeds < manifest.count


def _seeds(seeds: tuple[int, ...], results: ExplorationResults) -> str:
    """Return seeds as `replay` takes them, the first _MAX_SEEDS of them."""
    shown = ", ".join(_seed(seed, results) for seed in seeds[:_MAX_SEEDS])
    more = len(seeds) - _MAX_SEEDS
    return shown + (f" and {more:,} more" if more > 0 else "")


def _seed(seed: int, results: ExplorationResults) -> str:
    """Return a seed as `replay` takes it: a mutated seed comes after the seeds of its parents."""
    return results.lineages.get(str(seed), str(seed))
