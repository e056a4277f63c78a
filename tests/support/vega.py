"""Compile the charts of the report, and read their data, for tests of single charts.

The charts are written with Altair, which describes them in the language Vega-Lite. Each chart is
then compiled to the language Vega. The page has a program that draws charts in this language.
"""

import warnings
from typing import Any

from pipeline.report.charts.chart import FROM_S, TO_S, Chart
from pipeline.report.charts.chart_specs import compiled

Datum = dict[str, Any]
"""One row of a chart's data: field -> value."""


def compiled_without_warnings(chart: Chart) -> dict[str, Any]:
    """Compile a chart to Vega, and check what must hold for every chart on the time line.

    Altair and Vega-Lite must accept the chart without a warning. The chart must contain all data
    that it names. And it must use the time axis of the page, so that all charts show the same time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vega = compiled(chart)
    # Vega-Lite itself adds data sets, whose names begin with `data_` or `source_`.
    added_by_vega_lite = ("data_", "source_")
    names = {data["name"] for data in vega["data"]}
    missing = {
        name for name in names if name not in chart.data and not name.startswith(added_by_vega_lite)
    }
    if missing:
        raise AssertionError(f"{chart.id} names data that it does not hold: {sorted(missing)}")
    signals = {signal["name"] for signal in vega["signals"]}
    expected = {FROM_S, TO_S, *(pick.param for pick in chart.picks)}
    if not expected <= signals:
        raise AssertionError(f"{chart.id} lacks the parameters {sorted(expected - signals)}")
    scale = next(scale for scale in vega["scales"] if scale["name"] == "x")
    if scale["domain"] != [{"signal": FROM_S}, {"signal": TO_S}]:
        raise AssertionError(f"{chart.id} takes its time axis from {scale['domain']}")
    return vega


def rows(chart: Chart, name: str) -> list[Datum]:
    """Return the rows of a chart's data set in the order of time.

    The field `a` of a row is the time at which its bar or point begins. Rows without this field
    come first.
    """
    return sorted((dict(datum) for datum in chart.data[name]), key=lambda row: row.get("a") or 0)


def cells(chart: Chart, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """Return the values of some fields of a chart's data set, row by row in the order of time."""
    return [tuple(row[field] for field in fields) for row in rows(chart, name)]
