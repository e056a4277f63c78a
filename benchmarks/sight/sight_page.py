"""Writes docs/SIGHT.md, which says how many mutants the search finds, and lists them.

A mutant is a small change of the code. The search was measured with several versions of the code,
and there is a record for each version. For each mutant, a record says how far the search came with
it (its fate): its place was not reached, or it was reached and nothing changed, or it was found.

The page also says which mutants the unit tests kill (`killed`), and why some mutants are not found
(sentences.toml, written by hand).
"""

import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.sight.player import CPU_FACTOR, CPU_SECONDS_MIN, STOPS_MAX
from benchmarks.sight.records import Fate, Sight, SightRecord, read_records
from benchmarks.sight.sampled import (
    ROOT,
    SampledMutant,
    SampleHead,
    counts_by_package,
    read_sample,
    sample_path,
)
from benchmarks.sight.sitting import SEEDS
from benchmarks.sight.unit_tests import Killed, killed_path, read_killed

SIGHT_PAGE = ROOT / "docs" / "SIGHT.md"
SENTENCES = Path(__file__).with_name("sentences.toml")
FOUND_GOAL = 0.8
"""Goal: the least share of found mutants, among those that unit tests kill and 500 seeds reach."""
UNREACHED_GOAL = 0.1
"""Goal: the largest share of mutants that no seed reaches."""
CPU_GOAL_S = 10.0
"""Goal: the largest median of the CPU time to the first finding."""
HEAD = f"""# Sight: small changes of the code that the search would report

Written by `make soak PART=sight` and `python -m benchmarks.sight page` from the records in
`benchmarks/sight/records`; do not edit. A sample of small changes (mutants) of five packages is
drawn by a seed and stored in `benchmarks/sight/samples`. Each seed of the space `standard` is
played once with sound code, and once more with each mutant whose place this run reached and that is
not found yet. (A record begun after commit be435b555eba takes every tenth seed from `zookeeper`.) A
mutant is

* **reached**, if a sound run evaluates its place;
* **different**, if the trace of a run with it has another digest;
* **found**, if a run with it has a finding of a checker that has none in the sound run of the same
  seed, or is BROKEN (`the lab`). A different trace alone is no finding, because a user has no sound
  run to compare with.

Places that are evaluated at import (constants, defaults) count as reached by every seed. CPU is
the time that a user spends on all seeds up to the first finding. A run over {CPU_SECONDS_MIN} s of
CPU (or {CPU_FACTOR} times that of its sound run) is stopped, and finds nothing; after {STOPS_MAX}
stops its mutant is not played again. Mutants whose place no longer exists, and mutants that are
equivalent to sound code, stay in every denominator.

A mutant changes one small expression or statement; the bugs of
[PLANTED_BUGS.md](PLANTED_BUGS.md) are larger. `python -m benchmarks.sight --help` lists the
commands that draw and play a sample.
"""
_LISTS = (
    (Sight.UNREACHED, "Reached by no seed"),
    (Sight.DIFFERS, "Different, and no checker reports it"),
    (Sight.SAME, "Reached, and every trace is the same"),
    (Sight.STOPPED, "Runs exceed their bound"),
    (Sight.NOT_SWITCHABLE, "Not possible with a switch"),
    (Sight.GONE, "Place no longer in the code"),
)
"""Lists of mutants that were not found, each with its title."""
_NOT_REACHED = frozenset({Sight.UNREACHED, Sight.NOT_SWITCHABLE, Sight.GONE})
"""The results of mutants whose place no seed has evaluated."""


class Sentence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reason why a mutant is not found, written by hand."""

    id: str
    sentence: str
    equivalent: bool = False
    """True if the mutant changes no behaviour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Counts of the mutants of a record, or of one package of it."""

    mutants: int
    reached: int
    differs: int
    found: int
    equivalent: int
    killed_reached: int | None
    """The number of mutants that unit tests kill and that seeds reach. None until the unit tests
    have been run with each mutant."""
    killed_found: int | None
    """The number of mutants in `killed_reached` that the search finds."""
    cpu_s: float | None
    """The median CPU time to the first finding; None if nothing is found."""


def read_sentences(path: Path = SENTENCES) -> dict[str, Sentence]:
    """Return the sentences by the ids of their mutants."""
    with path.open("rb") as file:
        sentences = msgspec.convert(tomllib.load(file).get("mutant", []), tuple[Sentence, ...])
    return {sentence.id: sentence for sentence in sentences}


def score_of(fates: Sequence[Fate], killed: Killed, sentences: Mapping[str, Sentence]) -> Score:
    """Return the counts of these mutants."""
    reached = [fate for fate in fates if fate.sight not in _NOT_REACHED]
    found = [fate for fate in fates if fate.sight is Sight.FOUND]
    # A mutant whose place is gone cannot be tried. It counts neither as reached nor as found.
    all_tried = all(fate.id in killed or fate.sight is Sight.GONE for fate in fates)
    times = [fate.cpu_s for fate in found if fate.cpu_s is not None]
    return Score(
        mutants=len(fates),
        reached=len(reached),
        differs=sum(fate.differs > 0 for fate in fates),
        found=len(found),
        equivalent=sum(fate.id in sentences and sentences[fate.id].equivalent for fate in fates),
        killed_reached=sum(killed[fate.id] for fate in reached) if all_tried else None,
        killed_found=sum(killed[fate.id] for fate in found) if all_tried else None,
        cpu_s=statistics.median(times) if times else None,
    )


def sight_page() -> str:
    """Return the page of all records."""
    samples = {
        record.head.sample: read_sample(sample_path(record.head.sample))
        for record in read_records()
    }
    killed = {number: read_killed(killed_path(number)) for number in samples}
    return page_of(read_records(), samples, killed, read_sentences())


def page_of(
    records: Sequence[SightRecord],
    samples: Mapping[int, tuple[SampleHead, Sequence[SampledMutant]]],
    killed: Mapping[int, Killed],
    sentences: Mapping[str, Sentence],
) -> str:
    """Return the page: for each sample its records and scores, and the last record's lists."""
    lines = [HEAD]
    for number, (head, mutants) in sorted(samples.items()):
        of_sample = [record for record in records if record.head.sample == number]
        lines += [
            f"## Sample {number}",
            "",
            f"{len(mutants)} mutants, {head.per_package} of each package, drawn by seed "
            f"{head.seed} at commit {head.commit}.",
            "",
            *(_record_line(record) for record in of_sample),
            "",
            *_scores(of_sample, mutants, killed[number], sentences),
            "",
            *_lists(of_sample, mutants, killed[number], sentences),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _record_line(record: SightRecord) -> str:
    """Return a record's name, commit, seeds and CPU time as an item of a list."""
    head = record.head
    not_pass = ", ".join(map(str, head.sound_not_pass))
    unfinished = "" if head.seeds >= SEEDS else f", **unfinished** of {SEEDS}"
    sound_runs = "Every sound run passed."
    if not_pass:
        sound_runs = f"Sound runs that were no PASS: seeds {not_pass}."
    return (
        f"* **{head.name}**: commit {head.commit}, {head.seeds} seeds{unfinished}, "
        f"{head.cpu_s / 3_600:.1f} h of CPU; {head.machine}. {sound_runs}"
    )


def _scores(
    records: Sequence[SightRecord],
    mutants: Sequence[SampledMutant],
    killed: Killed,
    sentences: Mapping[str, Sentence],
) -> list[str]:
    """Return the table of scores: a row for each package, and one for each record in it."""
    lines = [
        "| package | record | mutants | reached | different | found | found of reached "
        "| killed by unit tests and reached: found | equivalent | median CPU to the finding |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    packages = {mutant.id: mutant.package for mutant in mutants}
    for package in (*counts_by_package(mutants), ""):  # "" stands for all packages
        for record in records:
            fates = [fate for fate in record.fates if package in {"", packages[fate.id]}]
            score = score_of(fates, killed, sentences)
            lines.append(
                f"| {package or '**all**'} | {record.head.name} | {score.mutants} "
                f"| {score.reached}, {_percent_cell(score.reached, score.mutants)} "
                f"| {score.differs} | {score.found} "
                f"| {_percent_cell(score.found, score.reached)} "
                f"| {_killed_text(score)} | {score.equivalent} "
                f"| {_seconds_cell(score.cpu_s)} |"
            )
    return lines


def _killed_text(score: Score) -> str:
    """Return a cell about the mutants that unit tests kill and that seeds reach.

    An example is `31 of 40, 78 %`.
    """
    if score.killed_reached is None or score.killed_found is None:
        return "not run"
    percent = _percent_cell(score.killed_found, score.killed_reached)
    return f"{score.killed_found} of {score.killed_reached}, {percent}"


def _seconds_cell(cpu_s: float | None) -> str:
    """Return a CPU time as a cell: `0.52 s`, `13.1 s`, or `-` for None."""
    if cpu_s is None:
        return "-"
    return f"{cpu_s:.2f} s" if cpu_s < 1 else f"{cpu_s:.1f} s"


def _percent_cell(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _lists(
    records: Sequence[SightRecord],
    mutants: Sequence[SampledMutant],
    killed: Killed,
    sentences: Mapping[str, Sentence],
) -> list[str]:
    """Return the lists of the mutants of the last record, with their results in earlier records."""
    if not records:
        return []
    *earlier, last = records
    by_id = {mutant.id: mutant for mutant in mutants}
    earlier_headings = _earlier_headings(earlier)
    earlier_dashes = "---|" * len(earlier)
    lines = []
    for sight, title in _LISTS:
        fates = [fate for fate in last.fates if fate.sight is sight]
        if not fates:
            continue
        lines += [
            f"### {title} ({len(fates)})",
            "",
            f"| mutant | place | change | result | unit tests |{earlier_headings} why not found |",
            f"|---|---|---|---|---|{earlier_dashes}---|",
        ]
        for fate in fates:
            mutant = by_id[fate.id]
            lines.append(
                f"| {fate.id} | {mutant.place} | {_change_cell(mutant)} | {_result_cell(fate)} "
                f"| {_unit_tests_cell(fate.id, killed)} |{_earlier_cells(fate.id, earlier)} "
                f"{_reason_cell(fate.id, sentences)} |"
            )
        lines.append("")

    found = [fate for fate in last.fates if fate.sight is Sight.FOUND]
    lines += [
        f"### Found ({len(found)})",
        "",
        "| mutant | place | change | found by | seed | CPU | unit tests "
        f"|{earlier_headings} finding |",
        f"|---|---|---|---|---|---|---|{earlier_dashes}---|",
    ]
    for fate in found:
        mutant = by_id[fate.id]
        lines.append(
            f"| {fate.id} | {mutant.place} | {_change_cell(mutant)} "
            f"| {', '.join(fate.found_by)} | {fate.found_seed} | {_seconds_cell(fate.cpu_s)} "
            f"| {_unit_tests_cell(fate.id, killed)} |{_earlier_cells(fate.id, earlier)} "
            f"{_cell(fate.what, 120)} |"
        )
    return [*lines, ""]


def _earlier_headings(earlier: Sequence[SightRecord]) -> str:
    """Return the headings of the columns that `_earlier_cells` fills."""
    return "".join(f" {record.head.name} |" for record in earlier)


def _earlier_cells(mutant_id: str, earlier: Sequence[SightRecord]) -> str:
    """Return a mutant's results in the earlier records, a cell for each."""
    cells = []
    for record in earlier:
        fate = next((fate for fate in record.fates if fate.id == mutant_id), None)
        if fate is None:
            cells.append(" - |")
        elif fate.sight is Sight.FOUND:
            cells.append(f" seed {fate.found_seed}, {_seconds_cell(fate.cpu_s)} |")
        else:
            cells.append(f" {fate.sight} |")
    return "".join(cells)


def _result_cell(fate: Fate) -> str:
    """Return the result of a mutant that was not found: `reached 41 seeds; stopped 2`."""
    if fate.sight in {Sight.GONE, Sight.UNREACHED}:
        return "-"
    if fate.sight is Sight.NOT_SWITCHABLE:
        return _cell(fate.what, 80)
    reached = "at import" if fate.at_import else f"{fate.reached} seeds"
    parts = [f"reached {reached}"]
    if fate.differs:
        parts.append(f"different {fate.differs}, first seed {fate.first_differs}")
    if fate.unknown:
        parts.append(f"UNKNOWN {fate.unknown}")
    if fate.stopped_seeds:
        parts.append(f"stopped {len(fate.stopped_seeds)}")
    return "; ".join(parts)


def _unit_tests_cell(mutant_id: str, killed: Killed) -> str:
    """Return whether a unit test fails with a mutant, as a cell."""
    if mutant_id not in killed:
        return "not run"
    return "killed" if killed[mutant_id] else "lives"


def _reason_cell(mutant_id: str, sentences: Mapping[str, Sentence]) -> str:
    """Return the sentence about a mutant, as a cell; "" if it has none."""
    sentence = sentences.get(mutant_id)
    if sentence is None:
        return ""
    reason = _cell(sentence.sentence, 400)
    return f"Equivalent: {reason}" if sentence.equivalent else reason


def _change_cell(mutant: SampledMutant) -> str:
    """Return the change of a mutant as a cell: the code before and after."""

    def code(text: str) -> str:
        # A backtick inside would end the code, so an apostrophe replaces it.
        without_backticks = _cell(text, 90).replace("`", "'")
        return f"`{without_backticks}`"

    return f"{code(mutant.segment)} -> {code(mutant.mutation)}"


def _cell(text: str, width: int) -> str:
    """Return a text as a cell of a table, cut to `width` characters."""
    short = text if len(text) <= width else f"{text[: width - 3]}..."
    return short.replace("|", "\\|").replace("\n", " ")
