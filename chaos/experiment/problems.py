"""Problem: an error or warning about an experiment file, which becomes one line for the user.

For example: "crash.yaml:12: faults[0].target: unknown target `brokr`; expected one of `broker`,
...; did you mean `broker`?"
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

MAX_LISTED = 12
"""A message lists all known words if there are at most this many."""
NEAREST_LISTED = 5
"""If there are more known words, a message lists this number of words: the ones that are most
similar to the wrong word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error or warning about one place of a file.

    - `line`: counts from 1; None for a value of `--var` and for a file as a whole.
    - `path`: the place in the file, e.g. `faults[0].target`; empty for the file as a whole.
    - `near_miss`: the word that was probably meant.
    - `file`: empty until the loader has placed the problem.
    """

    file: str
    line: int | None
    path: str
    message: str
    expected: str | None = None
    found: str | None = None
    near_miss: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        text = f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.found is not None:
            text += f", got {self.found}" if self.expected is not None else f"; got {self.found}"
        if self.near_miss is not None:
            text += f"; did you mean `{self.near_miss}`?"
        return text


class ExperimentError(Exception):
    """An experiment cannot be run, and nothing was started; `problems` has all reasons."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems in order of lines; those without a line come last."""
    return sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0))


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant by `word`, or None if none is similar.

    A known word that differs only in separators or case is preferred: `session.timeout.ms` for
    `session_timeout_ms`.
    """
    names = list(known)
    # If two names have the same letters, the first name must be found. A dict keeps the last value
    # of a key, so the names are reversed.
    by_letters = {_letters(name): name for name in reversed(names)}
    if _letters(word) in by_letters:
        return by_letters[_letters(word)]
    close = get_close_matches(word, names, n=1, cutoff=0.6)  # 0.6 is difflib's default
    return close[0] if close else None


def _letters(word: str) -> str:
    return "".join(character for character in word.lower() if character.isalnum())


def one_of(known: Iterable[str], word: str | None = None) -> str:
    """Return "one of `a`, `b`", for the expected part of a problem.

    A long list, such as that of a broker's settings, is reduced to the words most similar to
    `word`.
    """
    names = list(known)
    if word is None or len(names) <= MAX_LISTED:
        shown = [f"`{name}`" for name in names]
        return shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)
    # Cutoff 0 lists the most similar words, even if none of them resembles `word` much.
    nearest = get_close_matches(word, names, n=NEAREST_LISTED, cutoff=0.0)
    return f"one of {len(names)} keys, nearest " + ", ".join(f"`{name}`" for name in nearest)
