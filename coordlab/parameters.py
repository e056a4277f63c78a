"""Types of values on the command line: durations, times, words, seeds, a time scale.

click (the library for command lines) calls `convert` with the text from the command line, or else
with the option's default, which can have the final type already. `fail` raises click's error, which
names the option and ends the command. click shows a type's `name` in the help text.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

import click

from chaos.experiment.problems import near_miss, one_of
from chaos.experiment.structs import microseconds

MAX_TIME_SCALE = 100
"""Limit of the speed of the run's clock. At a larger scale, Kafka's shortest timeouts would be over
in less real time than the operating system may delay a process."""

MAX_SEEDS = 10_000
"""Limit of the seeds of one `run`, because it keeps the trace (all recorded events) of each seed.
`explore` keeps none, and plays more seeds."""

_SEEDS = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
"""A seed, or `first..last`. A number of 18 digits fits into 64 bits."""
_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?s")
"""Seconds with up to six decimals. The output of commands has both forms: `12.5s` and `12.5 s`."""


class DurationParam(click.ParamType[int]):
    """A length of time as people write it (`90s`, `5m`); its value is in microseconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the microseconds of `value`."""
        if isinstance(value, int):
            return value
        try:
            return microseconds(str(value))
        except ValueError:
            self.fail(f"expected a duration such as `90s` or `5m`, got `{value}`", param, ctx)


class RunTimeParam(click.ParamType[int]):
    """A time of the run's clock as it is printed (`12.345678s`); its value is in microseconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the microseconds of `value`."""
        if isinstance(value, int):
            return value
        text = str(value)
        # A Decimal is exact, so a printed time gives the same microsecond again.
        if match := _SECONDS.fullmatch(text):
            return round(Decimal(match[1]) * 1_000_000)
        try:
            return microseconds(text)
        except ValueError:
            self.fail(
                f"expected a time of the run's clock such as `12.5s` or `12500ms`, got `{value}`",
                param,
                ctx,
            )


class OneOf(click.ParamType[str]):
    """One of a few words. The error for another word suggests the most similar one."""

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return `value` if it is one of the words."""
        word = str(value)
        if word in self.words:
            return word
        self.fail(_expected(self.words, word), param, ctx)


class SomeOf(click.ParamType[tuple[str, ...]]):
    """Some of a few words, separated by commas, in any letter case: `Stable,Empty`."""

    name = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = {word.lower(): word for word in words}
        """By the word in lower case: the word as the command's author wrote it."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the words of `value`, in the letter case of the allowed words."""
        if isinstance(value, tuple):
            return value
        return tuple(self._word(word.strip()) for word in str(value).split(","))

    def _word(self, given: str) -> str:
        """Return the allowed word that equals `given`, apart from the letter case."""
        word = self._words.get(given.lower())
        if word is None:
            self.fail(_expected(tuple(self._words.values()), given))
        return word


def _expected(words: Sequence[str], given: str) -> str:
    """Return the error message for a word that is not allowed."""
    near = near_miss(given, words)
    hint = "" if near is None else f"; did you mean `{near}`?"
    return f"expected {one_of(words)}, got `{given}`{hint}"


class Seeds(click.ParamType[tuple[int, ...]]):
    """Several seeds (`1..20`, `1,5,9`, `1..5,9`), each once, in the order of the command line."""

    name = "seeds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the seeds of `value`."""
        if isinstance(value, tuple):
            return value
        seeds: dict[int, None] = {}  # used as an ordered set: only the keys matter
        for part in str(value).split(","):
            match = _SEEDS.fullmatch(part.strip())
            if match is None:
                self.fail(
                    f"expected seeds such as `1..20`, `1,5,9` or `1..5,9`, got `{value}`",
                    param,
                    ctx,
                )
            # A part without `..` is one seed: both its first and its last.
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(
                    f"expected the smaller seed first, such as `{last}..{first}`, got `{part}`",
                    param,
                    ctx,
                )
            # The check comes before the dict of the range is built, because the dict could be huge.
            # So a seed of the range that is in `seeds` already counts twice here.
            if len(seeds) + last - first + 1 > MAX_SEEDS:
                self.fail(
                    f"expected at most {MAX_SEEDS:,} seeds, got more in `{value}`", param, ctx
                )
            seeds |= dict.fromkeys(range(first, last + 1))
        return tuple(seeds)


class TimeScale(click.ParamType[float]):
    """Speed of the run's clock. At 2, this clock counts two seconds in each real second."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, if it is between 1 and `MAX_TIME_SCALE`."""
        try:
            scale = float(str(value))
        except ValueError:
            scale = 0.0  # below the limit, so it is refused below with the same message
        if 1.0 <= scale <= MAX_TIME_SCALE:
            return scale
        self.fail(f"expected a number from 1 to {MAX_TIME_SCALE}, got `{value}`", param, ctx)
