"""Names of the directories of one `run --seeds`: what they have in common, and the seed."""

from collections.abc import Iterable

_SEED = "-seed-"


def seed_run_name(group: str, seed: int, digits: int) -> str:
    """Return the name of a seed's directory; names sort as seeds of up to `digits` digits do."""
    return f"{group}{_SEED}{seed:0{digits}}"


def seeds_pattern(group: str) -> str:
    """Return a pattern, as a shell takes it, of the directories of a group."""
    return f"{group}{_SEED}*"


def group_of_seeds(name: str) -> str | None:
    """Return the group that a directory's name begins with; None: it is of no group."""
    group, found, seed = name.rpartition(_SEED)
    return group if found and seed.isdecimal() else None


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds in words, sorted: `seed 7`, `seeds 1..5,9`."""
    ranges = seed_ranges(seeds)
    return f"{'seed' if ranges.isdecimal() else 'seeds'} {ranges}"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds as `--seeds` takes them, sorted: `1..5,9`."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
