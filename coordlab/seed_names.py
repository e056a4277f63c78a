"""Names of the run directories of one `run --seeds`, such as `2026-01-31T12-00-00.000Z-seed-07`.

Such a name has two parts: the group (not a consumer group), which is the same for all seeds of the
command, and the seed. The module also has the texts that name several seeds.
"""

from collections.abc import Iterable
from pathlib import Path

_SEED = "-seed-"


def seed_run_name(group: str, seed: int, digits: int) -> str:
    """Return the name of a seed's directory.

    The seed is padded to `digits` digits, so that sorted names are in the order of the seeds.
    """
    return f"{group}{_SEED}{seed:0{digits}}"


def seeds_pattern(group: str) -> str:
    """Return a shell pattern for the directories of a group."""
    return f"{group}{_SEED}*"


def group_of_seeds(name: str) -> str | None:
    """Return the group at the beginning of a directory's name; None for another kind of name."""
    # `separator` is "" if the name does not contain _SEED.
    group, separator, seed = name.rpartition(_SEED)
    return group if separator and seed.isdecimal() else None


def seed_directories(group: Path) -> list[Path]:
    """Return the directories of all seeds of a group, sorted.

    `group`: the path of such a directory, without `-seed-N` at its end.
    """
    if not group.parent.is_dir():
        return []
    siblings = (path for path in group.parent.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path for path in siblings if group_of_seeds(path.name) == group.name)


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as text, sorted: `seed 7`, `seeds 1..5,9`."""
    return seeds_words(seed_ranges(seeds))


def seeds_words(ranges: str) -> str:
    """Return `ranges`, a result of `seed_ranges`, after the word `seed` or `seeds`."""
    # A single seed has only digits.
    return f"{'seed' if ranges.isdecimal() else 'seeds'} {ranges}"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds in the format of `--seeds`, sorted: `1..5,9`."""
    ranges: list[list[int]] = []  # each is a list of successive seeds
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1].append(seed)
        else:
            ranges.append([seed])
    return ",".join(f"{part[0]}..{part[-1]}" if len(part) > 1 else str(part[0]) for part in ranges)
