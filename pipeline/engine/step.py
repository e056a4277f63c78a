"""The step, a unit of an analysis: it computes one DataFrame from others, its inputs.

A step also declares how its result is stored. `table_graph` runs the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

StepResult = Literal["table", "shared", "view", "rows"]
"""How the result of a step is stored:
- `table`: written into the directory of every run;
- `shared`: kept while the analysis lasts, because several steps read it;
- `view`: not kept, because it costs less if each reader filters the input again;
- `rows`: a few aggregates, collected by the driver (the Python process of the analysis).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an analysis.

    `inputs` names the steps or sources whose DataFrames `transform` takes, in the order of its
    parameters. `filtered_by` is the column by which most readers of a shared result filter its
    rows; None if most readers need all rows.
    """

    name: str
    transform: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    result: StepResult
    filtered_by: str | None = None


def table(transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step that computes a table; the table is named like the transform function."""
    return Step(name=transform.__name__, transform=transform, inputs=inputs, result="table")


def shared(
    name: str,
    transform: Callable[..., DataFrame],
    *inputs: str,
    filtered_by: str | None = None,
) -> Step:
    """Return the step that computes a DataFrame which several tables read."""
    return Step(
        name=name, transform=transform, inputs=inputs, result="shared", filtered_by=filtered_by
    )


def view(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step that filters or projects its input."""
    return Step(name=name, transform=transform, inputs=inputs, result="view")


def rows(name: str, transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the step that computes aggregates for the driver (the Python process of the analysis).

    The result must have few rows, even for large runs, because the driver collects them.
    """
    return Step(name=name, transform=transform, inputs=inputs, result="rows")
