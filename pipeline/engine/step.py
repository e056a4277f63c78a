"""A step of an analysis: a function that computes one DataFrame from others.

`all_tables` lists the steps. For example, the step `coordinator_tenures` computes the table of this
name from the events and two other DataFrames. A step also tells how its result is kept.
`table_graph` runs the steps in the order of their inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

StepResult = Literal["table", "shared", "view", "rows"]
"""How the result of a step is kept:
- `table`: it is written into the directory of every run;
- `shared`: it is kept while the analysis lasts, because several steps read it;
- `view`: it is not kept: each reader computes it again, because that costs less than keeping it;
- `rows`: its few rows are collected by the driver (the Python process of the analysis).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an analysis.

    - `transform`: the function that computes the result.
    - `inputs`: the names of the steps or sources whose DataFrames `transform` gets, in the order of
      its parameters.
    - `filtered_by`: the column by which most readers of a shared result filter its rows; None if
      most readers need all rows.
    """

    name: str
    transform: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    result: StepResult
    filtered_by: str | None = None


def table(transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return a step that computes a table. The table is named like the function `transform`."""
    return Step(name=transform.__name__, transform=transform, inputs=inputs, result="table")


def shared(
    name: str,
    transform: Callable[..., DataFrame],
    *inputs: str,
    filtered_by: str | None = None,
) -> Step:
    """Return a step whose result several tables read."""
    return Step(
        name=name, transform=transform, inputs=inputs, result="shared", filtered_by=filtered_by
    )


def view(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return a step that only picks rows or columns of its input."""
    return Step(name=name, transform=transform, inputs=inputs, result="view")


def rows(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return a step whose rows the driver (the Python process of the analysis) collects.

    There must be few rows, even for large runs, because they must fit into the driver's memory.
    """
    return Step(name=name, transform=transform, inputs=inputs, result="rows")
