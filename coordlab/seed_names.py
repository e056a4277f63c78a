"""Names of the run directories of `run --seeds`, such as `2026-01-31T12-00-00.000Z-seed-07`.

All seeds of one command are a batch. The name of a batch is the time at which the command began.
The names of the seeds' directories begin with the name of the batch. At the end of this module are
functions for texts that name several seeds, such as `seeds 1..5,9`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

_SEPARATOR = "-seed-"


def seed_run_name(batch: str, seed: int, digits: int) -> str:
    """Return the name of a seed's directory.

    The seed is padded with zeros to `digits` digits. So sorted names are in the order of the seeds:
    -seed-07 comes before -seed-10.
    """
    return f"{batch}{_SEPARATOR}{seed:0{digits}}"


def seeds_pattern(batch: str) -> str:
    """Return a shell pattern for all directories of a batch."""
    return f"{batch}{_SEPARATOR}*"


def batch_of_seeds(name: str) -> str | None:
    """Return the batch to which a directory with this name belongs; None if there is no batch.

    `2026-01-31T12-00-00.000Z-seed-07` belongs to the batch `2026-01-31T12-00-00.000Z`.
    """
    batch, separator, seed = name.rpartition(_SEPARATOR)
    is_of_a_seed = bool(separator) and seed.isdecimal()
    return batch if is_of_a_seed else None


def seed_directories(batch: Path) -> list[Path]:
    """Return the directories of all seeds of a batch, sorted.

    `batch`: the common beginning of their paths, such as `runs/fencing/2026-01-31T12-00-00.000Z`.
    """
    if not batch.parent.is_dir():
        return []
    siblings = (path for path in batch.parent.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path for path in siblings if batch_of_seeds(path.name) == batch.name)


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds for a sentence: `seed 7` for [7], `seeds 1..3,9` for [3, 1, 2, 9]."""
    return seeds_words(seed_ranges(seeds))


def seeds_words(ranges: str) -> str:
    """Return the word `seed` or `seeds`, and then `ranges`, a result of `seed_ranges`."""
    is_single_seed = ranges.isdecimal()  # several seeds have dots or commas, too
    return f"seed {ranges}" if is_single_seed else f"seeds {ranges}"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds in the form of the option `--seeds`: `1..3,9` for [3, 1, 2, 9]."""
    ranges: list[list[int]] = []  # [[1, 2, 3], [9]] in the example
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1].append(seed)
        else:
            ranges.append([seed])
    return ",".join(_range_text(numbers) for numbers in ranges)


def _range_text(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first}..{last}"
