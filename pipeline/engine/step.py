"""One step from DataFrames to a DataFrame, and what becomes of the result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

StepResult = Literal["table", "shared", "view", "rows"]
"""`table`: written for every run. `shared`: no table, but several steps read it. `view`: a filter,
which costs its readers less than keeping it. `rows`: a few aggregates that the driver wants.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A DataFrame that is computed from others.

    Shape: `transform` takes the DataFrames named by `inputs`, by position. `filtered_by`: the
    column by whose values most readers of a shared result pick a few of its rows; None: none.
    """

    name: str
    transform: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    result: StepResult
    filtered_by: str | None = None


def table(transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step to a table that is called as its transform."""
    return Step(name=transform.__name__, transform=transform, inputs=inputs, result="table")


def shared(
    name: str,
    transform: Callable[..., DataFrame],
    *inputs: str,
    filtered_by: str | None = None,
) -> Step:
    """Return the step to what several tables are made of."""
    return Step(
        name=name, transform=transform, inputs=inputs, result="shared", filtered_by=filtered_by
    )


def view(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step to a filter or projection of its input."""
    return Step(name=name, transform=transform, inputs=inputs, result="view")


def rows(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step to aggregates for the driver: a few rows, whatever the size of the runs."""
    return Step(name=name, transform=transform, inputs=inputs, result="rows")
