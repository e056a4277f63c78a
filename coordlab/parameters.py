"""Types of options for click, such as DurationParam, which turns `90s` into 90,000,000.

Click calls the method `convert` of such a type with the text that the user has typed. Click also
calls it with the default of the option, which may already have the right type. The method `fail`
raises an error that names the option. This error ends the command.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

import click

from chaos.experiment.problems import near_miss, one_of
from chaos.experiment.structs import microseconds

MAX_TIME_SCALE = 100
"""The largest speed of a run's clock: 100 times as fast as a real clock.

At a higher speed, Kafka's shortest timeouts would be very short in real time. The operating system
may delay a process for longer than that.
"""

MAX_SEEDS = 10_000
"""The largest number of seeds that one `run` plays.

There is a limit because `run` keeps the traces of all its seeds. `explore` keeps no traces, and has
no such limit.
"""

_SEED_OR_RANGE = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
"""Matches `7` and `1..20`. Numbers have at most 18 digits, so that they fit into 64 bits."""
_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?s")
"""Matches `12.5s` and `12.5 s`. Commands print times in both ways, and users paste them."""


class DurationParam(click.ParamType[int]):
    """A length of time, such as `90s` or `5m`. It becomes a number of microseconds."""

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
    """A time of the run's clock, such as `12.345678s`. It becomes a number of microseconds.

    Commands print such times, and the user can paste them.
    """

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the microseconds of `value`."""
        if isinstance(value, int):
            return value
        text = str(value)
        # A Decimal is exact. So a printed time becomes the same microsecond again.
        match = _SECONDS.fullmatch(text)
        if match is not None:
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
    """One of a few words. The error about a mistyped word suggests the most similar word."""

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
        self.fail(_error_message(self.words, word), param, ctx)


class SomeOf(click.ParamType[tuple[str, ...]]):
    """Some of a few words, separated by commas, such as `Stable,Empty`. Case does not matter."""

    name = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = {word.lower(): word for word in words}
        """The word in lower case -> the word: `{"stable": "Stable"}`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the words of `value`: `("Stable", "Empty")` for `stable, EMPTY`."""
        if isinstance(value, tuple):
            return value
        return tuple(self._word(word.strip()) for word in str(value).split(","))

    def _word(self, given: str) -> str:
        """Return the word that the user means with `given`."""
        word = self._words.get(given.lower())
        if word is None:
            self.fail(_error_message(tuple(self._words.values()), given))
        return word


def _error_message(words: Sequence[str], given: str) -> str:
    """Return the error message for a word that is not allowed."""
    suggestion = near_miss(given, words)
    hint = "" if suggestion is None else f"; did you mean `{suggestion}`?"
    return f"expected {one_of(words)}, got `{given}`{hint}"


class Seeds(click.ParamType[tuple[int, ...]]):
    """Several seeds: `1..20`, `1,5,9` or `1..3,9`, which becomes (1, 2, 3, 9)."""

    name = "seeds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the seeds of `value`."""
        if isinstance(value, tuple):
            return value
        seeds: dict[int, None] = {}  # an ordered set, because a seed may be given twice
        for part in str(value).split(","):
            match = _SEED_OR_RANGE.fullmatch(part.strip())
            if match is None:
                self.fail(
                    f"expected seeds such as `1..20`, `1,5,9` or `1..5,9`, got `{value}`",
                    param,
                    ctx,
                )
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first:
                self.fail(
                    f"expected the smaller seed first, such as `{last}..{first}`, got `{part}`",
                    param,
                    ctx,
                )
            # Check the number before the seeds of the range are collected, because these could be
            # billions. (A seed that was given before is counted twice here.)
            count_of_range = last - first + 1
            if len(seeds) + count_of_range > MAX_SEEDS:
                self.fail(
                    f"expected at most {MAX_SEEDS:,} seeds, got more in `{value}`", param, ctx
                )
            seeds |= dict.fromkeys(range(first, last + 1))
        return tuple(seeds)


class TimeScale(click.ParamType[float]):
    """The speed of the run's clock. With 2 it goes twice as fast as a real clock."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, if it is between 1 and `MAX_TIME_SCALE`."""
        try:
            scale = float(str(value))
        except ValueError:
            scale = 0.0  # a number that is not allowed, so that the error below is raised
        if 1.0 <= scale <= MAX_TIME_SCALE:
            return scale
        self.fail(f"expected a number from 1 to {MAX_TIME_SCALE}, got `{value}`", param, ctx)
