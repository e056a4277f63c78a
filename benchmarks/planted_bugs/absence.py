"""Checks that the bugs of the space `operations` do not show in another space.

These bugs show only in rollouts, in which the members of a group are replaced, and only the space
`operations` has rollouts. This is checked with all of these bugs planted together:

1. For each bug, docs/PLANTED_BUGS.md (the record) names a seed of the space `operations` that shows
   it. This seed is played first, and must still show the bug. Otherwise step 2 would prove nothing,
   because the bug might be planted where no code runs.
2. Then the seeds of the other space are played in order. A seed that passes shows none of the bugs.
3. A seed that fails is also played without the bugs. It shows a bug only if it then passes.

The results of the seeds are kept in a file, so that an interrupted search continues. If the code or
the bugs have changed, it begins anew.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks.measurement import ROOT, commit
from benchmarks.planted_bugs.planted_bug import PlantedBug
from chaos.experiment.structs import Experiment
from chaos.exploration.draw.draw import draw
from chaos.exploration.gc_pause import collecting_afterwards
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.exploration.space import Space, load_space
from cluster.compiled import fingerprint

PROGRESS = ROOT / ".soak" / "planted_bugs_absent.json"
"""The default file of kept results; git ignores its folder."""
_ROW = re.compile(r"^\| (\w+) \| [^|]+ \| (\d+) \| ([^|]+) \|", re.MULTILINE)
"""A row of the record: name of the bug, number of seeds needed, names of the checks."""
_KEEP_EVERY = 10
"""Number of seeds after which the file is written again."""


class NotShown(Exception):
    """A bug was planted, but the seed that the record names does not show it."""


class ShownBy(msgspec.Struct, frozen=True, kw_only=True):
    """The seed that shows a bug in its own space, and the checks that find it."""

    seed: int
    checks: tuple[str, ...]


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """The results so far of the seeds of a space, which were played with all bugs planted."""

    space: str
    bugs: tuple[str, ...]
    code: str
    """The fingerprint of the code that played the seeds."""
    commit: str
    seeds: int = 0
    """The number of seeds that were played: the seeds from 0 on."""
    shown: tuple[int, ...] = ()
    """The seeds that show a bug: they fail only with the bugs."""
    fails_without_bugs: tuple[int, ...] = ()
    """The seeds that also fail without the bugs."""
    undecided: int = 0
    """The number of seeds without a verdict."""


def shown_in_record(page: str, bugs: Mapping[str, PlantedBug]) -> dict[str, ShownBy]:
    """Return the seed of each bug, by name, from the rows of docs/PLANTED_BUGS.md.

    Raises: NotShown if the page has no row of a bug.
    """
    rows = {
        # Seeds count from 0. If `needed` seeds were played, the last one shows the bug.
        name: ShownBy(seed=int(needed) - 1, checks=tuple(checks.split(", ")))
        for name, needed, checks in _ROW.findall(page)
    }
    missing = [name for name in bugs if name not in rows]
    if missing:
        raise NotShown(f"the record has no seed that shows {', '.join(missing)}: hunt them first")
    return {name: rows[name] for name in bugs}


def check_shown(bugs: Mapping[str, PlantedBug], shown_by: Mapping[str, ShownBy]) -> None:
    """Play the recorded seed of each bug with all bugs planted.

    Raises: NotShown if a seed fails none of the checks that found the bug according to the record.
    """
    for name, shown in shown_by.items():
        experiment = draw(load_space(bugs[name].space), shown.seed)
        played = _play_planted(bugs, experiment, shown.seed)
        found = {finding.signature.check for finding in played.findings}
        if not found & set(shown.checks):
            raise NotShown(
                f"seed {shown.seed} of {bugs[name].space} does not show {name}: expected a finding "
                f"of {', '.join(shown.checks)}, got {', '.join(sorted(found)) or 'none'}"
            )


def search_absent(
    bugs: Mapping[str, PlantedBug],
    space: Space,
    *,
    seeds: int,
    progress: Path,
    on_seed: Callable[[Absence], None] = lambda absence: None,
) -> Absence:
    """Play the first `seeds` seeds of a space with all bugs planted.

    The search continues after the seeds whose results are in the file `progress`. `on_seed` is
    called after each seed, with the results so far.
    """
    absence = _kept(progress, bugs, space)
    while absence.seeds < seeds:
        # Without this, Python's collection of reference cycles would take half of the time.
        with collecting_afterwards():
            absence = _with_next_seed(absence, bugs, space)
        if absence.seeds % _KEEP_EVERY == 0 or absence.seeds == seeds:
            _keep(progress, absence)
        on_seed(absence)
    return absence


def _kept(progress: Path, bugs: Mapping[str, PlantedBug], space: Space) -> Absence:
    """Return the results in the file; an Absence without seeds if code or bugs have changed."""
    anew = Absence(space=space.name, bugs=tuple(bugs), code=fingerprint(), commit=commit())
    if not progress.exists():
        return anew
    kept = msgspec.json.decode(progress.read_bytes(), type=Absence)
    is_valid = (kept.space, kept.bugs, kept.code) == (anew.space, anew.bugs, anew.code)
    return kept if is_valid else anew


def _keep(progress: Path, absence: Absence) -> None:
    """Replace the file in one step, so that an interruption never leaves half a file."""
    progress.parent.mkdir(parents=True, exist_ok=True)
    unfinished = progress.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(absence))
    unfinished.replace(progress)


def _with_next_seed(absence: Absence, bugs: Mapping[str, PlantedBug], space: Space) -> Absence:
    """Play one more seed; return the results with it."""
    seed = absence.seeds
    after = replace(absence, seeds=seed + 1)
    experiment = draw(space, seed)
    played = _play_planted(bugs, experiment, seed)
    if played.result is PlayResult.PASS:
        return after
    if played.result is not PlayResult.VIOLATED:
        return replace(after, undecided=absence.undecided + 1)
    if play(experiment, seed).result is PlayResult.PASS:
        return replace(after, shown=(*absence.shown, seed))
    return replace(after, fails_without_bugs=(*absence.fails_without_bugs, seed))


def _play_planted(bugs: Mapping[str, PlantedBug], experiment: Experiment, seed: int) -> PlayedRun:
    """Play a schedule with all bugs.

    The nodes do not check their own invariants, because only the checkers shall judge.
    """
    with ExitStack() as stack:
        for bug in bugs.values():
            stack.enter_context(bug.planted())
        return play(experiment, seed, invariants_every=None)
