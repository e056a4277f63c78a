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
"""Number of words that a message lists if there are more known words than MAX_LISTED.

The message lists the words that are most similar to the wrong word.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error or warning about one place of a file.

    - `file`: the name of the file, or `--var` if the problem is about a value of this option. It is
      empty until the loader has found the place of the problem in the file.
    - `line`: the line, counted from 1. It is None for a value of `--var`, and if the problem is
      about the file as a whole.
    - `path`: the place in the file, such as `faults[0].target`; empty for the file as a whole.
    - `expected`: words for the values that are allowed.
    - `found`: words for the value that the file has.
    - `near_miss`: the word that the user probably meant.
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
    """A file cannot be loaded, so nothing was started. `problems` has all reasons."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems in order of their lines. Problems without a line come last."""
    return sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0))


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant by `word`; None if no known word is similar.

    A known word is preferred if it differs from `word` only in separators or in upper and lower
    case. For example, `session.timeout.ms` is preferred for `session_timeout_ms`.
    """
    names = list(known)
    # If two known words have the same letters, the first of them must be found. A dict keeps the
    # last value of a key. So the words are reversed.
    by_letters = {_letters(name): name for name in reversed(names)}
    if _letters(word) in by_letters:
        return by_letters[_letters(word)]
    close = get_close_matches(word, names, n=1, cutoff=0.6)  # 0.6 is difflib's default
    return close[0] if close else None


def _letters(word: str) -> str:
    return "".join(character for character in word.lower() if character.isalnum())


def one_of(known: Iterable[str], word: str | None = None) -> str:
    """Return a text such as "one of `a`, `b`", for the field `expected` of a problem.

    With `word`, a long list, such as the list of all settings of a broker, is reduced to the known
    words that are most similar to `word`.
    """
    names = list(known)
    if word is None or len(names) <= MAX_LISTED:
        shown = [f"`{name}`" for name in names]
        return shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)
    # Cutoff 0 lists the most similar words, even if none of them resembles `word` much.
    nearest = get_close_matches(word, names, n=NEAREST_LISTED, cutoff=0.0)
    return f"one of {len(names)} keys, nearest " + ", ".join(f"`{name}`" for name in nearest)
